"""Egress by name (pure): which hosts and addresses a session may reach, and what is told of its connections."""
