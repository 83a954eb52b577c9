"""Sessions fall asleep in snapshots and wake while snapshotter, fleet and operator are killed: none loses anything.

SANDFLEET_SNAPSHOT_KILLS is the number of kills (3: one of each process), SANDFLEET_SEED chooses their moments.
`tests/transition/joint/test_parked.py` has a kill after each write; here are real processes, pods and a real store.
"""

import asyncio
import os
import random
import time
from collections import Counter
from dataclasses import dataclass, field

import pytest
from cluster.snapshot_bed import PROCESSES, connected, s3_server, snapshot_bed
from sandfleet import AsyncSandbox
from sandfleet.errors import NotFoundError, SandboxEnded, SandboxSuspended, SandfleetError

KILLS = int(os.environ.get("SANDFLEET_SNAPSHOT_KILLS", "3"))
SESSIONS = 3
# A kill comes so many seconds at most after a session has begun to do one of these, which take a few seconds each.
APART = 4.0
MOMENTS = ("falls asleep", "sleeps", "wakes")
PATIENCE = 200.0

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.alone(on="cluster")]


@pytest.fixture(scope="module")
def bed(images, kinds, tmp_path_factory):
    with (
        s3_server(tmp_path_factory.mktemp("s3")) as server,
        snapshot_bed(images, server, tmp_path_factory.mktemp("bed")) as made,
    ):
        yield made


@dataclass
class Session:
    """Sleeps and wakes again and again. `now` is what it does."""

    bed: object
    fleet: object
    chance: random.Random
    sandbox: AsyncSandbox | None = None
    turn: int = 0
    now: str = "begins"
    refused: Counter = field(default_factory=Counter)

    async def begin(self):
        self.sandbox = await AsyncSandbox.create(fleet=self.fleet, pool="fast", max_wait=PATIENCE)
        await self.runs("import pandas as pd; df = pd.DataFrame({'a': range(1000)}); turn = 0")
        await self.runs("_ = open('turn', 'w').write('0')")

    async def sleep_and_wake(self):
        self.now = "falls asleep"
        await self.until(self._sleeps)
        self.now = "sleeps"
        # Half of them are woken while the pod and the volume still go.
        if self.chance.random() < 0.5:
            await eventually(lambda: not self.bed.volumes_of(self.sandbox.sandbox_id))
        self.now = "wakes"
        await self.until(self._wakes)
        self.now = "runs"
        # A session that went back to an earlier snapshot would have an earlier turn.
        seen = await self.runs("int(df.a.sum()), turn, open('turn').read()")
        assert seen == str((499500, self.turn, str(self.turn)))
        self.turn += 1
        await self.runs(f"turn = {self.turn}; _ = open('turn', 'w').write('{self.turn}')")

    async def runs(self, code):
        done = await self.until(lambda: self.sandbox.run_code(code))
        assert done.outcome == "ok", done
        return done.text

    async def end(self):
        self.now = "ends"
        await self.until(self.sandbox.kill)

    async def begins(self, moment):
        """Returns as soon as it does so anew."""
        for there in (True, False):
            while (self.now == moment) is there:
                await asyncio.sleep(0.02)

    async def _sleeps(self):
        try:
            await self.sandbox.suspend(to="snapshot")
        except SandboxSuspended:
            # An earlier call has done it, whose answer was lost. One that only holds the session still refuses it.
            if (await self.fleet.get(self.sandbox.sandbox_id)).state != "suspended":
                raise

    async def _wakes(self):
        self.sandbox = await AsyncSandbox.resume(self.sandbox.sandbox_id, fleet=self.fleet, max_wait=PATIENCE)

    async def until(self, work):
        """The answer of a call, which is made again while processes are away. A session that is lost is not asked."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return await work()
            except (SandboxEnded, NotFoundError):
                raise
            except SandfleetError as error:
                self.refused[type(error).__name__] += 1
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.5)


async def eventually(what, seconds=PATIENCE):
    deadline = time.monotonic() + seconds
    while not await asyncio.to_thread(what):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.5)


def victims(chance):
    """Each process as often as the others, in an order of chance."""
    names = []
    while len(names) < KILLS:
        names += chance.sample(PROCESSES, len(PROCESSES))
    return names[:KILLS]


def left_over(bed):
    kinds = ("CodeSandbox", "SandboxSnapshot", "Pod", "PersistentVolumeClaim")
    return [(kind, one["metadata"]["name"]) for kind in kinds for one in bed.cluster.api.list(kind, bed.work)]


@pytest.mark.timeout(400 + 40 * KILLS)
async def test_sessions_lose_nothing_and_leave_nothing_while_processes_are_killed(bed, tmp_path):
    seed = int(os.environ.get("SANDFLEET_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
    print(f"\nSANDFLEET_SEED={seed}")
    chance, over, began = random.Random(seed), asyncio.Event(), time.monotonic()

    async def days(session):
        await session.begin()
        while not over.is_set():
            await session.sleep_and_wake()
        # And once more, with all processes there.
        await session.sleep_and_wake()
        await session.end()

    async def kills(sessions):
        await eventually(lambda: any(one.turn for one in sessions))
        for victim in victims(chance):
            moment = chance.choice(MOMENTS)
            await chance.choice(sessions).begins(moment)
            await asyncio.sleep(chance.uniform(0.0, APART))
            print(f"the {victim} is killed while sessions: {', '.join(one.now for one in sessions)}")
            await asyncio.to_thread(bed.replace, victim)
        over.set()

    async with connected(bed, tmp_path) as fleet:
        sessions = [Session(bed, fleet, random.Random(chance.random())) for _ in range(SESSIONS)]
        async with asyncio.TaskGroup() as group:
            for one in (*map(days, sessions), kills(sessions)):
                group.create_task(one)
        refused = sum((one.refused for one in sessions), Counter())
        turns = sum(one.turn for one in sessions)
        print(f"{turns} sleeps in {time.monotonic() - began:.0f} s, calls made again: {dict(refused)}")
        # Snapshots of suspensions whose process was killed go when their sessions do.
        deadline = time.monotonic() + PATIENCE
        while kept := await fleet.snapshots.list():
            assert time.monotonic() < deadline, kept
            await asyncio.sleep(0.5)
    bed.pool(replicas=0)
    deadline = time.monotonic() + PATIENCE
    while found := left_over(bed):
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.5)
