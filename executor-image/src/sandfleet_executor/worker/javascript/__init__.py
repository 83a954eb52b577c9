"""Contexts of JavaScript."""
