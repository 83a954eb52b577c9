"""Decisions on values: no clock, no process, no file, no network (an import contract holds it)."""
