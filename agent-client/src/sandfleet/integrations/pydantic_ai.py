"""Pydantic AI: `Agent(…, capabilities=[SandfleetWorkspace()])` gives each run a sandbox as its workspace."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Unpack

from sandfleet import AsyncSandbox, Outcome
from sandfleet.errors import FileError, FileNotFound, SandboxError
from sandfleet.integrations._base import mapped, needed, not_lost
from sandfleet.values.files import FileInfo, FileType
from sandfleet.values.options import CreateOptions

with needed("pydantic_ai", "pydantic_ai"):
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.workspaces import (
        CommandResult,
        FileEntry,
        SupportsCommands,
        SupportsFilesystem,
        WorkspaceBackend,
        WorkspaceOutputLimitError,
        WorkspaceRef,
        WorkspaceTimeoutError,
        WorkspaceUnavailableError,
    )

PROVIDER = "sandfleet"
ROOT = "/workspace"


class SandfleetWorkspaceBackend(WorkspaceBackend, SupportsCommands, SupportsFilesystem):
    """One environment is one sandbox, which the first operation makes, or finds by `ref`.

    options  as of `Sandbox.create`. The sandbox lives as long as a backend of its, and its lease (`timeout`) longer.
    """

    def __init__(self, ref: WorkspaceRef | None = None, **options: Unpack[CreateOptions]) -> None:
        options.setdefault("keep_alive", True)
        self._ref, self._options = ref, options
        self._sandbox: AsyncSandbox | None = None
        self._making = asyncio.Lock()

    @property
    def ref(self) -> WorkspaceRef | None:
        return self._ref

    async def sandbox(self) -> AsyncSandbox:
        """Return the sandbox behind it."""
        async with self._making:
            if self._sandbox is None and self._ref is not None:
                self._sandbox = await AsyncSandbox.connect(self._ref.id, keep_alive=True)
            elif self._sandbox is None:
                self._sandbox = await AsyncSandbox.create(**self._options)
                self._ref = WorkspaceRef(provider=PROVIDER, id=self._sandbox.sandbox_id)
            return self._sandbox

    async def working_dir(self) -> str:
        with _available():
            await self.sandbox()
        return ROOT

    async def run(
        self,
        command: str | Sequence[str],
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        if isinstance(command, str) is not shell:
            raise TypeError("a text needs shell=True, and a sequence shell=False")
        with _available():
            run = not_lost(await (await self.sandbox()).commands.run(command, envs=env, timeout=timeout))
        if run.outcome is Outcome.TIMEOUT:
            raise WorkspaceTimeoutError(run.message, stdout=run.stdout, stderr=run.stderr)
        if run.gaps:
            why, limit = "the command wrote more than the sandbox keeps", len(run.stdout) + len(run.stderr)
            raise WorkspaceOutputLimitError(why, limit=limit, stdout=run.stdout, stderr=run.stderr)
        return CommandResult(exit_code=run.exit_code, stdout=run.stdout, stderr=run.stderr)

    async def read_bytes(self, path: str) -> bytes:
        with _available():
            return await (await self.sandbox()).files.read(path, format="bytes")

    async def write_bytes(self, path: str, data: bytes) -> None:
        with _available():
            await (await self.sandbox()).files.write(path, data)

    async def stat(self, path: str) -> FileEntry:
        with _available():
            return _entry(path, await (await self.sandbox()).files.get_info(path, follow_links=True))

    async def list_dir(self, path: str) -> Sequence[FileEntry]:
        with _available():
            files = (await self.sandbox()).files
            found = await files.list(path)
            return [
                _entry(each.path, await self._target(each) if each.type is FileType.SYMLINK else each) for each in found
            ]

    async def make_dir(self, path: str) -> None:
        with _available():
            await (await self.sandbox()).files.make_dir(path)

    async def remove(self, path: str) -> None:
        if f"{ROOT}/".startswith(f"{path.rstrip('/')}/"):
            raise ValueError(f"cannot remove {path}: the working directory is in it")
        with _available():
            await (await self.sandbox()).files.remove(path, recursive=True)

    async def exists(self, path: str) -> bool:
        with _available():
            try:
                await (await self.sandbox()).files.get_info(path, follow_links=True)
            except FileNotFound:
                return False
            return True

    async def _target(self, link: FileInfo) -> FileInfo:
        try:
            return await (await self.sandbox()).files.get_info(link.path, follow_links=True)
        except FileError:  # It leads to nothing, or to itself.
            return link


class SandfleetWorkspace(AbstractCapability[Any]):
    """Gives runs a sandbox of their own, or the one that the message history names.

    options  as of `Sandbox.create`.
    """

    def __init__(self, **options: Unpack[CreateOptions]) -> None:
        self._options = options

    def get_workspace(self, ctx: Any, *, ref: WorkspaceRef | None) -> WorkspaceBackend | None:
        if ref is not None and ref.provider != PROVIDER:
            return None
        return SandfleetWorkspaceBackend(ref, **self._options)


@contextmanager
def _available() -> Iterator[None]:
    """Say what cannot succeed again as Pydantic AI does. What may, and wrong arguments, are raised as they are."""
    try:
        yield
    except FileError as error:
        if isinstance(error, (OSError, ValueError)):
            raise
        raise OSError(error.message) from error
    except SandboxError as error:
        if error.retryable or isinstance(error, ValueError):
            raise
        with mapped(WorkspaceUnavailableError):
            raise


def _entry(path: str, info: FileInfo) -> FileEntry:
    size = info.size if info.type is FileType.FILE else None
    return FileEntry(name=path.rpartition("/")[2], path=path, is_dir=info.is_dir, size=size)
