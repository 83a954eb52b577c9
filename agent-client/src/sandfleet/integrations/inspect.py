"""Inspect AI: `Task(…, sandbox="sandfleet")`; its entry point registers this module."""

from __future__ import annotations

from typing import Any

from sandfleet import AsyncSandbox, Outcome
from sandfleet.integrations._base import mapping, needed, not_lost

with needed("inspect", "inspect_ai"):
    from inspect_ai.util import (
        ExecResult,
        OutputLimitExceededError,
        SandboxEnvironment,
        SandboxUnavailableError,
        SandboxUserUnsupportedError,
        sandboxenv,
    )
    from inspect_ai.util._sandbox.limits import SandboxEnvironmentLimits

NOT_EXECUTABLE = 126

# Inspect turns its own error into the tool's answer in the middle of a sample, which is then scored as if the model had
# failed. So there a SandboxError stays one, and ends the sample with an error.
platform = mapping(SandboxUnavailableError)


@sandboxenv(name="sandfleet")
class SandfleetEnvironment(SandboxEnvironment):
    """One environment is one sandbox; relative paths begin at its workspace."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self.sandbox = sandbox

    @classmethod
    @platform
    async def sample_init(cls, *_: Any) -> dict[str, SandboxEnvironment]:
        return {"default": cls(await AsyncSandbox.create(keep_alive=True))}

    @classmethod
    @platform
    async def sample_cleanup(cls, _task: str, _config: Any, environments: dict[str, Any], _interrupted: bool) -> None:
        for environment in environments.values():
            await environment.sandbox.kill()

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,  # noqa: A002 - theirs
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Run a program."""
        if user is not None:
            raise SandboxUserUnsupportedError("every command runs as the sandbox's one user")
        limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        run = not_lost(
            await self.sandbox.commands.run(
                cmd,
                stdin=b"" if input is None else input,
                cwd=cwd or "",
                envs=env,
                timeout=timeout,
                output_limit=limit,
            )
        )
        if run.outcome is Outcome.TIMEOUT:
            raise TimeoutError(run.message)
        if run.exit_code == NOT_EXECUTABLE:
            raise PermissionError(run.stderr)
        if run.gaps:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, run.stdout)
        return ExecResult(run.exit_code == 0, run.exit_code, run.stdout, run.stderr)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        await self.sandbox.files.write(file, contents)

    async def read_file(self, file: str, text: bool = True) -> Any:
        found = await self.sandbox.files.get_info(file)
        if found.size > SandboxEnvironmentLimits.MAX_READ_FILE_SIZE:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        return await self.sandbox.files.read(file, format="text" if text else "bytes")
