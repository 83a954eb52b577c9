"""The contract of leadership by a Lease, for the API server in memory and the real one. `bed` is of bed.py."""

import asyncio
from dataclasses import dataclass, field

import pytest
from contract.kube.bed import Bed
from sandfleet_operator.api.kube import LEASE
from sandfleet_operator.cluster.elector import Elector
from sandfleet_operator.plan.leadership import Decision, Terms

TERMS = Terms(duration=15.0, renew_deadline=10.0)


@dataclass
class Clock:
    """The clock of one contender, moved by the test. Sleeping on it moves it and lets the others run."""

    now: float = 1000.0
    slept: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


def contender(bed: Bed, name: str, clock: Clock, api=None) -> Elector:
    return Elector(
        api or bed.api, bed.ref(LEASE, "leader"), name, TERMS, clock=clock, wall=lambda: clock.now, sleep=clock.sleep
    )


async def test_the_first_contender_leads_and_the_second_waits(bed: Bed):
    first, second = contender(bed, "first", Clock()), contender(bed, "second", Clock(5.0))
    assert await first.acquire() == 1
    assert first.fencing == 1
    assert await second.step() is Decision.WAIT
    assert second.fencing is None
    assert second.holder == "first"


async def test_a_leader_that_renews_keeps_the_lease(bed: Bed):
    clocks = Clock(), Clock(5_000_000.0)
    first, second = contender(bed, "first", clocks[0]), contender(bed, "second", clocks[1])
    await first.acquire()
    for _ in range(20):
        for clock in clocks:
            clock.now += 5.0
        await first.step()
        assert await second.step() is Decision.WAIT
        assert first.fencing == 1


async def test_a_silent_leader_is_replaced_under_a_higher_number_and_learns_it(bed: Bed):
    clocks = Clock(), Clock(5_000_000.0)
    first, second = contender(bed, "first", clocks[0]), contender(bed, "second", clocks[1])
    await first.acquire()
    assert await second.step() is Decision.WAIT
    clocks[1].now += 14.9
    assert await second.step() is Decision.WAIT
    clocks[1].now += 0.2
    assert await second.acquire() == 2
    # By its own clock it may still lead: only the record says otherwise.
    clocks[0].now += TERMS.renew_every
    assert await first.step() is Decision.LOST
    assert first.fencing is None


async def test_a_leader_that_releases_lets_the_next_start_at_once(bed: Bed):
    first, second = contender(bed, "first", Clock()), contender(bed, "second", Clock())
    await first.acquire()
    await second.step()
    await first.release()
    assert first.fencing is None
    assert await second.acquire() == 2


async def test_a_replaced_leader_releases_nothing(bed: Bed):
    clock = Clock()
    first, second = contender(bed, "first", Clock()), contender(bed, "second", clock)
    await first.acquire()
    await second.step()
    clock.now += 15.0
    assert await second.acquire() == 2
    await first.release()
    assert await second.step() is Decision.WAIT
    assert (second.holder, second.fencing) == ("second", 2)


async def test_of_many_contenders_one_gets_the_lease(bed: Bed):
    contenders = [contender(bed, f"contender-{number}", Clock()) for number in range(8)]
    await asyncio.gather(*(each.step() for each in contenders))
    assert [each.fencing for each in contenders if each.fencing] == [1]
    leader = next(each for each in contenders if each.fencing)
    await leader.release()
    await asyncio.gather(*(each.step() for each in contenders))
    assert [each.fencing for each in contenders if each.fencing] == [2]


async def test_deleting_the_lease_ends_the_leadership(bed: Bed):
    clock = Clock()
    first = contender(bed, "first", clock)
    await first.acquire()
    await bed.api.delete(bed.ref(LEASE, "leader"))
    clock.now += TERMS.renew_every
    assert await first.step() is Decision.LOST


async def test_a_lease_says_who_leads_and_since_when(bed: Bed):
    clock = Clock(86400.0)
    first = contender(bed, "first", clock)
    await first.acquire()
    clock.now += 5.5
    await first.step()
    spec = (await bed.api.get(bed.ref(LEASE, "leader")))["spec"]
    assert spec == {
        "holderIdentity": "first",
        "leaseDurationSeconds": 15,
        "acquireTime": "1970-01-02T00:00:00.000000Z",
        "renewTime": "1970-01-02T00:00:05.500000Z",
        "leaseTransitions": 1,
    }


async def test_hold_renews_until_the_lease_is_lost_and_reports_it_once(bed: Bed):
    clock, lost = Clock(), []
    first = contender(bed, "first", clock)
    await first.acquire()
    holding = asyncio.ensure_future(first.hold(lambda: lost.append(clock.now)))
    async with asyncio.timeout(30):
        while clock.now < 1030.0:
            await asyncio.sleep(0.01)
        assert first.fencing == 1
        await bed.api.delete(bed.ref(LEASE, "leader"))
        await holding
    assert len(lost) == 1
    assert first.fencing is None
    assert max(clock.slept) <= TERMS.renew_every


@pytest.mark.parametrize("duration", [15.0, 2.5])
async def test_the_record_never_promises_less_than_the_leader_uses(bed: Bed, duration):
    lease = Elector(bed.api, bed.ref(LEASE, "leader"), "first", Terms(duration, duration / 2))
    await lease.acquire()
    assert (await bed.api.get(bed.ref(LEASE, "leader")))["spec"]["leaseDurationSeconds"] >= duration
