"""The session as a whole: the arguments of its namespace, and when its time is over."""
