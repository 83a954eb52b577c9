"""Adapters for agent frameworks, a module and an extra each. Importing one needs its framework."""
