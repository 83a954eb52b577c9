"""Leadership under faults, in virtual time: late and lost replies, refusals, and writes of other processes."""

import asyncio
import time
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sandfleet_operator.api.kube import LEASE, Ref, Unreachable, failure
from sandfleet_operator.cluster.elector import Elector
from sandfleet_operator.cluster.lease import Lease
from sandfleet_operator.plan.leadership import Terms
from support.examples import examples
from support.fakes.kube_cluster import MemoryCluster
from support.fakes.kube_memory import MemoryKube
from transition.fake_time import run

TERMS = Terms(duration=15.0, renew_deadline=10.0)
REF = Ref(LEASE, "team-a", "leader")


@dataclass(frozen=True)
class Weather:
    """The fate of one call: seconds until it is done, seconds until its reply, and the error instead of a reply."""

    there: float = 0.0
    back: float = 0.0
    refused: int = 0
    lost: bool = False


CALM = Weather()


class RoughKube(MemoryKube):
    """A sent request arrives even if no caller waits for it any more."""

    def __init__(self, cluster):
        super().__init__(cluster)
        # The verb and the moment of each call.
        self.calls = []
        self.weather = lambda _now: CALM

    async def get(self, ref):
        return await self._through("get", lambda: super(RoughKube, self).get(ref))

    async def create(self, obj):
        return await self._through("create", lambda: super(RoughKube, self).create(obj))

    async def merge(self, ref, patch, subresource=""):
        return await self._through("merge", lambda: super(RoughKube, self).merge(ref, patch, subresource))

    async def _through(self, verb, call):
        now = asyncio.get_running_loop().time()
        self.calls.append((verb, now))
        sky = self.weather(now)
        arriving = asyncio.create_task(self._arrives(sky, call))
        arriving.add_done_callback(lambda done: done.cancelled() or done.exception())
        found = await asyncio.shield(arriving)
        await asyncio.sleep(sky.back)
        if sky.lost:
            raise Unreachable(0, "ConnectionFailed", f"cannot {verb}: the reply was lost")
        return found

    async def _arrives(self, sky, call):
        await asyncio.sleep(sky.there)
        if sky.refused:
            raise failure("do that", sky.refused, {})
        return await call()


class Bed:
    """A cluster and its contenders; records at each moment which of them believe that they lead."""

    def __init__(self):
        self.loop = asyncio.get_running_loop()
        self.cluster = MemoryCluster(self.loop.time)
        self.begun, self.ended, self.tasks = [], [], []

    async def __aenter__(self):
        await MemoryKube(self.cluster).create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": REF.namespace}}
        )
        return self

    async def __aexit__(self, *_):
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def contend(self, name, offset=0.0):
        api = RoughKube(self.cluster)
        elector = Elector(api, REF, name, TERMS, clock=lambda: self.loop.time() + offset, wall=self.loop.time)
        self.tasks.append(asyncio.create_task(self._lead(name, elector)))
        return api, elector

    async def _lead(self, name, elector):
        number = await elector.acquire()
        self.begun.append((number, name, self.loop.time()))
        await elector.hold(lambda: self.ended.append((number, name, self.loop.time())))


def between(first, last, sky):
    return lambda now: sky if first <= now < last else CALM


ROUGH = {
    "every answer takes two seconds": between(10, 100, Weather(there=1.0, back=1.0)),
    "every write is done at once and answered after five": between(10, 100, Weather(back=4.9)),
    "refused with 429 for six seconds": between(10, 16, Weather(refused=429)),
    "refused with 500 for six seconds": between(10, 16, Weather(refused=500)),
    "every reply is lost for six seconds": between(10, 16, Weather(lost=True)),
    "a connection that leads nowhere": between(11.5, 12.5, Weather(there=1e6)),
    "a write that comes after its sender has given it up": between(11.5, 12.5, Weather(there=5.5)),
    "a write that comes with the next one": between(11.5, 12.5, Weather(there=5.0)),
}


@pytest.mark.parametrize("weather", ROUGH)
def test_leadership_survives(weather):
    async def go() -> None:
        async with Bed() as bed:
            api, elector = bed.contend("first")
            bed.contend("second")
            await asyncio.sleep(5)
            assert (bed.begun, elector.fencing) == ([(1, "first", 0.0)], 1)
            api.weather = ROUGH[weather]
            for _ in range(1000):
                await asyncio.sleep(0.1)
                assert elector.fencing == 1
            assert bed.ended == []

    run(go())


def test_without_faults_a_renewal_is_one_write_and_no_read():
    async def go() -> None:
        async with Bed() as bed:
            api, _ = bed.contend("first")
            await asyncio.sleep(61)
            assert api.calls[:2] == [("get", 0.0), ("create", 0.0)]
            assert api.calls[2:] == [("merge", pytest.approx(3.0 * number)) for number in range(1, 21)]

    run(go())


def test_a_renewal_with_a_lost_reply_counts_from_when_it_was_sent():
    async def go() -> None:
        async with Bed() as bed:
            api, elector = bed.contend("first")
            await asyncio.sleep(1)
            # One write at 3 s is done; from then on only reading goes.
            api.weather = lambda now: Weather(lost=True) if now < 4 else CALM
            await asyncio.sleep(3)
            merges = [at for verb, at in api.calls if verb == "merge"]
            assert merges == [3.0]

            async def unwell(_ref, _patch, subresource=""):
                raise failure("write", 500, {})

            api.merge = unwell
            await asyncio.sleep(8.5)
            # Its first write alone would have ended at 10.
            assert (bed.loop.time(), elector.fencing) == (12.5, 1)
            await asyncio.sleep(1)
            assert elector.fencing is None
            assert bed.ended == [(1, "first", 13.0)]

    run(go())


def test_a_foreign_write_to_the_lease_costs_a_read_and_no_leadership():
    async def go() -> None:
        async with Bed() as bed:
            api, elector = bed.contend("first")
            for number in range(40):
                await asyncio.sleep(1)
                bed.cluster.edit(REF, lambda lease: lease["metadata"].update(labels={"n": str(number)}))  # noqa: B023
                assert elector.fencing == 1
            assert [verb for verb, at in api.calls if 9 <= at < 9.5] == ["merge", "get", "merge"]

    run(go())


def test_a_leader_learns_at_its_next_renewal_that_its_lease_was_taken():
    async def go() -> None:
        async with Bed() as bed:
            _, elector = bed.contend("first")
            await asyncio.sleep(4)
            taken = {"holderIdentity": "second", "leaseTransitions": 2}
            bed.cluster.edit(REF, lambda lease: lease["spec"].update(taken))
            await asyncio.sleep(2.5)
            assert (elector.fencing, elector.holder) == (None, "second")
            assert bed.ended == [(1, "first", 6.0)]

    run(go())


def test_a_conflict_with_our_own_late_write_keeps_the_leadership():
    async def go() -> None:
        async with Bed() as bed:
            api, elector = bed.contend("first")
            await asyncio.sleep(1)
            # Sent at 3, given up at 8, and there at 8.3: after it was looked for, and before the next one.
            api.weather = lambda now: Weather(there=5.3) if now < 4 else Weather(there=0.2)
            await asyncio.sleep(14)
            assert [verb for verb, at in api.calls if 8 <= at < 9] == ["get", "merge", "get", "merge"]
            assert elector.fencing == 1

    run(go())


SKIES = st.builds(
    Weather,
    there=st.sampled_from([0.0, 0.0, 0.5, 3.0, 7.0, 14.0, 30.0]),
    back=st.sampled_from([0.0, 0.0, 0.5, 3.0, 7.0]),
    refused=st.sampled_from([0, 0, 0, 0, 429, 500]),
    lost=st.booleans(),
)


@pytest.mark.slow
@given(st.lists(st.lists(SKIES, min_size=1, max_size=12), min_size=3, max_size=3), st.integers(0, 2**16))
@settings(max_examples=examples(60), deadline=None)
def test_under_any_faults_no_two_lead_at_once_and_no_number_is_reused(skies, seed):
    async def go() -> None:
        async with Bed() as bed:
            electors = []
            for number, mine in enumerate(skies):
                api, elector = bed.contend(f"contender-{number}", offset=float(seed * number))
                # One sky a call, over and over, with calm between them.
                api.weather = lambda now, mine=mine: mine[int(now / 2) % len(mine)] if int(now) % 3 else CALM
                electors.append(elector)
            for _ in range(1200):
                await asyncio.sleep(0.25)
                leading = [each.fencing for each in electors if each.fencing is not None]
                assert len(leading) <= 1
                if leading:
                    # The Lease is still its holder's.
                    assert bed.cluster.objects[REF]["spec"]["leaseTransitions"] == leading[0]
            numbers = [number for number, *_ in bed.begun]
            assert numbers == sorted(set(numbers))

    run(go())


# The thread.

QUICK = Terms(duration=5.0, renew_deadline=4.9)


async def a_lease(terms, **more):
    api = MemoryKube()
    await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": REF.namespace}})
    return api, Lease(api, REF, "first", terms, **more)


async def test_a_busy_event_loop_does_not_delay_renewals():
    api, lease = await a_lease(QUICK)
    assert await lease.acquire() == 1
    for _ in range(3000):
        if len(api.writes) > 4:
            break
        # Nothing else goes on in this loop.
        time.sleep(0.01)
    assert lease.fencing == 1
    await lease.release()
    assert lease.fencing is None
    assert api.cluster.objects[REF]["spec"]["holderIdentity"] == ""


async def test_a_blocked_event_loop_loses_its_leadership():
    _, lease = await a_lease(Terms(duration=0.6, renew_deadline=0.4), stuck=0.1)
    assert await lease.acquire() == 1
    for _ in range(3000):
        if lease.fencing is None:
            break
        time.sleep(0.01)
    lost = []
    async with asyncio.timeout(30):
        await lease.hold(lambda: lost.append(lease.fencing))
    assert lost == [None]
    await lease.release()


async def test_a_lease_that_was_never_acquired_is_left_alone():
    api, lease = await a_lease(QUICK)
    other = Elector(api, REF, "other", QUICK)
    await other.acquire()
    waiting = asyncio.create_task(lease.acquire())
    while lease.holder != "other":
        await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.wait({waiting})
    await lease.release()
    assert api.cluster.objects[REF]["spec"]["holderIdentity"] == "other"


async def test_errors_in_the_thread_are_raised(monkeypatch):
    api, lease = await a_lease(QUICK)

    async def broken(_ref):
        raise AssertionError("a mistake of ours")

    monkeypatch.setattr(api, "get", broken)
    with pytest.raises(AssertionError, match="a mistake of ours"):
        await lease.acquire()
    with pytest.raises(AssertionError, match="a mistake of ours"):
        await lease.hold(lambda: None)
