"""Executions, readers and executors that end at any moment: nothing runs twice, and what a client saw is a prefix of what is stored."""

import asyncio
import shutil
import tempfile
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule
from sandfleet_executor.core.events import STDOUT, Finished, Started
from sandfleet_executor.core.records import CELL
from sandfleet_executor.effects.executions import Executions
from sandfleet_executor.effects.store import Store
from sandfleet_executor.servicers import convert


@dataclass
class Known:
    """What the world knows of one execution."""

    fingerprint: bytes
    runs: int = 0
    # Messages that some client has seen, by their numbers.
    seen: dict = field(default_factory=dict)


@dataclass
class Client:
    """A reader that takes what there is, when its turn comes."""

    name: str
    stream: object
    # The executor that serves it.
    executions: object
    place: int = 0

    async def read(self, known):
        batches = self.stream.batches(self.place)
        try:
            while True:
                async with asyncio.timeout(0.03):
                    batch = await anext(batches)
                for number, event in batch:
                    assert number == self.place + 1
                    self.place = number
                    message = convert.event(number, event)
                    assert known.seen.setdefault(number, message) == message
        except (TimeoutError, StopAsyncIteration):
            await batches.aclose()


class Streams(RuleBasedStateMachine):
    names, clients = Bundle("names"), Bundle("clients")

    @initialize()
    def begin(self):
        self.loop = asyncio.new_event_loop()
        self.folders = [tempfile.mkdtemp()]
        self.known = {}
        self.running = {}
        self.start()

    def start(self):
        self.executions = Executions(Store(self.folders[-1]), convert.stored)

    def disk(self):
        """What a killed executor would leave now. A copy: its threads may still be writing, and a store is one process's alone."""
        self.folders.append(tempfile.mkdtemp())
        return shutil.copytree(self.folders[-2], self.folders[-1], dirs_exist_ok=True)

    def do(self, work):
        return self.loop.run_until_complete(work)

    async def _ask(self, name, fingerprint):
        """What a servicer does: the stream that there is, or a new execution, whose code runs."""
        if stream := self.executions.repeated(CELL, name, fingerprint):
            return stream
        made = self.executions.begin(CELL, name, fingerprint, 1 << 20)
        self.known[name].runs += 1
        self.running[name] = made
        made.emit(Started(name))
        return made

    @rule(target=names, number=st.integers(0, 4))
    def execute(self, number):
        name = f"e-{number}"
        known = self.known.setdefault(name, Known(b"%016d" % number))
        self.do(self._ask(name, known.fingerprint))
        return name

    @rule(name=names, size=st.sampled_from([1, 100, 70_000, 300_000]))
    def shows(self, name, size):
        async def emit():
            if name in self.running:
                self.running[name].output(STDOUT, b"x" * size)
                await asyncio.sleep(0)

        self.do(emit())

    @rule(name=names)
    def ends(self, name):
        async def end():
            if execution := self.running.pop(name, None):
                execution.flush_tails()
                execution.emit(Finished("ok"))
                await self.executions.end(execution)

        self.do(end())

    @rule(target=clients, name=names)
    def attach(self, name):
        return Client(name, self.executions.find(CELL, name), self.executions)

    @rule(client=clients)
    def read(self, client):
        if client.executions is self.executions:
            self.do(client.read(self.known[client.name]))

    @rule(target=clients, client=consumes(clients))
    def resume(self, client):
        """Its connection is cut: it goes on from the last event that it saw, with the executor that there is now."""
        return Client(client.name, self.executions.find(CELL, client.name), self.executions, client.place)

    @rule(name=names)
    def retry(self, name):
        self.do(self._ask(name, self.known[name].fingerprint))

    @rule()
    def kill(self):
        """The executor is killed: nothing that is only in its memory is left, and those that it served are cut off."""
        for execution in self.running.values():
            execution.close()
        self.running = {}
        self.disk()
        self.start()

    @invariant()
    def at_most_once(self):
        assert all(known.runs <= 1 for known in getattr(self, "known", {}).values())

    @invariant()
    def what_was_seen_is_stored(self):
        if not hasattr(self, "known"):
            return
        stored = Executions(Store(self.disk()), convert.stored)
        for name, known in self.known.items():
            last = max(known.seen, default=0)
            entry = stored._store.find(name)
            assert entry is not None
            assert entry.next > last
        shutil.rmtree(self.folders.pop())

    def teardown(self):
        if hasattr(self, "loop"):
            self.do(asyncio.sleep(0.1))
            self.loop.close()
            for folder in self.folders:
                shutil.rmtree(folder)


TestStreams = Streams.TestCase
TestStreams.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)
