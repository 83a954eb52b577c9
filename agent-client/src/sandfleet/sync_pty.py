"""Terminals without `await`: see `sandfleet.sync`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from sandfleet._background import iterate, mirrors, run
from sandfleet.commands import Command
from sandfleet.pty import AsyncPty, AsyncPtyHandle

if TYPE_CHECKING:
    from sandfleet.values import CommandResult


@mirrors(AsyncPtyHandle)
class PtyHandle:
    def __init__(self, handle: AsyncPtyHandle) -> None:
        self._async = handle

    @property
    def execution_id(self) -> str:
        return self._async.execution_id

    def __iter__(self) -> Iterator[bytes]:
        return iterate(self._async)

    def send(self, data: str | bytes) -> None:
        return run(self._async.send(data))

    def resize(self, rows: int, cols: int) -> None:
        return run(self._async.resize(rows, cols))

    def signal(self, number: int) -> bool:
        return run(self._async.signal(number))

    def kill(self) -> bool:
        return run(self._async.kill())

    def wait(self, *, check: bool = False) -> CommandResult:
        return run(self._async.wait(check=check))


@mirrors(AsyncPty)
class Pty:
    def __init__(self, pty: AsyncPty) -> None:
        self._async = pty

    def create(
        self,
        *,
        rows: int = 24,
        cols: int = 80,
        command: Command | None = None,
        cwd: str = "",
        envs: Mapping[str, str] | None = None,
        term: str = "",
        timeout: float | None = None,
        execution_id: str | None = None,
    ) -> PtyHandle:
        return PtyHandle(
            run(
                self._async.create(
                    rows=rows,
                    cols=cols,
                    command=command,
                    cwd=cwd,
                    envs=envs,
                    term=term,
                    timeout=timeout,
                    execution_id=execution_id,
                )
            )
        )
