"""Commands in the session: the caller's, and short helper programs of the executor."""
