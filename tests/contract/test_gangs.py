"""Gangs: the client on a real fleet with real executors gets all sandboxes that it asks for, or none."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest
from sandfleet import ClaimError, Fleet, InvalidArgument, Sandbox
from sandfleet._fleets.embedded import Options, Process
from sandfleet._fleets.fleet import AsyncFleet
from sandfleet.sandbox import AsyncSandbox
from support.client.served import served_fleet

MOST = 4


@pytest.fixture(scope="module")
def served() -> Iterator[Process]:
    with served_fleet(Options(pool_size=1, max_sandboxes=MOST)) as process:
        yield process


@pytest.fixture
async def fleet(fleet: AsyncFleet) -> AsyncIterator[AsyncFleet]:
    yield fleet
    assert await held(fleet) == 0


async def held(fleet: AsyncFleet) -> int:
    return sum(one.state == "claimed" for one in await fleet.list())


async def test_a_gang_larger_than_the_pool_is_served_whole(fleet: AsyncFleet) -> None:
    made = await AsyncSandbox.create_many(MOST - 1, gang=True, fleet=fleet, labels={"run": "7"}, timeout=60.0)
    async with AsyncExitStack() as stack:
        for sandbox in made:
            await stack.enter_async_context(sandbox)
        assert len({one.sandbox_id for one in made}) == MOST - 1
        assert [(await one.run_code("6 * 7")).text for one in made] == ["42"] * (MOST - 1)
        assert len(await fleet.list("run=7")) == MOST - 1


def test_the_sync_client_claims_several(served: Process) -> None:
    with Fleet.connect(served.address) as fleet:
        for sandbox in Sandbox.create_many(2, fleet=fleet):
            with sandbox:
                assert sandbox.run_code("1 + 1").text == "2"


async def test_a_gang_waits_as_one_and_holds_nothing_until_there_is_room_for_all(fleet: AsyncFleet) -> None:
    first, second = [await AsyncSandbox.create(fleet=fleet) for _ in range(2)]
    reasons: set[str] = set()
    claim = asyncio.create_task(
        AsyncSandbox.create_many(
            3, gang=True, fleet=fleet, max_wait=60.0, on_queued=lambda news: reasons.add(news.reason)
        )
    )
    await asyncio.sleep(2)
    assert (claim.done(), await held(fleet)) == (False, 2)
    await first.kill()
    made = await claim
    assert len(made) == 3
    assert reasons & {"SandboxLimit", "GangIncomplete"}
    for one in (second, *made):
        await one.kill()


async def test_a_gang_whose_time_is_over_or_that_is_left_holds_nothing(fleet: AsyncFleet) -> None:
    first, second = [await AsyncSandbox.create(fleet=fleet) for _ in range(2)]
    with pytest.raises(ClaimError) as caught:
        await AsyncSandbox.create_many(3, gang=True, fleet=fleet, max_wait=1.0)
    assert caught.value.reason in {"NotBoundInTime", "SandboxLimit"}
    left = asyncio.create_task(AsyncSandbox.create_many(3, gang=True, fleet=fleet))
    await asyncio.sleep(1)
    left.cancel()
    with pytest.raises(asyncio.CancelledError):
        await left
    await first.kill()
    # The room for one is there: a gang of the call that was left would hold it.
    async with await AsyncSandbox.create(fleet=fleet, max_wait=60.0):
        assert await held(fleet) == 2
    await second.kill()


@pytest.mark.parametrize(
    ("count", "options", "error", "reason"),
    [
        (MOST + 1, {}, ClaimError, "GangTooLarge"),
        (0, {}, InvalidArgument, "InvalidArgument"),
        (2, {"workspace_id": "w1"}, InvalidArgument, "InvalidArgument"),
        (2, {"name": "one"}, InvalidArgument, "InvalidArgument"),
        (2, {"queue": "none"}, ClaimError, "QueueNotFound"),
    ],
)
async def test_a_gang_that_can_never_be_served_is_refused_at_once(fleet, count, options, error, reason) -> None:
    queued: list[object] = []
    with pytest.raises(error) as caught:
        await AsyncSandbox.create_many(count, gang=True, fleet=fleet, on_queued=queued.append, **options)
    assert (caught.value.reason, queued) == (reason, [])
