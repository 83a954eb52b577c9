"""A real Kubernetes with gVisor on one machine: every process of a node in namespaces of its own, so that it ends without a trace."""
