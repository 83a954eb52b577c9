"""A smolagents executor over a sandbox of this fleet."""

from __future__ import annotations

import ast
import io
from typing import Any

import PIL.Image
from sandfleet import Execution, Sandbox
from smolagents.local_python_executor import CodeOutput
from smolagents.remote_executors import RemotePythonExecutor
from smolagents.utils import AgentError


class SandfleetExecutor(RemotePythonExecutor):
    """Variables, tools and imports live in the sandbox's own Python from one action to the next."""

    def __init__(self, additional_imports: list[str], logger: Any, allow_pickle: bool = False) -> None:
        super().__init__(additional_imports, logger, allow_pickle)
        self.sandbox = Sandbox.create(keep_alive=True)
        self.installed_packages = additional_imports

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        execution = self.sandbox.run_code(code)
        logs, error = execution.logs.stdout, execution.error
        if error is not None and error.name == self.FINAL_ANSWER_EXCEPTION:
            return CodeOutput(self._deserialize_final_answer(error.value, self.allow_pickle), logs, True)
        if not execution.ok:
            why = f"{error.name}: {error.value}\n{error.traceback}" if error else execution.message
            raise AgentError(f"{logs}\nExecuting code yielded an error:\n{why}", self.logger)
        return CodeOutput(_value(execution), logs, False)

    def cleanup(self) -> None:
        self.sandbox.kill()

    delete = cleanup


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
