"""`mcp_server`: the tools of an MCP server as tools of the host."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from sandfleet.errors import InvalidArgument, UnavailableError
from sandfleet.tools.declared import MAX_TOOLS, ToolOptions, tool
from sandfleet.tools.mcp import results, schemas
from sandfleet.tools.mcp.connection import Address, Connection, require_mcp
from sandfleet.values.tools import OnTools, Tool, ToolSource

if TYPE_CHECKING:
    from mcp.types import Tool as Described

# Between two looks at the tools of a server that says that they have changed, in seconds.
_BETWEEN_LOOKS = 0.1
_log = logging.getLogger("sandfleet")


@dataclass(frozen=True, slots=True)
class McpServer(ToolSource):
    """An MCP server whose tools code in a brokered sandbox may call. `sandfleet.mcp_server` makes one."""

    address: Address
    only: frozenset[str] | None
    prefix: str
    options: ToolOptions

    async def open(self, changed: OnTools) -> tuple[list[Tool], Callable[[], Awaitable[None]]]:
        """Start it. Raises UnavailableError, InvalidArgument, and PreconditionFailed without the package mcp."""
        require_mcp()
        connection = Connection(self.address)
        try:
            described = await connection.described()
            self._check(described)
            tools = self._tools(connection, described)
        except BaseException:  # Also a cancellation: no other code has the connection.
            await connection.close()
            raise
        following = asyncio.ensure_future(self._follow(connection, described, changed))

        async def close() -> None:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await connection.close()

        return tools, close

    async def _follow(self, connection: Connection, described: list[Described], changed: OnTools) -> None:
        """Offer what the server has, when it says that it has other tools. What cannot be offered changes nothing."""
        while True:
            await connection.changed.wait()
            # A server that says it without end costs a look at a time.
            await asyncio.sleep(_BETWEEN_LOOKS)
            connection.changed.clear()
            try:
                found = await connection.described()
                if found != described:
                    changed(self._tools(connection, found))
                    described = found
            except (UnavailableError, InvalidArgument) as error:
                _log.warning("changed tools of %s are not offered: %s", self.address, error.message)

    def _check(self, described: list[Described]) -> None:
        """Raises InvalidArgument where a tool that is to be offered is missing. Later it may come and go."""
        if missing := sorted((self.only or set()) - {each.name for each in described}):
            raise InvalidArgument(f"cannot offer {', '.join(missing)}: {self.address} has no such tool")

    def _tools(self, connection: Connection, described: list[Described]) -> list[Tool]:
        """Raises InvalidArgument."""
        chosen = [each for each in described if self.only is None or each.name in self.only]
        if len(chosen) > MAX_TOOLS:
            raise InvalidArgument(f"cannot offer {len(chosen)} tools of {self.address}: the most is {MAX_TOOLS}")
        return [tool(self._tool(connection, each), **self.options) for each in chosen]

    def _tool(self, connection: Connection, described: Described) -> Tool:
        name, schema, output = described.name, described.input_schema, described.output_schema
        shown = self.prefix + schemas.python_name(name)
        wrapped = results.is_wrapped(output)
        inner = output["properties"]["result"] if output and wrapped else output
        try:
            bind = schemas.binding(schema)
        except ValueError as error:
            raise InvalidArgument(f"cannot offer {name} of {self.address}: {error}") from None
        return Tool(
            name=shown,
            doc=schemas.described(described.description or described.title or "", schema),
            function=_function(connection, name, shown, wrapped=wrapped),
            bind=bind,
            parameters=schemas.parameters_of(schema),
            returns=schemas.type_of(inner, output or {}),
            schema=schemas.renamed(schema),
        )


def _function(connection: Connection, name: str, shown: str, *, wrapped: bool) -> Callable[..., Awaitable[Any]]:
    """One tool of a server. Names of its arguments may be those that Python cannot write."""

    async def call(**arguments: Any) -> Any:
        from mcp import MCPError

        try:
            result = await connection.call(name, arguments)
        except UnavailableError as error:
            raise results.not_started(shown, error) from error
        except MCPError as error:
            raise results.failure_of(shown, error) from error
        return results.value_of(shown, result, wrapped=wrapped)

    return call


def mcp_server(
    command: str,
    /,
    *args: str,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    headers: Mapping[str, str] | None = None,
    only: Collection[str] | None = None,
    prefix: str = "",
    **options: Unpack[ToolOptions],
) -> McpServer:
    """Name an MCP server for `tools=`: `mcp_server("uvx", "mcp-server-time")`, or a URL of streamable HTTP.

    command  the program that is started, with its `args`; or a URL (`https://…/mcp`).
    env      variables for the program, beside PATH, HOME and the like; it gets no others of this process.
    cwd      the folder in which it runs.
    headers  of each request to the URL.
    only     the names of the tools to offer; None means all.
    prefix   stands before the name of each tool in the sandbox.
    options  as of `tool`, for each tool of the server: `limits=ToolLimits(calls_per_session=10)`.

    The server is started when the tools are served, and ends with that. When it says that it has other tools
    (`notifications/tools/list_changed`), they are offered in the place of those before. One that dies is started again
    at the next call; a call that it had ends as ToolUnavailable(may_have_run=True). Names that Python cannot write are
    changed: `search-orders` is `search_orders`. Raises InvalidArgument for arguments that do not go together; serving
    raises UnavailableError for a server that does not start, and PreconditionFailed without the extra `sandfleet[mcp]`.
    """
    is_url = command.startswith(("http://", "https://"))
    if is_url and (args or env is not None or cwd is not None):
        raise InvalidArgument("cannot name the MCP server: args, env and cwd are of a program, not of a URL")
    if headers is not None and not is_url:
        raise InvalidArgument("cannot name the MCP server: headers are of a URL, not of a program")
    if not command or {"name", "doc"} & options.keys():
        raise InvalidArgument(
            "cannot name the MCP server: it needs a command or URL, and its tools have their own names"
        )
    if is_url:
        address = Address(url=command, headers=headers)
    else:
        address = Address(command=(command, *args), env=env, cwd=None if cwd is None else str(cwd))
    return McpServer(address, None if only is None else frozenset(only), prefix, options)
