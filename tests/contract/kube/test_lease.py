"""Leadership on the API server in memory, with and without failures."""

import asyncio
from collections.abc import Callable

import pytest
from contract.kube.bed import Bed
from contract.kube.lease_suite import *  # noqa: F403 - the sentences are collected here
from contract.kube.lease_suite import TERMS, Clock, contender
from sandfleet_operator.api.kube import LEASE, KubeError, Unreachable, failure
from sandfleet_operator.cluster.elector import Elector
from sandfleet_operator.plan.leadership import Decision
from support.fakes.kube_memory import After, Before, MemoryKube

CUT = Before(Unreachable(0, "ConnectionFailed", "cannot write: cut"))


def once(fault: Before | After) -> Callable[..., Before | After | None]:
    left = [fault]
    return lambda _write: left.pop() if left else None


async def test_a_leader_that_cannot_renew_keeps_trying_until_its_deadline(bed: Bed):
    clock, lost = Clock(), []
    first = contender(bed, "first", clock)
    await first.acquire()
    bed.api.fault = lambda _write: CUT
    await first.hold(lambda: lost.append(clock.now))
    # The acquisition was at 1000.
    assert lost == [1010.0]
    assert first.fencing is None
    assert len(bed.api.writes) > 4


async def test_the_fencing_number_is_gone_at_the_deadline_without_a_step(bed: Bed):
    clock = Clock()
    first = contender(bed, "first", clock)
    await first.acquire()
    clock.now += 9.9
    assert first.fencing == 1
    clock.now += 0.1
    assert first.fencing is None


async def test_a_leader_without_answers_stops_at_its_deadline(bed: Bed):
    class Silent(MemoryKube):
        silent = False

        async def merge(self, ref, patch, subresource=""):
            if self.silent:
                await asyncio.Event().wait()
            return await super().merge(ref, patch, subresource)

    clock, api = Clock(), Silent(bed.api.cluster)
    first = contender(bed, "first", clock, api)
    await first.acquire()
    api.silent = True
    clock.now += 9.99
    # The hundredth of a second that is left is a real one.
    async with asyncio.timeout(30):
        await first.step()
        clock.now += 0.01
        assert await first.step() is Decision.LOST


@pytest.mark.parametrize("fault", [After(), CUT, Before(failure("write", 500, {})), Before(failure("write", 429, {}))])
async def test_a_failed_write_or_lost_reply_costs_one_renewal(bed: Bed, fault):
    clock = Clock()
    first = contender(bed, "first", clock)
    await first.acquire()
    bed.api.fault = once(fault)
    clock.now += 5.0
    await first.step()
    assert isinstance(first.trouble, KubeError)
    clock.now += 1.5
    await first.step()
    assert first.trouble is None
    clock.now += 8.0
    assert first.fencing == 1


async def test_an_acquisition_with_a_lost_reply_is_repeated_under_a_new_number(bed: Bed):
    first = contender(bed, "first", Clock())
    bed.api.fault = once(After())
    assert await first.acquire() == 2
    assert (await bed.api.get(bed.ref(LEASE, "leader")))["spec"]["leaseTransitions"] == 2


async def test_waiting_for_leadership_survives_failures_of_the_api_server(bed: Bed):
    clock = Clock()
    bed.api.fault = lambda write: CUT if write.number < 20 else None
    assert await contender(bed, "first", clock).acquire() == 1
    assert clock.slept == [TERMS.retry_every] * len(clock.slept)


async def test_an_unusual_record_of_another_process_is_accepted(bed: Bed):
    await bed.api.create(bed.make(LEASE, "leader", {}, spec={}))
    assert await Elector(bed.api, bed.ref(LEASE, "leader"), "first").acquire() == 1
