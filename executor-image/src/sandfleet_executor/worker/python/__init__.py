"""Contexts of Python, and what their cells can do."""
