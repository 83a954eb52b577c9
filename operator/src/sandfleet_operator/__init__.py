"""Sandfleet's control plane: the fleet service, and the operator."""
