"""Tools that run code and commands."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated

from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult
from pydantic import Field

from sandfleet.doors.mcp import answers
from sandfleet.doors.mcp.session import Call, seat_of
from sandfleet.doors.seat import Seat
from sandfleet.errors import NotFoundError
from sandfleet.resources.commands import AsyncCommandHandle

# Between two notices of progress, in seconds.
_PROGRESS_SECONDS = 0.5
# Commands in the background whose output is kept.
_MOST_COMMANDS = 64
_MOST_WAIT = 600.0

Ran = Annotated[CallToolResult, answers.Ran]
Page = Annotated[CallToolResult, answers.Page]


async def run_code(
    code: Annotated[str, Field(description="a cell, as in a notebook; the value of its last line is shown")],
    ctx: Call,
    language: Annotated[str, Field(description="python, bash, javascript or sql")] = "python",
    timeout: Annotated[float | None, Field(description="seconds")] = None,
) -> Ran:
    """Run code in the sandbox. Variables, imports and files last from one call to the next. Plots come as pictures."""
    sandbox = await seat_of(ctx).sandbox()
    tell = _progress(ctx)
    execution = await sandbox.run_code(code, language=language, timeout=timeout, on_stdout=tell, on_stderr=tell)
    return answers.of_execution(execution)


async def run_command(
    command: Annotated[str, Field(description="a line for bash; it begins in /workspace")],
    ctx: Call,
    timeout: Annotated[float | None, Field(description="seconds; 0 for none")] = None,
    background: Annotated[bool, Field(description="return at once; read_output follows it")] = False,
) -> Ran:
    """Run a shell command in the sandbox. For a server that is to stay, use start_service."""
    seat = seat_of(ctx)
    sandbox = await seat.sandbox()
    if background:
        handle = await sandbox.commands.run(command, timeout=timeout, background=True, merge_output=True)
        _follow(seat, handle)
        ran = answers.Ran(outcome="running", execution_id=handle.execution_id)
        return answers.answer(f"{handle.execution_id} is running: read_output has its output", ran)
    tell = _progress(ctx)
    return answers.of_command(await sandbox.commands.run(command, timeout=timeout, on_stdout=tell, on_stderr=tell))


async def read_output(
    execution_id: str,
    ctx: Call,
    offset: Annotated[int, Field(ge=0, description="character to begin at: next_offset of the page before")] = 0,
    wait: Annotated[float, Field(ge=0, le=_MOST_WAIT, description="seconds to wait for more of what runs")] = 0.0,
) -> Page:
    """Read the whole output of earlier code or of a command, page by page; also of one that runs in the background."""
    seat = seat_of(ctx)
    if command := seat.commands.get(execution_id):
        await _more(command, offset, wait)
        text = "".join(command.text)
        shown = answers.page(text, offset, running=not command.reading.done())
    else:
        shown = answers.page(await _stored(seat, execution_id), offset)
    return answers.answer(shown.text, shown)


async def kill_command(execution_id: str, ctx: Call) -> str:
    """End a command that runs in the background, with all its processes."""
    sandbox = await seat_of(ctx).sandbox()
    return "ended" if await sandbox.commands.kill(execution_id) else "it had ended already"


def _follow(seat: Seat, handle: AsyncCommandHandle) -> None:
    """Read the output of a command as it comes, up to what is kept of it."""
    if len(seat.commands) >= _MOST_COMMANDS:
        seat.commands.pop(next(iter(seat.commands))).reading.cancel()

    async def read() -> None:
        kept = 0
        async for piece in handle:
            if kept < answers.MOST_KEPT:
                command.text.append(piece.text)
                kept += len(piece.text)
            command.news.set()
        result = await handle.wait()
        command.text.append(f"\n[{result.outcome}, exit code {result.exit_code}]\n")
        command.news.set()

    command = answers.Background(handle, asyncio.ensure_future(read()))
    # Its readers are told: an exception of the reading that they do not see is no news for the log.
    command.reading.add_done_callback(lambda done: done.cancelled() or done.exception())
    seat.commands[handle.execution_id] = command


async def _more(command: answers.Background, offset: int, wait: float) -> None:
    """Wait until a command has written something behind the offset, or has ended."""
    try:
        async with asyncio.timeout(wait):
            while not command.reading.done() and sum(map(len, command.text)) <= offset:
                command.news.clear()
                news = asyncio.ensure_future(command.news.wait())
                await asyncio.wait((news, command.reading), return_when=asyncio.FIRST_COMPLETED)
                news.cancel()
    except TimeoutError:
        return


async def _stored(seat: Seat, execution_id: str) -> str:
    """Return the whole output of what has ended, from the sandbox's store."""
    sandbox = await seat.sandbox()
    try:
        return str(await sandbox.attach(execution_id))
    except NotFoundError:
        pass
    try:
        handle = await sandbox.commands.connect(execution_id)
    except NotFoundError as error:
        raise ToolError(f"cannot read the output of {execution_id}: no code and no command has this id") from error
    return str(await handle.wait())


def _progress(ctx: Call) -> Callable[[str], Awaitable[None]]:
    """Tell the client the last line of what was written, from time to time."""
    now = asyncio.get_running_loop().time
    count, next_time = 0, now()

    async def tell(text: str) -> None:
        nonlocal count, next_time
        count += len(text)
        if now() >= next_time:
            next_time = now() + _PROGRESS_SECONDS
            await ctx.report_progress(count, message=text.rstrip().rpartition("\n")[2][-200:])

    return tell
