"""Tools of an agent run in this process; only `final_answer` runs in the sandbox."""

import os
from collections.abc import Iterator

import PIL.Image
import pytest
from sandfleet.integrations.smolagents import SandfleetExecutor
from smolagents import CodeAgent, FinalAnswerTool, Tool, tool
from smolagents.utils import AgentError


@tool
def pid(number: int, word: str = "default") -> list:
    """Return the process.

    Args:
        number: A number.
        word: A word.
    """
    return [os.getpid(), number, word]


class Turn(Tool):
    name = "turn"
    description = "Turn a picture."
    inputs = {"picture": {"type": "image", "description": "The picture."}}  # noqa: RUF012  theirs
    output_type = "image"

    def setup(self) -> None:
        self.angle, self.is_initialized = 90, True

    def forward(self, picture: PIL.Image.Image) -> PIL.Image.Image:
        return picture.rotate(self.angle, expand=True)


@pytest.fixture
def executor() -> Iterator[SandfleetExecutor]:
    with_own = SandfleetExecutor(tools=[os.getppid])
    yield with_own
    with_own.cleanup()


def test_a_tool_runs_in_this_process(executor: SandfleetExecutor) -> None:
    executor.send_tools({"pid": pid, "final_answer": FinalAnswerTool()})
    assert executor("pid(3)").output == [os.getpid(), 3, "default"]
    assert executor("final_answer(pid(number=4, word='x'))").output == [os.getpid(), 4, "x"]
    assert executor("import tools; tools.getppid()").output == os.getppid()


def test_arguments_are_checked_before_a_tool_runs(executor: SandfleetExecutor) -> None:
    executor.send_tools({"pid": pid})
    with pytest.raises(AgentError, match="cannot call pid: number: Input should be a valid integer"):
        executor("pid('three')")


def test_pictures_arrive_as_pictures_on_both_sides(executor: SandfleetExecutor) -> None:
    executor.send_tools({"turn": Turn(), "final_answer": FinalAnswerTool()})
    turned = executor("import PIL.Image\nfinal_answer(turn(PIL.Image.new('RGB', (20, 10))))").output
    assert turned.size == (10, 20)


def test_a_later_run_offers_its_own_tools(executor: SandfleetExecutor) -> None:
    executor.send_tools({"turn": Turn()})
    executor.send_tools({"pid": pid})
    assert executor("pid(1)").output[0] == os.getpid()
    with pytest.raises(AgentError, match="cannot call turn: the host does not offer it"):
        executor("turn(None)")


def test_a_managed_agent_is_called_as_a_tool_is(executor: SandfleetExecutor) -> None:
    class Inner(CodeAgent):
        def __call__(self, task: str, **_: object) -> str:
            return f"{task}: done"

    inner = Inner(tools=[], model=None, name="inner", description="An agent.")
    CodeAgent(tools=[], model=None, managed_agents=[inner])
    executor.send_tools({"inner": inner})
    assert executor("inner('sum')").output == "sum: done"


def test_shipped_tools_run_in_the_sandbox() -> None:
    @tool
    def folder() -> str:
        """Return the folder."""
        from pathlib import Path

        return str(Path.cwd())

    executor = SandfleetExecutor(ship_tools=True)
    executor.send_tools({"folder": folder})
    assert executor("folder()").output == "/workspace"
    executor.cleanup()
