"""Executions: the registry, each one's log and measurements, and the store on disk."""
