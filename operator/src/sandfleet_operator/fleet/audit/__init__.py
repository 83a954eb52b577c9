"""Audit records of the fleet: what its calls and its scheduler decide."""
