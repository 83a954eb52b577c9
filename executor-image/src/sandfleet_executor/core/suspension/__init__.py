"""Suspended sessions: what is kept of one, and what callers are told."""
