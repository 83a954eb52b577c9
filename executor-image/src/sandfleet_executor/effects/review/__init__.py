"""Reviewed execution: requests wait for their answers."""
