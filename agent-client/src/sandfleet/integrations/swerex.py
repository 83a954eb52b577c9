"""SWE-ReX: `SandfleetRuntime(sandbox)` is a runtime over a sandbox; a session is a bash context."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sandfleet import AsyncSandbox, Outcome
from sandfleet.integrations._base import mapping, needed, not_lost
from sandfleet.values.execution import Context

with needed("swerex", "swerex"):
    from swerex import exceptions
    from swerex.runtime import abstract as rex

platform = mapping(exceptions.SwerexException)


class SandfleetRuntime(rex.AbstractRuntime):
    def __init__(self, sandbox: AsyncSandbox) -> None:
        self.sandbox, self.contexts = sandbox, dict[str, Context]()

    async def is_alive(self, *, timeout: float | None = None) -> rex.IsAliveResponse:
        return rex.IsAliveResponse(is_alive=bool(await self.sandbox.health()))

    @platform
    async def create_session(self, request: Any) -> Any:
        if request.session in self.contexts:
            raise exceptions.SessionExistsError(request.session)
        self.contexts[request.session] = await self.sandbox.create_context(language="bash")
        return rex.CreateBashSessionResponse()

    @platform
    async def run_in_session(self, action: Any) -> Any:
        context = self._context(action.session)
        if isinstance(action, rex.BashInterruptAction):
            await self.sandbox.interrupt(context)
            return rex.BashObservation()
        run = not_lost(await self.sandbox.run_code(action.command, context=context, timeout=action.timeout))
        if run.outcome is Outcome.TIMEOUT:
            raise exceptions.CommandTimeoutError(run.message)
        if run.error is not None and run.error.name == "SyntaxError":
            said = {"bash_stdout": run.logs.stdout, "bash_stderr": run.logs.stderr}
            raise exceptions.BashIncorrectSyntaxError(run.error.value, extra_info=said)
        code = int(run.error.value.rpartition(" ")[2]) if run.error is not None else 0
        if action.check == "raise" and code:
            raise exceptions.NonZeroExitCodeError(f"exit code {code}: {action.error_msg}")
        return rex.BashObservation(output=run.logs.stdout + run.logs.stderr, exit_code=code)

    @platform
    async def close_session(self, request: Any) -> Any:
        await self.sandbox.delete_context(self._context(request.session))
        del self.contexts[request.session]
        return rex.CloseBashSessionResponse()

    def _context(self, session: str) -> Context:
        if session not in self.contexts:
            raise exceptions.SessionDoesNotExistError(session)
        return self.contexts[session]

    @platform
    async def execute(self, command: rex.Command) -> rex.CommandResponse:
        options = {"timeout": command.timeout, "envs": command.env, "merge_output": command.merge_output_streams}
        run = not_lost(await self.sandbox.commands.run(command.command, cwd=command.cwd or "", **options))
        if run.outcome is Outcome.TIMEOUT:
            raise exceptions.CommandTimeoutError(run.message)
        if command.check and run.exit_code:
            raise exceptions.NonZeroExitCodeError(run.stderr)
        return rex.CommandResponse(stdout=run.stdout, stderr=run.stderr, exit_code=run.exit_code)

    @platform
    async def read_file(self, request: rex.ReadFileRequest) -> rex.ReadFileResponse:
        return rex.ReadFileResponse(content=await self.sandbox.files.read(request.path))

    @platform
    async def write_file(self, request: rex.WriteFileRequest) -> rex.WriteFileResponse:
        await self.sandbox.files.write(request.path, request.content)
        return rex.WriteFileResponse()

    @platform
    async def upload(self, request: rex.UploadRequest) -> rex.UploadResponse:
        await self.sandbox.files.upload(Path(request.source_path), request.target_path)
        return rex.UploadResponse()

    @platform
    async def close(self) -> rex.CloseResponse:
        await self.sandbox.kill()
        return rex.CloseResponse()
