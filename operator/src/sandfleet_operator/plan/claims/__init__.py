"""A claim as the cluster keeps it: its record on the pod, the patches that change it, and its CodeSandbox."""
