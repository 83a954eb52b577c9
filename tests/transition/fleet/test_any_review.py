"""The board of reviews and an executor's desk through random stories: breaks, lost replies, kills, stolen answers.

Nothing runs that no reviewer or rule has approved; an answer is used at most once; what waits is shown.
"""

import asyncio
import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from sandfleet_api.executor.v1 import review_pb2
from sandfleet_api.fleet.v1 import fleet_pb2
from sandfleet_executor.core.review.answers import Answer, AnswerError, AnswerReason, Verb
from sandfleet_executor.core.review.desk import Decision, Desk
from sandfleet_executor.core.review.subject import Interpreter, Subject
from sandfleet_executor.servicers.review import message
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.template import ReviewRule
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.api.values import Mark
from sandfleet_operator.cluster.reviews import Caller
from sandfleet_operator.executors.reviews import Way
from sandfleet_operator.fleet.reviews import board as board_module
from sandfleet_operator.fleet.reviews.board import ReviewBoard, Reviewed
from sandfleet_operator.fleet.reviews.tool_calls import ToolCalls
from sandfleet_operator.plan.reviews.reasons import ReviewReason
from sandfleet_operator.plan.reviews.record import Request, SessionRecord
from sandfleet_operator.plan.reviews.votes import Votes
from support.examples import examples

REVIEWER = "reviewer"
HARMFUL = [b"import os"]
EDIT = b"print('edited')"
REFUSALS = {
    AnswerReason.NOT_FOUND: ReviewReason.REVIEW_NOT_FOUND,
    AnswerReason.CHANGED: ReviewReason.REVIEW_CHANGED,
    AnswerReason.NOT_EDITABLE: ReviewReason.REVIEW_NOT_EDITABLE,
    AnswerReason.INVALID: ReviewReason.INVALID_ANSWER,
}
# More turns of the loop than anything here needs to come to rest.
TURNS = 40


class Executor:
    """A desk behind a connection that may break, and whose replies may be lost."""

    def __init__(self) -> None:
        self.desk = Desk()
        self.connected = True
        self.replies_lost = 0
        self.changed = asyncio.Event()
        # It tells of calls of tools that no host has asked about.
        self.lies = False
        # Review, what ran, and the rule that let it.
        self.ran: list[tuple[str, bytes, str]] = []

    def tell(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def _check(self) -> None:
        if not self.connected:
            raise ClaimReason.EXECUTOR_UNREACHABLE.error("cannot reach it: the connection is cut")

    async def watch(self, _way: Way) -> AsyncIterator[Sequence[review_pb2.PendingReview]]:
        while True:
            self._check()
            changed = self.changed
            lies = [review_pb2.PendingReview(review_id="lie", kind="tool", name="pay")] if self.lies else []
            yield [message(one, self.desk.state) for one in self.desk.pending()] + lies
            await changed.wait()

    async def answer(
        self,
        _way: Way,
        review: review_pb2.PendingReview,
        *,
        verb: str,
        reviewer: str,
        rule: str = "",
        reason: str = "",
        edit: bytes = b"",
    ) -> None:
        self._check()
        digest = hashlib.sha256(edit).hexdigest() if edit else ""
        said = Answer(
            review.review_id, review.digest.hex(), review.state, Verb(verb), reviewer, rule, reason, edit_digest=digest
        )
        waiting = {one.id: one.subject.content for one in self.desk.pending()}
        decision = self._answered(said, edit)
        assert decision is not None, "only a vote decides nothing"
        if decision.allowed:
            content = waiting[review.review_id] if decision.edited is None else decision.edited
            self.ran.append((review.review_id, content, rule))
        self.tell()
        if self.replies_lost:
            self.replies_lost -= 1
            raise ClaimReason.EXECUTOR_UNREACHABLE.error("cannot reach it: the reply was lost")

    async def vote(self, _way: Way, review: review_pb2.PendingReview, votes: Votes, reviewer: str) -> None:
        self._check()
        digest = hashlib.sha256(votes.edit).hexdigest() if votes.edit else ""
        name, state, voters = review.review_id, votes.state, tuple(sorted(votes.voters))
        said = Answer(name, review.digest.hex(), state, Verb.VOTE, reviewer, edit_digest=digest, voters=voters)
        assert self._answered(said, votes.edit) is None
        self.tell()

    def _answered(self, said: Answer, edit: bytes) -> Decision | None:
        try:
            return self.desk.answer(said, edit)
        except AnswerError as error:
            raise REFUSALS[error.reason].error(str(error)) from error


REVIEWED: Any = Reviewed(
    sandbox_id="s", holder="agent", lease_expires=None, way=Way("u", lambda: None), rules=tuple(ReviewRule)
)  # type: ignore[arg-type, return-value]


class Stories(RuleBasedStateMachine):
    looks = Bundle("looks")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.asked: dict[str, bytes] = {}
        # What reviewers have approved, by review: the bytes.
        self.approved: dict[str, set[bytes]] = {}
        # Calls of tools: their hosts, what reviewers have approved and denied, and what the session has received.
        self.hosts: dict[bytes, asyncio.Task[fleet_pb2.ReviewCallResponse]] = {}
        self.calls_approved: set[bytes] = set()
        self.calls_denied: set[bytes] = set()
        self.marks: frozenset[Mark] = frozenset()
        self.loop.run_until_complete(self._begin())

    async def _begin(self) -> None:
        self.executor = Executor()

        sandboxes: Any = SimpleNamespace(find=lambda _: REVIEWED)
        client: Any = self.executor
        self.board = ReviewBoard(sandboxes, client)
        self.board.follow(REVIEWED.sandbox_id)

    def _settle(self) -> None:
        async def rest() -> None:
            for _ in range(TURNS):
                await asyncio.sleep(0)

        self.loop.run_until_complete(rest())

    @rule(content=st.sampled_from([*HARMFUL, b"40 + 2"]), context=st.sampled_from(["default", "default", "b"]))
    def ask(self, content: bytes, context: str) -> None:
        name = f"r{len(self.asked)}"
        self.asked[name] = content
        at = Interpreter("python", context, len(self.executor.ran))
        subject = Subject("InterpreterService/Execute", "cell", content, context_id=context, editable=True, runs_in=at)
        with contextlib.suppress(Exception):
            self.executor.desk.ask(name, subject, 0.0)
        self.executor.tell()
        self._settle()

    @rule()
    def ask_about_a_call(self) -> None:
        """A host of tools asks; each call has arguments of its own here."""
        arguments = f"call {len(self.hosts)}".encode()
        request = fleet_pb2.ReviewCallRequest(sandbox_id=REVIEWED.sandbox_id, tool="pay", arguments=arguments)

        async def received() -> frozenset[Mark]:
            # As an API server that takes a moment.
            found = self.marks
            await asyncio.sleep(0)
            return found

        self.hosts[arguments] = self.loop.create_task(self.board.review_call(request, received))
        self._settle()

    @rule(mark=st.sampled_from(list(Mark)), asks=st.booleans())
    def receive(self, mark: Mark, asks: bool) -> None:
        """The session receives more, perhaps while the fleet looks up what it has received for a call."""
        if asks:
            self.loop.call_soon(self.loop.call_soon, self._mark, mark)
            self.ask_about_a_call()
        else:
            self._mark(mark)
            self._settle()

    def _mark(self, mark: Mark) -> None:
        if mark not in self.marks:
            self.marks |= {mark}
            # What was approved and has not run by now was for a session that had received less.
            self.board.received(REVIEWED.sandbox_id, self.marks)

    @precondition(lambda self: self.hosts)
    @rule(data=st.data())
    def lose_the_host(self, data: st.DataObject) -> None:
        self.hosts[data.draw(st.sampled_from(sorted(self.hosts)))].cancel()
        self._settle()

    @rule(lies=st.booleans())
    def pose_as_a_tool(self, lies: bool) -> None:
        self.executor.lies = lies
        self.executor.tell()
        self._settle()

    @rule(target=looks, data=st.data())
    def look(self, data: st.DataObject) -> fleet_pb2.Review | None:
        found = self.board.waiting().reviews
        return data.draw(st.sampled_from(list(found))) if found else None

    @rule(look=looks, verb=st.sampled_from(["approve", "edit", "deny"]), who=st.sampled_from([REVIEWER, "agent"]))
    def answer(self, look: fleet_pb2.Review | None, verb: str, who: str) -> None:
        if look is not None:
            self._answer(look, verb, who)

    @rule(verb=st.sampled_from(["approve", "edit"]), who=st.sampled_from([REVIEWER, "agent"]))
    def answer_what_waits_now(self, verb: str, who: str) -> None:
        for look in list(self.board.waiting().reviews)[-1:]:
            self._answer(look, verb, who)

    def _answer(self, look: fleet_pb2.Review, verb: str, who: str) -> None:
        said = look.request
        request = fleet_pb2.AnswerReviewRequest(
            sandbox_id=look.sandbox_id, review_id=said.review_id, digest=said.digest, state=said.state
        )
        if verb == "edit":
            request.edit.content = EDIT
        else:
            getattr(request, verb).SetInParent()
        is_call = said.kind == "tool"
        if is_call and who == REVIEWER and verb == "approve" and json.loads(said.settings)["received"] == self.received:
            self.calls_approved.add(said.content)
        if is_call and who == REVIEWER and verb == "deny":
            self.calls_denied.add(said.content)
        if not is_call and who == REVIEWER and verb != "deny" and said.state == self.executor.desk.state:
            wanted = EDIT if verb == "edit" else said.content
            self.approved.setdefault(said.review_id, set()).add(wanted)
        before = len(self.executor.ran)
        with contextlib.suppress(FleetError):
            self.loop.run_until_complete(self.board.answer(Caller(who), request))
            assert who == REVIEWER
        assert who == REVIEWER or len(self.executor.ran) == before
        self._settle()

    @rule()
    def change(self) -> None:
        self.executor.desk.changed()
        self.executor.tell()
        self._settle()

    @rule()
    def cut(self) -> None:
        self.executor.connected = False
        self.executor.tell()
        self._settle()

    @rule()
    def mend(self) -> None:
        self.executor.connected = True
        self._settle()

    @rule()
    def lose_a_reply(self) -> None:
        self.executor.replies_lost = 1

    @rule()
    def kill(self) -> None:
        self.executor.desk = Desk()
        self.executor.tell()
        self._settle()

    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        if waiting := self.executor.desk.pending():
            self.executor.desk.withdraw(data.draw(st.sampled_from(waiting)).id)
            self.executor.tell()
            self._settle()

    @invariant()
    def each_review_lets_one_thing_run_at_most_once(self) -> None:
        assert all(count == 1 for count in Counter(name for name, _, _ in self.executor.ran).values())

    @invariant()
    def what_runs_was_approved_by_a_reviewer_or_a_rule(self) -> None:
        seen: set[bytes] = set()
        for name, content, rule_name in self.executor.ran:
            if rule_name:
                assert content == self.asked[name]
                assert rule_name == "PureExpression" or content in seen
                assert content not in HARMFUL or rule_name == "SameCell"
            else:
                assert content in self.approved.get(name, set())
            seen.add(content)

    @property
    def received(self) -> list[str]:
        return sorted(one.value for one in self.marks)

    @invariant()
    def a_call_runs_only_where_a_reviewer_approved_what_the_session_has_received(self) -> None:
        for arguments, host in self.hosts.items():
            if host.done() and not host.cancelled():
                answer = host.result()
                assert arguments in (self.calls_approved if answer.approved else self.calls_denied)

    @invariant()
    def calls_that_wait_are_shown_with_what_the_session_has_received_and_no_others(self) -> None:
        self._settle()
        shown = [one.request for one in self.board.waiting().reviews if one.request.kind == "tool"]
        assert {one.content for one in shown} == {name for name, host in self.hosts.items() if not host.done()}
        assert len(shown) == len({one.content for one in shown})
        assert all(json.loads(one.settings)["received"] == self.received for one in shown)

    @invariant()
    def what_waits_is_shown_as_soon_as_the_executor_answers(self) -> None:
        if self.executor.connected:
            self._settle()
            shown = [one for one in self.board.waiting().reviews if one.request.kind != "tool"]
            waiting = {one.id: self.executor.desk.state for one in self.executor.desk.pending()}
            assert {one.request.review_id: one.request.state for one in shown} == waiting

    def teardown(self) -> None:
        waiting = [host for host in self.hosts.values() if not host.done()]
        self.board.close()
        self._settle()
        assert all(isinstance(host.exception(), FleetError) for host in waiting), (
            "a host waits for a fleet that is gone"
        )
        self.loop.close()


async def _board(executor: Executor, **reviewed: Any) -> ReviewBoard:
    """A fleet that has begun to lead, and has seen what waits."""
    sandboxes: Any = SimpleNamespace(find=lambda _: replace(REVIEWED, **reviewed))
    client: Any = executor
    board = ReviewBoard(sandboxes, client)
    board.follow(REVIEWED.sandbox_id)
    for _ in range(TURNS):
        await asyncio.sleep(0)
    return board


async def _asked(executor: Executor, content: bytes, **settings: Any) -> None:
    executor.desk.ask("r", Subject("InterpreterService/Execute", "cell", content, editable=True, **settings), 0.0)
    executor.tell()


def _approval(board: ReviewBoard) -> fleet_pb2.AnswerReviewRequest:
    (review,) = board.waiting().reviews
    seen, edit = review.request, hashlib.sha256(review.edit).digest() if review.edit else b""
    request = fleet_pb2.AnswerReviewRequest(
        sandbox_id="s", review_id=seen.review_id, digest=seen.digest, state=seen.state, seen_edit=edit
    )
    request.approve.SetInParent()
    return request


@pytest.mark.parametrize("edit", [b"", EDIT])
async def test_votes_outlive_a_change_of_leader(edit: bytes) -> None:
    executor = Executor()
    await _asked(executor, HARMFUL[0])
    before = await _board(executor, approvals=2)
    vote = _approval(before)
    if edit:
        vote.edit.content = edit
    assert (await before.answer(Caller("ada"), vote)).missing == 1
    before.close()
    after = await _board(executor, approvals=2)
    (shown,) = after.waiting().reviews
    assert (list(shown.approved_by), shown.edit) == (["ada"], edit)
    # Control: a second vote of the same reviewer still counts once.
    assert (await after.answer(Caller("ada"), _approval(after))).missing == 1
    assert (await after.answer(Caller("bob"), _approval(after))).missing == 0
    assert executor.ran == [("r", edit or HARMFUL[0], "")]
    after.close()


async def test_votes_for_an_earlier_state_are_not_taken_over() -> None:
    executor = Executor()
    await _asked(executor, HARMFUL[0])
    before = await _board(executor, approvals=2)
    await before.answer(Caller("ada"), _approval(before))
    before.close()
    executor.desk.changed()
    after = await _board(executor, approvals=2)
    (shown,) = after.waiting().reviews
    assert list(shown.approved_by) == []
    assert (await after.answer(Caller("bob"), _approval(after))).missing == 1
    after.close()


async def test_the_submitter_of_code_does_not_approve_it_in_a_sandbox_without_a_holder() -> None:
    executor = Executor()
    await _asked(executor, HARMFUL[0], submitter="system:serviceaccount:agents:agent")
    board = await _board(executor, holder="")
    with pytest.raises(FleetError, match="the caller has submitted what waits"):
        await board.answer(Caller("system:serviceaccount:agents:agent"), _approval(board))
    assert executor.ran == []
    # Control: another account does.
    await board.answer(Caller("reviewer"), _approval(board))
    assert executor.ran == [("r", HARMFUL[0], "")]
    board.close()


async def test_no_rule_approves_where_the_template_names_none() -> None:
    for rules, waits in (((), 1), (tuple(ReviewRule), 0)):
        executor = Executor()
        await _asked(executor, b"40 + 2", runs_in=Interpreter("python", "i"))
        board = await _board(executor, rules=rules)
        assert len(board.waiting().reviews) == waits
        board.close()


QUICK = settings(
    max_examples=examples(60),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    # A failure's story is short enough as it is.
    phases=(Phase.generate,),
)


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_module, "PAUSE", 0)


@pytest.mark.slow
def test_any_story_of_reviews_lets_run_once_what_was_approved() -> None:
    run_state_machine_as_test(Stories, settings=QUICK)


async def _keeps_on_quietly(*_: object) -> bool:
    return True


APPROVED = SessionRecord.approved


def _forgets_the_edit(record: SessionRecord, request: Request, _edited: bytes | None = None) -> None:
    APPROVED(record, request)


MUTANTS: dict[str, tuple[object, str, object]] = {
    "an agent may approve its own code": (board_module, "_check_not_own", lambda *_: None),
    "an edit is remembered as what was asked": (SessionRecord, "approved", _forgets_the_edit),
    "a call counts as approved whatever the session has received since": (ToolCalls, "received", lambda *_: None),
    "an executor may pose as a tool": (board_module, "tool_calls", SimpleNamespace(KIND="another")),
    "a host that has gone is not forgotten": (ToolCalls, "withdraw", lambda *_: None),
    "all is harmless": (board_module, "approving", lambda *_: ReviewRule.PURE_EXPRESSION),
    "a rule's answer that was refused counts": (ReviewBoard, "_approved", _keeps_on_quietly),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_the_stories_find_each_mistake(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MUTANTS[name])
    with pytest.raises((AssertionError, BaseExceptionGroup)):
        run_state_machine_as_test(Stories, settings=settings(QUICK, max_examples=3000))
