"""How a client takes a stream up again: within a budget, at most once, and telling nobody but the trace."""

import random
from collections.abc import AsyncIterator

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet.errors import NotFoundError
from sandfleet.fleet import AsyncFleet
from sandfleet.resume import Attempts, Budget
from sandfleet.sandbox import AsyncSandbox
from sandfleet.testing import Fails, FakeFleet, finished, gap, output
from sandfleet.values import Outcome

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


async def test_what_a_gap_of_the_executor_stood_for_was_seen(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
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


async def test_what_has_no_place_to_go_on_from_is_lost(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
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
    assert len(fake.called("Attach")) == Budget().attempts


async def test_a_command_goes_on_as_well_and_another_client_connects_to_it(
    fake: FakeFleet, sandbox: AsyncSandbox
) -> None:
    fake.answer("cmd", output("one "), CUT, output("two"), finished())
    assert (await sandbox.commands.run("cmd", execution_id="e")).stdout == "one two"
    assert (await (await sandbox.commands.connect("e")).wait()).stdout == "one two"
    with pytest.raises(NotFoundError):
        await sandbox.commands.connect("another")


async def test_letting_go_of_an_execution_of_somebody_else_does_not_interrupt_it(
    fake: FakeFleet, sandbox: AsyncSandbox
) -> None:
    fake.answer("code", output("x"), finished())
    await sandbox.run_code("code", execution_id="e")

    def enough(_: str) -> None:
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        await sandbox.attach("e", on_stdout=enough)
    assert not fake.called("Interrupt")


@given(st.integers(1, 20), st.floats(0.1, 100), st.floats(0, 1))
def test_a_budget_is_never_exceeded(attempts: int, seconds: float, chance: float) -> None:
    left = Attempts(Budget(seconds=seconds, attempts=attempts, chance=lambda: chance))
    now, pauses = 0.0, []
    while (pause := left.pause(now, 5)) is not None:
        pauses.append(pause)
        now += pause
    assert len(pauses) <= attempts
    assert now <= seconds
    assert pauses[0] == 0


def test_something_new_gives_a_new_budget() -> None:
    left = Attempts(Budget(attempts=2, chance=random.Random(0).random))
    assert [left.pause(0, 1) is None for _ in range(3)] == [False, False, True]
    assert left.pause(0, 2) == 0
