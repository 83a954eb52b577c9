"""Runs of the loop: own judges, replies without an action, failing policies, and texts that UTF-8 cannot hold."""

import sys
from collections.abc import Callable
from typing import Any

import pytest
from sandfleet.codeact import (
    Action,
    CodeActAgent,
    Conversation,
    End,
    FinalAnswer,
    GiveUp,
    NoAction,
    PolicyError,
    RunCode,
    RunCommand,
    Said,
    Step,
    Tokens,
    Verdict,
)
from sandfleet.codeact.policies import protocol
from sandfleet.values.execution import CommandResult, Execution, FileChanges, Logs, Outcome, Result
from sandfleet.values.sandbox import SandboxInfo


class Sandbox:
    """Runs each cell as OK; counts what it ran."""

    def __init__(self, execution: Execution | None = None) -> None:
        self.execution = execution or Execution("e1", Outcome.OK, logs=Logs("42\n"))
        self.ran: list[Any] = []
        self.commands = self

    async def run_code(self, code: str, *, language: str | None = None, timeout: float | None = None) -> Execution:
        self.ran.append(code)
        code.encode()
        return self.execution

    async def run(self, cmd: str | list[str], *, timeout: float | None = None) -> CommandResult:
        self.ran.append(cmd)
        return CommandResult("c1", Outcome.OK, 0, "done\n")

    async def health(self) -> Any:
        raise AssertionError("a known sandbox is looked at only later")

    async def get_info(self) -> SandboxInfo:
        return SandboxInfo("s", "u1", "python")


class Healthy(Sandbox):
    async def health(self) -> Any:
        class Ready:
            ready = True
            message = ""

        return Ready()


def plays(*actions: Action) -> Callable[[Conversation], Any]:
    async def policy(conversation: Conversation) -> Action:
        return actions[min(len(conversation.steps), len(actions) - 1)]

    return policy


def speaks(*replies: str) -> Callable[[Conversation], Any]:
    """A policy of what a model writes."""

    async def policy(conversation: Conversation) -> Action:
        return protocol.parse(replies[len(conversation.steps)], conversation)

    return policy


# --- Judges ---


async def test_a_judge_decides_instead_of_the_evidence() -> None:
    asked: list[tuple[object, str]] = []

    def judge(answer: FinalAnswer, conversation: Conversation) -> str | None:
        asked.append((answer.value, conversation.task))
        return None if "sea" in str(answer.value) else "it does not speak of the sea."

    policy = plays(FinalAnswer("A poem."), FinalAnswer("A poem of the sea."))
    run = await CodeActAgent(policy, Healthy(), judge=judge).run("Write.")
    assert (run.end, run.failures) == (End.ANSWERED, 1)
    assert run.steps[0].observation == "[step 1] ANSWER REJECTED: it does not speak of the sea."
    assert asked == [("A poem.", "Write."), ("A poem of the sea.", "Write.")]


async def test_a_judge_may_take_its_time() -> None:
    async def judge(_answer: FinalAnswer, _conversation: Conversation) -> str | None:
        return None

    run = await CodeActAgent(plays(FinalAnswer("x")), Healthy(), judge=judge).run("t")
    assert run.end is End.ANSWERED


async def test_without_a_judge_an_answer_needs_its_evidence() -> None:
    run = await CodeActAgent(plays(FinalAnswer("A poem.")), Healthy()).run("t")
    assert run.end is End.GAVE_UP
    assert "names no execution" in run.message


@pytest.mark.parametrize("judged", [False, True])
async def test_a_policy_knows_whether_an_answer_needs_evidence(judged: bool) -> None:
    seen: list[bool] = []

    async def policy(conversation: Conversation) -> Action:
        seen.append(conversation.needs_evidence)
        return GiveUp("x")

    judge = (lambda _answer, _conversation: None) if judged else None
    await CodeActAgent(policy, Healthy(), judge=judge).run("t")
    assert seen == [not judged]


# --- Replies without an action ---


async def test_a_reply_without_an_action_is_a_failure_that_the_model_can_repair() -> None:
    replies = ("It is 42.", "```python\nprint(42)\n```", "FINAL ANSWER (execution 2): 42")
    run = await CodeActAgent(speaks(*replies), Healthy()).run("t")
    assert [step.verdict for step in run.steps] == [Verdict.FAILED, Verdict.OK, Verdict.ACCEPTED]
    assert run.steps[0].observation.startswith("[step 1] NOTHING WAS RUN: no code block and no final answer was found")


async def test_a_model_that_never_acts_ends_the_run_with_the_reason() -> None:
    run = await CodeActAgent(plays(NoAction("your reply was empty.")), Healthy(), max_failures=3).run("t")
    assert (run.end, len(run.steps)) == (End.GAVE_UP, 3)
    assert "your reply was empty" in run.message


async def test_code_in_thinking_is_never_run() -> None:
    sandbox = Healthy()
    replies = ("<think>\n```python\nboom()\n```\n", "```python\nboom()\n```\n</think>\nWell.", "GIVE UP: x")
    await CodeActAgent(speaks(*replies), sandbox).run("t")
    assert sandbox.ran == []


async def test_what_was_done_with_a_reply_is_told_with_its_observation() -> None:
    replies = ("```python\na\n```\n```bash\nls\n```", "GIVE UP: x")
    sandbox = Healthy()
    run = await CodeActAgent(speaks(*replies), sandbox).run("t")
    assert sandbox.ran == ["a\n"]
    lines = run.steps[0].observation.splitlines()
    assert lines[0] == "[execution 1] ok"
    assert lines[1].startswith("note: not run: the bash after it. One reply runs one cell")
    assert lines[2] == "stdout: 42"


async def test_the_tokens_of_a_run_are_summed() -> None:
    policy = plays(RunCode("x", said=Said(tokens=Tokens(10, 1))), GiveUp("x", said=Said(tokens=Tokens(20, 2))))
    assert (await CodeActAgent(policy, Healthy()).run("t")).tokens == Tokens(30, 3)


# --- Policies that fail ---


async def test_a_policy_that_fails_is_an_end_of_its_own_with_its_error_and_the_steps_so_far() -> None:
    failed = PolicyError("the model's endpoint answered 401: bad key")
    shown: list[Step] = []

    async def policy(conversation: Conversation) -> Action:
        if conversation.steps:
            raise failed
        return RunCode("x")

    run = await CodeActAgent(policy, Healthy(), on_step=shown.append).run("t")
    assert (run.end, run.end.value, run.error) == (End.POLICY_FAILED, "policy_failed", failed)
    assert run.message == "the policy failed: the model's endpoint answered 401: bad key"
    assert [step.number for step in run.steps] == [step.number for step in shown] == [1]
    assert run.answer is None


async def test_giving_up_is_no_failure_of_the_policy() -> None:
    run = await CodeActAgent(plays(GiveUp("no data")), Healthy()).run("t")
    assert (run.end, run.error) == (End.GAVE_UP, None)


# --- Lone surrogates ---


@pytest.mark.parametrize(
    ("action", "what"),
    [
        (RunCode("print('\ud800')"), "cannot run the code: it has a lone surrogate (U+D800) at character 7"),
        (RunCode("x", "pyth\udcffon"), "cannot run the language"),
        (RunCommand("cat \udcff"), "cannot run the command"),
        (RunCommand(("cat", "\udcff")), "cannot run the command"),
    ],
)
async def test_code_that_utf8_cannot_hold_is_refused_in_words(action: Action, what: str) -> None:
    sandbox = Healthy()
    run = await CodeActAgent(plays(action, GiveUp("x")), sandbox).run("t")
    assert run.steps[0].verdict is Verdict.FAILED
    assert run.steps[0].observation.startswith(f"[step 1] REFUSED, nothing was run: {what}")
    assert sandbox.ran == []


async def test_whatever_has_a_lone_surrogate_an_observation_can_be_printed() -> None:
    names = FileChanges(created=("caf\udce9.txt",))
    execution = Execution(
        "e1", Outcome.OK, logs=Logs("out \ud800"), results=(Result({"text/plain": "r \udfff"}),), files=names
    )
    policy = plays(RunCode("x"), FinalAnswer("a \ud800", "e1"), NoAction("b \ud800"), GiveUp("c \ud800"))
    run = await CodeActAgent(policy, Healthy(execution), max_failures=9).run("task \ud800")
    text = "\n".join([*(step.observation for step in run.steps), run.message])
    text.encode()
    assert "caf\\udce9.txt" in text
    assert "out \\ud800" in text


async def test_a_policy_that_fails_with_a_lone_surrogate_can_be_printed() -> None:
    async def policy(_conversation: Conversation) -> Action:
        raise PolicyError("answered \ud800")

    run = await CodeActAgent(policy, Healthy()).run("t")
    run.message.encode()
    sys.stdout.write(run.message)


async def test_a_run_is_printed_in_one_line() -> None:
    accepts = await CodeActAgent(plays(FinalAnswer((1, 2))), Healthy(), judge=lambda *_: None, clock=lambda: 0.0).run(
        "t"
    )
    assert str(accepts) == "answered: 1; 2 (1 step, 0.0 s)"
    gave_up = await CodeActAgent(plays(GiveUp("no data")), Healthy(), clock=lambda: 0.0).run("t")
    assert str(gave_up) == "gave_up: the policy gave up: no data (1 step, 0.0 s)"
