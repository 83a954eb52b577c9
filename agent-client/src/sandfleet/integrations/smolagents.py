"""smolagents: `CodeAgent(tools=[…], model=…, executor=SandfleetExecutor())` runs its actions in a sandbox."""

from __future__ import annotations

import ast
import io
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Unpack

from sandfleet import Execution, Sandbox
from sandfleet.integrations._base import mapped, needed, not_lost
from sandfleet.values.options import CreateOptions

with needed("smolagents", "smolagents", "PIL"):
    import PIL.Image
    from smolagents.local_python_executor import CodeOutput
    from smolagents.monitoring import AgentLogger
    from smolagents.remote_executors import RemotePythonExecutor
    from smolagents.utils import AgentError, AgentExecutionError


class SandfleetExecutor(RemotePythonExecutor):
    """Variables, tools and imports live in the sandbox's own Python from one action to the next.

    additional_imports  packages that the agent's code may name; the sandbox has to have them.
    logger              the agent's logger; None means one that writes to the standard output.
    allow_pickle        as smolagents' own executors have it.
    options             as of `Sandbox.create`.

    The sandbox ends with `cleanup`, and by its lease once the executor is gone.
    """

    def __init__(
        self,
        additional_imports: Sequence[str] = (),
        logger: Any = None,
        allow_pickle: bool = False,
        **options: Unpack[CreateOptions],
    ) -> None:
        super().__init__(list(additional_imports), logger or AgentLogger(), allow_pickle)
        options.setdefault("keep_alive", True)
        with self._mapped():
            self.sandbox = Sandbox.create(**options)
        self.installed_packages = list(additional_imports)

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        """Run one action. Raises AgentError for what the code did, and its AgentExecutionError for the platform."""
        with self._mapped():
            execution = not_lost(self.sandbox.run_code(code))
        logs, error = execution.logs.stdout, execution.error
        if error is not None and error.name == self.FINAL_ANSWER_EXCEPTION:
            return CodeOutput(self._deserialize_final_answer(error.value, self.allow_pickle), logs, True)
        if not execution.ok:
            why = f"{error.name}: {error.value}\n{error.traceback}" if error else execution.message
            raise AgentError(f"{logs}\nExecuting code yielded an error:\n{why}", self.logger)
        return CodeOutput(_value(execution), logs, False)

    def cleanup(self) -> None:
        """End the sandbox."""
        with self._mapped():
            self.sandbox.kill()

    delete = cleanup

    def _mapped(self) -> AbstractContextManager[None]:
        return mapped(lambda why: AgentExecutionError(why, self.logger))


def _value(execution: Execution) -> Any:
    for result in execution.results:
        if result.is_main_result:
            return PIL.Image.open(io.BytesIO(result.png)) if result.png else _literal(result.text)
    return None


def _literal(text: str | None) -> Any:
    try:
        return ast.literal_eval(text or "None")
    except (SyntaxError, ValueError):
        return text
