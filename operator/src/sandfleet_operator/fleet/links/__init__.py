"""Connections of other processes of the control plane to the fleet."""
