"""Snapshots: what is read of a session and written into one, as values, and what is refused."""
