"""A small MCP server for the show `tools`: the stock of a shop, over stdio."""

from mcp.server.mcpserver import MCPServer

STOCK = {"tea": 12, "cups": 3, "honey": 7}
server = MCPServer("Stock")


@server.tool()
def stock_of(article: str) -> int:
    """Count the pieces of an article that are in stock."""
    return STOCK.get(article, 0)


if __name__ == "__main__":
    server.run()
