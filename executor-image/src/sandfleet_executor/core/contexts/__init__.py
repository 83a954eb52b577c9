"""Contexts as values: an interpreter's frames, roll-backs, saved states and when to save."""
