"""A real MCP server for tests: `python mcp_tools.py` over stdio, `python mcp_tools.py PORT` over streamable HTTP."""

import asyncio
import contextlib
import os
import sys
from typing import Literal

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, Field

server = MCPServer("Shop")


class Order(BaseModel):
    id: int
    total: float


@server.tool()
def search_orders(
    customer: int = Field(description="The number of the customer."),
    state: Literal["open", "paid"] = "open",
    limit: int | None = None,
) -> list[Order]:
    """Find the orders of a customer."""
    return [Order(id=customer * 10 + number, total=number + 0.5) for number in range(limit or 2) if state == "open"]


@server.tool()
def newest(customer: int) -> Order:
    """The newest order of a customer."""
    return Order(id=customer, total=1.0)


@server.tool(name="say-hello", structured_output=False)
def say_hello(name: str) -> str:
    return f"hello {name}"


@server.tool(structured_output=False)
def picture() -> list[object]:
    return ["a picture:", Image(data=b"\x89PNG", format="png")]


@server.tool(structured_output=False)
def nothing() -> list[str]:
    return []


@server.tool()
def fail(why: str) -> str:
    raise ToolError(why)


@server.tool()
async def wait(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "waited"


@server.tool()
async def learn(name: str, context: Context, *, forget: bool = False) -> None:
    """Have one more tool from now on, or one less."""
    if forget:
        server.remove_tool(name)
    else:
        server.add_tool(lambda text: f"{name}: {text}", name=name, structured_output=False)
    await context.notify_tools_changed()
    # For clients of earlier versions of the protocol.
    with contextlib.suppress(Exception):
        await context.session.send_tool_list_changed()


@server.tool()
def pid() -> int:
    return os.getpid()


@server.tool()
def variable(name: str) -> str | None:
    return os.environ.get(name)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
