"""The server: its tools, and which sandbox a call works in."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

from sandfleet import __version__
from sandfleet.doors.mcp import files, running, session
from sandfleet.doors.mcp.session import Call, Seats, seat_of
from sandfleet.doors.seat import Seat
from sandfleet.errors import SandboxEnded, SandfleetError
from sandfleet.values.options import CreateOptions

_INSTRUCTIONS = (
    "An isolated Linux sandbox of your own. It starts at the first call and ends with this session; files below "
    "/workspace and variables of run_code last until then. It has no network unless its owner has opened one."
)
_READS = (
    running.read_output,
    files.read_file,
    files.list_files,
    files.glob,
    files.grep,
    session.service_logs,
    session.get_url,
)
_CHANGES = (
    running.run_code,
    running.run_command,
    running.kill_command,
    files.write_file,
    files.edit_file,
    session.start_service,
    session.stop_service,
    session.install_packages,
    session.snapshot,
    session.restore,
)
Lifespan = Callable[[Any], AbstractAsyncContextManager[Seats]]


def alone(template: str, options: CreateOptions, packages: tuple[str, ...]) -> Lifespan:
    """Give all calls one sandbox, which ends with the server: on stdio a server has one session."""

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[Seats]:
        seat = Seat(template, options)
        try:
            yield Seats(lambda _: seat, packages)
        finally:
            await seat.close()

    return lifespan


def made(lifespan: Lifespan) -> MCPServer[Seats]:
    """Make a server with all tools."""
    server = MCPServer(
        "sandfleet", instructions=_INSTRUCTIONS, version=__version__, lifespan=lifespan, log_level="WARNING"
    )
    for tools, reads in ((_READS, True), (_CHANGES, False)):
        for tool in tools:
            # What a sandbox has is its caller's own: a client need not ask before each change.
            hints = ToolAnnotations(read_only_hint=reads, destructive_hint=False, open_world_hint=False)
            server.add_tool(_told(tool), annotations=hints)
    return server


def _told(tool: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Let failures of the platform be read by the model, and a session go on after its sandbox has ended."""

    @functools.wraps(tool)
    async def call(*arguments: Any, ctx: Call, **named: Any) -> Any:
        try:
            return await tool(*arguments, ctx=ctx, **named)
        except SandboxEnded as error:
            await seat_of(ctx).leave()
            lost = "its files and variables are gone, and the next call begins in a new one"
            raise ToolError(f"{error.message}: {lost}") from error
        except SandfleetError as error:
            raise ToolError(error.message) from error

    return call
