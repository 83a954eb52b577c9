"""AG2: `SandboxCodeTool(environment)` and `SandboxShellTool(environment)` run in a sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Unpack

from sandfleet import AsyncSandbox, Outcome
from sandfleet.integrations._base import needed, not_lost
from sandfleet.values.options import CreateOptions

with needed("ag2", "ag2"):
    from ag2.tools.sandbox.base import ExecResult, SandboxBase

# As `timeout` of a shell has it.
TIMED_OUT = 124


class SandfleetEnvironment(SandboxBase):
    """One sandbox for all tools that get this object, from their first call to `aclose`.

    A failure of the platform is a `SandboxError`.

    options  as of `Sandbox.create`.
    """

    def __init__(self, **options: Unpack[CreateOptions]) -> None:
        options.setdefault("keep_alive", True)
        self._options = options
        self._making = asyncio.Lock()
        self._made: AsyncSandbox | None = None

    @property
    def workdir(self) -> PurePosixPath:
        return PurePosixPath("/workspace")

    @property
    def host_workdir(self) -> Path | None:
        return None

    async def sandbox(self) -> AsyncSandbox:
        """Return the sandbox behind it."""
        async with self._making:
            self._made = self._made or await AsyncSandbox.create(**self._options)
            return self._made

    async def exec(
        self, argv: list[str], *, env: dict[str, str] | None = None, timeout: float | None = None
    ) -> ExecResult:
        commands = (await self.sandbox()).commands
        run = not_lost(await commands.run(argv, envs=env, timeout=timeout, merge_output=True))
        if run.outcome is Outcome.TIMEOUT:
            return ExecResult(f"{run.stdout}\n{run.message}".strip(), TIMED_OUT)
        return ExecResult(run.stdout.strip(), run.exit_code)

    async def put_file(self, path: PurePosixPath, content: bytes) -> None:
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"cannot write {path}: it leads out of the workspace")
        await (await self.sandbox()).files.write(path, content)

    @asynccontextmanager
    async def open(self, context: Any = None) -> AsyncGenerator[SandfleetEnvironment]:
        yield self

    async def aclose(self) -> None:
        """End the sandbox."""
        made, self._made = self._made, None
        if made is not None:
            await made.kill()
