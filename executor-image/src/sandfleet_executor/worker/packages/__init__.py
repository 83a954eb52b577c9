"""The session's packages: what is installed, and pip as the session has it."""
