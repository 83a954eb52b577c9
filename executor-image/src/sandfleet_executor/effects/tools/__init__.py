"""The tools of the host, called by code in the session."""
