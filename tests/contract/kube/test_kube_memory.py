"""The API server in memory fulfils the same contract as the real one, and fails on demand."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from contract.kube.bed import THING, Bed
from contract.kube.read_suite import *  # noqa: F403 - the sentences are collected here
from contract.kube.reflector_suite import *  # noqa: F403
from contract.kube.write_suite import *  # noqa: F403
from sandfleet_operator.api.kube import (
    CONFIG_MAP,
    NAMESPACE,
    Event,
    Expired,
    NotFound,
    TooManyRequests,
    Unreachable,
)
from support.fakes.kube_memory import After, Before, MemoryKube, Write


async def test_a_write_can_fail_before_it_is_done(bed: Bed):
    busy = TooManyRequests(429, "TooManyRequests", "later", 2.0)
    bed.api.fault = lambda _write: Before(busy)
    with pytest.raises(TooManyRequests) as refusal:
        await bed.api.create(bed.config())
    assert refusal.value.retry_after == 2.0
    assert not await bed.there(bed.ref(CONFIG_MAP))


async def test_a_write_can_be_done_and_its_reply_lost(bed: Bed):
    bed.api.fault = lambda _write: After()
    with pytest.raises(Unreachable) as refusal:
        await bed.api.create(bed.config())
    assert refusal.value.unsettled
    assert await bed.there(bed.ref(CONFIG_MAP))


async def test_a_fault_sees_every_write_in_order_and_no_read(bed: Bed):
    seen: list[Write] = []
    bed.api.fault = seen.append
    ref = bed.ref(THING)
    await bed.api.create(bed.thing())
    await bed.api.get(ref)
    await bed.api.apply(bed.thing())
    await bed.api.merge(ref, {"spec": {"size": 2}})
    await bed.api.patch(ref, [])
    await bed.api.list(THING)
    await bed.api.delete(ref)
    verbs = [(write.verb, write.subresource) for write in seen]
    assert verbs == [("create", ""), ("apply", ""), ("merge", ""), ("patch", ""), ("delete", "")]
    # The namespace was the first.
    assert [write.number for write in seen] == [1, 2, 3, 4, 5]
    assert bed.api.writes[1:] == seen


async def test_a_cancellation_is_passed_on(bed: Bed):
    class Killed(BaseException):
        pass

    bed.api.fault = lambda write: After(Killed()) if write.verb == "create" else None
    with pytest.raises(Killed):
        await bed.api.create(bed.config())
    await bed.api.merge(bed.ref(CONFIG_MAP), {"data": {"color": "red"}})


async def test_reads_can_be_stale(bed: Bed):
    first = await bed.api.create(bed.config())
    await bed.api.merge(bed.ref(CONFIG_MAP), {"data": {"color": "red"}})
    bed.api.lag = 1
    assert await bed.api.get(bed.ref(CONFIG_MAP)) == first
    assert await bed.api.list(CONFIG_MAP) == await bed.api.list(CONFIG_MAP, bed.namespace)
    assert (await bed.api.list(CONFIG_MAP)).items == (first,)
    assert (await bed.api.list(CONFIG_MAP)).resource_version == first["metadata"]["resourceVersion"]
    bed.api.lag = 2
    with pytest.raises(NotFound):
        await bed.api.get(bed.ref(CONFIG_MAP))
    bed.api.lag = 99
    assert (await bed.api.list(NAMESPACE)).items == ()


async def test_answers_can_be_slow_and_others_go_on_meanwhile(bed: Bed):
    bed.api.cluster.latency = 0.01
    slow = asyncio.ensure_future(bed.api.create(bed.config()))
    await asyncio.sleep(0)
    assert not bed.api.cluster.objects.keys() & {bed.ref(CONFIG_MAP)}
    while bed.ref(CONFIG_MAP) not in bed.api.cluster.objects:
        await asyncio.sleep(0)
    # It is done, and its caller does not know yet.
    assert not slow.done()
    assert await slow == bed.api.cluster.objects[bed.ref(CONFIG_MAP)]


async def test_two_clients_of_one_server_see_the_same_and_fail_alone(bed: Bed):
    other = MemoryKube(bed.api.cluster)
    bed.api.fault = lambda _write: Before(Unreachable(0, "ConnectionFailed", "cut"))
    made = await other.create(bed.config())
    assert await bed.api.get(bed.ref(CONFIG_MAP)) == made
    assert (len(bed.api.writes), len(other.writes)) == (1, 1)


async def test_answers_are_copies(bed: Bed):
    given = bed.config()
    made = await bed.api.create(given)
    made["data"]["color"] = given["data"]["color"] = "red"
    assert (await bed.api.get(bed.ref(CONFIG_MAP)))["data"] == {"color": "blue"}


async def test_watches_end_and_expire_on_demand(bed: Bed):
    async def next_of(stream: AsyncIterator[Event], sign: Callable[[], None]) -> Event:
        coming = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        sign()
        return await coming

    now = (await bed.api.list(CONFIG_MAP)).resource_version
    with pytest.raises(StopAsyncIteration):
        await next_of(bed.api.watch(CONFIG_MAP, resource_version=now), bed.api.cluster.end_watches)
    stream = bed.api.watch(CONFIG_MAP, resource_version=now)
    assert (await next_of(stream, bed.api.cluster.bookmark)).type == "BOOKMARK"
    with pytest.raises(Expired):
        await next_of(stream, bed.api.cluster.expire)
