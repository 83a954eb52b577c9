"""Tools of a host, opened: its functions, and those of sources, as MCP servers, which are open until `close`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from sandfleet.errors import InvalidArgument
from sandfleet.tools.declared import tools_of
from sandfleet.values.tools import Tool, ToolSource

if TYPE_CHECKING:
    from sandfleet.tools.ledger import Failure
    from sandfleet.values.tools import AnyTool


class CallFailed(Exception):
    """Raised by a tool that knows why its call has no result: the code gets this failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class OpenTools:
    """The tools that a host serves."""

    def __init__(self, tools: Sequence[Tool], sources: AsyncExitStack | None = None) -> None:
        self.tools = tuple(tools)
        self._sources = sources

    async def close(self) -> None:
        """End the sources. Closing twice is no error."""
        sources, self._sources = self._sources, None
        if sources is not None:
            await sources.aclose()


def prepared(given: Sequence[AnyTool]) -> tuple[Tool | ToolSource, ...]:
    """Functions as tools, and sources as they are. Raises InvalidArgument, and PreconditionFailed without pydantic."""
    functions = iter(tools_of([each for each in given if not isinstance(each, ToolSource)]))
    return tuple(each if isinstance(each, ToolSource) else next(functions) for each in given)


def prepared_under(contract: str, given: Sequence[AnyTool]) -> tuple[Tool | ToolSource, ...]:
    """As `prepared`, for a sandbox of the contract that was asked for; "" means any. Raises InvalidArgument."""
    if contract not in {"", "brokered"}:
        why = f"its code cannot call tools; they need the contract brokered, not {contract}"
        raise InvalidArgument(f"cannot create the sandbox: {why}", subject="tools")
    return prepared(given)


async def opened(given: Sequence[AnyTool]) -> OpenTools:
    """Start the sources, all at once. Raises as `prepared`, and UnavailableError for a source that does not start."""
    ready = prepared(given)
    stack = AsyncExitStack()
    try:
        starting = [asyncio.ensure_future(_entered(each, stack)) for each in ready]
        try:
            found = await asyncio.gather(*starting)
        except BaseException:
            for task in starting:
                task.cancel()
            await asyncio.gather(*starting, return_exceptions=True)
            raise
        return OpenTools(tools_of([tool for tools in found for tool in tools]), stack)
    except BaseException:
        await stack.aclose()
        raise


async def _entered(given: Tool | ToolSource, stack: AsyncExitStack) -> Sequence[Tool]:
    if isinstance(given, Tool):
        return [given]
    tools, close = await given.open()
    stack.push_async_callback(close)
    return tools
