"""Reviewed execution: what waits for approval, and which answers count."""
