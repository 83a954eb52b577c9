"""Google ADK: `LlmAgent(…, code_executor=SandfleetCodeExecutor())` runs the code of each session in a sandbox."""

from __future__ import annotations

from threading import Lock
from typing import Any

from sandfleet import Execution, Sandbox
from sandfleet.errors import SandboxEnded
from sandfleet.integrations._base import needed, not_lost, why_failed

with needed("google_adk", "google"):
    from google.adk.code_executors.base_code_executor import BaseCodeExecutor
    from google.adk.code_executors.code_execution_utils import CodeExecutionInput, CodeExecutionResult, File

# ADK does not say when a session is over, so a sandbox ends after so many seconds without a call.
IDLE = 3600.0
PICTURES = {"image/png": "png", "image/jpeg": "jpeg"}


class SandfleetCodeExecutor(BaseCodeExecutor, extra="allow"):  # type: ignore[call-arg]  # pydantic's
    """Each session of ADK has a sandbox of its own, where variables last; without `stateful` each call has one.

    Fields that ADK does not know are options of `Sandbox.create`. A failure of the platform is a `SandboxError`.
    """

    stateful: bool = True

    def model_post_init(self, _: Any) -> None:
        self._options = {"keep_alive": True, "idle_timeout": IDLE, **(self.model_extra or {})}
        self._sandboxes: dict[str, tuple[Lock, list[Sandbox]]] = {}

    def execute_code(self, invocation_context: Any, code_execution_input: CodeExecutionInput) -> CodeExecutionResult:
        """Run one block in the sandbox of its session."""
        if (session := code_execution_input.execution_id) is None:
            with Sandbox.create(**self._options) as sandbox:
                return self._run(sandbox, code_execution_input)
        lock, made = self._sandboxes.setdefault(session, (Lock(), []))
        with lock:
            if not made:
                made.append(Sandbox.create(**self._options))
        try:
            return self._run(made[0], code_execution_input)
        except SandboxEnded:
            # The next call of the session has a new one.
            self._sandboxes.pop(session, None)
            raise

    def close(self) -> None:
        """End all sandboxes."""
        while self._sandboxes:
            for sandbox in self._sandboxes.popitem()[1][1]:
                sandbox.kill()

    def _run(self, sandbox: Sandbox, given: CodeExecutionInput) -> CodeExecutionResult:
        for file in given.input_files:
            sandbox.files.write(file.name, file.content)
        execution = not_lost(sandbox.run_code(given.code, timeout=self.timeout_seconds))
        return CodeExecutionResult(
            stdout=execution.logs.stdout,
            stderr=execution.logs.stderr + why_failed(execution),
            output_files=_pictures(execution),
            exit_code=0 if execution.ok else 1,
        )


def _pictures(execution: Execution) -> list[File]:
    kinds = [(each.parts, next((kind for kind in PICTURES if kind in each.parts), "")) for each in execution.results]
    shown = [(kind, parts[kind]) for parts, kind in kinds if kind]
    return [File(f"picture-{n}.{PICTURES[kind]}", data, kind) for n, (kind, data) in enumerate(shown, start=1)]
