"""A cluster in memory with an operator that is restarted whenever it ends, for the scenarios of the crash matrix.

Node, scheduler and garbage collector do their part a moment after each change. After each write it is checked that no
two pods are on one workspace, and that no pod came into being while its namespace was open.
"""

import asyncio
import json
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any, Self

from sandfleet_operator.api import kube
from sandfleet_operator.api.kinds.sandbox import CodeSandbox, ServiceStatus
from sandfleet_operator.api.kube import CODE_SANDBOX, POD, Json, Kind, Ref
from sandfleet_operator.executors.contact import Unreachable
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.sandbox.actions import AskServices, Greet
from sandfleet_operator.plan.sandbox.observed import Contact
from sandfleet_operator.reconciler.operator import Operator
from support.fakes.kube_memory import After, Before, MemoryKube, Write
from support.operator.builders import IMAGE, SETTINGS
from transition.fake_time import FakeLoop
from transition.nodes import NODE, CheckedCluster, Nodes, node_answers

EPOCH = 1_700_000_000.0
NAMESPACE, NAME = "team-a", "demo"
# Seconds.
START_AGAIN, HEARTBEAT, GREETING, QUIET, PATIENCE = 1.0, 1.0, 0.1, 65, 600

Fault = Callable[[int, Write], Before | After | None]


class World:
    """`fault` gets the number of each write of the operator, counted across restarts, and the write."""

    def __init__(self, fault: Fault = lambda _number, _write: None, lag: int = 0) -> None:
        loop = asyncio.get_running_loop()
        self.clock: Callable[[], float] = lambda: EPOCH + loop.time()
        self.cluster = CheckedCluster(self.clock)
        self.nodes = Nodes(self.cluster)
        self.user = MemoryKube(self.cluster, "user")
        self.fault, self.lag = fault, lag
        self.writes: list[str] = []
        # Count of the writes of the scenario that this one starts with.
        self.begun = 0
        self.lives = 0
        # No operator runs, and none is started.
        self.away = False
        self.greeted: list[Greet] = []
        self.asked: list[AskServices] = []
        # The services that executors report; None: executors are silent.
        self.services: tuple[ServiceStatus, ...] | None = ()
        self._life: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._furnish()
        self._tasks = [asyncio.create_task(self._operate()), asyncio.create_task(self.nodes.run())]
        if self.lag:
            self._tasks.append(asyncio.create_task(self._heartbeats()))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _furnish(self) -> None:
        await self.user.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        default = {"storageclass.kubernetes.io/is-default-class": "true"}
        await self.make(kube.STORAGE_CLASS, "local", annotations=default)
        await self.make(kube.NODE, NODE)
        self.edit_node(node_answers)
        egress = {"allow": [{"cidr": "203.0.113.0/24"}, {"cidr": "198.51.100.0/24"}]}
        await self.make(kube.SANDBOX_TEMPLATE, "python", spec={"image": IMAGE, "egress": egress})
        await self.make(kube.SANDBOX_TEMPLATE, "closed", spec={"image": IMAGE})
        # So that an operator with stale reads finds the initial objects.
        for number in range(5):
            await self.make(kube.STORAGE_CLASS, f"other-{number}")

    # The operator.

    async def _operate(self) -> None:
        while True:
            while self.away:
                await asyncio.sleep(START_AGAIN)
            self.lives += 1
            self._life = asyncio.create_task(self._live(self.lives))
            await asyncio.wait([self._life])
            if not self._life.cancelled() and (error := self._life.exception()):
                self.cluster.wrong.append(f"life {self.lives} ended by itself: {error!r}")
            await asyncio.sleep(START_AGAIN)

    async def _live(self, fencing: int) -> None:
        """Runs one process of the operator."""
        api = MemoryKube(self.cluster, "sandfleet-operator")
        api.lag, api.fault = self.lag, self._faults_of(fencing)
        operator = Operator(
            api,
            SETTINGS,
            greet=self._greet,
            ask=self._answer,
            chance=lambda: 0.5,
            keys=lambda: "{}",
            leading=lambda: fencing,
            clock=self.clock,
            workers=4,
        )
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(watch(api, operator))
                group.create_task(operator.follow())
                group.create_task(operator.run())
        finally:
            await operator.close()

    def _faults_of(self, life: int) -> Callable[[Write], Before | After | None]:
        def fault(write: Write) -> Before | After | None:
            if life != self.lives or (self._life and self._life.cancelling()):
                # The process has ended: the results of its remaining tasks are dropped.
                return Before(asyncio.CancelledError())
            self.writes.append(f"{write.verb} {write.ref} {write.subresource}".strip())
            return self.fault(len(self.writes), write)

        return fault

    def end_operator(self, *, away: bool = False) -> None:
        self.away = away
        if self._life:
            self._life.cancel()

    async def _greet(self, _sandbox: CodeSandbox, action: Greet) -> Contact:
        await asyncio.sleep(GREETING)
        self.greeted.append(action)
        return Contact(pod_uid=action.pod_uid, at=self.clock(), runtime="gvisor")

    async def _answer(self, whom: AskServices) -> tuple[ServiceStatus, ...]:
        """The services that the pod's executor reports; a silent executor raises."""
        await asyncio.sleep(GREETING)
        self.asked.append(whom)
        if self.services is None:
            raise Unreachable(f"cannot reach the executor at {whom.address}: it is silent")
        return self.services

    # What else is in a cluster.

    async def _heartbeats(self) -> None:
        """Keeps changing an unrelated object, so that reads with a lag of changes are seconds old."""
        while True:
            await asyncio.sleep(HEARTBEAT)
            self.edit_node(lambda node: node["status"].update(beat=self.clock()))

    # What a user does and sees.

    async def make(self, kind: Kind, name: str, **fields: Any) -> Json:
        metadata = {"name": name, "annotations": fields.pop("annotations", {}), "labels": fields.pop("labels", {})}
        if kind.namespaced:
            metadata["namespace"] = NAMESPACE
        return await self.user.create(
            {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **fields}
        )

    async def make_sandbox(self, name: str = NAME, annotations: Json | None = None, **spec: Any) -> None:
        """Creates a sandbox, by default of the template that opens egress."""
        await self.make(
            CODE_SANDBOX, name, annotations=annotations or {}, spec={"templateRef": {"name": "python"}, **spec}
        )

    async def remove_templates(self) -> None:
        """The initial ones. As long as a namespace has a template it stays closed."""
        for name in ("python", "closed"):
            await self.user.delete(Ref(kube.SANDBOX_TEMPLATE, NAMESPACE, name))

    async def change(self, name: str = NAME, **spec: Any) -> None:
        await self.user.merge(Ref(CODE_SANDBOX, NAMESPACE, name), {"spec": spec})

    @contextmanager
    def by_hand(self) -> Any:
        """Writes made inside do not count as the operator's."""
        self.cluster.by_hand = True
        yield
        self.cluster.by_hand = False

    def there(self, kind: Kind, name: str) -> Json | None:
        return self.cluster.objects.get(Ref(kind, NAMESPACE, name))

    def edit_node(self, change: Callable[[Json], None]) -> None:
        self.cluster.edit(Ref(kube.NODE, "", NODE), change)

    def reason(self, name: str = NAME) -> str:
        """The reason of Ready."""
        return self._said("reason", "Ready", name)

    def message(self, condition: str, name: str = NAME) -> str:
        return self._said("message", condition, name)

    def _said(self, part: str, condition: str, name: str) -> str:
        found = (one[part] for one in self.status(name).get("conditions", ()) if one["type"] == condition)
        return str(next(found, ""))

    def status(self, name: str = NAME) -> Json:
        return (self.there(CODE_SANDBOX, name) or {}).get("status") or {}

    def says(self, condition: str, value: str = "True", name: str = NAME) -> bool:
        sandbox = self.there(CODE_SANDBOX, name) or {"metadata": {}}
        found = [one for one in self.status(name).get("conditions", ()) if one["type"] == condition]
        recent = self.status(name).get("observedGeneration") == sandbox["metadata"].get("generation")
        return recent and any(one["status"] == value for one in found)

    def pod_of(self, name: str = NAME) -> Ref | None:
        """The pod that the status names, if it exists."""
        ref = Ref(POD, NAMESPACE, self.status(name).get("podName") or "none")
        found = self.cluster.objects.get(ref)
        return ref if found and found["metadata"]["uid"] == self.status(name).get("podUID") else None

    async def until(self, holds: Callable[[], object], what: str) -> None:
        for _ in range(PATIENCE * 4):
            if holds():
                return
            self._check_idle()
            await asyncio.sleep(0.25)
        raise AssertionError(f"never {what}; its status: {json.dumps(self.status(), indent=1)}; {self.cluster.wrong}")

    async def until_ready(self, name: str = NAME, restarts: int = 0) -> None:
        def ready() -> bool:
            return (
                self.says("Ready", name=name)
                and self.status(name).get("restarts") == restarts
                and self.pod_of(name) is not None
            )

        await self.until(ready, f"ready with {restarts} restarts")

    async def settle(self) -> None:
        """Waits until nothing has been written for some time."""
        version, since = -1, 0.0
        for _ in range(PATIENCE):
            self._check_idle()
            if version != self.cluster.moved:
                version, since = self.cluster.moved, self.clock()
            if self.clock() - since > QUIET:
                return
            await asyncio.sleep(1.0)
        raise AssertionError(f"it never comes to rest: {self.writes[-10:]}")

    def _check_idle(self) -> None:
        loop = asyncio.get_running_loop()
        assert not (isinstance(loop, FakeLoop) and loop.busy), f"busy without an end, with {self.writes[-6:]}"

    def outcome(self) -> Json:
        """All objects except Events, without the values that differ from run to run."""
        uids = {obj["metadata"]["uid"]: str(ref) for ref, obj in self.cluster.objects.items()}
        kept = {
            str(ref): _plain(_timeless(obj))
            for ref, obj in self.cluster.objects.items()
            if ref.kind not in {kube.EVENT, kube.NODE}
        }
        text = json.dumps(kept, sort_keys=True)
        for uid, ref in uids.items():
            text = text.replace(uid, f"uid of {ref}")
        return dict(json.loads(text))


async def watch(api: MemoryKube, operator: Operator) -> None:
    """Shows CodeSandboxes as Kopf does, until the watch ends: a list, then the changes."""
    listing = await api.list(CODE_SANDBOX)
    for obj in listing.items:
        operator.saw(False, obj, listed=True)
    async for event in api.watch(CODE_SANDBOX, resource_version=listing.resource_version):
        if event.type != "BOOKMARK":
            operator.saw(event.type == "DELETED", event.object)


def _timeless(obj: Json) -> Json:
    meta = {
        name: value
        for name, value in obj["metadata"].items()
        if name not in {"resourceVersion", "creationTimestamp", "generation"}
    }
    return {**obj, "metadata": meta}


def _plain(value: Any) -> Any:
    """The object without times, addresses and counters of the operator's restarts."""
    # What binds names a pod that may be gone, by its UID.
    times = {"lastTransitionTime", "time", "observedAdmissionTime"}
    dropped = {*times, "fencing", "address", "podIP", "binding", names.BOUND_POD, names.CLAIM}
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items() if name not in dropped}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return value
