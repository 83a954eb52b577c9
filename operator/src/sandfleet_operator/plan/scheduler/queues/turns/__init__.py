"""Whose turn it is: start-time fair queueing, holders of one class, and classes of one queue. Pure."""
