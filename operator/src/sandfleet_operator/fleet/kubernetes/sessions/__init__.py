"""Sessions on the API server: the patch that binds a pod to a claim, and the operating mode of its CodeSandbox."""
