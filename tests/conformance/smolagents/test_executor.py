"""smolagents' tests of its remote executors; the sdist brings them, without their helpers."""

import io
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
from rich.console import Console
from sandfleet.integrations.smolagents import SandfleetExecutor
from smolagents.monitoring import AgentLogger, LogLevel

markers = ModuleType("suite.tests.utils.markers")
# The marker leaves out what costs money elsewhere.
markers.require_run_all = lambda test: test  # type: ignore[attr-defined]
sys.modules |= {"suite.tests.utils": ModuleType("suite.tests.utils"), markers.__name__: markers}

from suite.tests import test_remote_executors as theirs  # noqa: E402 - needs the helper above


@pytest.fixture
def custom_executor() -> Iterator[SandfleetExecutor]:
    executor = SandfleetExecutor(
        ["pillow", "numpy"], AgentLogger(LogLevel.INFO, Console(force_terminal=False, file=io.StringIO()))
    )
    yield executor
    executor.cleanup()


e2b_executor = custom_executor


class TestRemote(theirs.TestRemotePythonExecutor):
    # It fetches from PyPI, which a sandbox without egress does not reach.
    test_send_tools_with_default_wikipedia_search_tool = None


class TestAsDocker(theirs.CommonDockerExecutorIntegration):
    pass


class TestAsE2B(theirs.TestE2BExecutorIntegration):
    pass


def test_a_large_final_answer_arrives_whole(custom_executor: SandfleetExecutor) -> None:
    custom_executor.send_tools({"final_answer": theirs.FinalAnswerTool()})
    assert custom_executor('final_answer("x" * 1_000_000)').output == "x" * 1_000_000
