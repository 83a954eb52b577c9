import asyncio
from collections.abc import Callable

import pytest
from sandfleet.codeact import (
    Action,
    CodeActAgent,
    Conversation,
    End,
    FinalAnswer,
    GiveUp,
    PolicyError,
    RunCode,
    RunCommand,
    Verdict,
)
from sandfleet.errors import ClaimError, InvalidArgument, SandboxEnded, UnavailableError
from sandfleet.values.execution import Blame, CommandResult, Execution, Logs, Outcome
from sandfleet.values.sandbox import SandboxInfo
from sandfleet.values.usage import Health

EVERYTHING = ("variables", "processes", "tmp")


class Sandbox:
    """Answers each cell from a list; what is an exception is raised. Incarnations are switched by hand."""

    def __init__(self, *replies: Execution | Exception | Callable[["Sandbox"], Execution]) -> None:
        self.replies = list(replies)
        self.ran: list[str] = []
        self.uid = "u1"
        self.ended = False
        self.unhealthy = 0
        self.commands = self

    async def run_code(self, code: str, *, language: str | None = None, timeout: float | None = None) -> Execution:
        self.ran.append(code)
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply(self) if callable(reply) else reply

    async def run(self, cmd: str | list[str], *, timeout: float | None = None) -> CommandResult:
        self.ran.append(f"$ {cmd}")
        return CommandResult(f"c{len(self.ran)}", Outcome.OK, 0, "done\n")

    async def health(self) -> Health:
        if self.ended:
            return Health(ready=False, message="gone")
        self.unhealthy -= 1
        return Health(ready=self.unhealthy < 0, message="starting")

    async def get_info(self) -> SandboxInfo:
        if self.ended:
            raise SandboxEnded("cannot use the sandbox: its lease is over")
        return SandboxInfo("s", self.uid, "python", workspace_id="w1", last_restart_reason="Crashed")


def said(text: str, execution_id: str = "e1") -> Execution:
    return Execution(execution_id, Outcome.OK, logs=Logs(text))


def failed() -> Execution:
    return Execution("e1", Outcome.ERROR, Blame.CODE, message="it raised")


LOST = Execution("e1", Outcome.LOST, Blame.PLATFORM, message="the executor is gone", lost=EVERYTHING)


def plays(*actions: Action) -> Callable[[Conversation], object]:
    async def policy(conversation: Conversation) -> Action:
        return actions[min(len(conversation.steps), len(actions) - 1)]

    return policy


async def no_sleep(_seconds: float) -> None:
    pass


def agent(policy: object, sandbox: Sandbox, **options: object) -> CodeActAgent:
    return CodeActAgent(policy, sandbox, sleep=no_sleep, **options)


CODE = RunCode("print(6 * 7)", intent="compute")


async def test_an_answer_that_stands_ends_the_run() -> None:
    run = await agent(plays(CODE, FinalAnswer(42, "e1")), Sandbox(said("42\n"))).run("6 * 7?")
    assert (run.end, run.answer.value, len(run.steps), run.failures) == (End.ANSWERED, 42, 2, 0)
    assert run.steps[0].intent == "compute"
    assert run.steps[0].observation.startswith("[execution 1] ok\nstdout: 42")


async def test_a_rejected_answer_costs_a_failure_and_the_policy_sees_why() -> None:
    seen: list[str] = []

    async def policy(conversation: Conversation) -> Action:
        seen.extend(step.observation for step in conversation.steps[-1:])
        return (CODE, FinalAnswer(41, "e1"), FinalAnswer(42, "e1"))[len(conversation.steps)]

    run = await agent(policy, Sandbox(said("42\n"))).run("task")
    assert (run.end, run.failures) == (End.ANSWERED, 1)
    assert "ANSWER REJECTED" in seen[1]
    assert "'41'" in seen[1]


async def test_failures_in_a_row_end_the_run() -> None:
    run = await agent(plays(CODE), Sandbox(*[failed()] * 9), max_failures=3).run("task")
    assert (run.end, len(run.steps), run.answer) == (End.GAVE_UP, 3, None)
    assert "3 steps failed in a row" in run.message


async def test_steps_run_out() -> None:
    run = await agent(plays(CODE), Sandbox(*[said("")] * 9), max_steps=4).run("task")
    assert (run.end, len(run.steps)) == (End.OUT_OF_STEPS, 4)


async def test_a_policy_may_give_up() -> None:
    run = await agent(plays(GiveUp("no data")), Sandbox()).run("task")
    assert run.end is End.GAVE_UP
    assert run.message.endswith("no data")


async def test_a_policy_that_cannot_decide_ends_the_run_with_its_reason() -> None:
    async def policy(conversation: Conversation) -> Action:
        if conversation.steps:
            raise PolicyError("the model's endpoint answered 401")
        return CODE

    run = await agent(policy, Sandbox(said("x"))).run("task")
    assert (run.end, len(run.steps)) == (End.POLICY_FAILED, 1)
    assert "401" in run.message
    assert isinstance(run.error, PolicyError)


async def test_a_policy_that_returns_no_action_is_a_bug_and_raises() -> None:
    with pytest.raises(TypeError, match="str, which is no action"):
        await agent(plays("print(1)"), Sandbox()).run("task")


async def test_a_command_goes_to_the_shell_or_as_its_arguments() -> None:
    sandbox = Sandbox()
    await agent(plays(RunCommand("ls | wc"), RunCommand(("ls", "-l")), GiveUp("")), sandbox).run("task")
    assert sandbox.ran == ["$ ls | wc", "$ ['ls', '-l']"]


async def test_a_request_that_cannot_be_run_as_asked_is_the_models_failure() -> None:
    sandbox = Sandbox(InvalidArgument("cannot run cobol: the languages are python"))
    run = await agent(plays(RunCode("x", "cobol"), GiveUp("")), sandbox).run("task")
    assert run.steps[0].verdict is Verdict.FAILED
    assert "REFUSED, nothing was run: cannot run cobol" in run.steps[0].observation


async def test_a_lost_execution_is_one_observation_that_names_the_loss_and_no_failure() -> None:
    def crash(sandbox: Sandbox) -> Execution:
        sandbox.uid = "u2"
        return LOST

    run = await agent(plays(CODE, CODE, CODE, FinalAnswer(1, "e9")), Sandbox(said("a"), crash, said("1", "e9"))).run(
        "t"
    )
    assert [step.verdict for step in run.steps] == [Verdict.OK, Verdict.LOST, Verdict.OK, Verdict.ACCEPTED]
    assert "LOST by the platform" in run.steps[1].observation
    assert "all variables" in run.steps[1].observation
    assert sum("lost:" in step.observation for step in run.steps) == 1
    assert (run.end, run.recoveries, run.failures) == (End.ANSWERED, 1, 0)


async def test_an_environment_replaced_between_two_steps_is_told_before_anything_runs_in_it() -> None:
    sandbox = Sandbox(said("a"), said("1"))

    async def policy(conversation: Conversation) -> Action:
        if len(conversation.steps) == 1:
            sandbox.uid, sandbox.unhealthy = "u2", 1
        return GiveUp("") if len(conversation.steps) == 3 else RunCode(f"cell {len(conversation.steps)}")

    run = await agent(policy, sandbox).run("task")
    assert sandbox.ran == ["cell 0", "cell 2"]
    assert "NOT RUN" in run.steps[1].observation
    assert "Crashed" in run.steps[1].observation
    assert (run.steps[1].verdict, run.recoveries) == (Verdict.LOST, 1)


async def test_a_replacement_before_anything_ran_costs_nothing() -> None:
    sandbox = Sandbox(said("a"))
    sandbox.unhealthy = 2
    run = await agent(plays(CODE, GiveUp("")), sandbox).run("task")
    assert run.steps[0].verdict is Verdict.OK


async def test_a_cell_that_fails_in_a_new_executor_for_want_of_its_variables_is_no_failure() -> None:
    def silently(sandbox: Sandbox) -> Execution:
        sandbox.uid = "u2"
        return Execution("e1", Outcome.ERROR, Blame.CODE, lost=EVERYTHING)

    replies = (said("a"), silently, said("c"))
    run = await agent(plays(CODE, CODE, CODE, GiveUp("")), Sandbox(*replies)).run("task")
    assert [step.verdict for step in run.steps[:3]] == [Verdict.OK, Verdict.LOST, Verdict.OK]
    assert "all variables" in run.steps[1].observation
    assert (run.recoveries, run.failures) == (1, 0)


async def test_what_an_action_that_was_not_run_told_is_not_told_again_by_the_next_cell() -> None:
    sandbox = Sandbox(said("a"), Execution("e2", Outcome.OK, lost=EVERYTHING))

    async def policy(conversation: Conversation) -> Action:
        if len(conversation.steps) == 1:
            sandbox.uid, sandbox.unhealthy = "u2", 1
        return GiveUp("") if len(conversation.steps) == 3 else CODE

    run = await agent(policy, sandbox).run("task")
    assert ["lost:" in step.observation for step in run.steps[:3]] == [False, True, False]


async def test_a_call_that_fails_before_the_execution_was_accepted_is_not_run_twice() -> None:
    sandbox = Sandbox(UnavailableError("cannot reach the executor", retryable=True), said("ok"))
    run = await agent(plays(CODE, CODE, GiveUp("")), sandbox).run("task")
    assert run.steps[0].verdict is Verdict.LOST
    assert "lost: nothing" in run.steps[0].observation
    assert run.steps[1].verdict is Verdict.OK
    assert len(sandbox.ran) == 2


def claims(sandbox: Sandbox, *, kept: bool) -> Callable[[SandboxInfo], object]:
    async def claim(ended: SandboxInfo) -> tuple[Sandbox, bool]:
        assert ended.workspace_id == "w1"
        return sandbox, kept

    return claim


@pytest.mark.parametrize(("kept", "files"), [(True, "the files in /workspace are there"), (False, "is new and empty")])
async def test_a_sandbox_that_has_ended_is_claimed_again(kept: bool, files: str) -> None:
    def end(sandbox: Sandbox) -> Execution:
        sandbox.ended = True
        return said("a")

    first, second = Sandbox(end), Sandbox(said("1", "e9"))
    second.uid = "u9"
    player = agent(plays(CODE, CODE, CODE, FinalAnswer(1, "e9")), first, claim=claims(second, kept=kept))
    run = await player.run("task")
    assert (run.end, run.recoveries) == (End.ANSWERED, 1)
    assert player.sandbox is second
    assert "its lease is over; another one was claimed" in run.steps[1].observation
    assert files in run.steps[1].observation


async def test_files_that_are_gone_are_told_even_if_nothing_had_run() -> None:
    first, second = Sandbox(), Sandbox(said("x"))
    player = agent(plays(CODE, GiveUp("")), first, claim=claims(second, kept=False))
    await player._watched.check()
    first.ended = True
    run = await player.run("task")
    assert "is new and empty" in run.steps[0].observation


async def test_no_other_sandbox_to_be_had_is_a_platform_failure_with_the_steps_so_far() -> None:
    async def claim(_ended: SandboxInfo) -> tuple[Sandbox, bool]:
        raise ClaimError("cannot claim a sandbox: the limit is reached")

    def end(sandbox: Sandbox) -> Execution:
        sandbox.ended = True
        return said("a")

    run = await agent(plays(CODE), Sandbox(end), claim=claim).run("task")
    assert (run.end, len(run.steps)) == (End.PLATFORM_FAILURE, 2)
    assert "the limit is reached" in run.message


async def test_an_environment_that_stays_unhealthy_is_a_platform_failure_after_bounded_waiting() -> None:
    sandbox, waits = Sandbox(), []
    sandbox.unhealthy = 1000

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    run = await CodeActAgent(plays(CODE), sandbox, sleep=sleep).run("task")
    assert run.end is End.PLATFORM_FAILURE
    assert "starting" in run.message
    assert waits == sorted(waits)
    assert 0 < sum(waits) < 30


async def test_an_executor_silent_far_beyond_the_deadline_counts_as_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sandfleet.codeact.loop._PATIENCE", 0.01)

    class Silent(Sandbox):
        async def run_code(self, code: str, *, language: str | None = None, timeout: float | None = None) -> Execution:
            await asyncio.Event().wait()
            raise AssertionError("unreachable")

    run = await agent(plays(CODE), Silent(), timeout=0.01).run("task")
    assert run.end is End.PLATFORM_FAILURE
    assert "did not answer in time" in run.steps[0].observation


async def test_every_step_is_shown_as_it_ends_with_its_time() -> None:
    ticks = iter(range(100))
    shown: list[int] = []
    player = CodeActAgent(
        plays(CODE, FinalAnswer("a", "e1")),
        Sandbox(said("a")),
        on_step=lambda step: shown.append(step.number),
        clock=lambda: float(next(ticks)),
    )
    run = await player.run("task")
    assert shown == [1, 2]
    assert [step.seconds for step in run.steps] == [1.0, 1.0]
    assert run.seconds == 5.0


async def test_an_agent_may_work_on_another_task_in_the_same_sandbox() -> None:
    player = agent(plays(CODE, FinalAnswer("a", "e1")), Sandbox(said("a"), said("a")))
    assert [(await player.run(task)).end for task in ("one", "two")] == [End.ANSWERED, End.ANSWERED]


async def test_a_loss_that_two_executions_speak_of_is_told_once() -> None:
    killed = Execution("e1", Outcome.KILLED, Blame.CODE, lost=("variables",))
    after = Execution("e2", Outcome.ERROR, Blame.CODE, lost=("variables",))
    replies = (killed, after, said("x"), killed, killed)
    run = await agent(plays(CODE), Sandbox(*replies), max_steps=5, max_failures=9).run("task")
    assert ["lost:" in step.observation for step in run.steps] == [True, False, False, True, True]
