"""Commands without `await`: see `sandfleet.sync`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal, overload

from sandfleet._background import Relay, iterate, mirrors, run
from sandfleet.commands import AsyncCommandHandle, AsyncCommands, Command

if TYPE_CHECKING:
    from sandfleet.values import CommandOutput, CommandResult, OnText, RunningCommand


@mirrors(AsyncCommandHandle)
class CommandHandle:
    def __init__(self, handle: AsyncCommandHandle, relay: Relay) -> None:
        self._async = handle
        self._relay = relay

    @property
    def execution_id(self) -> str:
        return self._async.execution_id

    def __iter__(self) -> Iterator[CommandOutput]:
        return iterate(self._async, self._relay)

    def wait(self, *, check: bool = False) -> CommandResult:
        return run(self._async.wait(check=check), self._relay)

    def kill(self) -> bool:
        return run(self._async.kill())

    def signal(self, number: int) -> bool:
        return run(self._async.signal(number))

    def send_stdin(self, data: str | bytes) -> None:
        return run(self._async.send_stdin(data))

    def close_stdin(self) -> None:
        return run(self._async.close_stdin())


@mirrors(AsyncCommands)
class Commands:
    def __init__(self, commands: AsyncCommands) -> None:
        self._async = commands

    @overload
    def run(
        self,
        cmd: Command,
        *,
        cwd: str = "",
        envs: Mapping[str, str] | None = None,
        timeout: float | None = None,
        background: Literal[False] = False,
        check: bool = False,
        stdin: bytes | str | bool | None = None,
        merge_output: bool = False,
        on_stdout: OnText | None = None,
        on_stderr: OnText | None = None,
        output_limit: int | None = None,
        execution_id: str | None = None,
    ) -> CommandResult: ...
    @overload
    def run(
        self,
        cmd: Command,
        *,
        cwd: str = "",
        envs: Mapping[str, str] | None = None,
        timeout: float | None = None,
        background: Literal[True],
        check: bool = False,
        stdin: bytes | str | bool | None = None,
        merge_output: bool = False,
        on_stdout: OnText | None = None,
        on_stderr: OnText | None = None,
        output_limit: int | None = None,
        execution_id: str | None = None,
    ) -> CommandHandle: ...
    @overload
    def run(
        self,
        cmd: Command,
        *,
        cwd: str = "",
        envs: Mapping[str, str] | None = None,
        timeout: float | None = None,
        background: bool,
        check: bool = False,
        stdin: bytes | str | bool | None = None,
        merge_output: bool = False,
        on_stdout: OnText | None = None,
        on_stderr: OnText | None = None,
        output_limit: int | None = None,
        execution_id: str | None = None,
    ) -> CommandResult | CommandHandle: ...
    def run(
        self,
        cmd: Command,
        *,
        cwd: str = "",
        envs: Mapping[str, str] | None = None,
        timeout: float | None = None,
        background: bool = False,
        check: bool = False,
        stdin: bytes | str | bool | None = None,
        merge_output: bool = False,
        on_stdout: OnText | None = None,
        on_stderr: OnText | None = None,
        output_limit: int | None = None,
        execution_id: str | None = None,
    ) -> CommandResult | CommandHandle:
        relay = Relay()
        answer = run(
            self._async.run(
                cmd,
                cwd=cwd,
                envs=envs,
                timeout=timeout,
                background=background,
                check=check,
                stdin=stdin,
                merge_output=merge_output,
                on_stdout=relay.wrap(on_stdout),
                on_stderr=relay.wrap(on_stderr),
                output_limit=output_limit,
                execution_id=execution_id,
            ),
            relay,
        )
        return CommandHandle(answer, relay) if isinstance(answer, AsyncCommandHandle) else answer

    def connect(
        self, execution_id: str, *, on_stdout: OnText | None = None, on_stderr: OnText | None = None
    ) -> CommandHandle:
        relay = Relay()
        connecting = self._async.connect(execution_id, on_stdout=relay.wrap(on_stdout), on_stderr=relay.wrap(on_stderr))
        return CommandHandle(run(connecting, relay), relay)

    def list(self) -> tuple[RunningCommand, ...]:
        return run(self._async.list())
