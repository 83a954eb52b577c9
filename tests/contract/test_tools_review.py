"""Calls of tools that wait for a reviewer, through a real fleet: who sees them, who answers, and what ends the wait."""

import asyncio
import json
import shutil
import tempfile
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from sandfleet import AsyncFleet, AsyncSandbox, Decision, Fleet, Sandbox, tool
from sandfleet._wire import api
from sandfleet.errors import AccessDenied, NotFoundError, PreconditionFailed
from sandfleet.tools import policies
from support.fleet.process import a_fleet

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed"),
]
PAY = """
try:
    said = tools.pay(to='Ada', amount=60)
except tools.ToolError as error:
    said = f'{error.reason}: {error}'
said
"""
ASKS = policies.ask("pay")


@pytest.fixture(scope="module")
def fleet_address():
    # Short: the path of a Unix socket has 107 bytes.
    with tempfile.TemporaryDirectory(prefix="sf-") as path, a_fleet(f"{path}/f") as process:
        yield f"unix:{process.state_dir}/fleet.sock"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(fleet_address):
    async with await AsyncFleet.connect(fleet_address) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def sandbox(fleet):
    async with AsyncSandbox.create(fleet=fleet, contract="brokered", keep_alive=True) as made:
        yield made


def test_the_sync_client_asks_a_person_after_create_has_returned(fleet_address):
    asked = []

    def pay(to: str, amount: float) -> str:
        return f"paid {amount:g} to {to}"

    def a_person_says(call, session):
        # As `input` does: nothing else of this process waits for the answer.
        asked.append((call.arguments["to"], session.sandbox_id))
        return Decision(allowed=True)

    with (
        Fleet.connect(fleet_address) as fleet,
        Sandbox.create(fleet=fleet, tools=[pay], tool_policy=ASKS, on_tool_ask=a_person_says) as sandbox,
    ):
        assert sandbox.run_code(PAY).text == "'paid 60 to Ada'"
        assert asked == [("Ada", sandbox.sandbox_id)]


class Till:
    """The tools of one host."""

    def __init__(self):
        self.paid = []

    @property
    def tools(self):
        def pay(to: str, amount: float, proof: bytes = b"") -> str:
            self.paid.append((to, amount))
            return f"paid {amount:g} to {to}"

        async def page() -> str:
            return "content of others"

        return [pay, tool(page, returns="untrusted")]


async def waiting(fleet, sandbox):
    """The one call that waits, as soon as it does."""
    async for found in fleet.reviews.watch(sandbox.sandbox_id):
        if found:
            return found[0]
    raise AssertionError("the sandbox has ended")


async def none_waits(fleet, sandbox):
    async for found in fleet.reviews.watch(sandbox.sandbox_id):
        if not found:
            return
    raise AssertionError("the sandbox has ended")


@asynccontextmanager
async def asked(fleet, sandbox, till=None, **options):
    """A cell whose call waits, and the review."""
    async with await sandbox.serve_tools((till or Till()).tools, policy=ASKS):
        running = asyncio.create_task(sandbox.run_code(options.pop("code", PAY), **options))
        try:
            yield running, await waiting(fleet, sandbox)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_a_call_waits_is_shown_with_its_arguments_and_runs_when_it_is_approved(fleet, sandbox):
    till = Till()
    async with asked(fleet, sandbox, till) as (running, review):
        assert (review.kind, review.name, review.editable) == ("tool", "pay", False)
        assert json.loads(review.code) == {"to": "Ada", "amount": 60}
        assert (review.holder[:4], review.intent) == ("uid:", "a person has to approve it")
        assert [one.review_id for one in await fleet.reviews.list()] == [review.review_id]
        assert till.paid == []
        await fleet.reviews.answer(review, review.approve())
        assert (await running).text == "'paid 60 to Ada'"
        assert till.paid == [("Ada", 60)]
        with pytest.raises(NotFoundError):
            await fleet.reviews.answer(review, review.approve())
        assert await fleet.reviews.list(sandbox.sandbox_id) == ()


async def test_a_denial_reaches_the_code_with_its_reason_and_an_edit_is_refused(fleet, sandbox):
    till = Till()
    async with asked(fleet, sandbox, till) as (running, review):
        with pytest.raises(PreconditionFailed) as caught:
            await fleet.reviews.answer(review, review.edit('{"to": "Eve", "amount": 1}'))
        assert caught.value.reason == "NotEditable"
        await fleet.reviews.answer(review, review.deny("sixty is too much"))
        said = "NotApproved: cannot call pay: a reviewer denied it: sixty is too much"
        assert (await running).text == repr(said)
    assert till.paid == []


async def test_the_next_call_of_a_tool_waits_again_and_shows_what_differs(fleet, sandbox):
    till = Till()
    async with asked(fleet, sandbox, till) as (running, review):
        await fleet.reviews.answer(review, review.approve())
        await running
    async with asked(fleet, sandbox, till, code=PAY.replace("60", "61")) as (running, review):
        assert '-  "amount": 60\n+  "amount": 61' in review.diff
        await fleet.reviews.answer(review, review.approve())
        await running
    # The same as before is asked about, too: two payments are not one.
    async with asked(fleet, sandbox, till) as (running, review):
        await fleet.reviews.answer(review, review.deny())
        await running
    assert till.paid == [("Ada", 60), ("Ada", 61)]


async def test_bytes_are_shown_and_different_ones_differ(fleet, sandbox):
    digests = set()
    for proof in (b"a", b"b"):
        code = PAY.replace("amount=60", f"amount=60, proof={proof!r}")
        async with asked(fleet, sandbox, code=code) as (_, review):
            assert json.loads(review.code)["proof"].keys() == {"$bytes"}
            digests.add(review.digest)
    assert len(digests) == 2


async def test_who_has_claimed_the_sandbox_neither_lists_nor_approves(fleet, sandbox):
    till = Till()
    async with asked(fleet, sandbox, till) as (running, review):
        stub = fleet.reviews._connection.stub
        request = api.fleet.AnswerReviewRequest(
            sandbox_id=review.sandbox_id, review_id=review.review_id, digest=review.digest, state=review.state
        )
        request.approve.SetInParent()
        with pytest.raises(api.aio.AioRpcError) as caught:
            await stub.AnswerReview(request)
        assert caught.value.code().name == "PERMISSION_DENIED"
        assert not running.done()
        # Control: the reviewers' token opens it.
        await fleet.reviews.answer(review, review.approve())
        await running
    assert till.paid == [("Ada", 60)]


async def test_an_answer_to_a_look_before_untrusted_content_came_is_refused(fleet, sandbox):
    till = Till()
    async with asked(fleet, sandbox, till) as (running, looked):
        assert json.loads(looked.settings)["received"] == []
        await fleet.note_received(sandbox.sandbox_id, ["untrusted"])
        with pytest.raises(PreconditionFailed) as caught:
            await fleet.reviews.answer(looked, looked.approve())
        assert caught.value.reason == "ReviewChanged"
        again = await waiting(fleet, sandbox)
        assert json.loads(again.settings)["received"] == ["untrusted"]
        assert again.review_id == looked.review_id
        assert (again.state, looked.state) == (1, 0)
        await fleet.reviews.answer(again, again.approve())
        assert (await running).text == "'paid 60 to Ada'"


async def test_a_session_that_has_received_content_of_others_asks_for_what_needs_trust(fleet, sandbox):
    sent = []

    def send(text: str) -> str:
        sent.append(text)
        return "sent"

    code = "tools.send(text=tools.page())"
    async with await sandbox.serve_tools([*Till().tools, tool(send, needs="trusted")]):
        running = asyncio.create_task(sandbox.run_code(code))
        review = await waiting(fleet, sandbox)
        assert json.loads(review.code) == {"text": "content of others"}
        assert review.intent == "the session has received untrusted content"
        await fleet.reviews.answer(review, review.deny())
        assert "ToolDenied" in (await running).error.name
        running = asyncio.create_task(sandbox.run_code(code))
        review = await waiting(fleet, sandbox)
        await fleet.reviews.answer(review, review.approve())
        assert (await running).text == "'sent'"
    assert sent == ["content of others"]


@pytest.mark.parametrize("end", ["the cell is stopped", "the host stops serving"])
async def test_a_call_that_its_caller_or_its_host_gives_up_waits_no_more(fleet, sandbox, end):
    till = Till()
    async with asked(fleet, sandbox, till) as (running, review):
        if end == "the cell is stopped":
            await sandbox.interrupt()
            await running
            await none_waits(fleet, sandbox)
            with pytest.raises(NotFoundError):
                await fleet.reviews.answer(review, review.approve())
    await none_waits(fleet, sandbox)
    assert till.paid == []


async def test_the_time_of_a_review_does_not_count_against_the_deadline(fleet, sandbox):
    async with asked(fleet, sandbox, timeout=1) as (running, review):
        await asyncio.sleep(1.6)
        assert not running.done()
        await fleet.reviews.answer(review, review.approve())
        assert (await running).outcome == "ok"


async def test_control_the_time_of_a_tool_counts_and_so_does_what_follows_a_review(fleet, sandbox):
    async def slow() -> None:
        await asyncio.sleep(3600)

    async with await sandbox.serve_tools([slow]):
        assert (await sandbox.run_code("tools.slow()", timeout=1)).outcome == "timeout"
    async with asked(fleet, sandbox, code=f"{PAY}\nimport time; time.sleep(3600)", timeout=1) as (running, review):
        await fleet.reviews.answer(review, review.approve())
        assert (await running).outcome == "timeout"


@pytest.mark.smoke
async def test_a_callback_of_create_answers_for_calls_of_tools(fleet):
    seen, till = [], Till()

    def on_review(review):
        seen.append((review.kind, review.name))
        return review.approve()

    options = {"tools": till.tools, "tool_policy": ASKS, "on_review": on_review}
    async with AsyncSandbox.create(fleet=fleet, contract="brokered", **options) as sandbox:
        assert (await sandbox.run_code(PAY)).text == "'paid 60 to Ada'"
    assert (seen, till.paid) == ([("tool", "pay")], [("Ada", 60)])


async def test_what_cannot_be_shown_to_a_reviewer_does_not_run(fleet, sandbox):
    till = Till()
    async with await sandbox.serve_tools(till.tools, policy=ASKS):
        execution = await sandbox.run_code(PAY.replace("amount=60", "amount=60, proof=b'x' * (600 << 10)"))
        assert "no reviewer can be asked" in execution.text
    assert till.paid == []


async def test_more_calls_than_a_reviewer_can_look_at_are_refused(fleet, sandbox):
    code = """
from concurrent.futures import ThreadPoolExecutor
def pay(number):
    try:
        return tools.pay(to=str(number), amount=1)
    except tools.ToolDenied as error:
        return error.reason
with ThreadPoolExecutor(80) as pool:
    said = list(pool.map(pay, range(80)))
sum(one == 'NotApproved' for one in said), sum(one.startswith('paid') for one in said)
"""
    till = Till()
    async with await sandbox.serve_tools(till.tools, policy=ASKS):
        running = asyncio.create_task(sandbox.run_code(code))
        async for found in fleet.reviews.watch(sandbox.sandbox_id):
            if len(found) == 64:
                break
        while not running.done():
            for review in await fleet.reviews.list(sandbox.sandbox_id):
                await fleet.reviews.answer(review, review.approve())
            await asyncio.sleep(0.05)
        refused, paid = map(int, (await running).text.strip("()").split(","))
    assert refused + paid == 80
    assert paid == len(till.paid) >= 64


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def two_eyed():
    options = ("--reviewers", "ada,bob", "--approvals", "2")
    with tempfile.TemporaryDirectory(prefix="sf-") as path, a_fleet(f"{path}/f2", *options) as process:
        async with await AsyncFleet.connect(f"unix:{process.state_dir}/fleet.sock") as made:
            yield made


async def test_a_call_needs_as_many_approvals_as_the_fleet_demands(two_eyed, monkeypatch):
    till = Till()
    monkeypatch.setenv("SANDFLEET_REVIEWER", "ada")
    async with (
        AsyncSandbox.create(fleet=two_eyed, contract="brokered") as sandbox,
        asked(two_eyed, sandbox, till) as (running, review),
    ):
        assert await two_eyed.reviews.answer(review, review.approve()) == 1
        assert await two_eyed.reviews.answer(review, review.approve()) == 1
        assert till.paid == []
        monkeypatch.setenv("SANDFLEET_REVIEWER", "bob")
        again = await waiting(two_eyed, sandbox)
        assert again.approved_by == ("ada",)
        assert await two_eyed.reviews.answer(again, again.approve()) == 0
        assert (await running).outcome == "ok"
    assert till.paid == [("Ada", 60)]


async def test_a_name_that_is_no_reviewer_s_answers_nothing(two_eyed, monkeypatch):
    monkeypatch.setenv("SANDFLEET_REVIEWER", "mallory")
    with pytest.raises(AccessDenied):
        await two_eyed.reviews.list()
