"""Executions as values: their events, outcomes, output limits, records and usage."""
