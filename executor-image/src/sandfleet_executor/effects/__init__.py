"""Processes, sockets, files and time: the edge."""
