"""Reviews through the fleet of one machine: who may answer, what rules approve, and what is refused."""

import asyncio
import base64
import hashlib
import hmac
import json
import shutil
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import pytest_asyncio
from sandfleet import AsyncFleet, AsyncSandbox, CodeActAgent, intent
from sandfleet._wire import api
from sandfleet.codeact.conversation import GiveUp, RunCode, RunCommand
from sandfleet.errors import AccessDenied, ClaimError, InvalidArgument, NotFoundError, PreconditionFailed
from sandfleet.values.reviews import Review
from support.fleet.process import a_fleet

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed"),
]
RULES = ("--review-rules", "PureExpression,SameCell")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet():
    # Short: the path of a Unix socket has 107 bytes.
    with tempfile.TemporaryDirectory(prefix="sf-") as path, a_fleet(f"{path}/f-reviews", *RULES) as process:
        async with await AsyncFleet.connect(f"unix:{process.state_dir}/fleet.sock") as made:
            yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox(fleet):
    async with AsyncSandbox.create(fleet=fleet, contract="reviewed", keep_alive=True) as made:
        yield made


async def waiting(fleet, sandbox) -> Review:
    """The one review that waits, as soon as it does."""
    async for found in fleet.reviews.watch(sandbox.sandbox_id):
        if found:
            return found[0]
    raise AssertionError("the sandbox has ended")


async def approved(fleet, sandbox, code):
    running = asyncio.create_task(sandbox.run_code(code))
    review = await waiting(fleet, sandbox)
    await fleet.reviews.answer(review, review.approve())
    return await running


@pytest.mark.smoke
async def test_a_cell_waits_for_a_reviewer_and_runs_when_it_is_approved(fleet, sandbox):
    running = asyncio.create_task(sandbox.run_code("first = open('/workspace/first', 'w').write('x')"))
    review = await waiting(fleet, sandbox)
    assert (review.kind, review.sandbox_id, review.holder[:4]) == ("cell", sandbox.sandbox_id, "uid:")
    assert [one.review_id for one in await fleet.reviews.list()] == [review.review_id]
    assert not await sandbox.files.exists("first")
    await fleet.reviews.answer(review, review.approve())
    assert (await running).outcome == "ok"
    with pytest.raises(NotFoundError) as caught:
        await fleet.reviews.answer(review, review.approve())
    assert caught.value.reason == "ReviewNotFound"


@pytest.mark.smoke
async def test_a_review_says_why_the_agent_wants_it(fleet, sandbox):
    async def asked(call):
        running = asyncio.create_task(call)
        review = await waiting(fleet, sandbox)
        await fleet.reviews.answer(review, review.deny())
        await asyncio.gather(running, return_exceptions=True)
        return review.intent

    assert await asked(sandbox.run_code("import os", intent="see the folder")) == "see the folder"
    assert await asked(sandbox.commands.run("ls", intent="list it")) == "list it"
    with intent("keep it"):
        assert await asked(sandbox.files.write("kept", "x")) == "keep it"
        assert await asked(sandbox.run_code("import os", intent="another")) == "another"
    # Control: what is said in a block ends with it.
    assert await asked(sandbox.run_code("import os")) == ""
    long = await asked(sandbox.run_code("import os", intent="é\x1b\n" * 1000))
    assert len(long.encode()) <= 2000
    assert long.startswith("é\x1b\né")
    assert long.endswith("…")


@pytest.mark.smoke
async def test_an_agents_words_before_its_code_are_the_intent(fleet):
    seen = []

    def on_review(review):
        seen.append((review.intent, review.code))
        return review.approve()

    moves = iter([RunCode("total = 40 + 2; print(total)", intent="add the two"), RunCommand("echo hi", "greet")])

    async def policy(conversation):
        return next(moves, None) or GiveUp("that was all")

    async with AsyncSandbox.create(fleet=fleet, contract="reviewed", on_review=on_review) as sandbox:
        await CodeActAgent(policy, sandbox).run("compute")
    assert seen == [("add the two", "total = 40 + 2; print(total)"), ("greet", "echo hi")]


@pytest.mark.smoke
async def test_an_agent_whose_sandbox_ends_stays_under_review(fleet, monkeypatch):
    monkeypatch.setenv("SANDFLEET_ADDRESS", fleet.address)
    seen = []

    def on_review(review):
        seen.append(review.code)
        return review.approve()

    sandbox = await AsyncSandbox.create(fleet=fleet, contract="reviewed", on_review=on_review)

    async def policy(conversation):
        if len(conversation.steps) == 1:
            await AsyncSandbox.kill(sandbox.sandbox_id, fleet=fleet)
        if len(conversation.steps) == 3:
            return GiveUp("that was all")
        return RunCode(f"import os; os.getpid(), {len(conversation.steps)}")

    agent = CodeActAgent(policy, sandbox)
    await agent.run("compute")
    assert agent.sandbox is not sandbox
    assert (await agent.sandbox.get_info()).contract == "reviewed"
    # The second step finds that the sandbox has gone; the third runs in the new one, with the same reviewer.
    assert [code[-2:] for code in seen] == [" 0", " 2"]
    await agent.sandbox.kill()
    await sandbox.close()


@pytest.mark.smoke
async def test_the_agents_own_identity_neither_lists_nor_answers(fleet, sandbox):
    running = asyncio.create_task(sandbox.run_code("open('/workspace/second', 'w')"))
    review = await waiting(fleet, sandbox)
    stub = fleet.reviews._connection.stub
    request = api.fleet.AnswerReviewRequest(
        sandbox_id=review.sandbox_id, review_id=review.review_id, digest=review.digest, state=review.state
    )
    request.approve.SetInParent()
    token = sandbox._link._connection.access.token
    for metadata in ((), (("authorization", f"Bearer {token}"),)):
        for call in (stub.AnswerReview, stub.ListReviews):
            wanted = request if call is stub.AnswerReview else api.fleet.ListReviewsRequest()
            with pytest.raises(api.aio.AioRpcError) as caught:
                await call(wanted, metadata=metadata)
            assert caught.value.code().name == "PERMISSION_DENIED"
    assert not running.done()
    assert not await sandbox.files.exists("second")
    # Control: the reviewers' token opens it.
    await fleet.reviews.answer(review, review.approve())
    assert (await running).outcome == "ok"


@pytest.mark.smoke
async def test_who_has_claimed_a_sandbox_does_not_review_it(fleet):
    token = (Path(fleet.address.removeprefix("unix:")).parent / "reviewer.token").read_text()
    metadata = (("authorization", f"Bearer {token}"),)
    stub = fleet.reviews._connection.stub
    request = api.fleet.ClaimRequest(request_id="of-a-reviewer", contract="reviewed")
    async for response in stub.Claim(request, metadata=metadata):
        bound = response.bound
    sandbox = await AsyncSandbox.connect(bound.sandbox.sandbox_id, fleet=fleet)
    running = asyncio.create_task(sandbox.run_code("open('/workspace/mine', 'w')"))
    review = await waiting(fleet, sandbox)
    with pytest.raises(AccessDenied) as caught:
        await fleet.reviews.answer(review, review.approve())
    assert caught.value.reason == "NotReviewer"
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await fleet.release(sandbox.sandbox_id)
    await sandbox.close()


@pytest.mark.smoke
async def test_an_answer_to_an_older_look_is_refused(fleet, sandbox):
    await approved(fleet, sandbox, "import os")
    running = asyncio.create_task(sandbox.run_code("os.getpid()"))
    looked = await waiting(fleet, sandbox)
    writing = asyncio.create_task(sandbox.files.write("between.py", "x = 1"))
    async for found in fleet.reviews.watch(sandbox.sandbox_id):
        if len(found) == 2:
            between = next(one for one in found if one.kind == "file")
            await fleet.reviews.answer(between, between.approve())
            break
    await writing
    with pytest.raises(PreconditionFailed) as caught:
        await fleet.reviews.answer(looked, looked.approve())
    assert caught.value.reason == "ReviewChanged"
    assert not running.done()
    again = await waiting(fleet, sandbox)
    assert again.state > looked.state
    await fleet.reviews.answer(again, again.approve())
    assert (await running).outcome == "ok"


@pytest.mark.smoke
async def test_rules_approve_what_is_harmless_and_name_themselves(fleet, sandbox):
    await approved(fleet, sandbox, "total = 41")
    harmless = await sandbox.run_code("total + 1")
    assert harmless.text == "42"
    assert "PureExpression" in next(one.message for one in harmless.notices if one.reason == "ReviewRule")
    same = await sandbox.run_code("total = 41")
    assert "SameCell" in next(one.message for one in same.notices if one.reason == "ReviewRule")
    # Control: another cell waits.
    running = asyncio.create_task(sandbox.run_code("total = 42"))
    review = await waiting(fleet, sandbox)
    assert review.diff.endswith("-total = 41\n+total = 42")
    await fleet.reviews.answer(review, review.deny("no"))
    assert (await running).reason == "ReviewDenied"


@pytest.mark.smoke
async def test_a_magic_does_not_pass_for_an_expression(fleet, sandbox):
    await approved(fleet, sandbox, "rm, f = 2, 1")
    assert (await sandbox.run_code("rm -f")).text == "1"
    await sandbox.restart_context()
    # In a fresh interpreter the names are unknown, and a reviewer is asked.
    running = asyncio.create_task(sandbox.run_code("rm -f"))
    review = await waiting(fleet, sandbox)
    await fleet.reviews.answer(review, review.approve())
    # Without values, IPython would run `rm -f` in a sandbox of another contract.
    execution = await running
    assert (execution.outcome, execution.error.name) == ("error", "NameError")


async def test_a_context_that_is_made_again_in_another_language_keeps_no_rule(fleet, sandbox):
    code = "'touch' '/workspace/made-by-bash'"

    async def made(language):
        making = asyncio.create_task(sandbox.create_context("again", language=language))
        review = await waiting(fleet, sandbox)
        await fleet.reviews.answer(review, review.approve())
        await making

    await made("python")
    # Control: to Python it is a constant, and a rule approves it.
    assert (await sandbox.run_code(code, context="again")).text == "'touch/workspace/made-by-bash'"
    await sandbox.delete_context("again")
    await made("bash")
    running = asyncio.create_task(sandbox.run_code(code, context="again"))
    review = await waiting(fleet, sandbox)
    assert (review.kind, review.context_id) == ("cell", "again")
    await fleet.reviews.answer(review, review.deny("it runs a program"))
    assert (await running).outcome == "denied"
    assert not await sandbox.files.exists("made-by-bash")
    await sandbox.delete_context("again")


async def test_a_callback_answers_and_is_asked_again_when_its_look_was_old(fleet):
    asked = []

    def on_review(review):
        asked.append(review)
        return review.edit("print('edited')") if review.kind == "cell" else review.approve()

    async with AsyncSandbox.create(fleet=fleet, contract="reviewed", on_review=on_review) as sandbox:
        cells = [sandbox.run_code(f"print({number})", context=None) for number in range(2)]
        first, second, _ = await asyncio.gather(*cells, sandbox.files.write("a.txt", "text"))
        assert (first.logs.stdout, second.logs.stdout) == ("edited\n", "edited\n")
        assert await sandbox.files.read("a.txt") == "text"
    assert {one.kind for one in asked} == {"cell", "file"}


@pytest.mark.smoke
async def test_a_callback_that_fails_lets_nothing_run(fleet):
    failed = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_review(review):
        loop.call_soon_threadsafe(failed.set)
        raise RuntimeError("a reviewer's fault")

    async with AsyncSandbox.create(fleet=fleet, contract="reviewed", on_review=on_review) as sandbox:
        running = asyncio.create_task(sandbox.run_code("open('/workspace/ran', 'w')"))
        await failed.wait()
        review = await waiting(fleet, sandbox)
        assert not running.done()
        await fleet.reviews.answer(review, review.deny("another reviewer"))
        assert (await running).outcome == "denied"


@pytest.mark.parametrize("options", [{"envs": {"BASH_ENV": "/workspace/x"}}, {"workspace_id": "earlier"}], ids=str)
async def test_what_no_reviewer_would_see_is_refused_at_the_claim(fleet, options):
    with pytest.raises(ClaimError) as caught:
        await AsyncSandbox.create(fleet=fleet, contract="reviewed", **options)
    assert caught.value.reason == "ContractNotSupported"


@pytest.mark.smoke
async def test_a_reason_that_is_too_long_is_refused(fleet, sandbox):
    running = asyncio.create_task(sandbox.run_code("open('/workspace/third', 'w')"))
    review = await waiting(fleet, sandbox)
    with pytest.raises(InvalidArgument):
        await fleet.reviews.answer(review, review.deny("x" * 2001))
    await fleet.reviews.answer(review, review.deny("x" * 2000))
    assert (await running).outcome == "denied"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def two_eyed():
    """A fleet that demands two approvals of three reviewers."""
    with tempfile.TemporaryDirectory(prefix="sf-") as path:
        options = ("--reviewers", "ada,bob,eve", "--approvals", "2")
        with a_fleet(f"{path}/f-four", *options) as process:
            async with await AsyncFleet.connect(f"unix:{process.state_dir}/fleet.sock") as made:
                yield made


@pytest.fixture
def as_reviewer(monkeypatch):
    return lambda name: monkeypatch.setenv("SANDFLEET_REVIEWER", name)


@pytest.mark.smoke
async def test_two_reviewers_approve_and_one_alone_or_twice_does_not(two_eyed, as_reviewer):
    as_reviewer("ada")
    async with await AsyncSandbox.create(fleet=two_eyed, contract="reviewed") as sandbox:
        running = asyncio.create_task(sandbox.run_code("open('/workspace/x', 'w').write('x')"))
        review = await waiting(two_eyed, sandbox)
        assert (review.approvals, review.approved_by) == (2, ())
        assert await two_eyed.reviews.answer(review, review.approve()) == 1
        assert await two_eyed.reviews.answer(review, review.approve()) == 1, "a second vote counts once"
        assert not await sandbox.files.exists("x")
        as_reviewer("bob")
        review = await waiting(two_eyed, sandbox)
        assert review.approved_by == ("ada",)
        assert await two_eyed.reviews.answer(review, review.approve()) == 0
        assert (await running).outcome == "ok"


async def test_an_edit_needs_the_others_again_and_a_denial_needs_one(two_eyed, as_reviewer):
    as_reviewer("ada")
    async with await AsyncSandbox.create(fleet=two_eyed, contract="reviewed") as sandbox:
        running = asyncio.create_task(sandbox.run_code("import os"))
        before = await waiting(two_eyed, sandbox)
        await two_eyed.reviews.answer(before, before.approve())
        as_reviewer("bob")
        assert await two_eyed.reviews.answer(before, before.edit("print('edited')")) == 1
        as_reviewer("eve")
        with pytest.raises(PreconditionFailed) as caught:
            await two_eyed.reviews.answer(before, before.approve())
        assert caught.value.reason == "ReviewChanged", "it has not seen the edit"
        after = await waiting(two_eyed, sandbox)
        assert (after.approved_by, after.edited) == (("bob",), b"print('edited')")
        assert await two_eyed.reviews.answer(after, after.approve()) == 0
        assert (await running).logs.stdout == "edited\n"
        denied = asyncio.create_task(sandbox.run_code("import sys"))
        review = await waiting(two_eyed, sandbox)
        await two_eyed.reviews.answer(review, review.deny("no"))
        assert (await denied).outcome == "denied"


@pytest.mark.smoke
async def test_a_name_that_no_reviewer_has_and_the_agent_itself_are_no_voters(two_eyed, as_reviewer, monkeypatch):
    async with await AsyncSandbox.create(fleet=two_eyed, contract="reviewed"):
        as_reviewer("mallory")
        with pytest.raises(AccessDenied, match="cannot be read"):
            await two_eyed.reviews.list()
        monkeypatch.delenv("SANDFLEET_REVIEWER")
        with pytest.raises(AccessDenied, match="cannot be read"):
            await two_eyed.reviews.list()
        as_reviewer("../ada")
        with pytest.raises(InvalidArgument, match="no name of a reviewer"):
            await two_eyed.reviews.list()


async def test_a_webhook_tells_once_that_a_request_waits_and_the_answer_comes_through_the_api(monkeypatch):
    received = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            received.append(
                (
                    {name.lower(): value for name, value in self.headers.items()},
                    self.rfile.read(int(self.headers["content-length"])),
                )
            )
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    key = bytes(range(32))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("SANDFLEET_REVIEW_WEBHOOK_URL", f"http://127.0.0.1:{server.server_port}/")
    monkeypatch.setenv("SANDFLEET_REVIEW_WEBHOOK_SECRET", "whsec_" + base64.b64encode(key).decode())
    try:
        with tempfile.TemporaryDirectory(prefix="sf-") as path, a_fleet(f"{path}/f-hook", *RULES) as process:
            async with (
                await AsyncFleet.connect(f"unix:{process.state_dir}/fleet.sock") as fleet,
                await AsyncSandbox.create(fleet=fleet, contract="reviewed") as sandbox,
            ):
                running = asyncio.create_task(sandbox.run_code("import os"))
                review = await waiting(fleet, sandbox)
                async with asyncio.timeout(60):
                    while not received:
                        await asyncio.sleep(0.02)
                await fleet.reviews.answer(review, review.approve())
                assert (await running).outcome == "ok"
                # A rule approves it: no person has to be told.
                assert (await sandbox.run_code("1 + 1")).text == "2"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    ((headers, body),) = received
    data = json.loads(body)["data"]
    assert (data["sandbox_id"], data["review_id"], data["kind"]) == (sandbox.sandbox_id, review.review_id, "cell")
    assert b"import os" not in body
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
