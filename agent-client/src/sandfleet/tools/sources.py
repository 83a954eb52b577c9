"""Tools of a host, opened: its functions, and those of sources, as MCP servers, which are open until `close`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from sandfleet.errors import InvalidArgument
from sandfleet.tools.declared import tools_of
from sandfleet.values.tools import Tool, ToolSource

if TYPE_CHECKING:
    from sandfleet.tools.ledger import Failure
    from sandfleet.values.options import CreateOptions
    from sandfleet.values.tools import AnyTool


_log = logging.getLogger("sandfleet")


class CallFailed(Exception):
    """Raised by a tool that knows why its call has no result: the code gets this failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class OpenTools:
    """The tools that a host serves, in the order in which they were given."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self.tools = tuple(tools)
        # Called when they have changed.
        self.changed: Callable[[], None] = lambda: None
        self._parts: list[Sequence[Tool]] = [self.tools]
        self._sources = AsyncExitStack()

    async def open(self, given: Sequence[Tool | ToolSource]) -> None:
        """Start the sources, all at once. Raises InvalidArgument and UnavailableError."""
        self._parts = [()] * len(given)
        starting = [asyncio.ensure_future(self._enter(each, place)) for place, each in enumerate(given)]
        try:
            await asyncio.gather(*starting)
        except BaseException:  # Also a cancellation: the others would go on starting.
            for task in starting:
                task.cancel()
            await asyncio.gather(*starting, return_exceptions=True)
            raise
        self.tools = self._together()

    async def close(self) -> None:
        """End the sources. Closing twice is no error."""
        self.changed = lambda: None
        await self._sources.aclose()

    async def _enter(self, given: Tool | ToolSource, place: int) -> None:
        if isinstance(given, Tool):
            self._parts[place] = [given]
            return
        self._parts[place], close = await given.open(lambda tools: self._replace(place, tools))
        self._sources.push_async_callback(close)

    def _replace(self, place: int, tools: Sequence[Tool]) -> None:
        """A source has other tools. Where they do not go with the rest, all stays as it is."""
        before, self._parts[place] = self._parts[place], tools
        try:
            self.tools = self._together()
        except InvalidArgument as error:
            self._parts[place] = before
            _log.warning("changed tools are not offered: %s", error.message)
            return
        self.changed()

    def _together(self) -> tuple[Tool, ...]:
        return tools_of([tool for part in self._parts for tool in part])


def prepared(given: Sequence[AnyTool]) -> tuple[Tool | ToolSource, ...]:
    """Functions as tools, and sources as they are. Raises InvalidArgument, and PreconditionFailed without pydantic."""
    functions = iter(tools_of([each for each in given if not isinstance(each, ToolSource)]))
    return tuple(each if isinstance(each, ToolSource) else next(functions) for each in given)


def prepared_for(options: CreateOptions) -> tuple[Tool | ToolSource, ...]:
    """As `prepared`, for a sandbox that is asked for with these options. Raises InvalidArgument, too."""
    contract, given = options.get("contract", ""), options.get("tools") or ()
    if not given:
        if alone := [name for name in ("tool_policy", "on_tool_ask", "tool_calls_file") if options.get(name)]:
            raise InvalidArgument(
                f"cannot create the sandbox: {alone[0]} is of tools, and there are no tools=…", subject="tools"
            )
        return ()
    if contract not in {"", "brokered"}:
        why = f"its code cannot call tools; they need the contract brokered, not {contract}"
        raise InvalidArgument(f"cannot create the sandbox: {why}", subject="tools")
    return prepared(given)


async def opened(given: Sequence[AnyTool]) -> OpenTools:
    """Start the sources. Raises as `prepared`, and UnavailableError for a source that does not start."""
    made = OpenTools(())
    try:
        await made.open(prepared(given))
    except BaseException:  # Also a cancellation: the caller never gets what was started.
        await made.close()
        raise
    return made
