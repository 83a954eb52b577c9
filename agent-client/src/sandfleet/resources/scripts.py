"""A Python file that a fresh interpreter in a sandbox runs as a check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sandfleet.resources.commands import AsyncCommands
    from sandfleet.resources.files.files import AsyncFiles

_LONGEST = 500


class Place(Protocol):
    """What the check needs of a sandbox."""

    @property
    def files(self) -> AsyncFiles: ...
    @property
    def commands(self) -> AsyncCommands: ...


async def failed_script(sandbox: Place, name: str, source: str, *, timeout: float) -> str:
    """Write a file and run it; return the last line of why it failed, "" when it ended with exit code 0 in time.

    The text comes from the sandbox. Raises SandfleetError when the sandbox cannot run it.
    """
    await sandbox.files.write(name, source)
    done = await sandbox.commands.run(["python3", name], timeout=timeout)
    if done.exit_code == 0 and done.outcome == "ok":
        return ""
    said = done.stderr.strip() or done.message.strip() or f"exit code {done.exit_code}"
    return said.splitlines()[-1][:_LONGEST]
