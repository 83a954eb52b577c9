"""Results that the session's code does not read: bounded together, and refused when it reads none for too long."""

import asyncio
import os
import socket
from contextlib import asynccontextmanager
from unittest import mock

import pytest
from contract.executor.harness import until
from sandfleet_executor.core.tools.values import Caller, Failure, Tool, Value
from sandfleet_executor.effects.tools import broker, lines
from sandfleet_executor.worker.base import frames

pytestmark = pytest.mark.asyncio
MIB = 1 << 20
CALLS = 12


@asynccontextmanager
async def asked():
    """A broker with a host, and lines that have asked for a result each and read nothing."""
    made = broker.ToolBroker(brokered=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"\0sandfleet-unread-{os.urandom(8).hex()}")
    listener.listen(CALLS)
    made.listen(listener)
    name, _, key = made.environment(Caller("cell"))[broker.VARIABLE].partition(":")
    stream, _ = made.connect("host", {"large": Tool("large", "", (), "", "{}")})
    open_lines = [await asyncio.open_unix_connection(f"\0{name}") for _ in range(CALLS)]
    for _, writer in open_lines:
        writer.write(frames.encode({"op": "call", "key": key, "tool": "large", "sizes": [2]}, b"{}"))
    calls = [sent for _ in range(CALLS) for sent in (await stream.next()).calls]
    assert len(calls) == CALLS
    try:
        yield made, stream, [each.call.id for each in calls], [reader for reader, _ in open_lines]
    finally:
        for _, writer in open_lines:
            writer.close()
        made.close()


async def event(reader):
    """What a line is answered."""
    header, payload = frames.PREFIX.unpack(await reader.readexactly(frames.PREFIX.size))
    said = frames.decode_header(await reader.readexactly(header))
    await reader.readexactly(payload)
    return said.get("reason", said["event"])


async def arrive(made, stream, call_id):
    """A result of 1 MiB, or what stands for it, is at its line, which does not read it."""
    before = made._lines.unread._left
    await made.answer(stream, call_id, Value(b"1" * MIB))
    # A refusal is small: nothing of it waits.
    await until(lambda: made._is_stuck or made._lines.unread._left < before)


async def refusals():
    """How many of the results were refused after all answers were given to lines that read none."""
    async with asked() as (made, stream, calls, readers):
        for call_id in calls:
            await arrive(made, stream, call_id)
        said = [await event(reader) for reader in readers]
        # What has been read makes room.
        await until(lambda: not made._lines.unread.is_full)
        assert await made._has_room()
    assert set(said) <= {"value", "TooManyBytes"}
    return said.count("TooManyBytes")


@pytest.mark.process
async def test_results_that_no_code_reads_are_refused_beyond_a_bound():
    with mock.patch.object(lines, "MAX_UNREAD", 3 * MIB), mock.patch.object(broker, "UNREAD_SECONDS", 0.2):
        assert await refusals() == CALLS - 3
    # Control: it is the bound that refuses them.
    with mock.patch.object(lines, "MAX_UNREAD", 1 << 30):
        assert await refusals() == 0


@pytest.mark.process
async def test_the_host_s_answers_wait_for_code_that_reads_slowly():
    with mock.patch.object(lines, "MAX_UNREAD", 3 * MIB):
        async with asked() as (made, stream, calls, readers):

            async def answers():
                for call_id in calls:
                    await made.answer(stream, call_id, Value(b"1" * MIB))

            answering = asyncio.ensure_future(answers())
            said = [await event(reader) for reader in readers]
            await answering
    assert said == ["value"] * CALLS


@pytest.mark.process
async def test_a_failure_waits_for_no_room():
    with mock.patch.object(lines, "MAX_UNREAD", MIB):
        async with asked() as (made, stream, calls, _):
            for call_id in calls[:-1]:
                if made._lines.unread.is_full:
                    break
                await arrive(made, stream, call_id)
            await made.answer(stream, calls[-1], Failure("error", "Gone", "gone"))
            assert calls[-1] not in made._calls.outstanding
