"""Declared services: when executors are asked for them, and what the status says."""
