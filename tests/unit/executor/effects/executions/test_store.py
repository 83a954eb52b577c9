"""The store on a real disk: what a write has returned for is there again, whatever became of the writer."""

import asyncio
import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sandfleet_executor.core.executions import records
from sandfleet_executor.core.executions.events import STDOUT, Finished, Started
from sandfleet_executor.core.executions.outcomes import Cause
from sandfleet_executor.core.executions.records import CELL, COMMAND
from sandfleet_executor.effects.executions import registry
from sandfleet_executor.effects.executions.registry import (
    Executions,
    ForgottenError,
    OtherRequestError,
    UnknownExecutionError,
)
from sandfleet_executor.effects.executions.store import log as stores
from sandfleet_executor.effects.executions.store.files import File, StoreError
from sandfleet_executor.effects.executions.store.log import Store
from sandfleet_executor.servicers.convert import common as convert
from support.examples import examples

MIB = 1 << 20
MARK = b"m" * 16


class Crash:
    """Executors one after the other on the same folder; each ends without a word."""

    def __init__(self, folder):
        self.folder = str(folder)
        self.start()

    def start(self):
        self.store = Store(self.folder)
        self.executions = Executions(self.store, convert.stored)
        return self.executions


@pytest.fixture
def crash(tmp_path):
    return Crash(tmp_path / "state")


async def ran(executions, name, *outputs, end=True, limit=64 * MIB):
    execution = executions.begin(CELL, name, MARK, limit)
    execution.emit(Started(name, "default", 1))
    for data in outputs:
        execution.output(STDOUT, data)
        await execution.settle()
    if end:
        execution.emit(Finished("ok"))
        await executions.end(execution)
    return execution


async def shown(stream, after=0, seen=0):
    """(sequence, message) of what a reader gets."""
    return [
        (number, convert.event(number, event)) async for batch in stream.batches(after, seen) for number, event in batch
    ]


def output_of(events):
    return b"".join(event.output.data for _, event in events)


def missing(events):
    return sum(event.gap.dropped_bytes for _, event in events), sum(event.gap.dropped_events for _, event in events)


async def test_an_execution_is_the_same_for_the_next_executor(crash):
    await ran(crash.executions, "e", b"one", b"two")
    before = await shown(crash.executions.find(CELL, "e"))
    after = await shown(crash.start().find(CELL, "e"))
    assert after == before
    assert [number for number, _ in after] == [1, 2, 3, 4]
    assert after[-1][1].finished.not_stored == ""


async def test_what_was_begun_and_not_ended_ends_as_lost_and_stays_so(crash):
    await ran(crash.executions, "e", b"shown", end=False)
    first = await shown(crash.start().find(CELL, "e"))
    assert output_of(first) == b"shown"
    assert first[-1][1].finished.reason == "ExecutorRestarted"
    assert await shown(crash.start().find(CELL, "e")) == first


async def test_what_was_begun_and_showed_nothing_is_known_all_the_same(crash):
    crash.executions.begin(CELL, "e", MARK, MIB)
    events = await shown(crash.start().repeated(CELL, "e", MARK))
    assert [event.WhichOneof("event") for _, event in events] == ["started", "finished"]


async def test_what_showed_nothing_is_not_taken_for_forgotten_when_others_have_come_since(crash):
    crash.executions.begin(CELL, "silent", MARK, MIB)
    await ran(crash.start(), "later", b"shown")
    found = await shown(crash.start().find(CELL, "silent"))
    assert found[-1][1].finished.reason == "ExecutorRestarted"


async def test_nor_where_its_end_could_not_be_written(crash, monkeypatch):
    crash.executions.begin(CELL, "silent", MARK, MIB)
    with monkeypatch.context() as full:
        full.setattr(Store, "place", full_disk)
        crash.start()
    # The same executor begins a new log once there is room.
    await ran(crash.executions, "later", b"shown")
    found = await shown(crash.start().find(CELL, "silent"))
    assert found[-1][1].finished.reason == "ExecutorRestarted"


def full_disk(*_):
    raise StoreError("DiskFull")


async def test_an_id_is_of_one_request_also_for_the_next_executor(crash):
    await ran(crash.executions, "e")
    for executions in (crash.executions, crash.start()):
        with pytest.raises(OtherRequestError):
            executions.repeated(CELL, "e", b"n" * 16)
        with pytest.raises(OtherRequestError):
            executions.repeated(COMMAND, "e", MARK)
        with pytest.raises(UnknownExecutionError):
            executions.find(COMMAND, "e")
        assert executions.repeated(CELL, "another", MARK) is None


async def test_of_a_large_one_the_newest_is_kept_and_the_gap_is_exact(crash):
    chunk = b"x" * (MIB // 2)
    await ran(crash.executions, "big", *[chunk] * 100)
    for executions in (crash.executions, crash.start()):
        events = await shown(executions.find(CELL, "big"))
        dropped, events_dropped = missing(events)
        assert dropped + len(output_of(events)) == 50 * MIB
        assert len(output_of(events)) >= 20 * MIB
        # The gap has the number of the last one that is missing.
        assert events[0][0] == events_dropped
        assert [number for number, _ in events[1:]] == list(range(events_dropped + 1, 103))


async def test_a_gap_counts_only_what_the_reader_had_not_seen(crash):
    chunk = b"x" * (MIB // 2)
    await ran(crash.executions, "big", *[chunk] * 100)
    whole = missing(await shown(crash.executions.find(CELL, "big")))
    # After `started` and ten pieces of output.
    rest = missing(await shown(crash.executions.find(CELL, "big"), 11, 10 * len(chunk)))
    assert (whole[0] - rest[0], whole[1] - rest[1]) == (10 * len(chunk), 11)


async def test_the_disk_that_all_of_them_take_is_bounded_and_the_oldest_go_first(crash, monkeypatch):
    monkeypatch.setattr(stores, "MAX_BIG_BYTES", 8 * MIB)
    monkeypatch.setattr(stores, "LOG_BYTES", 64 << 10)
    for n in range(600):
        await ran(crash.executions, f"small-{n}", b"y" * 1000)
    for n in range(8):
        await ran(crash.executions, f"big-{n}", b"x" * 2 * MIB)
    used = sum(path.stat().st_size for path in Path(crash.folder).iterdir() if not path.name.startswith("ids"))
    assert used < 8 * MIB + 9 * (64 << 10) + 4 * MIB
    for executions in (crash.executions, crash.start()):
        assert len(await shown(executions.find(CELL, "small-599"))) == 3
        assert output_of(await shown(executions.find(CELL, "big-7"))) == b"x" * 2 * MIB
        # Of an older one that was large start and end are kept.
        assert missing(await shown(executions.find(CELL, "big-0"))) == (2 * MIB, 1)
        # The oldest is forgotten, and not run again.
        with pytest.raises(ForgottenError):
            executions.repeated(CELL, "small-0", MARK)


async def test_ids_are_forgotten_in_the_end_so_that_memory_and_disk_are_bounded(crash, monkeypatch):
    monkeypatch.setattr(stores, "MAX_IDS", 100)
    for n in range(300):
        await ran(crash.executions, f"e-{n}")
    assert len(crash.store.entries) <= 100
    assert len(crash.start()._store.entries) <= 100
    assert crash.executions.repeated(CELL, "e-299", MARK) is not None


async def test_memory_holds_no_stored_event_without_a_reader(crash):
    execution = await ran(crash.executions, "e", *[b"x" * MIB] * 4, end=False)
    assert execution.size == 0


async def test_where_nothing_can_be_stored_the_end_says_so_and_memory_keeps_it(crash, monkeypatch):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", refuse)
    await ran(crash.executions, "e", b"kept")
    events = await shown(crash.executions.repeated(CELL, "e", MARK))
    assert output_of(events) == b"kept"
    assert events[-1][1].finished.not_stored == "DiskFull"


async def test_a_disk_that_is_full_for_a_while_costs_only_that(crash, monkeypatch):
    execution = await ran(crash.executions, "e", b"before", end=False)
    with monkeypatch.context() as broken:
        broken.setattr(os, "pwrite", lambda *_: 0)
        execution.output(STDOUT, b"during")
        await execution.settle()
    execution.output(STDOUT, b"after")
    execution.emit(Finished("ok"))
    await crash.executions.end(execution)
    assert output_of(await shown(crash.executions.find(CELL, "e"))) == b"beforeduringafter"
    events = await shown(crash.start().find(CELL, "e"))
    assert (output_of(events), missing(events)) == (b"beforeafter", (6, 1))
    assert events[-1][1].finished.not_stored == "DiskFull"


async def test_events_of_an_execution_whose_id_could_not_be_written_belong_to_no_other(crash, monkeypatch):
    real = File.append

    def refuse_ids(file, data):
        if file.name.startswith("ids"):
            raise OSError(errno.EIO, "Input/output error")
        return real(file, data)

    with monkeypatch.context() as broken:
        broken.setattr(File, "append", refuse_ids)
        await ran(crash.executions, "unknown", *[b"of the unknown"] * 5)
        await ran(crash.executions, "large and unknown", *[b"x" * MIB] * 2)
    await ran(crash.start(), "known", b"its own", end=False)
    events = await shown(crash.start().find(CELL, "known"))
    assert output_of(events) == b"its own"
    assert events[-1][1].finished.reason == "ExecutorRestarted"


async def test_an_ended_execution_that_could_not_be_kept_is_forgotten_and_not_lost(crash, monkeypatch):
    """An executor that knows how it ended does not say that an earlier one was ended under it."""
    real = File.append

    def refuse_events(file, data):
        if not file.name.startswith("ids"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, data)

    monkeypatch.setattr(registry, "MAX_UNSTORED", 2)
    partly = await ran(crash.executions, "partly", b"stored", end=False)
    with monkeypatch.context() as full:
        full.setattr(File, "append", refuse_events)
        partly.emit(Finished("ok"))
        await crash.executions.end(partly)
        for n in range(3):
            await ran(crash.executions, f"e-{n}", b"shown")
    for name in ("partly", "e-0"):
        with pytest.raises(ForgottenError):
            crash.executions.repeated(CELL, name, MARK)
        with pytest.raises(UnknownExecutionError):
            crash.executions.find(CELL, name)
    # Control: what is held is there.
    assert output_of(await shown(crash.executions.find(CELL, "e-2"))) == b"shown"


def test_there_is_room_for_all_ids_of_a_file(crash):
    crash.store.begin("first", CELL, MARK)
    assert (Path(crash.folder) / "ids-1").stat().st_size >= stores.MAX_IDS // 2 * records.ID_BYTES


async def test_without_a_folder_everything_is_in_memory_and_said(crash):
    executions = Executions(None, convert.stored)
    await ran(executions, "e", b"here")
    events = await shown(executions.repeated(CELL, "e", MARK))
    assert output_of(events) == b"here"
    assert events[-1][1].finished.not_stored == "NoStore"
    with pytest.raises(OtherRequestError):
        executions.repeated(CELL, "e", b"n" * 16)


async def test_executions_that_run_wait_or_begin_while_the_sandbox_ends_are_stopped_for_the_same_cause(crash):
    before = crash.executions.begin(CELL, "before", MARK, 1 << 20)
    assert (before.cause, before.stopped.done()) == (Cause.NONE, False)
    crash.executions.stop_all(Cause.LEASE)
    after = crash.executions.begin(CELL, "after", MARK, 1 << 20)
    for execution in (before, after):
        assert (execution.cause, execution.stopped.result()) == (Cause.LEASE, 0)


@settings(max_examples=examples(40), deadline=None)
@given(cut=st.integers(0, 4000), junk=st.binary(max_size=40), data=st.data())
def test_a_file_that_was_cut_off_anywhere_gives_a_prefix_of_what_stood_there(tmp_path_factory, cut, junk, data):
    folder = tmp_path_factory.mktemp("state")

    async def check():
        crash = Crash(folder)
        for name in ("a", "b"):
            await ran(crash.executions, name, *(b"%d" % n * 50 for n in range(5)))
        whole = {name: await shown(crash.executions.find(CELL, name)) for name in ("a", "b")}
        victim = folder / data.draw(st.sampled_from(sorted(path.name for path in folder.iterdir())))
        raw = victim.read_bytes()[: 20_000 if victim.name.startswith("log") else 2 * records.ID_BYTES]
        victim.write_bytes(raw[: min(cut, len(raw))] + junk)
        executions = crash.start()
        for name, events in whole.items():
            try:
                again = await shown(executions.repeated(CELL, name, MARK) or executions.find(CELL, name))
            except UnknownExecutionError:
                assert victim.name.startswith("ids")
                continue
            assert again == events or again[:-1] == events[: len(again) - 1] or len(again) == 2
            assert again[-1][1].WhichOneof("event") == "finished"

    asyncio.run(check())


@given(st.binary(max_size=500))
def test_no_bytes_at_all_break_the_reading_of_ids(junk):
    begun, end = records.decode_ids(junk)
    assert end <= len(junk)
    assert len(begun) <= len(junk) // records.ID_BYTES
