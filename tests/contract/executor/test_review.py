"""Reviewed execution: nothing of the caller's runs, and nothing is planted, before the fleet has signed for it."""

import asyncio
import hashlib
import time

import pytest
import pytest_asyncio
from contract.executor.harness import until
from contract.executor.reviewer import asked, done, refused, reviewing
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sandfleet.errors import AccessDenied, PreconditionFailed, SandboxEnded
from sandfleet.values.services import ServiceSpec

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def executor(reviewed):
    return reviewed


# One call of each kind that waits, and the file that it would have touched.
WAITING = {
    "a cell": ("cell", lambda sandbox: sandbox.run_code("open('/workspace/touched', 'w')")),
    "a command": ("command", lambda sandbox: sandbox.commands.run("touch touched")),
    "a command of arguments": ("command", lambda sandbox: sandbox.commands.run(["touch", "touched"])),
    "a file": ("file", lambda sandbox: sandbox.files.write("touched", b"x")),
    "a folder": ("folder", lambda sandbox: sandbox.files.make_dir("touched")),
    "a service": (
        "service",
        lambda sandbox: sandbox.services.apply([ServiceSpec(name="toucher", cmd="touch touched; sleep 60")]),
    ),
    "a context": ("context", lambda sandbox: sandbox.create_context("other", envs={"PYTHONSTARTUP": "/workspace/x"})),
}


@pytest.mark.parametrize("kind", WAITING)
async def test_nothing_runs_and_nothing_is_planted_before_it_is_approved(executor, reviewer, kind):
    word, call = WAITING[kind]
    sandbox = executor.sandbox
    async with asked(call(sandbox)) as task:
        review = await reviewer.next()
        assert review.kind == word
        assert not task.done()
        assert not await sandbox.files.exists("touched")
        await reviewer.deny(review, "not today")
        try:
            result = await task
        except AccessDenied as error:
            assert error.reason == "ReviewDenied"
            assert "not today" in error.message
        else:
            assert (result.outcome, result.blame, result.reason) == ("denied", "policy", "ReviewDenied")
            assert "not today" in result.message
    assert not await sandbox.files.exists("touched")


@pytest.mark.parametrize("kind", [kind for kind, (word, _) in WAITING.items() if word != "context"])
async def test_the_same_runs_once_it_is_approved(executor, reviewer, kind):
    sandbox = executor.sandbox
    await done(reviewer, WAITING[kind][1](sandbox))
    await until(lambda: sandbox.files.exists("touched"))
    await done(reviewer, sandbox.files.remove("touched", recursive=True))
    if kind == "a service":
        await done(reviewer, sandbox.services.apply([]))


async def test_a_review_shows_the_exact_bytes_and_all_else_that_was_asked_for(executor, reviewer):
    code = "# ünï\r\nx = 1\t"
    async with asked(executor.sandbox.run_code(code, envs={"A": "b"}, timeout=7)):
        review = await reviewer.next()
    assert review.content == code.encode()
    assert '"envs": {"A": "b"}' in review.settings
    assert '"timeout": {"seconds": 7}' in review.settings
    assert (review.context_id, review.method, review.editable) == ("default", "InterpreterService/Execute", True)


async def test_an_edit_runs_in_place_of_what_was_asked_for_and_the_agent_is_told(executor, reviewer):
    async with asked(executor.sandbox.run_code("print('as asked')")) as task:
        await reviewer.edit(await reviewer.next(), b"print('as edited')")
        execution = await task
    assert execution.logs.stdout == "as edited\n"
    (notice,) = [one for one in execution.notices if one.reason == "ReviewEdited"]
    assert "-print('as asked')\n+print('as edited')" in notice.message


async def test_a_line_for_the_shell_can_be_edited_and_arguments_cannot(executor, reviewer):
    async with asked(executor.sandbox.commands.run("echo asked")) as task:
        await reviewer.edit(await reviewer.next(), b"echo edited")
        assert (await task).stdout == "edited\n"
    async with asked(executor.sandbox.commands.run(["echo", "asked"])):
        review = await reviewer.next()
        assert await refused(reviewer.edit(review, b"echo edited")) == ("FAILED_PRECONDITION", "NotEditable")


async def test_reading_and_ending_need_no_review(executor, reviewer):
    sandbox = executor.sandbox
    await done(reviewer, sandbox.files.write("read.txt", b"text"))
    assert await sandbox.files.read("read.txt") == "text"
    assert [entry.name for entry in await sandbox.files.list(".") if entry.name == "read.txt"]
    await sandbox.usage()
    await sandbox.list_contexts()
    assert await reviewer.pending() == []


async def test_waiting_for_a_reviewer_costs_no_deadline(executor, reviewer):
    async with asked(executor.sandbox.run_code("print('ran')", timeout=0.5)) as task:
        review = await reviewer.next()
        asked_at = time.time()
        await until(lambda: time.time() > asked_at + 1)
        await reviewer.approve(review)
        execution = await task
    assert (execution.outcome, execution.logs.stdout) == ("ok", "ran\n")
    assert execution.usage.wall_seconds < time.time() - asked_at


async def test_waiting_for_a_reviewer_is_no_idleness_and_the_lease_ends_it(starting):
    async with starting(contract="reviewed") as executor, reviewing(executor) as reviewer:
        async with asked(executor.sandbox.run_code("1")) as task:
            await reviewer.next()
            began = time.time()
            await executor.open("session", idle_timeout=0.5, lease=3)
            try:
                execution = await task
            except SandboxEnded:
                pass
            else:
                assert execution.outcome in {"interrupted", "lost"}
        assert time.time() - began > 2


async def test_an_interrupt_ends_the_wait(executor, reviewer):
    async with asked(executor.sandbox.run_code("1")) as task:
        await reviewer.next()
        assert await executor.sandbox.interrupt()
        assert (await task).outcome == "interrupted"
    assert await reviewer.pending() == []


async def test_a_call_whose_caller_has_gone_waits_no_more(executor, reviewer):
    async with asked(executor.sandbox.files.write("gone.txt", b"x")):
        await reviewer.next()
    await until(reviewer.waiting_for_none)
    assert not await executor.sandbox.files.exists("gone.txt")


async def test_a_client_that_goes_away_leaves_its_cell_waiting(executor, reviewer):
    other = executor.client()
    async with asked(other.run_code("open('/workspace/left', 'w').close()", execution_id="left-behind")):
        review = await reviewer.next()
        await other.close()
    assert [one.review_id for one in await reviewer.pending()] == [review.review_id]
    await reviewer.approve(review)
    assert (await executor.sandbox.attach("left-behind")).outcome == "ok"


@pytest.mark.smoke
@pytest.mark.parametrize(
    "call",
    [
        lambda sandbox: sandbox.complete("pri"),
        lambda sandbox: sandbox.inspect("print"),
    ],
    ids=["complete", "inspect"],
)
async def test_what_cannot_be_shown_to_a_reviewer_is_refused(executor, call):
    with pytest.raises(PreconditionFailed) as caught:
        await call(executor.sandbox)
    assert caught.value.reason == "NotReviewable"


# Attacks


async def test_an_approval_counts_once(executor, reviewer):
    async with asked(executor.sandbox.run_code("runs = globals().get('runs', 0) + 1; runs")) as task:
        statement = reviewer.statement(await reviewer.next())
        # Control: it is good the first time.
        await reviewer.send(statement)
        assert (await task).text == "1"
        assert await refused(reviewer.send(statement)) == ("NOT_FOUND", "ReviewNotFound")
    async with asked(executor.sandbox.run_code("runs = globals().get('runs', 0) + 1; runs")) as task:
        review = await reviewer.next()
        assert await refused(reviewer.send(statement)) == ("NOT_FOUND", "ReviewNotFound")
        assert not task.done()
        await reviewer.approve(review)
        assert (await task).text == "2"


STOLEN = {
    "of another request": lambda review: {"digest": hashlib.sha256(b"another").hexdigest()},
    "of an earlier state": lambda review: {"state": review.state - 1},
    "of a later state": lambda review: {"state": review.state + 1},
}
FORGED = {
    "signed by another key": lambda: {"key": Ed25519PrivateKey.generate()},
    "for another sandbox": lambda: {"aud": "another"},
    "expired": lambda: {"exp": int(time.time()) - 60},
    "not valid yet": lambda: {"nbf": int(time.time()) + 3600},
    "without an end": lambda: {"exp": None},
    "that is a token": lambda: {"use": None},
    "of another issuer": lambda: {"iss": "a-stranger"},
    "without a state": lambda: {"state": None},
}


@pytest.mark.parametrize("how", STOLEN)
async def test_an_approval_for_something_else_opens_nothing(executor, reviewer, how):
    async with asked(executor.sandbox.run_code("1")) as task:
        review = await reviewer.next()
        wrong = reviewer.send(reviewer.statement(review, **STOLEN[how](review)))
        assert await refused(wrong) == ("FAILED_PRECONDITION", "ReviewChanged")
        assert not task.done()
        # Control: the right one opens it.
        await reviewer.approve(review)
        assert (await task).outcome == "ok"


@pytest.mark.parametrize("how", FORGED)
async def test_a_statement_that_is_not_the_fleets_opens_nothing(executor, reviewer, how):
    async with asked(executor.sandbox.run_code("1")) as task:
        review = await reviewer.next()
        wrong = reviewer.send(reviewer.statement(review, **FORGED[how]()))
        assert await refused(wrong) == ("PERMISSION_DENIED", "ApprovalInvalid")
        assert not task.done()
        # Control: the fleet's own opens it.
        await reviewer.approve(review)
        assert (await task).outcome == "ok"


async def test_the_agents_own_token_neither_answers_nor_lists(executor, reviewer):
    agents = executor.token(scope="interpreter process filesystem session ports")
    async with asked(executor.sandbox.run_code("1")) as task:
        review = await reviewer.next()
        stolen = reviewer.statement(review)
        assert await refused(reviewer.send(stolen, token=agents)) == ("PERMISSION_DENIED", "ScopeMissing")
        # A capability token is no approval, even if the fleet sends it.
        assert await refused(reviewer.send(agents)) == ("PERMISSION_DENIED", "ApprovalInvalid")
        assert not task.done()
        # Control: the same statement opens it, when the fleet sends it.
        await reviewer.send(stolen)
        assert (await task).outcome == "ok"


async def test_what_runs_in_between_makes_an_approval_stale(executor, reviewer):
    sandbox = executor.sandbox
    await done(reviewer, sandbox.files.write("helper.py", b"value = 'harmless'"))
    await done(reviewer, sandbox.create_context("importer"))
    async with asked(sandbox.run_code("import helper; helper.value", context="importer")) as task:
        looked_at = await reviewer.next()
        async with asked(sandbox.files.write("helper.py", b"value = 'planted'")) as write:
            first, second = await reviewer.waiting(2)
            assert first.review_id == looked_at.review_id
            await reviewer.approve(second)
            await write
        assert await refused(reviewer.approve(looked_at)) == ("FAILED_PRECONDITION", "ReviewChanged")
        assert not task.done()
        # Control: with the state that it has now it runs, and shows what was planted.
        await reviewer.approve(await reviewer.next())
        assert (await task).text == "'planted'"


async def test_an_edit_that_was_not_approved_does_not_run(executor, reviewer):
    async with asked(executor.sandbox.run_code("1")) as task:
        review = await reviewer.next()
        signed = reviewer.statement(review, "edit", edit=hashlib.sha256(b"2").hexdigest())
        assert await refused(reviewer.send(signed, b"3")) == ("PERMISSION_DENIED", "ApprovalInvalid")
        assert await refused(reviewer.send(reviewer.statement(review), b"3")) == (
            "PERMISSION_DENIED",
            "ApprovalInvalid",
        )
        # Control: the edit that was signed runs.
        await reviewer.send(signed, b"2")
        assert (await task).text == "2"


async def test_requests_beyond_the_list_are_refused_and_those_in_it_wait_on(executor, reviewer):
    async with asked(asyncio.gather(*(executor.sandbox.files.write(name, b"x") for name in map(str, range(64))))):
        await reviewer.waiting(64)
        execution = await executor.sandbox.run_code("1")
        assert (execution.outcome, execution.reason) == ("denied", "TooManyReviews")
    await until(reviewer.waiting_for_none)


@pytest.mark.smoke
async def test_the_token_of_an_autonomous_sandbox_opens_no_reviewed_one(executor):
    stranger = executor.client(token=executor.token(contract="autonomous"))
    with pytest.raises(Exception, match="contract of this sandbox is reviewed"):
        await stranger.usage()


async def test_an_autonomous_sandbox_asks_no_reviewer(starting):
    async with starting() as executor, reviewing(executor) as reviewer:
        assert (await executor.sandbox.run_code("1 + 1")).text == "2"
        assert await reviewer.pending() == []


async def test_after_a_kill_of_the_executor_nothing_that_waited_has_run_and_old_approvals_open_nothing(starting):
    async with starting(contract="reviewed", restarts=True) as executor:
        async with (
            reviewing(executor) as reviewer,
            asked(executor.sandbox.run_code("open('/workspace/touched', 'w')", execution_id="waits")) as task,
        ):
            statement = reviewer.statement(await reviewer.next())
            executor.kill()
            await executor.back()
            ended = await task
            assert (ended.outcome, ended.blame, ended.reason) == ("lost", "platform", "ExecutorRestarted")
        async with (
            reviewing(executor) as reviewer,
            asked(executor.client().run_code("open('/workspace/touched', 'w')")) as task,
        ):
            review = await reviewer.next()
            assert await refused(reviewer.send(statement)) == ("NOT_FOUND", "ReviewNotFound")
            assert not await executor.client().files.exists("touched")
            # Control: an approval of what waits now lets it run.
            await reviewer.approve(review)
            assert (await task).outcome == "ok"
        assert await executor.client().files.exists("touched")
