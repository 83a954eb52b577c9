"""What the adapters for frameworks share; the suites of the frameworks themselves are in tests/conformance."""

import sys
from dataclasses import replace
from importlib import import_module

import pytest
from sandfleet import CommandResult, Execution, FileNotFound, InvalidArgument, Outcome, SandboxEnded
from sandfleet.errors import SandboxError
from sandfleet.integrations._base import mapped, mapping, needed, not_lost, why_failed
from sandfleet.values.execution import Blame, ExecutionError


class TheirError(Exception):
    pass


FRAMEWORKS = {
    "ag2": "ag2",
    "google_adk": "google.adk",
    "gymnasium": "gymnasium",
    "inspect": "inspect_ai",
    "langchain": "deepagents",
    "mini_swe_agent": "minisweagent",
    "openai_agents": "agents",
    "pydantic_ai": "pydantic_ai",
    "smolagents": "smolagents",
    "swerex": "swerex",
}


@pytest.mark.parametrize("extra", FRAMEWORKS)
def test_a_missing_framework_names_the_command_that_installs_it(extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, FRAMEWORKS[extra], None)
    with pytest.raises(ImportError, match=rf"is not installed: pip install 'sandfleet\[{extra}\]'"):
        import_module(f"sandfleet.integrations.{extra}")


def test_a_module_that_a_framework_itself_lacks_is_not_called_the_framework() -> None:
    with pytest.raises(ModuleNotFoundError, match="No module named 'absent_part'"), needed("swerex", "swerex"):
        import_module("absent_part")


@pytest.mark.parametrize("failure", [SandboxEnded("cannot run: it has ended"), InvalidArgument("cannot run: bad")])
def test_a_failure_of_the_platform_is_the_frameworks_own_error_with_its_cause(failure: SandboxError) -> None:
    failed = pytest.raises(TheirError, match=r"the sandbox failed, which is no fault of the code: cannot run")
    with failed as caught, mapped(TheirError):
        raise failure
    assert caught.value.__cause__ is failure


def test_errors_of_the_code_pass() -> None:
    with pytest.raises(ZeroDivisionError), mapped(TheirError):
        _ = 1 / 0


@pytest.mark.parametrize("kind", [Execution, CommandResult])
def test_only_what_the_platform_has_lost_is_raised(kind: type[Execution] | type[CommandResult]) -> None:
    for outcome in Outcome:
        ended = kind("e", outcome, message="the executor is gone")
        if outcome is Outcome.LOST:
            with pytest.raises(SandboxError, match="cannot tell how it ended: the executor is gone"):
                not_lost(ended)
        else:
            assert not_lost(ended) is ended


def test_what_ran_when_the_sandbox_was_closed_is_lost() -> None:
    with pytest.raises(SandboxError, match=r"cannot tell how it ended: The sandbox was closed\."):
        not_lost(CommandResult("e", Outcome.INTERRUPTED, reason="SandboxClosed", message="The sandbox was closed."))
    interrupted = CommandResult("e", Outcome.INTERRUPTED, reason="Interrupted")
    assert not_lost(interrupted) is interrupted


def test_why_a_cell_failed_names_a_limit_before_the_exception_by_which_it_ended_the_code() -> None:
    error = ExecutionError("KeyboardInterrupt", "", "Traceback …")
    ended = Execution("e", Outcome.TIMEOUT, message="It was ended after 1 s.", error=error)
    assert why_failed(ended) == "It was ended after 1 s.\nKeyboardInterrupt: \nTraceback …"
    assert why_failed(replace(ended, outcome=Outcome.ERROR)) == "KeyboardInterrupt: \nTraceback …"
    assert why_failed(replace(ended, outcome=Outcome.KILLED, error=None)) == "It was ended after 1 s."
    assert why_failed(Execution("e", Outcome.OK)) == ""


@pytest.mark.parametrize("blame", [None, Blame.CODE, Blame.PLATFORM])
def test_code_that_misses_the_variables_of_an_executor_that_was_replaced_is_not_to_blame(blame: Blame | None) -> None:
    everything = ("variables", "processes", "tmp")
    ended = Execution("e", Outcome.ERROR, blame, lost=everything)
    with pytest.raises(SandboxError, match="its executor was replaced, and this is lost: variables, processes, tmp"):
        not_lost(ended)
    # The code's own end of its interpreter, a limit, and a session that was resumed with its variables.
    for other in (
        replace(ended, lost=("variables", "processes")),
        replace(ended, blame=Blame.LIMIT),
        replace(ended, lost=("processes", "tmp")),
    ):
        assert not_lost(other) is other


@pytest.mark.parametrize(
    "failure", [SandboxEnded("cannot write: it has ended"), FileNotFound("cannot read: it is absent")]
)
async def test_a_whole_async_call_is_mapped_and_errors_of_files_pass(failure: Exception) -> None:
    @mapping(TheirError)
    async def call(number: int, *, fails: bool) -> int:
        if fails:
            raise failure
        return number

    assert await call(7, fails=False) == 7
    with pytest.raises(TheirError if isinstance(failure, SandboxError) else FileNotFoundError):
        await call(7, fails=True)
