"""The session's network: tunnels to its ports, egress probes and port checks."""
