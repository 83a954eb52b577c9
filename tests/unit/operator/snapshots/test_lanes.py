"""Sandboxes that stall hold up their own tenant, and not for long."""

import asyncio
from contextlib import AsyncExitStack, suppress

import pytest
from sandfleet_api.executor.v1 import snapshot_pb2 as pb
from sandfleet_operator.plan.snapshots import pace
from sandfleet_operator.plan.snapshots.errors import Reason, SnapshotError
from sandfleet_operator.plan.snapshots.manifest import About
from sandfleet_operator.plan.snapshots.pace import Pace
from sandfleet_operator.snapshots import aio, transfer
from sandfleet_operator.snapshots.aio import AsyncSnapshots
from support.snapshots import flat, save, store_in_memory

NO_TURN = 0.05


async def stalled(snapshots: AsyncSnapshots, tenant: str, count: int) -> list[asyncio.Task[None]]:
    """Saves of sandboxes that say nothing, as many as get a turn at once."""
    begun, tasks = asyncio.Semaphore(0), []

    async def stall(number: int) -> None:
        async with snapshots.writer(tenant, About(), sandbox=f"box-{number}"):
            begun.release()
            await asyncio.Event().wait()

    for number in range(count):
        tasks.append(asyncio.create_task(stall(number)))
        with suppress(TimeoutError):
            await asyncio.wait_for(begun.acquire(), 1.0)
    return tasks


async def gets_in(snapshots: AsyncSnapshots, tenant: str) -> tuple[bool, bool]:
    """Whether a save and a restore of the tenant begin."""
    made = save(snapshots.blocking, tenant, flat({b"a": b"text"}))
    found = []
    for begin in (lambda: snapshots.writer(tenant, About()), lambda: snapshots.reader(tenant, made.id)):
        try:
            async with begin():
                found.append(True)
        except SnapshotError as error:
            assert error.reason is Reason.UNAVAILABLE
            found.append(False)
    return found[0], found[1]


@pytest.mark.parametrize(
    ("share", "mine", "others"), [(2, (False, True), (True, True)), (4, (False, True), (False, True))]
)
async def test_four_stalled_sandboxes_of_a_tenant_stop_its_own_saves_alone(
    share: int, mine: tuple[bool, bool], others: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a share of all, the control, they stop those of all tenants. No restore waits for a save."""
    snapshots = AsyncSnapshots(store_in_memory(), share=share)
    tasks = await stalled(snapshots, "hostile", 4)
    monkeypatch.setattr(aio, "TURN_SECONDS", NO_TURN)
    try:
        assert await gets_in(snapshots, "hostile") == mine
        assert await gets_in(snapshots, "other") == others
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_sandbox_that_has_stalled_twice_is_left_alone_for_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots = AsyncSnapshots(store_in_memory(), share=2)
    for _ in range(2):
        with pytest.raises(TimeoutError):
            async with snapshots.writer("team", About(), sandbox="box"):
                raise TimeoutError
    monkeypatch.setattr(aio, "TURN_SECONDS", NO_TURN)
    async with AsyncExitStack() as stack:
        with pytest.raises(SnapshotError) as refused:
            await stack.enter_async_context(snapshots.writer("team", About(), sandbox="box"))
        assert refused.value.reason is Reason.UNAVAILABLE
        # Its neighbour is not.
        await stack.enter_async_context(snapshots.writer("team", About(), sandbox="neighbour"))


async def test_an_executor_that_says_nothing_more_ends_its_save(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent():
        yield pb.SaveResponse(begun=pb.SnapshotTotals(entries=1, bytes=1 << 40))
        await asyncio.Event().wait()

    monkeypatch.setattr(pace, "SILENCE_SECONDS", 0.01)
    with pytest.raises(TimeoutError):
        _ = [one async for one in transfer._heard(silent(), Pace())]


async def test_an_executor_that_takes_nothing_more_ends_its_restore(monkeypatch: pytest.MonkeyPatch) -> None:
    async def pieces():
        for _ in range(3):
            yield pb.RestoreRequest(piece=pb.SnapshotPart(data=b"x"))

    monkeypatch.setattr(pace, "SILENCE_SECONDS", 0.01)
    monkeypatch.setattr(pace, "FIRST_SECONDS", 0.01)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(None) as limit:
            async for _ in transfer._paced(pieces(), limit):
                await asyncio.Event().wait()
