"""Operator and fleet together put sessions into snapshots: each goes on with all that it had."""

import asyncio
import math
import os

import pytest
from sandfleet_api.fleet.v1 import fleet_pb2
from sandfleet_operator.fleet.kubernetes.snapshots import parking
from sandfleet_operator.fleet.snapshots import transfers
from sandfleet_operator.plan.sandbox import parked
from transition.joint.play import faults
from transition.joint.scenarios import a_late_end, a_parked_day, an_unattended_day, an_unnamed_snapshot, crash
from transition.mutant import Mutant

pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ.get("SANDFLEET_EXAMPLES", "5"))
# Writes of the day. The short profile looks at some of them.
WRITES, STEP = 96, 1 if EXAMPLES > 5 else 18


def _whatever(seen, *, gone, now):
    """As if a session were held for ever."""
    said = seen.sandbox.status.snapshot
    return said.id if said is not None and not said.filled and (gone or seen.sandbox.status.restores_from) else ""


async def _nothing(*_):
    """As if no snapshot were newer than the one that is named."""


async def _one_is_kept(self, party, sandbox, holder, reason, **options):
    """As if the store kept one alone of each session."""
    words = {"name": "", "labels": {}, "reason": reason}
    return [one async for one in self._transfers.save(party, holder, words, keep_count=1, **options)][-1]


async def a_night(world):
    """A session sleeps, and goes on in a warm pod of its pool."""
    await world.make_pool(size=1)
    session = await world.claim("alice", "r1", pool="fast", lease=60)
    before = world.pod_of(session.ref)
    await world.suspend(session, to_snapshot=True)
    await world.until(lambda: world.status(session.ref).get("restoresFrom"), "asleep")
    await asyncio.sleep(30)
    await world.resume(session)
    await world.until_used(session)
    after = world.pod_of(session.ref)
    assert after != before
    assert after.name.startswith("fast-")
    # The pool has another one for the next claim.
    other = await world.claim("bob", "r2", pool="fast", lease=60)
    assert world.pod_of(other.ref) not in {before, after}
    await world.release(session)


async def an_evening(world):
    """A session falls asleep when its lease is over, and goes on."""
    await world.make_pool(size=1)
    session = await world.claim("alice", "r1", pool="fast", lease=30, on_timeout=fleet_pb2.ON_IDLE_SNAPSHOT)
    await world.until(lambda: world.status(session.ref).get("restoresFrom"), "asleep")
    assert world.pod_of(session.ref) is None
    await world.resume(session)
    await world.until_used(session)
    await world.release(session)


MUTANTS = (
    Mutant("a session is not filled", a_parked_day, ((parking, "has_to_be_filled", lambda _: False),)),
    Mutant("the owner's mode is not followed", a_parked_day, ((parking, "lacks_snapshot", lambda *_: False),)),
    Mutant(
        "a session goes back to the snapshot that is named",
        an_unnamed_snapshot,
        ((transfers.Transfers, "newest", _nothing),),
    ),
    Mutant(
        "its predecessor goes with the save",
        an_unnamed_snapshot,
        ((transfers.Transfers, "newest", _nothing), (parking.ClusterParking, "_save", _one_is_kept)),
    ),
    Mutant(
        "any end of a pod proves it",
        a_late_end,
        ((parked, "restores_from", _whatever), (parked, "ENDING_SECONDS", -math.inf)),
    ),
)
FINDS = [pytest.param(one, id=one.point) for one in MUTANTS]


@pytest.mark.parametrize("guarded", [False, True])
def test_parked_sessions_go_on_with_what_they_had(guarded):
    assert faults(a_parked_day, guarded=guarded) == []


@pytest.mark.parametrize("guarded", [False, True])
def test_a_lease_may_end_in_a_snapshot(guarded):
    assert faults(an_evening, guarded=guarded) == []


@pytest.mark.parametrize("guarded", [False, True])
def test_idle_sessions_fall_asleep_and_lost_ones_go_back(guarded):
    assert faults(an_unattended_day, guarded=guarded) == []


@pytest.mark.parametrize("guarded", [False, True])
def test_an_operator_that_is_away_longer_than_a_session_is_held_loses_nothing(guarded):
    assert faults(a_late_end, guarded=guarded) == []


@pytest.mark.parametrize("guarded", [False, True])
def test_a_session_that_is_resumed_goes_on_in_a_warm_pod_where_there_is_one(guarded):
    assert faults(a_night, guarded=guarded) == []


@pytest.mark.parametrize("guarded", [False, True])
def test_a_leader_that_ends_before_a_snapshot_is_named_costs_no_session(guarded):
    assert faults(an_unnamed_snapshot, guarded=guarded) == []


@pytest.mark.parametrize("done", [False, True])
def test_a_process_that_ends_at_any_write_changes_nothing(done):
    for number in range(1, WRITES, STEP):

        async def day(world, number=number):
            crash(world, number, done=done)
            await a_parked_day(world)

        assert (number, faults(day)) == (number, [])


@pytest.mark.parametrize("mutant", FINDS)
def test_the_world_finds_what_loses_a_session(mutant):
    with mutant.applied():
        assert faults(mutant.finder) != []
