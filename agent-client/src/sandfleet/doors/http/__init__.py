"""The HTTP server of one machine: previews of what sandboxes serve, each at an origin of its own."""
