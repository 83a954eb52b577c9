"""A real Kubernetes with gVisor on one machine: a node's processes run in namespaces and end without a trace."""
