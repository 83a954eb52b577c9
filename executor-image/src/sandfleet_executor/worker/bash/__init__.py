"""Contexts of bash."""
