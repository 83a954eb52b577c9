"""Calls of the host's tools by code in the sandbox."""
