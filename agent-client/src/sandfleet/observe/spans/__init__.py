"""Spans that were exported: received, kept in one file of this machine, and read back as trees."""
