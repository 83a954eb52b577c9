"""Operator and fleet together on one API server in memory, with tenants, callers, nodes and executors.

Each caller keeps a ledger of what it was promised: who holds a session, until when, and on which files. What differs
from the ledger is written to `wrong`.
"""

import asyncio
import json
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from google.protobuf.duration_pb2 import Duration
from sandfleet_api.fleet.v1 import fleet_pb2
from sandfleet_operator.api import kube
from sandfleet_operator.api.errors import Code, FleetError
from sandfleet_operator.api.kinds.sandbox import OperatingMode
from sandfleet_operator.api.kube import (
    CODE_SANDBOX,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SANDBOX_POOL,
    SANDBOX_QUEUE,
    SANDBOX_TEMPLATE,
    Json,
    Kind,
    Ref,
)
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.cluster.reviews import Caller
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.sandbox.observed import owner_of
from sandfleet_operator.plan.scheduler.claim_queue import Queued
from sandfleet_operator.reconciler.housekeeping import REVISION_SECONDS
from sandfleet_operator.reconciler.operator import RESYNC_SECONDS
from support.fakes.kube_admission import both, control_only, only_sandboxes
from support.fakes.kube_cluster import deleting
from support.fakes.kube_memory import After, Before, MemoryKube, Write
from support.operator.builders import IMAGE
from transition.fake_time import FakeLoop
from transition.joint.executors import Credentials, Executors, Signer
from transition.joint.processes import SYSTEM, FleetProcess, GoneError, OperatorProcess, Process, Slot
from transition.joint.snapshotter import Snapshotter
from transition.nodes import NODE, CheckedCluster, Nodes, node_answers
from transition.quota import overdrafts

EPOCH = 1_800_000_000.0
SPACES = ("team-a", "team-b", "team-c")
# Seconds. A caller asks again for so long where no fleet answers.
PATIENCE = 120.0
RETRY = 0.5
T = TypeVar("T")
Fault = Callable[[Process, Write], Before | After | None]


@dataclass
class Session:
    """What its holder was promised. `until` is of the loop's time; infinite for a declared CodeSandbox."""

    user: str
    ref: Ref
    until: float
    # The uid of the volume claim with the holder's file.
    volume: str = ""
    # Why it may be over: its holder has ended it, or its pod went before anything was written down.
    over: str = ""
    # The id of its claim.
    request: str = ""
    # Seconds of its lease.
    lease: float = math.inf
    # What was in memory when it was suspended; None: not known.
    kept: set[str] | None = None
    # How often its holder has run code in it, and with which token the last time.
    runs: int = 0
    token: str = ""


class World:
    def __init__(self, *, guarded: bool = False) -> None:
        loop = asyncio.get_running_loop()
        self.clock: Callable[[], float] = lambda: EPOCH + loop.time()
        self.now = loop.time
        self.cluster = CheckedCluster(self.clock)
        self.wrong = self.cluster.wrong
        if guarded:
            # The chart's admission policy is in force.
            accounts = {OperatorProcess.name, FleetProcess.name}
            self.cluster.admit = both(control_only(accounts), only_sandboxes(accounts, {"gvisor"}))
        self.nodes = Nodes(self.cluster)
        self.executors = Executors(self.cluster, self.clock)
        self.snapshotter = Snapshotter(self.executors)
        self.credentials = Credentials(Signer(self.clock))
        self.user = MemoryKube(self.cluster, "user")
        self.operator = Slot(self, OperatorProcess)
        self.fleets = [Slot(self, FleetProcess, index) for index in range(2)]
        # What befalls writes of the control plane.
        self.faults: list[Fault] = []
        self.writes: list[str] = []
        self.sessions: dict[Ref, Session] = {}
        self.owners: dict[Ref, str] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await self._furnish()
        runs = [self.nodes.run(), self.operator.run(), *(slot.run() for slot in self.fleets)]
        self._tasks = [asyncio.create_task(run) for run in runs]
        return self

    async def __aexit__(self, *_: object) -> None:
        for slot in (self.operator, *self.fleets):
            slot.hold()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _furnish(self) -> None:
        for name in (SYSTEM, *SPACES):
            await self.user.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        default = {"storageclass.kubernetes.io/is-default-class": "true"}
        await self.make(kube.STORAGE_CLASS, "local", "", annotations=default)
        await self.make(kube.NODE, NODE, "")
        self.cluster.edit(Ref(kube.NODE, "", NODE), node_answers)
        for space in SPACES:
            await self.make(SANDBOX_TEMPLATE, "python", space, spec={"image": IMAGE})

    # What happens to the control plane.

    def fault(self, process: Process, write: Write) -> Before | After | None:
        self.writes.append(f"{process.name}: {write.verb} {write.ref} {write.subresource}".strip())
        if write.verb == "delete" and not (write.body["uid"] or write.body["resource_version"]):
            self.went_wrong(f"{process.name} deleted {write.ref} whatever it is")
        for fault in self.faults:
            if (found := fault(process, write)) is not None:
                return found
        return None

    def went_wrong(self, what: str) -> None:
        self.wrong.append(what)

    def slot_of(self, process: Process) -> Slot:
        return next(slot for slot in (self.operator, *self.fleets) if slot.process is process)

    @property
    def leader(self) -> FleetProcess | None:
        """The fleet that serves."""
        found = [slot.process for slot in self.fleets if isinstance(slot.process, FleetProcess)]
        return next((one for one in found if not one.dead and one.fleet.serving), None)

    def end_leader(self) -> None:
        for slot in self.fleets:
            if slot.process is not None and slot.process is self.leader:
                slot.crash()
                return

    # What users may do: each one what it has made itself.

    async def authorize(
        self, caller: Caller, verb: str, namespace: str, name: str, subresource: str = "", *, kind: Kind = CODE_SANDBOX
    ) -> None:
        if kind != CODE_SANDBOX:
            return
        owner = self.owners.get(Ref(CODE_SANDBOX, namespace, name))
        if owner not in {None, caller.username}:
            raise ClaimReason.FORBIDDEN.error(f"cannot {verb} {name}: it is not {caller.username}'s")

    # What users do with kubectl.

    async def make(self, kind: Kind, name: str, namespace: str, **fields: Any) -> Json:
        metadata = {"name": name, "annotations": fields.pop("annotations", {}), "labels": fields.pop("labels", {})}
        if kind.namespaced:
            metadata["namespace"] = namespace
        return await self.user.create(
            {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **fields}
        )

    async def make_pool(self, name: str = "fast", namespace: str = "team-a", size: int = 1, **spec: Any) -> None:
        await self.make(
            SANDBOX_POOL, name, namespace, spec={"templateRef": {"name": "python"}, "replicas": size, **spec}
        )

    async def make_queue(self, name: str = "default", namespace: str = "team-a", quota: int = 1, **spec: Any) -> Ref:
        await self.make(SANDBOX_QUEUE, name, namespace, spec={"nominalQuota": {"sandboxes": quota}, **spec})
        return Ref(SANDBOX_QUEUE, namespace, name)

    async def declare(
        self, user: str, name: str, namespace: str = "team-a", annotations: Json | None = None, **spec: Any
    ) -> Ref:
        ref = Ref(CODE_SANDBOX, namespace, name)
        self.owners[ref] = user
        self.sessions[ref] = Session(user, ref, math.inf)
        spec = {"templateRef": {"name": "python"}, **spec}
        await self.make(CODE_SANDBOX, name, namespace, annotations=annotations or {}, spec=spec)
        return ref

    async def forge(self, name: str, annotations: Json, **spec: Any) -> Ref:
        """A tenant's object that says of itself what only the control plane knows; an admission policy refuses it."""
        ref = Ref(CODE_SANDBOX, "team-a", name)
        with suppress(kube.Forbidden):
            await self.declare("mallory", name, annotations=annotations, **spec)
        self.sessions[ref].over = "forged"
        return ref

    async def deface(self, pod: Ref, claim: str, **labels: str) -> None:
        """A tenant writes on a pod of its namespace; an admission policy refuses it."""
        with suppress(kube.Forbidden, kube.NotFound):
            await self.user.merge(pod, {"metadata": {"annotations": {names.CLAIM: claim}, "labels": labels}})

    async def remove(self, ref: Ref) -> None:
        """The owner deletes it with kubectl."""
        if (session := self.sessions.get(ref)) is not None:
            session.over = "deleted"
        await self.user.delete(ref)

    # What callers do over the fleet's API.

    async def ask(
        self, work: Callable[[FleetProcess], Awaitable[T]], patience: float = PATIENCE, pause: float = RETRY
    ) -> T:
        """As the client does: again while no fleet answers. Raises FleetError."""
        give_up = self.now() + patience
        while True:
            self._check_idle()
            try:
                if (leader := self.leader) is None:
                    raise ClaimReason.NOT_SERVING.error("cannot ask: no fleet serves")
                async with asyncio.timeout(give_up + PATIENCE - self.now()):
                    return await leader.call(work(leader))
            except GoneError:
                pass
            except TimeoutError:
                raise AssertionError(f"a call has no answer {PATIENCE:g} s after its end") from None
            except FleetError as error:
                if error.problem.code is not Code.UNAVAILABLE or self.now() > give_up:
                    raise
            await asyncio.sleep(pause)

    async def claim(
        self,
        user: str,
        request: str,
        namespace: str = "team-a",
        *,
        pool: str = "",
        queue: str = "",
        lease: float = 300.0,
        wait: float = 60.0,
        pause: float = RETRY,
        gang: fleet_pb2.Gang | None = None,
        **asked: Any,
    ) -> Session:
        """Claims, and runs code that leaves a file; `pause` before it asks again. Raises FleetError."""
        message = fleet_pb2.ClaimRequest(
            request_id=request,
            namespace=namespace,
            pool=pool,
            template="" if pool else "python",
            gang=gang,
            **asked,
        )
        message.queue = queue
        message.lease.CopyFrom(duration(lease))
        message.max_wait.CopyFrom(duration(wait))
        held = {ref for ref, one in self.sessions.items() if not one.over}
        bound = await self.ask(lambda leader: self._claimed(leader, user, message), wait + PATIENCE, pause)
        space, _, name = bound.sandbox.sandbox_id.partition("/")
        ref = Ref(CODE_SANDBOX, space, name)
        if (space, bound.sandbox.pool) != (namespace, pool):
            self.went_wrong(f"{user} asked for {namespace}/{pool} and got {ref} of {bound.sandbox.pool}")
        self.owners[ref] = user
        session = self.sessions.get(ref)
        if session is not None and session.over and ref in held:
            # Its holder has ended it while this call was on its way: either may have come first.
            return session
        if session is None or session.over:
            # After a change of leader an id that has ended begins anew.
            session = self.sessions[ref] = Session(user, ref, self.now() + lease, request=request, lease=lease)
        elif session.until < self.now():
            session.over, session.volume = "answered while its lease ended", ""
        self._run(session, bound.access.token)
        return session

    async def _claimed(self, leader: FleetProcess, user: str, message: fleet_pb2.ClaimRequest) -> fleet_pb2.Bound:
        """As fleet.servicer does it."""
        caller = Caller(user)
        watch = await leader.api.claim(caller, message, "")
        try:
            while isinstance(news := await watch.next(), Queued):
                leader.api.check_serving("claim")
                message.ticket = watch.ticket()
            leader.api.check_serving("claim")
            return await leader.api.bound(caller, news)
        finally:
            watch.leave()

    async def renew(self, session: Session, lease: float) -> None:
        name = f"{session.ref.namespace}/{session.ref.name}"
        request = fleet_pb2.RenewRequest(sandbox_id=name, lease=duration(lease))
        await self.ask(lambda leader: leader.api.renew(Caller(session.user), request))
        session.until, session.lease = self.now() + lease, min(session.lease, lease)

    async def release(self, session: Session) -> None:
        session.over = "released"
        request = fleet_pb2.ReleaseRequest(sandbox_id=f"{session.ref.namespace}/{session.ref.name}")
        await self.ask(lambda leader: leader.api.release(Caller(session.user), request))

    async def suspend(self, session: Session, seconds: float = 3600.0, *, to_snapshot: bool = False) -> None:
        """Of one that sleeps nothing changes. Raises FleetError."""
        request = fleet_pb2.SuspendRequest(sandbox_id=f"{session.ref.namespace}/{session.ref.name}", force=True)
        if to_snapshot:
            request.to = fleet_pb2.SUSPEND_TO_SNAPSHOT
        request.timeout.CopyFrom(duration(seconds))
        if (pod := self.pod_of(session.ref)) is not None:
            session.kept = self.executors.memory(pod)
        began, sleeps = self.now(), self.pod_of(session.ref) is None
        if not (sleeps or math.isinf(session.lease)):
            # It may be suspended by a fleet that ends before it answers.
            session.until = min(session.until, began + seconds)
        found = await self.ask(lambda leader: leader.api.suspend(Caller(session.user), request))
        if found.sandbox.state != fleet_pb2.SANDBOX_STATE_SUSPENDED:
            self.went_wrong(f"{session.ref} is not suspended: {found.sandbox}")
        if not (sleeps or math.isinf(session.lease)):
            session.until = began + seconds

    async def resume(self, session: Session, wait: float = 60.0) -> None:
        """Resumes it, and runs code. Raises FleetError."""
        request = fleet_pb2.ResumeRequest(sandbox_id=f"{session.ref.namespace}/{session.ref.name}")
        request.max_wait.CopyFrom(duration(wait))
        began = self.now()
        found = await self.ask(lambda leader: self._resumed(leader, session.user, request), wait + PATIENCE)
        session.until = began + session.lease
        back = {context.context_id for context in found.resumption.contexts}
        if session.kept is not None and back != session.kept:
            self.went_wrong(f"{session.ref} came back with the variables of {sorted(back)}, not {sorted(session.kept)}")
        session.kept = None
        self._run(session, found.bound.access.token)

    async def _resumed(self, leader: FleetProcess, user: str, message: fleet_pb2.ResumeRequest) -> Any:
        """As fleet.servicer does it."""
        caller = Caller(user)
        watch = await leader.api.resume(caller, message)
        try:
            while isinstance(news := await watch.next(), Queued):
                leader.api.check_serving("resume")
            leader.api.check_serving("resume")
            return await leader.api.resumed(caller, news)
        finally:
            watch.leave()

    async def set_mode(self, session: Session, mode: OperatingMode, **spec: Any) -> None:
        """Its owner suspends or resumes it with kubectl. Raises KubeError."""
        await self.user.merge(session.ref, {"spec": {"operatingMode": mode.value, **spec}})
        session.kept = None
        if mode is OperatingMode.RUNNING:
            # Where the fleet saw it sleep, it has a whole lease again.
            session.until = min(session.until, self.now() + session.lease)

    async def wake(self, session: Session) -> None:
        """Nothing, where it does not sleep. Raises FleetError."""
        spec = self.cluster.objects.get(session.ref, {}).get("spec") or {}
        if spec.get("operatingMode") != OperatingMode.SUSPENDED.value:
            return
        if session.request:
            await self.resume(session)
        else:
            await self.set_mode(session, OperatingMode.RUNNING)

    async def state_of(self, session: Session) -> int:
        """As the fleet shows it. Raises FleetError."""
        request = fleet_pb2.GetRequest(sandbox_id=f"{session.ref.namespace}/{session.ref.name}")
        return (await self.ask(lambda leader: leader.api.get(Caller(session.user), request))).sandbox.state

    async def use(self, session: Session) -> bool:
        """Gets access again, and runs code. Whether an executor took it. Raises FleetError."""
        request = fleet_pb2.GetRequest(sandbox_id=f"{session.ref.namespace}/{session.ref.name}", with_access=True)
        found = await self.ask(lambda leader: leader.api.get(Caller(session.user), request))
        return self._run(session, found.access.token)

    def work(self, session: Session) -> bool:
        """Runs code with the token that it has. Whether its executor took it."""
        return self._run(session, session.token)

    def _run(self, session: Session, token: str) -> bool:
        session.token = token
        pod = json.loads(token)["pod"]
        holder = self.executors.holders.setdefault(pod, session.user)
        if holder != session.user:
            self.went_wrong(f"{session.user} got a token for the pod of {holder}")
        done = self.executors.run(session.user, token)
        if done is None:
            return False
        before, volume = done
        if strangers := before.keys() - {session.user}:
            self.went_wrong(f"{session.user} reads the files of {sorted(strangers)}")
        if session.volume and before.get(session.user, 0) < session.runs:
            self.went_wrong(f"{session.ref} of {session.user} has lost its files")
        session.volume, session.runs = volume, before.get(session.user, 0) + 1
        return True

    async def listed(self, user: str) -> int:
        """How many CodeSandboxes the fleet lists. Raises FleetError."""
        found = await self.ask(lambda leader: leader.api.list(Caller(user), fleet_pb2.ListRequest()))
        return len(found.sandboxes)

    # What a test sees.

    def there(self, kind: Kind, namespace: str) -> dict[str, Json]:
        return {
            ref.name: obj for ref, obj in self.cluster.objects.items() if (ref.kind, ref.namespace) == (kind, namespace)
        }

    def status(self, ref: Ref) -> Json:
        return (self.cluster.objects.get(ref) or {}).get("status") or {}

    def condition(self, ref: Ref, kind: str) -> Json:
        found = (one for one in self.status(ref).get("conditions") or () if one["type"] == kind)
        return next(found, {})

    def pod_of(self, ref: Ref) -> Ref | None:
        """The living pod whose executor serves this sandbox, by the executor's word."""
        for other, pod in self.cluster.objects.items():
            known = self.executors.sessions.get(pod["metadata"]["uid"]) if other.kind == POD else None
            if known and known.session_id == f"{ref.namespace}.{ref.name}" and not deleting(pod):
                return other
        return None

    def edit_pod(self, ref: Ref, change: Callable[[Json], None]) -> None:
        """A pod ends, is evicted, …: what was not written down before may end with it."""
        session = self.sessions.get(ref)
        if session is not None and not self.status(ref).get("binding") and not self.status(ref).get("podUID"):
            session.over = "not written down"
        if session is not None:
            session.kept = None
        if (pod := self.pod_of(ref)) is not None:
            self.cluster.edit(pod, change)

    async def until(self, holds: Callable[[], object], what: str, within: float = 120.0) -> None:
        give_up = self.now() + within
        while not holds():
            self._check_idle()
            assert self.now() < give_up, f"never {what}; {self.wrong}; {self.writes[-5:]}"
            await asyncio.sleep(0.25)

    def _check_idle(self) -> None:
        loop = asyncio.get_running_loop()
        assert not (isinstance(loop, FakeLoop) and loop.busy), f"busy without an end, with {self.writes[-5:]}"

    async def until_used(self, session: Session, within: float = 120.0) -> None:
        """Its holder gets in, within some time. Raises AssertionError."""
        give_up, why = self.now() + within, "no executor takes its token"
        while self.now() < give_up:
            try:
                if await self.use(session):
                    return
            except FleetError as error:
                why = str(error)
            await asyncio.sleep(RETRY)
        raise AssertionError(f"{session.ref} of {session.user} has ended before its time: {why}")

    # The end.

    async def end(self) -> None:
        """Calm, and then nothing: every promise is kept, and what users delete leaves nothing behind."""
        self.faults.clear()
        self.nodes.silent, self.nodes.keeps_orphans, self.operator.held = False, False, False
        for slot in self.fleets:
            slot.held = False
        await self.until(lambda: self.leader, "served")
        # With room for all, each that waits gets in: it was not forgotten.
        for ref in [one for one in self.cluster.objects if one.kind == SANDBOX_QUEUE]:
            await self.user.merge(ref, {"spec": {"nominalQuota": {"sandboxes": 1000}, "stopPolicy": "None"}})
        await self._keep_promises()
        await self.until(lambda: not self.strays(), "known or on their way out: all pods")
        self.wrong += overdrafts(self.cluster)
        for ref in [one for one in self.cluster.objects if one.kind == CODE_SANDBOX]:
            await self.remove(ref)
        for kind in (SANDBOX_POOL, SANDBOX_TEMPLATE, SANDBOX_QUEUE):
            for ref in [one for one in self.cluster.objects if one.kind == kind]:
                await self.user.delete(ref)
        give_up = self.now() + 2 * (REVISION_SECONDS + RESYNC_SECONDS)
        while left := self.left():
            self._check_idle()
            assert self.now() < give_up, f"there is left: {left}"
            await asyncio.sleep(1.0)
        assert not self.wrong, self.wrong

    async def _keep_promises(self) -> None:
        for session in list(self.sessions.values()):
            if not session.over and session.until > self.now() + 10:
                await self.wake(session)
                await self.until_used(session, within=max(10.0, min(400.0, session.until - self.now())))
                await self.until(lambda ref=session.ref: ref in self.cluster.objects, f"written down: {session.ref}")

    def ours(self) -> list[Ref]:
        """What is in namespaces of sandboxes, without what users make there."""
        kinds = {
            POD,
            PERSISTENT_VOLUME_CLAIM,
            CODE_SANDBOX,
            kube.NETWORK_POLICY,
            kube.CONFIG_MAP,
            kube.CONTROLLER_REVISION,
        }
        return [ref for ref in self.cluster.objects if ref.kind in kinds and ref.namespace in SPACES]

    def strays(self) -> list[str]:
        """Each labelled pod is known, on its way out, or another fleet's; here there is no other fleet any more."""
        if (leader := self.leader) is None:
            return ["no fleet serves"]
        known = {one.sandbox_uid for one in leader.fleet.scheduler.inventory.all()} | set(leader.fleet._backend._runs)
        objects = {obj["metadata"]["uid"] for ref, obj in self.cluster.objects.items() if ref.kind == CODE_SANDBOX}
        return [
            str(ref)
            for ref, pod in self.cluster.objects.items()
            if ref.kind == POD and ref.namespace in SPACES and not deleting(pod) and owner_of(pod) not in objects
            if f"{ref.namespace}/{ref.name}" not in known
        ]

    def left(self) -> list[str]:
        """What a cluster without sandboxes, pools and templates still has of ours."""
        found = [str(ref) for ref in self.ours()]
        leader = self.leader
        if leader is None:
            return [*found, "no fleet serves"]
        memory = {
            "inventory": [one.sandbox_id for one in leader.fleet.scheduler.inventory.all()],
            "waiting": list(leader.fleet.scheduler.inventory.waiting),
            "runs": list(leader.fleet._backend._runs),
            "sessions": list(leader.fleet._observer._ids._serving),
            "admissions": list(leader.fleet._queues.admissions._known),
            "orphans": list(leader.fleet._queues.orphans._known),
            "pools": [pool.name for pool in leader.fleet.scheduler.pools],
        }
        return [*found, *(f"{what}: {items}" for what, items in memory.items() if items)]


def duration(seconds: float) -> Duration:
    return Duration(seconds=int(seconds), nanos=round(seconds % 1 * 1e9))
