"""SandboxQueues: what they grant, whom they admit of the operator's sandboxes, and what their status says."""
