"""Contexts: interpreters, their queue of cells, their copies and saved states."""
