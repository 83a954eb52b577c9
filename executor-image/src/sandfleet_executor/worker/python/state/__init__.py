"""The variables of a Python context as a saved state."""
