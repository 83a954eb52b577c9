"""The session namespace: how it is started, and the processes in it."""
