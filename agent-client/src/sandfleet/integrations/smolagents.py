"""smolagents: `CodeAgent(tools=[…], model=…, executor=SandfleetExecutor())` runs its actions in a sandbox."""

from __future__ import annotations

import ast
import io
from collections.abc import Sequence
from contextlib import AbstractContextManager
from textwrap import dedent
from typing import Any, Unpack

from sandfleet import Execution, Sandbox, ToolLimits, tool
from sandfleet.integrations._base import mapped, needed, not_lost, why_failed
from sandfleet.values.options import CreateOptions

with needed("smolagents", "smolagents", "PIL"):
    import PIL.Image
    from smolagents.local_python_executor import CodeOutput
    from smolagents.monitoring import AgentLogger
    from smolagents.remote_executors import RemotePythonExecutor
    from smolagents.utils import AgentError, AgentExecutionError


# Pictures are PNG on the way to a tool and back.
CALLING_WITH_PICTURES = """
    def _calling(call):
        import io, PIL.Image
        def sent(value):
            if isinstance(value, PIL.Image.Image):
                value.save(file := io.BytesIO(), format="PNG")
                return file.getvalue()
            return value
        def calling(*args, **kwargs):
            result = call(*map(sent, args), **{name: sent(value) for name, value in kwargs.items()})
            return PIL.Image.open(io.BytesIO(result)) if isinstance(result, bytes) else result
        return calling
"""


class SandfleetExecutor(RemotePythonExecutor):
    """Variables and imports live in the sandbox's own Python from one action to the next; tools run in this process.

    additional_imports  packages that the agent's code may name; the sandbox has to have them.
    logger              the agent's logger; None means one that writes to the standard output.
    allow_pickle        as smolagents' own executors have it.
    ship_tools          run the source of the agent's tools in the sandbox, as smolagents' own executors do.
    tool_limits         what each of the agent's tools, and each managed agent, may be used for.
    options             as of `Sandbox.create`; `tools` are offered beside the agent's.

    The sandbox ends with `cleanup`, and by its lease once the executor is gone.
    """

    def __init__(
        self,
        additional_imports: Sequence[str] = (),
        logger: Any = None,
        allow_pickle: bool = False,
        *,
        ship_tools: bool = False,
        tool_limits: ToolLimits | None = None,
        **options: Unpack[CreateOptions],
    ) -> None:
        super().__init__(list(additional_imports), logger or AgentLogger(), allow_pickle)
        options.setdefault("keep_alive", True)
        self._limits = None if ship_tools else tool_limits or ToolLimits()
        if self._limits:
            options.setdefault("contract", "brokered")
            self._own = options.pop("tools", ())
            self._serving: dict[str, Any] = {
                "policy": options.pop("tool_policy", None),
                "on_ask": options.pop("on_tool_ask", None),
                "calls_file": options.pop("tool_calls_file", None),
            }
        with self._mapped():
            self.sandbox = Sandbox.create(**options)
        self.installed_packages = list(additional_imports)

    def send_tools(self, tools: dict[str, Any]) -> None:
        """Let the agent's code call its tools and managed agents. Only the source of `final_answer` is sent."""
        if self._limits:
            hosted: list[Any] = [_Hosted(each) for name, each in tools.items() if name != "final_answer"]
            with self._mapped():
                self.sandbox.serve_tools(
                    [*self._own, *(tool(each, limits=self._limits) for each in hosted)], **self._serving
                )
            self.run_code_raise_errors("".join(each.imported for each in hosted))
            tools = {name: each for name, each in tools.items() if name == "final_answer"}
        super().send_tools(tools)

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        """Run one action. Raises AgentError for what the code did, and its AgentExecutionError for the platform."""
        with self._mapped():
            execution = not_lost(self.sandbox.run_code(code))
        logs, error = execution.logs.stdout, execution.error
        if error is not None and error.name == self.FINAL_ANSWER_EXCEPTION:
            return CodeOutput(self._deserialize_final_answer(error.value, self.allow_pickle), logs, True)
        if not execution.ok:
            raise AgentError(f"{logs}\nExecuting code yielded an error:\n{why_failed(execution)}", self.logger)
        return CodeOutput(_value(execution), logs, False)

    def cleanup(self) -> None:
        """End the sandbox."""
        with self._mapped():
            self.sandbox.kill()

    delete = cleanup

    def _mapped(self) -> AbstractContextManager[None]:
        return mapped(lambda why: AgentExecutionError(why, self.logger))


class _Hosted:
    """A tool, or a managed agent, as `sandfleet.tool` takes it."""

    def __init__(self, given: Any) -> None:
        self._given = given

    def __getattr__(self, name: str) -> Any:
        return getattr(self._given, name)

    @property
    def imported(self) -> str:
        """The code by which the agent's code has it."""
        line = f"from tools import {self.name}\n"
        if "image" not in {self.output_type, *(each["type"] for each in self.inputs.values())}:
            return line
        return f"{dedent(CALLING_WITH_PICTURES)}{line}{self.name} = _calling({self.name})\n"

    def forward(self, **arguments: Any) -> Any:
        pictures = {name for name, each in self.inputs.items() if each["type"] == "image"}
        received = {name: _opened(value) if name in pictures else value for name, value in arguments.items()}
        result = getattr(self._given, "forward", self._given)(**received)
        if not isinstance(result, PIL.Image.Image):
            return result
        result.save(file := io.BytesIO(), format="PNG")
        return file.getvalue()


def _opened(value: Any) -> Any:
    return PIL.Image.open(io.BytesIO(value)) if isinstance(value, bytes) else value


def _value(execution: Execution) -> Any:
    for result in execution.results:
        if result.is_main_result:
            return _opened(result.png) if result.png else _literal(result.text)
    return None


def _literal(text: str | None) -> Any:
    try:
        return ast.literal_eval(text or "None")
    except (SyntaxError, ValueError):
        return text
