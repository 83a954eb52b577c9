"""The journal of a session as a file: its records, their chain, what proves them, and how they read. Pure."""
