"""OpenAI Agents SDK: `SandboxRunConfig(client=SandfleetClient())` runs a SandboxAgent in a sandbox."""

from __future__ import annotations

import asyncio
import io
import signal
import uuid
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Unpack

from sandfleet import AsyncSandbox, CommandResult, Outcome
from sandfleet.errors import FileError, FileNotFound, NotFoundError, SandboxEnded, SandboxError
from sandfleet.integrations._base import mapped, needed, not_lost
from sandfleet.resources.commands import AsyncCommandHandle
from sandfleet.resources.pty import AsyncPtyHandle
from sandfleet.values.options import CreateOptions

with needed("openai_agents", "agents"):
    from agents.sandbox import errors as theirs
    from agents.sandbox.manifest import Manifest
    from agents.sandbox.session import SandboxSession, SandboxSessionState
    from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
    from agents.sandbox.session.pty_output import collect_pty_output
    from agents.sandbox.session.pty_types import (
        PTY_PROCESSES_MAX,
        PtyExecUpdate,
        allocate_pty_process_id,
        clamp_pty_yield_time_ms,
        resolve_pty_write_yield_time_ms,
    )
    from agents.sandbox.session.runtime_helpers import RESOLVE_WORKSPACE_PATH_HELPER, RuntimeHelperScript
    from agents.sandbox.session.sandbox_client import BaseSandboxClient
    from agents.sandbox.session.tar_workspace import shell_tar_exclude_args
    from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot
    from agents.sandbox.types import ExecResult, ExposedPortEndpoint, User
    from agents.sandbox.util.tar_utils import UnsafeTarMemberError, validate_tar_bytes

# A workspace on its way, in the sandbox and in bytes.
ARCHIVE, MOST_ARCHIVE = "/tmp/openai-agents.tar", 4 << 30  # noqa: S108  a folder of the sandbox


class SandfleetState(SandboxSessionState):
    """What a session is found by."""

    type: Literal["sandfleet"] = "sandfleet"
    sandbox_id: str


class SandfleetSession(BaseSandboxSession):
    """One session is one sandbox. All of it runs as the sandbox's one user."""

    state: SandfleetState

    def __init__(self, state: SandfleetState, sandbox: AsyncSandbox) -> None:
        self.state = state
        self.sandbox = sandbox
        self._programs: dict[int, _Program] = {}

    async def running(self) -> bool:
        try:
            return bool(await self.sandbox.health())
        except SandboxError:
            return False

    async def _exec_internal(self, *command: str | Path, timeout: float | None = None) -> ExecResult:
        words = [str(word) for word in command]
        with mapped(lambda why: theirs.ExecTransportError(command=words, message=why, retryable=False)):
            envs = await self.state.manifest.environment.resolve()
            run = not_lost(
                await self.sandbox.commands.run(words, cwd=self.state.manifest.root, envs=envs, timeout=timeout)
            )
        if run.outcome is Outcome.TIMEOUT:
            raise theirs.ExecTimeoutError(command=words, timeout_s=timeout)
        return ExecResult(stdout=run.stdout_bytes, stderr=run.stderr_bytes, exit_code=_exit_code(run))

    # Files

    def _runtime_helpers(self) -> tuple[RuntimeHelperScript, ...]:
        return (RESOLVE_WORKSPACE_PATH_HELPER,)

    async def _validate_path_access(self, path: Path | str, *, for_write: bool = False) -> Path:
        where: Path = await self._validate_remote_path_access(path, for_write=for_write)
        return where

    async def _prepare_backend_workspace(self) -> None:
        with mapped(lambda why: theirs.WorkspaceStartError(path=self._workspace_root_path(), message=why)):
            await self.sandbox.files.make_dir(self.state.manifest.root)

    async def read(self, path: Path, *, user: str | User | None = None) -> io.IOBase:
        where = await (
            self._validate_path_access(path) if user is None else self._check_read_with_exec(path, user=user)
        )
        try:
            return io.BytesIO(await self.sandbox.files.read(where, format="bytes"))
        except FileNotFound as error:
            raise theirs.WorkspaceReadNotFoundError(path=Path(path), cause=error) from error
        except (FileError, SandboxError) as error:
            raise theirs.WorkspaceArchiveReadError(path=Path(path), cause=error) from error

    async def write(self, path: Path, data: io.IOBase, *, user: str | User | None = None) -> None:
        if user is not None:
            await self._check_write_with_exec(path, user=user)
        where = await self._validate_path_access(path, for_write=True)
        await self._written(where, data)

    async def _written(self, where: Path, data: io.IOBase) -> None:
        content = data.read()
        if not isinstance(content, (str, bytes, bytearray)):
            raise theirs.WorkspaceWriteTypeError(path=where, actual_type=type(content).__name__)
        try:
            await self.sandbox.files.write(where, content)
        except (FileError, SandboxError) as error:
            raise theirs.WorkspaceArchiveWriteError(path=where, cause=error) from error

    async def persist_workspace(self) -> io.IOBase:
        root = self._workspace_root_path()
        excludes = " ".join(shell_tar_exclude_args(self._persist_workspace_skip_relpaths()))
        try:
            packed = await self.exec(f"tar {excludes} -cf {ARCHIVE} .")
            if not packed.ok():
                raise theirs.WorkspaceArchiveReadError(path=root, context={"output": packed.stderr.decode()})
            return io.BytesIO(await self.sandbox.files.read(ARCHIVE, format="bytes", limit=MOST_ARCHIVE))
        except (FileError, SandboxError) as error:
            raise theirs.WorkspaceArchiveReadError(path=root, cause=error) from error
        finally:
            await self._remove_archive()

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        root, content = self._workspace_root_path(), data.read()
        try:
            validate_tar_bytes(content, allow_external_symlink_targets=False)
        except UnsafeTarMemberError as error:
            raise theirs.WorkspaceArchiveWriteError(path=root, cause=error) from error
        await self._prepare_backend_workspace()
        try:
            await self._written(Path(ARCHIVE), io.BytesIO(content))
            unpacked = await self.exec(f"tar -xf {ARCHIVE}")
            if not unpacked.ok():
                raise theirs.WorkspaceArchiveWriteError(path=root, context={"output": unpacked.stderr.decode()})
        finally:
            await self._remove_archive()

    async def _remove_archive(self) -> None:
        with suppress(FileError, SandboxError):
            await self.sandbox.files.remove(ARCHIVE)

    # Ports and the end

    async def _resolve_exposed_port(self, port: int) -> ExposedPortEndpoint:
        with mapped(
            lambda why: theirs.ExposedPortUnavailableError(
                port=port, exposed_ports=self.state.exposed_ports, reason="backend_unavailable", context={"why": why}
            )
        ):
            if not await self.running():
                raise SandboxEnded(f"cannot reach port {port}: the sandbox has ended")
            host, _, number = (await self.sandbox.get_host(port)).rpartition(":")
        return ExposedPortEndpoint(host=host, port=int(number))

    async def _shutdown_backend(self) -> None:
        await self.pty_terminate_all()
        with suppress(SandboxError):
            await self.sandbox.kill()

    # Programs that run on

    def supports_pty(self) -> bool:
        return True

    async def pty_exec_start(
        self,
        *command: str | Path,
        timeout: float | None = None,
        shell: bool | list[str] = True,
        user: str | User | None = None,
        tty: bool = False,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        words = self._prepare_exec_command(*command, shell=shell, user=user)
        if len(self._programs) >= PTY_PROCESSES_MAX:
            await self._programs.pop(min(self._programs, key=lambda number: self._programs[number].used)).end()
        with mapped(lambda why: theirs.ExecTransportError(command=words, message=why, retryable=False)):
            envs, root = await self.state.manifest.environment.resolve(), self.state.manifest.root
            options: dict[str, Any] = {"cwd": root, "envs": envs, "timeout": timeout}
            handle: AsyncPtyHandle | AsyncCommandHandle
            if tty:
                handle = await self.sandbox.pty.create(command=words, **options)
            else:
                handle = await self.sandbox.commands.run(words, background=True, merge_output=True, **options)
        number = allocate_pty_process_id(set(self._programs))
        self._programs[number] = _Program(handle)
        wait_ms = 10_000 if yield_time_s is None else int(yield_time_s * 1000)
        return await self._update(number, clamp_pty_yield_time_ms(wait_ms), max_output_tokens)

    async def pty_write_stdin(
        self, *, session_id: int, chars: str, yield_time_s: float | None = None, max_output_tokens: int | None = None
    ) -> PtyExecUpdate:
        program = self._resolve_pty_session_entry(pty_processes=self._programs, session_id=session_id)
        if chars:
            if not isinstance(program.handle, AsyncPtyHandle):
                raise RuntimeError("stdin is not available for this process")
            with suppress(NotFoundError), mapped(lambda why: theirs.ExecTransportError(command=(), message=why)):
                await program.handle.send(chars)
        wait_ms = 250 if yield_time_s is None else int(yield_time_s * 1000)
        wait_ms = resolve_pty_write_yield_time_ms(yield_time_ms=wait_ms, input_empty=not chars)
        return await self._update(session_id, wait_ms, max_output_tokens)

    async def pty_terminate_all(self) -> None:
        programs, self._programs = self._programs, {}
        await asyncio.gather(*(each.end() for each in programs.values()))

    async def _update(self, number: int, wait_ms: int, most_tokens: int | None) -> PtyExecUpdate:
        program = self._programs[number]
        program.used = asyncio.get_running_loop().time()
        output, tokens, is_over = await collect_pty_output(
            output_chunks=program.chunks,
            output_lock=program.lock,
            output_notify=program.news,
            is_done=program.reading.done,
            yield_time_ms=wait_ms,
            max_output_tokens=most_tokens,
        )
        if is_over:
            self._programs.pop(number, None)
        exit_code = program.reading.result() if is_over else None
        return PtyExecUpdate(None if is_over else number, output, exit_code, tokens)


def _exit_code(run: CommandResult) -> int:
    """As subprocess has it: the negative number of the signal that ended the program."""
    return -signal.Signals[run.signal] if run.signal in signal.Signals.__members__ else run.exit_code


class _Program:
    """A program that runs on; its output waits here until it is asked for."""

    def __init__(self, handle: AsyncPtyHandle | AsyncCommandHandle) -> None:
        self.handle = handle
        self.used = 0.0
        self.chunks = deque[bytes]()
        self.lock = asyncio.Lock()
        self.news = asyncio.Event()
        self.reading = asyncio.ensure_future(self._read())
        self.reading.add_done_callback(lambda _: self.news.set())

    async def _read(self) -> int | None:
        """Return the exit code; None where the sandbox ended first."""
        try:
            async for piece in self.handle:
                self.chunks.append(piece if isinstance(piece, bytes) else piece.data)
                self.news.set()
            return _exit_code(await self.handle.wait())
        except SandboxError as error:
            self.chunks.append(f"\n[the sandbox failed: {error}]\n".encode())
            return None

    async def end(self) -> None:
        with suppress(SandboxError):
            await self.handle.kill()
        await asyncio.wait([self.reading])


class SandfleetClient(BaseSandboxClient[None]):
    """Makes and resumes sessions.

    exposed_ports  ports of a sandbox that sessions give an address for.
    options        as of `Sandbox.create`.
    """

    backend_id = "sandfleet"
    supports_default_options = True

    def __init__(self, *, exposed_ports: tuple[int, ...] = (), **options: Unpack[CreateOptions]) -> None:
        options.setdefault("keep_alive", True)
        self._ports, self._options = exposed_ports, options

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: None = None,
    ) -> SandboxSession:
        manifest = self._validate_manifest_for_create(manifest or Manifest())
        sandbox, session_id = await self._sandbox(manifest), uuid.uuid4()
        state = SandfleetState(
            session_id=session_id,
            manifest=manifest,
            snapshot=resolve_snapshot(snapshot, str(session_id)),
            exposed_ports=self._ports,
            sandbox_id=sandbox.sandbox_id,
        )
        return self._wrap_session(SandfleetSession(state, sandbox))

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        if not isinstance(state, SandfleetState):
            raise TypeError(f"cannot resume the session: its state is {type(state).__name__}, not SandfleetState")
        state.assert_path_grants_rebound()
        try:
            sandbox, is_same = await AsyncSandbox.connect(state.sandbox_id, keep_alive=True), True
        except (SandboxEnded, NotFoundError):
            sandbox, is_same = await self._sandbox(state.manifest), False
            state.sandbox_id, state.workspace_root_ready = sandbox.sandbox_id, False
        session = SandfleetSession(state, sandbox)
        session._set_start_state_preserved(is_same, system=is_same)  # noqa: SLF001  as their own clients do
        return self._wrap_session(session)

    async def delete(self, session: SandboxSession) -> SandboxSession:
        await session.shutdown()
        return session

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        return self._deserialize_session_state_payload(payload, SandfleetState)

    async def _sandbox(self, manifest: Manifest) -> AsyncSandbox:
        with mapped(lambda why: theirs.WorkspaceStartError(path=Path(manifest.root), message=why)):
            return await AsyncSandbox.create(**self._options)
