"""Tools of MCP servers, for the code in a brokered sandbox."""
