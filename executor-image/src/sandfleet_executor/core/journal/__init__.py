"""The hash-chained record of a session: its format, as values."""
