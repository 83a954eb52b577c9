"""Paths, patterns, archives, changes and the disk limit, decided without touching a file."""
