"""The hash-chained record of a session, on the disk."""
