"""Reviews of sandboxes on Kubernetes: which they are, who may answer, and what their objects show."""
