"""Executions, readers, disks and executors that end at any moment.

Nothing runs twice, and what a client saw is a prefix of what is stored.

The store is made so small that within a few steps all that is bounded in it is reached: executions are forgotten, large
ones lose their oldest parts, readers find gaps.
"""

import asyncio
import errno
import os
import shutil
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partialmethod
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule
from sandfleet_executor.core.executions.events import STDOUT, Finished, Gap, Started
from sandfleet_executor.core.executions.records import CELL, COMMAND
from sandfleet_executor.effects.executions import execution
from sandfleet_executor.effects.executions import registry as executions
from sandfleet_executor.effects.executions.execution import AheadError
from sandfleet_executor.effects.executions.registry import (
    Executions,
    ForgottenError,
    OtherRequestError,
    UnknownExecutionError,
)
from sandfleet_executor.effects.executions.store import log as store
from sandfleet_executor.effects.executions.store import recorder
from sandfleet_executor.effects.executions.store.files import File, Folder
from sandfleet_executor.servicers.convert import common as convert

LOG_FILES = 3
SMALL = {
    store: {
        "ID_ROOM_BYTES": 64 << 10,
        "LOG_BYTES": 4 << 10,
        "LOG_FILES": LOG_FILES,
        "MAX_BIG_BYTES": 48 << 10,
        "SMALL_BYTES": 1 << 10,
        "SMALL_CHUNKS": 6,
        "PART_BYTES": 8 << 10,
        "PARTS": 2,
        "END_BYTES": 1 << 10,
        "DIRECT_BYTES": 2 << 10,
    },
    execution: {
        "RING_BYTES": 12 << 10,
        "WINDOW_BYTES": 6 << 10,
        "STORE_BYTES": 4 << 10,
        "END_BYTES": 1 << 10,
        "STORE_SECONDS": 0.002,
        "START_HOLD_SECONDS": 0.001,
    },
    executions: {"MAX_UNSTORED": 2, "MAX_UNSTORED_BYTES": 16 << 10},
    recorder: {"MOST_BYTES": 2 << 10, "LEAST_BYTES": 1 << 10},
}
PATIENCE = 60.0
# What becomes of writes and of new files. There is room for ids on a disk that is full, but not on one that is broken.
WELL, FULL, NO_INODES, BROKEN, TORN = "well", "full", "no inodes", "broken", "torn"


class Disk:
    """Stands between the store and the file system."""

    def __init__(self):
        self.state = WELL
        self.torn = 0.0

    def append(self, real, file, data):
        for_ids = file.name.startswith("ids-")
        if self.state in (FULL, TORN) and not for_ids:
            share = self.torn if self.state == TORN else 0.5
            os.pwrite(file._fd, data[: int(share * len(data))], file.end)
            raise OSError(errno.ENOSPC, "no room")
        if self.state == BROKEN:
            raise OSError(errno.EIO, "broken")
        return real(file, data)

    def open(self, real, folder, name, flags):
        if self.state in (NO_INODES, BROKEN):
            # What is there is there.
            flags &= ~os.O_CREAT
        return real(folder, name, flags)


@dataclass
class Known:
    """What the world knows of one execution."""

    kind: int
    fingerprint: bytes
    # The next log when it began: it is not forgotten before so many others.
    log: int = 0
    runs: int = 0
    # Whether its id came to the disk before it ran: else the next executor does not know it.
    noted: bool = True
    # Whether a write of it may have failed; then it is not said that all of it is stored.
    shaky: bool = False
    ended: bool = False
    # The executor that it ran in: as long as it is there it knows all of it, stored or not.
    by: object = None
    # By their numbers: messages that some client has seen, and bytes of output.
    seen: dict = field(default_factory=dict)
    sizes: dict = field(default_factory=dict)


@dataclass
class Client:
    """A reader that takes what there is, when its turn comes."""

    name: str
    stream: object
    # The executor that serves it.
    executions: object
    place: int = 0
    bytes: int = 0

    async def read(self, known):
        """Until it has to wait, or to the end where that is known to be there."""
        batches = self.stream.batches(self.place, self.bytes)
        with suppress(AheadError if known.shaky else ()):
            try:
                while True:
                    async with asyncio.timeout(PATIENCE if known.ended else 0.02):
                        batch = await anext(batches)
                    for number, event in batch:
                        self.took(known, number, event)
            except StopAsyncIteration:
                assert known.seen[self.place].WhichOneof("event") == "finished"
            except TimeoutError:
                assert not known.ended
            finally:
                await batches.aclose()

    def took(self, known, number, event):
        if isinstance(event, Gap):
            assert number == self.place + event.dropped_events
            missing = sum(known.sizes.get(each, 0) for each in range(self.place + 1, number + 1))
            assert known.shaky or event.dropped_bytes == missing
            self.bytes += event.dropped_bytes
        else:
            assert number == self.place + 1
            message = convert.event(number, event)
            # Whether it is stored is said anew after each restart.
            message.finished.not_stored = "" if message.HasField("finished") else message.finished.not_stored
            unsure = known.shaky and known.by is not self.executions
            assert unsure or known.seen.get(number, message) == message
            known.seen[number] = message
            self.bytes += known.sizes.get(number, 0)
        self.place = number


class Streams(RuleBasedStateMachine):
    names, clients = Bundle("names"), Bundle("clients")

    @initialize()
    def begin(self):
        self.loop = asyncio.new_event_loop()
        self.disk, self.patched = Disk(), ExitStack()
        for module, values in SMALL.items():
            self.patched.enter_context(patch.multiple(module, **values))
        for owner, name in ((File, "append"), (Folder, "open")):
            stand_in = partialmethod(_before, getattr(self.disk, name), getattr(owner, name))
            self.patched.enter_context(patch.object(owner, name, stand_in))
        self.folders = [tempfile.mkdtemp()]
        self.stores = []
        self.known, self.running = {}, {}
        self.start()

    def start(self):
        self.store = store.Store(self.folders[-1])
        self.stores.append(self.store)
        self.executions = Executions(self.store, convert.stored)

    def left(self):
        """A copy of the store as a killed executor leaves it: its threads may still write, and one process owns it."""
        self.folders.append(tempfile.mkdtemp())
        return shutil.copytree(self.folders[-2], self.folders[-1], dirs_exist_ok=True)

    def do(self, work):
        return self.loop.run_until_complete(work)

    def may_be_forgotten(self, known, by=None):
        """Each executor begins a log of its own, so the one that looks counts as well."""
        return known.shaky or (known.ended and (by or self.store)._next_log - known.log >= LOG_FILES)

    async def _ask(self, name):
        """What a servicer does: the stream that there is, or a new execution, whose code runs."""
        known = self.known[name]
        try:
            if stream := self.executions.repeated(known.kind, name, known.fingerprint):
                return stream
        except ForgottenError:
            assert self.may_be_forgotten(known)
            return None
        made = self.executions.begin(known.kind, name, known.fingerprint, 1 << 20)
        known.runs += 1
        known.log, known.shaky = self.store._next_log, self.disk.state != WELL
        known.noted, known.by = not made.not_stored, self.executions
        assert known.noted or known.shaky
        self.running[name] = made
        made.emit(Started(name))
        return made

    @rule(target=names, number=st.integers(0, 30), kind=st.sampled_from([CELL, COMMAND]))
    def execute(self, number, kind):
        name = f"e-{number}"
        self.known.setdefault(name, Known(kind, b"%016d" % number))
        self.do(self._ask(name))
        return name

    @rule(name=names)
    def retry(self, name):
        self.do(self._ask(name))

    @rule(name=names)
    def ask_for_something_else(self, name):
        known = self.known[name]
        if not known.runs:
            return
        for kind, mark in ((known.kind, b"x" * 16), (CELL + COMMAND - known.kind, known.fingerprint)):
            with suppress(OtherRequestError):
                assert self.executions.repeated(kind, name, mark) is None
                raise AssertionError("it would run as something else")
        with suppress(UnknownExecutionError):
            assert not self.executions.find(CELL + COMMAND - known.kind, name)

    @rule(name=names, size=st.sampled_from([1, 100, 700, 3_000, 9_000]), times=st.sampled_from([1, 1, 12]))
    def shows(self, name, size, times):
        async def emit():
            for _ in range(times):
                self._show(name, size)
                # Or the ring would have to forget what no disk is as fast to take.
                await self.running[name].settle()

        if name in self.running:
            self.do(emit())

    def _show(self, name, size):
        one, known = self.running[name], self.known[name]
        known.shaky = known.shaky or self.disk.state != WELL
        known.sizes[one._log.next] = size
        one.output(STDOUT, b"x" * size)

    @rule(name=names, size=st.sampled_from([100, 9_000]))
    def shows_and_is_stored_when_there_is_time(self, name, size):
        async def emit():
            self._show(name, size)
            await asyncio.sleep(0)

        if name in self.running:
            self.do(emit())

    @rule(name=names)
    def ends(self, name):
        async def end():
            one, known = self.running.pop(name), self.known[name]
            known.shaky = known.shaky or self.disk.state != WELL
            one.flush_tails()
            one.emit(Finished("ok"))
            await self.executions.end(one)
            assert known.shaky or not one.not_stored
            known.ended = True

        if name in self.running:
            self.do(end())

    @rule(target=clients, name=names)
    def attach(self, name):
        return self._attach(Client(name, None, None))

    @rule(target=clients, client=consumes(clients))
    def resume(self, client):
        """Its connection is cut: it goes on from the last event that it saw, with the executor that there is now."""
        return self._attach(client)

    def _attach(self, client):
        known = self.known[client.name]
        try:
            stream = self.executions.find(known.kind, client.name)
        except UnknownExecutionError:
            assert self.may_be_forgotten(known)
            stream = None
        return Client(client.name, stream, self.executions, client.place, client.bytes)

    def _can_read(self, client):
        return client.stream and client.executions is self.executions

    @rule(client=clients)
    def read(self, client):
        self.read_both(client, client)

    @rule(one=clients, other=clients)
    def read_both(self, one, other):
        """At the same time."""

        async def read(client):
            try:
                await client.read(self.known[client.name])
            except ForgottenError:
                assert self.may_be_forgotten(self.known[client.name])

        async def both():
            await asyncio.gather(*(read(client) for client in {id(one): one, id(other): other}.values()))

        if self._can_read(one) and self._can_read(other):
            self.do(both())

    @rule()
    def kill(self):
        """The executor is killed: nothing that is only in its memory is left, and those that it served are cut off."""
        for name, one in self.running.items():
            self.known[name].ended = True
            one.close()
        self.running = {}
        self.left()
        for name, known in self.known.items():
            if not known.noted:
                self.known[name] = Known(known.kind, known.fingerprint, shaky=True)
        self.start()

    @precondition(lambda self: self.running and self.disk.state == WELL)
    @rule(data=st.data(), share=st.floats(0, 1), size=st.sampled_from([10, 700, 9_000]))
    def kill_while_it_stores(self, data, share, size):
        """Some of the bytes reach the disk without an answer."""
        name = data.draw(st.sampled_from(sorted(self.running)))

        async def store_some():
            self.known[name].sizes[self.running[name]._log.next] = size
            self.running[name].output(STDOUT, b"y" * size)
            await self.running[name].settle()

        for each in self.running.values():
            self.do(each.settle())
        self.disk.state, self.disk.torn = TORN, share
        self.do(store_some())
        self.disk.state = WELL
        self.kill()

    @rule(state=st.sampled_from([FULL, NO_INODES, BROKEN, WELL, WELL]))
    def the_disk_becomes(self, state):
        for name in self.running:
            self.do(self.running[name].settle())
        self.disk.state = state

    @invariant()
    def at_most_once(self):
        assert all(known.runs <= 1 for known in getattr(self, "known", {}).values())

    @invariant()
    def what_was_seen_is_stored(self):
        """A client of a new executor reads all that any client has seen, unless the answer is that it is forgotten."""
        if not hasattr(self, "known"):
            return
        state, self.disk.state = self.disk.state, WELL
        stored = Executions(store.Store(self.left()), convert.stored)
        for name, known in self.known.items():
            if known.shaky:
                continue
            try:
                stream = stored.find(known.kind, name)
            except UnknownExecutionError:
                assert self.may_be_forgotten(known, stored._store)
                continue
            seen = Known(known.kind, known.fingerprint, ended=True, seen=dict(known.seen), sizes=known.sizes)
            reader = Client(name, stream, stored)
            self.do(reader.read(seen))
            assert reader.place >= max(known.seen, default=0)
        shutil.rmtree(self.folders.pop())
        _close(stored._store)
        self.disk.state = state

    def teardown(self):
        if hasattr(self, "loop"):
            self.do(asyncio.sleep(0.1))
            self.loop.close()
            self.patched.close()
            for each in self.stores:
                _close(each)
            for folder in self.folders:
                shutil.rmtree(folder)


def _before(self, stands_before, real, *args):
    return stands_before(real, self, *args)


def _close(one):
    """Lets go of the descriptors of a store whose process would be gone."""
    for entry in one._live.values():
        one._close(entry)
    for file in (one._log, one._ids_file, one.folder):
        if file:
            file.close()


TestStreams = pytest.mark.slow(Streams.TestCase)
TestStreams.settings = settings(
    max_examples=15, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
