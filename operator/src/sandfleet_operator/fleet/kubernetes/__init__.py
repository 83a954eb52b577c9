"""The fleet on Kubernetes."""
