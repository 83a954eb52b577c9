"""Ways to a sandbox for programs that are not written against the client: MCP and HTTP."""
