"""The MCP server whose tools work in a sandbox."""
