"""Tools for the session itself: services, packages, snapshots; and how a tool finds its sandbox."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from sandfleet.doors.mcp import answers
from sandfleet.doors.seat import Seat
from sandfleet.values.services import http

_READY_SECONDS = 60.0
_INSTALL_SECONDS = 600.0
_LOG_LINES = 200
# What installs the packages of a tool of `Egress.packages`.
_INSTALLERS = {"python": "pip install --disable-pip-version-check --no-input", "node": "npm install --no-audit"}


@dataclass(frozen=True, slots=True)
class Seats:
    """What the server's lifespan has for its tools."""

    of: Callable[[Call], Seat]
    # Package managers whose hosts the sandboxes reach.
    packages: tuple[str, ...] = ()


Call = Context[Seats, Any]


def seat_of(ctx: Call) -> Seat:
    """Return the seat of the session that calls."""
    return ctx.request_context.lifespan_context.of(ctx)


async def start_service(
    name: Annotated[str, Field(description="a-z, 0-9 and -")],
    command: Annotated[str, Field(description="a line for bash that runs the server in the foreground")],
    ctx: Call,
    port: Annotated[int | None, Field(description="wait until it answers HTTP at this port")] = None,
) -> str:
    """Start a program that keeps running, is restarted when it fails, and can be reached by get_url."""
    sandbox = await seat_of(ctx).sandbox()
    await sandbox.services.start(name, command, ready=None if port is None else http(port))
    if port is None:
        return f"{name} was started"
    await sandbox.services.wait_ready(name, timeout=_READY_SECONDS)
    return f"{name} answers at port {port}"


async def stop_service(name: str, ctx: Call) -> str:
    """Stop a service and all its processes."""
    await (await seat_of(ctx).sandbox()).services.stop(name)
    return f"{name} has ended"


async def service_logs(name: str, ctx: Call) -> str:
    """Read the last lines that a service has written."""
    log = await (await seat_of(ctx).sandbox()).services.logs(name, tail=_LOG_LINES)
    return answers.clipped(log)


async def get_url(port: Annotated[int, Field(ge=1, le=65535)], ctx: Call) -> str:
    """Return a URL that leads to a port of the sandbox, from the machine of this server."""
    return f"http://{await (await seat_of(ctx).sandbox()).get_host(port)}/"


async def install_packages(
    packages: Annotated[list[str], Field(min_length=1, max_length=100, description="like pandas or requests==2.32")],
    ctx: Call,
    tool: Annotated[str, Field(description="python (pip) or node (npm)")] = "python",
) -> str:
    """Install packages in the sandbox; nothing but the hosts of the package index is reached."""
    allowed = ctx.request_context.lifespan_context.packages
    if tool not in _INSTALLERS or tool not in allowed:
        why = (
            f"the tools are {' and '.join(_INSTALLERS)}" if tool not in _INSTALLERS else "this server does not allow it"
        )
        raise ToolError(f"cannot install packages of {tool}: {why} (`sandfleet mcp --packages {tool}` does)")
    if wrong := next((one for one in packages if one.startswith("-")), None):
        raise ToolError(f"cannot install {wrong!r}: it is no name of a package")
    sandbox = await seat_of(ctx).sandbox()
    command = f"{_INSTALLERS[tool]} {shlex.join(packages)}"
    result = await sandbox.commands.run(command, timeout=_INSTALL_SECONDS, merge_output=True)
    if not result.ok:
        raise ToolError(f"cannot install {shlex.join(packages)}: {answers.clipped(str(result), 4_000)}")
    return result.stdout.strip().rpartition("\n")[2]


async def snapshot(ctx: Call, name: Annotated[str, Field(description="a-z, 0-9, - and .")] = "") -> str:
    """Save files, variables and services of the session; restore brings them back. Returns id and contents as JSON."""
    taken = await (await seat_of(ctx).sandbox()).snapshot(name)
    return json.dumps({"id": taken.snapshot_id, "name": taken.name})


async def restore(snapshot: str, ctx: Call) -> str:
    """Put a snapshot, by its id or name, in the place of the session's files, variables and services."""
    await (await seat_of(ctx).sandbox()).rollback(snapshot)
    return f"the session is as it was in {snapshot}"
