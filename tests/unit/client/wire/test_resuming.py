"""How a client resumes a stream: within a retry budget, at most once, visible only in the trace."""

import contextlib
import math
import random
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet._fleets.fleet import AsyncFleet
from sandfleet._wire.retry import Backoff, Retries, RetryBudget
from sandfleet.errors import NotFoundError, SandboxSuspended
from sandfleet.sandbox import AsyncSandbox
from sandfleet.testing import Fails, FakeFleet, finished, gap, output
from sandfleet.values.execution import Outcome
from sandfleet_api.fleet.v1.fleet_pb2 import GetResponse

ASLEEP = Fails(grpc.StatusCode.FAILED_PRECONDITION, "SandboxSuspended", "it sleeps")
CUT = Fails(grpc.StatusCode.UNAVAILABLE, "", "Socket closed")


@pytest.fixture
async def fake() -> AsyncIterator[FakeFleet]:
    async with FakeFleet() as fleet:
        yield fleet


@pytest.fixture
async def sandbox(fake: FakeFleet) -> AsyncIterator[AsyncSandbox]:
    async with await AsyncFleet.connect(fake.address) as fleet:
        opened = await AsyncSandbox.create(fleet=fleet, rpc_timeout=5.0)
        yield opened
        await opened.close()


async def test_a_stream_that_breaks_goes_on_after_the_last_event_that_came(
    fake: FakeFleet, sandbox: AsyncSandbox
) -> None:
    fake.answer("code", output("one "), CUT, output("two"), finished())
    execution = await sandbox.run_code("code", execution_id="e")
    assert (execution.outcome, execution.logs.stdout) == (Outcome.OK, "one two")
    [attached] = fake.called("Attach")
    assert (attached.request.execution_id, attached.request.after_sequence, attached.request.seen_bytes) == ("e", 2, 4)
    assert len(fake.called("Execute")) == 1


async def test_bytes_in_a_gap_count_as_seen(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    fake.answer("code", output("one "), gap(1000), CUT, finished())
    await sandbox.run_code("code")
    # A gap of the output limit is none of the stream's.
    assert fake.called("Attach")[0].request.seen_bytes == 4


async def test_an_answer_that_never_came_is_asked_for_again_under_the_same_id(
    fake: FakeFleet, sandbox: AsyncSandbox
) -> None:
    fake.answer("code", output("x"), finished())
    fake.fail("Execute", CUT)
    execution = await sandbox.run_code("code")
    first, second = fake.called("Execute")
    assert first.request == second.request
    assert execution.outcome is Outcome.OK


async def test_a_stream_that_cannot_resume_is_lost(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    fake.answer("code", output("x"), CUT)
    fake.fail("Attach", Fails(grpc.StatusCode.NOT_FOUND, "ExecutionNotFound", "cannot attach: none of that id"))
    execution = await sandbox.run_code("code")
    assert (execution.outcome, execution.reason, execution.logs.stdout) == (Outcome.LOST, "ConnectionLost", "x")
    assert len(fake.called("Execute")) == 1


async def test_attempts_that_come_to_nothing_end(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    fake.answer("code", output("x"), CUT)
    fake.fail("Attach", *[CUT] * 50)
    execution = await sandbox.run_code("code")
    assert (execution.outcome, execution.reason) == (Outcome.LOST, "ConnectionLost")
    assert len(fake.called("Attach")) == RetryBudget().attempts


async def test_a_command_goes_on_as_well_and_another_client_connects_to_it(
    fake: FakeFleet, sandbox: AsyncSandbox
) -> None:
    fake.answer("cmd", output("one "), CUT, output("two"), finished())
    assert (await sandbox.commands.run("cmd", execution_id="e")).stdout == "one two"
    assert (await (await sandbox.commands.connect("e")).wait()).stdout == "one two"
    with pytest.raises(NotFoundError):
        await sandbox.commands.connect("another")


async def test_cancelling_an_attach_does_not_interrupt_the_execution(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    fake.answer("code", output("x"), finished())
    await sandbox.run_code("code", execution_id="e")

    def enough(_: str) -> None:
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        await sandbox.attach("e", on_stdout=enough)
    assert not fake.called("Interrupt")


@pytest.mark.parametrize("gone", [CUT, ASLEEP], ids=["its executor has gone", "it is falling asleep"])
async def test_health_wakes_no_session_that_sleeps_and_a_cell_does(
    fake: FakeFleet, sandbox: AsyncSandbox, gone: Fails
) -> None:
    sandbox._link.wakes = True
    fake.fail("Health", gone)
    fake.fail("Get", ASLEEP)
    health = await sandbox.health()
    assert (health.ready, health.message, fake.called("Resume")) == (False, "it sleeps", [])
    fake.answer("code", finished())
    fake.fail("Execute", ASLEEP)
    fake.fail("Get", ASLEEP)
    assert (await sandbox.run_code("code")).outcome is Outcome.OK
    assert len(fake.called("Resume")) == 1


async def test_a_look_at_the_sandbox_wakes_no_session_that_sleeps(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    sandbox._link.wakes = True
    fake.fail("Describe", CUT)
    known = GetResponse(**fake.open())
    for answer in (known, ASLEEP, known):
        fake.answer_call("Get", answer)
    assert (await sandbox.get_info()).sandbox_id == fake.sandbox_id
    assert not fake.called("Resume")


async def test_watching_the_usage_ends_when_the_session_falls_asleep(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    sandbox._link.wakes = True
    fake.fail("WatchUsage", CUT)
    fake.fail("Get", ASLEEP)
    with pytest.raises(SandboxSuspended):
        await anext(sandbox.watch_usage())
    assert not fake.called("Resume")


async def test_a_stream_that_is_read_in_another_way_says_how_it_is_read(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    watch: Any = sandbox.watch_usage()
    with pytest.raises(TypeError, match=r"watch_usage\(\).*`async for … in`"):
        iter(watch)
    with pytest.raises(TypeError, match=r"watch_usage\(\).*`async for … in`"):
        await watch
    async with contextlib.aclosing(sandbox.watch_usage()):
        assert not fake.called("WatchUsage")


@given(st.integers(1, 20), st.floats(0.1, 100), st.floats(0, 1))
def test_a_budget_is_never_exceeded(attempts: int, seconds: float, chance: float) -> None:
    left = Retries(RetryBudget(seconds, attempts, Backoff(0.05, 2.0, lambda: chance)))
    now, pauses = 0.0, []
    while (pause := left.pause(now, 5)) is not None:
        pauses.append(pause)
        now += pause
    assert len(pauses) <= attempts
    # The pauses are exact; their sum is rounded.
    assert now <= math.nextafter(seconds, math.inf)
    assert pauses[0] == 0


def test_something_new_gives_a_new_budget() -> None:
    left = Retries(RetryBudget(attempts=2, backoff=Backoff(0.05, 2.0, random.Random(0).random)))
    assert [left.pause(0, 1) is None for _ in range(3)] == [False, False, True]
    assert left.pause(0, 2) == 0
