"""Approvals of a call of a tool that needs two: they outlive leaders and connections, and are for one call alone."""

import asyncio
from functools import partial
from types import SimpleNamespace

import pytest
from sandfleet_api.fleet.v1 import fleet_pb2
from sandfleet_operator.api.kube import CODE_SANDBOX, Ref
from sandfleet_operator.api.values import Mark
from sandfleet_operator.cluster.reviews import Caller
from sandfleet_operator.fleet.kubernetes.reviews.desk import ReviewDesk
from sandfleet_operator.fleet.kubernetes.sessions.received import Received
from sandfleet_operator.fleet.reviews.call_votes import Ballot, surplus
from support.kubernetes.world import TEAM, World, pool_object, sandbox_object, template_object

SANDBOX = f"{TEAM}/mine"
OBJECT = Ref(CODE_SANDBOX, TEAM, "mine")


class Silent:
    """Executors at which nothing waits, and which keep nothing of calls of tools."""

    async def watch(self, _way):
        await asyncio.Event().wait()
        yield ()


@pytest.fixture
async def world():
    async with World() as made:
        await made.add(template_object(approvals=2), pool_object(), sandbox_object())
        yield made


class Leader:
    """A fleet that leads, with its board."""

    def __init__(self, world, fleet):
        credentials = SimpleNamespace(signer=None, authority=SimpleNamespace(pem=b""))
        self.world, self.fleet = world, fleet
        self.board = ReviewDesk(world.kube, fleet, credentials, lambda: 1).board
        self.board._client = Silent()
        self.received = Received(world.kube, fleet, world.clock)

    async def asks(self, call_id="call", marks=(), **call):
        """A host asks; the running call, as soon as it is shown."""
        request = fleet_pb2.ReviewCallRequest(
            sandbox_id=SANDBOX, **{"tool": "pay", "arguments": b"{}", "call_id": call_id, **call}
        )
        before = len(self.board.waiting().reviews)

        async def received():
            return await self.received.note(SANDBOX, None, frozenset(marks))

        running = asyncio.create_task(self.board.review_call(request, received))
        await self.world.until(lambda: len(self.board.waiting().reviews) > before or running.done())
        return running

    def approved_by(self):
        return [list(one.approved_by) for one in self.board.waiting().reviews]

    async def approve(self, who):
        (review,) = self.board.waiting().reviews
        seen = review.request
        request = fleet_pb2.AnswerReviewRequest(
            sandbox_id=SANDBOX, review_id=seen.review_id, digest=seen.digest, state=seen.state
        )
        request.approve.SetInParent()
        return (await self.board.answer(Caller(who), request)).missing

    async def leave(self):
        self.board.close()
        await self.world.kill(self.fleet)


async def leader(world):
    made = Leader(world, await world.fleet())
    await world.until(lambda: (made.fleet.object_of(SANDBOX) or SimpleNamespace(status=None)).status is not None)
    await world.until(lambda: made.fleet.object_of(SANDBOX).status.binding)
    return made


def kept(world):
    return (world.cluster.objects[OBJECT].get("status") or {}).get("callVotes") or {}


async def test_votes_for_a_call_outlive_a_change_of_leader_and_end_with_the_answer(world):
    first = await leader(world)
    call = await first.asks()
    assert await first.approve("ada") == 1
    call.cancel()
    await first.leave()
    second = await leader(world)
    call = await second.asks()
    assert second.approved_by() == [["ada"]]
    # Control: a second vote of the same reviewer counts once.
    assert await second.approve("ada") == 1
    assert await second.approve("bob") == 0
    answer = await call
    assert (answer.approved, answer.reviewer) == (True, "ada, bob")
    assert kept(world) == {}


@pytest.mark.parametrize("other", [{"call_id": "another"}, {"arguments": b"[1]"}, {"marks": [Mark.SECRET]}])
async def test_votes_count_for_no_other_call_and_for_no_session_that_has_received_more(world, other):
    first = await leader(world)
    call = await first.asks()
    assert await first.approve("ada") == 1
    call.cancel()
    await first.leave()
    second = await leader(world)
    await second.asks(**other)
    assert second.approved_by() == [[]]
    assert await second.approve("bob") == 1


async def test_a_host_that_names_no_call_begins_anew_and_leaves_nothing_behind(world):
    first = await leader(world)
    call = await first.asks(call_id="")
    assert await first.approve("ada") == 1
    assert kept(world) == {}
    call.cancel()
    await world.until(lambda: not first.board.waiting().reviews)
    await first.asks(call_id="")
    assert first.approved_by() == [[]]


async def test_calls_whose_hosts_are_gone_leave_64_votes_at_most(world):
    first = await leader(world)
    votes = first.board._call_votes
    for number in range(66):
        ballot = Ballot(f"{number:032x}", "0" * 64)
        await votes.keep(SANDBOX, ballot, frozenset({"ada"}))
        await world.until(partial(votes.of, SANDBOX, ballot))
    assert len(kept(world)) == 64


def test_the_oldest_make_room():
    since = {"a": 2.0, "b": 1.0, "c": 3.0}
    assert surplus(since, "d", 3) == ["b"]
    assert surplus(since, "a", 3) == []
    assert surplus(since, "d", 4) == []
