"""The control plane's processes on a cluster in memory: each leads by its Lease, may crash, and comes back."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, TypeVar

from sandfleet_operator.api import kube
from sandfleet_operator.api.kube import LEASE, KubeError, Ref
from sandfleet_operator.cluster.elector import Elector
from sandfleet_operator.cluster.lease import LeadershipLostError
from sandfleet_operator.cluster.reviews import REVIEW_KINDS, Caller
from sandfleet_operator.executors.handshake import Greeter
from sandfleet_operator.executors.pod_client import PodExecutors
from sandfleet_operator.executors.services import asked_by
from sandfleet_operator.fleet.kubernetes.api import KubernetesFleetApi
from sandfleet_operator.fleet.kubernetes.backend import has_address
from sandfleet_operator.fleet.kubernetes.fleet import KubernetesFleet
from sandfleet_operator.fleet.kubernetes.snapshots.parking import ClusterParking
from sandfleet_operator.fleet.kubernetes.snapshots.parties import Parties
from sandfleet_operator.fleet.kubernetes.snapshots.warm import WarmPods
from sandfleet_operator.fleet.snapshots.jobs import Jobs
from sandfleet_operator.fleet.snapshots.unattended import Unattended
from sandfleet_operator.reconciler.operator import Operator
from support.fakes.kube_cluster import MemoryCluster
from support.fakes.kube_memory import After, Before, MemoryKube, Write
from support.operator.builders import SETTINGS
from transition.joint.executors import Credentials, Executors
from transition.world import watch

SYSTEM = "sandfleet-system"
# Seconds until a process that has ended is started again.
START_AGAIN = 1.0
T = TypeVar("T")


class Surroundings(Protocol):
    """What a process needs of its world."""

    cluster: MemoryCluster
    executors: Executors
    credentials: Credentials
    snapshotter: Jobs
    clock: Callable[[], float]

    def fault(self, process: "Process", write: Write) -> Before | After | None: ...
    def went_wrong(self, what: str) -> None: ...
    async def authorize(
        self,
        caller: Caller,
        verb: str,
        namespace: str,
        name: str,
        subresource: str = "",
        *,
        kind: kube.Kind = kube.CODE_SANDBOX,
    ) -> None: ...


class GoneError(Exception):
    """The process that was asked has ended."""


class Process:
    """One process from its start to its end; a crash leaves everything as it is."""

    name = ""

    def __init__(self, world: Surroundings, number: int) -> None:
        self.world = world
        self.dead = False
        self.kube = MemoryKube(world.cluster, self.name, kinds=REVIEW_KINDS)
        self.kube.fault = self._fault
        ref, identity = Ref(LEASE, SYSTEM, self.name), f"{self.name}-{number}"
        now = asyncio.get_running_loop().time
        self.elector = Elector(self.kube, ref, identity, clock=now, wall=world.clock, seen=self.numbers)
        self._calls: set[asyncio.Task[object]] = set()

    def _fault(self, write: Write) -> Before | After | None:
        if self.dead:
            return Before(asyncio.CancelledError())
        return self.world.fault(self, write)

    async def live(self) -> None:
        """Until it ends by itself, which is an error."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.follow())
                group.create_task(self._lead())
        finally:
            self.dead = True
            for call in self._calls:
                call.cancel()
            await self.close()

    async def _lead(self) -> None:
        number = await self.elector.acquire()
        async with asyncio.TaskGroup() as group:
            work = group.create_task(self.lead(number))
            await self.elector.hold(lambda: None)
            work.cancel()
        raise LeadershipLostError(f"{self.name} leads no more")

    async def call(self, work: Awaitable[T]) -> T:
        """A call from outside. Raises GoneError if the process ends first."""
        task = asyncio.ensure_future(work)
        self._calls.add(task)  # type: ignore[arg-type] # sets are not covariant
        task.add_done_callback(self._calls.discard)
        try:
            return await task
        except asyncio.CancelledError:
            this = asyncio.current_task()
            if not self.dead or (this is not None and this.cancelling()):
                raise
            raise GoneError(self.name) from None

    async def numbers(self) -> Iterable[int]:
        """The fencing numbers that earlier leaders have left on objects."""
        return ()

    async def follow(self) -> None:
        raise NotImplementedError

    async def lead(self, number: int) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError


class FleetProcess(Process):
    name = "sandfleet-fleet"

    def __init__(self, world: Surroundings, number: int) -> None:
        super().__init__(world, number)
        self.fleet = KubernetesFleet(
            self.kube,
            SETTINGS,
            lambda store: PodExecutors(world.executors, world.credentials, store, SETTINGS.executor_port),  # type: ignore[arg-type]
            lease=Ref(LEASE, SYSTEM, self.name),
            leading=lambda: self.elector.fencing,
            clock=world.clock,
            wall_clock=world.clock,
            listens=has_address,
        )
        self.api = KubernetesFleetApi(self.kube, world, world.credentials, self.fleet, None)  # type: ignore[arg-type]
        parties = Parties(self.fleet, world.credentials, self.api)  # type: ignore[arg-type]
        parking = ClusterParking(self.fleet, world.snapshotter, parties, world.clock, lambda _: None)
        self.api.parking = parking
        self.fleet.suspender.keeper = parking
        self.fleet.park_with(parking, WarmPods(self.fleet, (), world.clock).give)
        self.fleet.at_end.append(parking.close)
        self.fleet.beside.append(Unattended(self.fleet.fleet, self.fleet.suspender, parking).run)

    async def numbers(self) -> Iterable[int]:
        return await (await self.fleet.numbers_seen())()

    async def follow(self) -> None:
        await self.fleet.follow()

    async def lead(self, number: int) -> None:
        await self.fleet.lead(number)

    async def close(self) -> None:
        await self.fleet.close()


class OperatorProcess(Process):
    name = "sandfleet-operator"

    def __init__(self, world: Surroundings, number: int) -> None:
        super().__init__(world, number)
        self.operator = Operator(
            self.kube,
            SETTINGS,
            greet=Greeter(world.executors, world.clock).greet,  # type: ignore[arg-type]
            ask=asked_by(world.executors),  # type: ignore[arg-type]
            keys=lambda: "{}",
            leading=lambda: self.elector.fencing,
            clock=world.clock,
            chance=lambda: 0.5,
            workers=4,
        )

    async def follow(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.operator.follow())
            group.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            try:
                await watch(self.kube, self.operator)
            except KubeError:
                await asyncio.sleep(0.1)

    async def lead(self, number: int) -> None:
        await self.operator.run()

    async def close(self) -> None:
        await self.operator.close()


class Slot:
    """Where a process runs: the next one starts when it has ended, unless it is held off."""

    def __init__(self, world: Surroundings, kind: type[Process], index: int = 0) -> None:
        self._world, self._kind, self._index = world, kind, index
        self.held = False
        self.process: Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._number = 0

    async def run(self) -> None:
        while True:
            if not self.held:
                self._number += 1
                self.process = self._kind(self._world, self._number * 10 + self._index)
                self._task = asyncio.create_task(self.process.live())
                await asyncio.wait([self._task])
                self._judge(self._task)
            await asyncio.sleep(START_AGAIN)

    def crash(self) -> None:
        """As SIGKILL: nothing more of it happens."""
        if self.process is not None and self._task is not None:
            self.process.dead = True
            self._task.cancel()

    def hold(self) -> None:
        self.held = True
        self.crash()

    def _judge(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        known = (LeadershipLostError, KubeError)
        rest = error.split(known)[1] if isinstance(error, BaseExceptionGroup) else error
        if rest is not None and not isinstance(rest, known):
            self._world.went_wrong(f"a {self._kind.name} ended by itself: {rest!r}")
