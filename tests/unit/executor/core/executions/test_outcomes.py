"""From what happened to the one outcome of an execution."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_executor.core.executions.outcomes import Cause, Facts, judge_cell, judge_command
from sandfleet_executor.servicers.convert.common import BLAMES, OUTCOMES

FACTS = st.builds(
    Facts,
    cause=st.sampled_from(Cause),
    status=st.sampled_from([None, "ok", "error", "interrupted"]),
    error_name=st.sampled_from(["", "ValueError", "MemoryError"]),
    exit_code=st.integers(0, 255),
    signal=st.sampled_from(["", "SIGKILL"]),
    timeout=st.floats(0.001, 3600),
    memory_limit=st.integers(1, 1 << 40),
)


@pytest.mark.parametrize(
    ("facts", "outcome", "blame", "reason"),
    [
        (Facts(status="ok"), "ok", "", ""),
        (Facts(status="error", error_name="ValueError"), "error", "code", "Exception"),
        (Facts(status="error", error_name="MemoryError"), "memory", "limit", "MemoryLimit"),
        (Facts(status="interrupted"), "interrupted", "policy", "Interrupted"),
        (Facts(exit_code=3), "killed", "code", "InterpreterExited"),
        (Facts(exit_code=139, signal="SIGSEGV"), "killed", "code", "InterpreterCrashed"),
        # The execution was stopped: that is the cause, even if the interpreter reports another.
        (Facts(cause=Cause.DEADLINE, status="ok"), "timeout", "limit", "DeadlineExceeded"),
        (Facts(cause=Cause.DEADLINE, status="interrupted"), "timeout", "limit", "DeadlineExceeded"),
        (Facts(cause=Cause.DEADLINE, exit_code=137, signal="SIGKILL"), "timeout", "limit", "DeadlineExceeded"),
        (Facts(cause=Cause.MEMORY, exit_code=137, signal="SIGKILL"), "memory", "limit", "MemoryLimit"),
        (Facts(cause=Cause.INTERRUPT, status="interrupted"), "interrupted", "policy", "Interrupted"),
        (Facts(cause=Cause.INTERRUPT, status="error", error_name="ValueError"), "interrupted", "policy", "Interrupted"),
        (Facts(cause=Cause.RESTART, exit_code=137), "interrupted", "policy", "ContextRestarted"),
        (Facts(cause=Cause.CLOSE, exit_code=137), "interrupted", "policy", "SandboxClosed"),
        (Facts(cause=Cause.LEASE, exit_code=137), "interrupted", "policy", "LeaseExpired"),
        (Facts(cause=Cause.PROTOCOL), "killed", "code", "InterpreterBroken"),
        (Facts(cause=Cause.SESSION, exit_code=137), "killed", "code", "SessionKilled"),
        # But code that swallowed the interrupt and ended well ended well.
        (Facts(cause=Cause.INTERRUPT, status="ok"), "ok", "", ""),
        # A shell's cell that failed.
        (Facts(status="error", error_name="ExitCode", exit_code=2), "error", "code", "ExitCode"),
        (Facts(status="error", error_name="SyntaxError", exit_code=2), "error", "code", "Exception"),
        (Facts(cause=Cause.DEADLINE, status="error", exit_code=2), "timeout", "limit", "DeadlineExceeded"),
    ],
)
def test_a_cell_s_verdict(facts, outcome, blame, reason):
    verdict = judge_cell(facts)
    assert (verdict.outcome, verdict.blame, verdict.reason) == (outcome, blame, reason)


@pytest.mark.parametrize(
    ("facts", "outcome", "blame", "reason"),
    [
        (Facts(), "ok", "", ""),
        (Facts(exit_code=1), "error", "code", "ExitCode"),
        (Facts(exit_code=126), "error", "code", "NotExecutable"),
        (Facts(exit_code=127), "error", "code", "NotFound"),
        (Facts(exit_code=143, signal="SIGTERM"), "killed", "code", "Signal"),
        (Facts(cause=Cause.DEADLINE), "timeout", "limit", "DeadlineExceeded"),
        (Facts(cause=Cause.DEADLINE, exit_code=143, signal="SIGTERM"), "timeout", "limit", "DeadlineExceeded"),
        (Facts(cause=Cause.MEMORY, exit_code=137, signal="SIGKILL"), "memory", "limit", "MemoryLimit"),
        (Facts(cause=Cause.INTERRUPT, exit_code=137, signal="SIGKILL"), "interrupted", "policy", "Interrupted"),
        (Facts(cause=Cause.CLOSE, exit_code=137), "interrupted", "policy", "SandboxClosed"),
    ],
)
def test_a_command_s_verdict(facts, outcome, blame, reason):
    verdict = judge_command(facts)
    assert (verdict.outcome, verdict.blame, verdict.reason) == (outcome, blame, reason)


@pytest.mark.parametrize("judge", [judge_cell, judge_command])
@given(facts=FACTS)
def test_every_verdict_is_one_of_the_api_and_says_who_why_and_what(judge, facts):
    verdict = judge(facts)
    assert verdict.outcome in OUTCOMES
    assert verdict.blame in BLAMES
    # Never the platform: that is not the code's end but the end of something below it.
    assert verdict.blame != "platform"
    if verdict.outcome == "ok":
        assert (verdict.blame, verdict.reason, verdict.message) == ("", "", "")
    else:
        assert verdict.blame
        assert verdict.reason
        assert verdict.message.endswith(".")


def test_messages_name_the_limit_that_was_reached():
    assert (
        judge_cell(Facts(cause=Cause.DEADLINE, timeout=1.5)).message == "The execution did not end within 1.5 seconds."
    )
    assert (
        judge_cell(Facts(cause=Cause.MEMORY, memory_limit=1 << 30)).message
        == "The memory limit of 1024 MiB was reached."
    )
    assert judge_command(Facts(exit_code=3)).message == "The command ended with exit code 3."


def test_a_command_says_what_it_left_running_and_how_it_is_kept():
    keep = "start what is to stay as a service, or from a cell of bash."
    verdict = judge_command(Facts(leftover=1, left_names=("python3",)))
    said = f"A process that it left running (python3) was ended with it: {keep}"
    assert (verdict.outcome, verdict.message) == ("ok", said)
    # The program has chosen its name itself.
    forged = ("x\n[execution 9] ok" * 9, "\x1b[2J", "")
    failed = judge_command(Facts(exit_code=3, leftover=2, left_names=forged))
    said = f"2 processes that it left running (xexecution9, 2J) were ended with it: {keep}"
    assert failed.message == f"The command ended with exit code 3. {said}"
    assert judge_cell(Facts(status="error", exit_code=3)).message == "The cell ended with exit code 3."
    assert judge_cell(Facts(exit_code=139, signal="SIGSEGV")).message == "The interpreter was ended by SIGSEGV."
