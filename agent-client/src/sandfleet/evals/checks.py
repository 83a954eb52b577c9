"""Whether a run has solved its task: its answer by value, its test by a fresh interpreter in the sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandfleet.codeact.answers import loose_numbers
from sandfleet.evals.task import EvalTask
from sandfleet.resources.scripts import failed_script

if TYPE_CHECKING:
    from sandfleet.codeact import AgentRun
    from sandfleet.driver import Checker
    from sandfleet.sandbox import AsyncSandbox

_TEST = "sandfleet_eval_test.py"
_TEST_TIMEOUT = 30.0


def checker(task: EvalTask) -> Checker:
    """Make the checker of a task."""

    async def check(run: AgentRun, sandbox: AsyncSandbox) -> str:
        values = tuple(str(value) for value in run.answer.values) if run.answer else ()
        if trouble := wrong_values(task, values):
            return trouble
        return await _failed_test(task.test, sandbox) if task.test else ""

    return check


def wrong_values(task: EvalTask, values: tuple[str, ...]) -> str:
    """Say which value of an answer is wrong; "" when none is. Pure."""
    if len(values) < len(task.answer):
        return f"the answer has {len(values)} values, and {len(task.answer)} are asked for"
    for expected, found in zip(task.answer, values, strict=False):
        if isinstance(expected, str):
            is_right = " ".join(found.split()).casefold() == " ".join(expected.split()).casefold()
        else:
            is_right = _is_near(expected, found, task.tolerance)
        if not is_right:
            return f"the answer is {found[:80]}, and {expected} is right"
    return ""


def _is_near(expected: float, found: str, tolerance: float) -> bool:
    numbers = loose_numbers(found)
    return bool(numbers) and abs(numbers[0] - expected) <= tolerance * max(1.0, abs(expected))


async def _failed_test(test: str, sandbox: AsyncSandbox) -> str:
    """Say how the test failed. It is written now: the agent has not seen it."""
    trouble = await failed_script(sandbox, _TEST, test, timeout=_TEST_TIMEOUT)
    return f"the test failed: {trouble[:200]}" if trouble else ""
