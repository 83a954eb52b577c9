"""Carries out what SandboxSnapshots ask for, namespace by namespace, and shows snapshots as objects."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from contextlib import aclosing

from sandfleet_operator.api.conditions import SavedReason
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.meta import API_VERSION
from sandfleet_operator.api.kinds.snapshot import FINALIZER, SandboxSnapshot, readable
from sandfleet_operator.api.kube import (
    CODE_SANDBOX,
    SANDBOX_SNAPSHOT,
    SANDBOX_TEMPLATE,
    AlreadyExists,
    Conflict,
    Invalid,
    Json,
    KubeError,
    NotFound,
    Ref,
)
from sandfleet_operator.api.reasons import ClaimReason, SuspendReason
from sandfleet_operator.api.table import encode
from sandfleet_operator.api.values import ASLEEP
from sandfleet_operator.cluster.kube_api import KubeApi
from sandfleet_operator.fleet.kubernetes.fleet import KubernetesFleet
from sandfleet_operator.fleet.kubernetes.snapshots.parties import Parties
from sandfleet_operator.fleet.snapshots.jobs import Event, Jobs
from sandfleet_operator.fleet.snapshots.messages import check_no_id
from sandfleet_operator.fleet.snapshots.transfers import Transfers
from sandfleet_operator.plan.snapshots.objects import (
    OBJECT,
    ORPHANS,
    Create,
    DeleteSnapshot,
    Facts,
    Hold,
    Listing,
    Release,
    Save,
    Step,
    Undelete,
    WriteStatus,
    named_by,
    says,
    steps,
)

# Seconds: between two looks for what is due, after a failure, and from which on each namespace is looked at anyhow, for
# snapshots whose retention is over and for those that no session names any more.
LOOK, RETRY, SWEEP = 0.5, 30.0, 3600.0
# At the same time: namespaces that are looked at, and sessions of one that are saved.
ROUNDS, SAVES = 16, 4

_LOG = logging.getLogger(__name__)


class SnapshotRounds:
    """Each namespace on its own: what stalls in one holds up no other. `clock` gives seconds since the epoch.

    `reachable`: whether a snapshotter is installed. Without one nothing can be deleted, and no object is held.
    """

    def __init__(
        self,
        kube: KubeApi,
        kubernetes: KubernetesFleet,
        jobs: Jobs,
        parties: Parties,
        clock: Callable[[], float],
        *,
        reachable: Callable[[], bool] = lambda: True,
    ) -> None:
        self._kube, self._store, self._kubernetes = kube, kubernetes.store, kubernetes
        self._jobs, self._transfers, self._parties, self._clock = jobs, Transfers(jobs), parties, clock
        # Namespace → when it is looked at.
        self._due: dict[str, float] = {}
        self._reachable = reachable
        # By namespace, and by the uid of the object whose session is being saved.
        self._looking: dict[str, asyncio.Task[None]] = {}
        self._saving: dict[str, tuple[str, asyncio.Task[None]]] = {}

    def look_soon(self, namespace: str) -> None:
        """A snapshot of the namespace, or an object that stands for one, has come, changed or gone."""
        self._due[namespace] = self._clock()

    async def run(self) -> None:
        """As long as it leads."""
        try:
            while True:
                await asyncio.sleep(LOOK)
                self._look()
        finally:
            for task in (*self._looking.values(), *(task for _, task in self._saving.values())):
                task.cancel()

    def _look(self) -> None:
        """Begins what is due."""
        now = self._clock()
        for kind in (SANDBOX_SNAPSHOT, SANDBOX_TEMPLATE):
            for obj in self._store.all(kind):
                # At first those that have objects, as an earlier leader may have left something to do.
                first = now if kind == SANDBOX_SNAPSHOT else now + SWEEP
                self._due.setdefault(obj["metadata"]["namespace"], first)
        for namespace in [one for one, due in self._due.items() if due <= now and one not in self._looking]:
            if len(self._looking) >= ROUNDS:
                return
            # What changes while it is looked at makes it due again.
            self._due[namespace] = now + SWEEP
            self._looking[namespace] = asyncio.create_task(self._looked(namespace))

    async def _looked(self, namespace: str) -> None:
        try:
            self._again(namespace, await self._round(namespace))
        finally:
            del self._looking[namespace]

    def _again(self, namespace: str, seconds: float) -> None:
        at = self._clock() + seconds
        self._due[namespace] = min(at, self._due.get(namespace, at))

    async def _round(self, namespace: str) -> float:
        """Seconds until the next."""
        objects = [one for one in map(readable, self._store.all(SANDBOX_SNAPSHOT, namespace)) if one is not None]
        try:
            if not self._reachable():
                await self._let_go(objects)
            listing = await self._listing(namespace)
            named = {one for obj in self._store.all(CODE_SANDBOX, namespace) for one in named_by(obj)}
            again = SWEEP
            for step in steps(objects, listing, named, self._clock()):
                again = min(again, await self._carry_out(namespace, step))
        except (FleetError, KubeError) as error:
            _LOG.info("snapshots of namespace %s are looked at again later: %s", namespace, error)
            for one in objects:
                if isinstance(error, FleetError) and not one.snapshot_id and not one.meta.deleting:
                    with contextlib.suppress(KubeError):
                        await self._say(one, error)
            return RETRY if objects else SWEEP
        return again

    async def _let_go(self, objects: list[SandboxSnapshot]) -> None:
        """What goes is not held where nothing can delete its snapshot, which stays then. Raises KubeError."""
        for one in objects:
            if one.meta.deleting and one.is_held:
                await self._finalizers(one, [])

    async def _listing(self, namespace: str) -> Listing:
        found: list[Facts] = []
        last: Event = {}
        async with aclosing(self._jobs.run("list", tenant=namespace, sandbox="")) as events:
            async for last in events:
                if last["event"] == "snapshot":
                    found.append(last["snapshot"])
        # A snapshotter of the version before says neither.
        return Listing(found, frozenset(last.get("unread", ())), last.get("whole", False))

    async def _carry_out(self, namespace: str, step: Step) -> float:
        """Seconds until the namespace is to be looked at again for it. Raises FleetError and KubeError."""
        match step:
            case Hold(obj):
                await self._finalizers(obj, [FINALIZER])
                return 0.0
            case Save(obj):
                self._begin_save(obj)
            case Create(name, snapshot_id):
                await self._create(namespace, name, snapshot_id)
            case WriteStatus(obj, status):
                await self._merge(obj, {"status": encode(status)}, "status")
            case DeleteSnapshot(snapshot_id, by):
                await self._transfers.forget(namespace, snapshot_id, by=by)
            case Undelete(snapshot_id):
                with contextlib.suppress(FleetError):
                    await self._jobs.answer("undelete", tenant=namespace, snapshot=snapshot_id, by=ORPHANS)
            case Release(obj, drop):
                await self._finalizers(obj, [])
                if drop:
                    await self._kube.delete(_ref(obj), uid=obj.meta.uid)
        return SWEEP

    def _begin_save(self, obj: SandboxSnapshot) -> None:
        """Not where enough sessions of the namespace are being saved: the end of each is looked at."""
        namespace, uid = obj.meta.namespace, obj.meta.uid
        if uid not in self._saving and sum(of == namespace for of, _ in self._saving.values()) < SAVES:
            self._saving[uid] = namespace, asyncio.create_task(self._save(obj))

    async def _save(self, obj: SandboxSnapshot) -> None:
        sandbox_id, again = f"{obj.meta.namespace}/{obj.spec.sandbox}", RETRY
        try:
            await self._say(obj, None)
            event = await self._saved(obj, sandbox_id)
            _LOG.info("snapshot %s of %s is saved", event["snapshot"]["id"], sandbox_id)
            again = 0.0
        except FleetError as error:
            with contextlib.suppress(KubeError):
                await self._say(obj, error)
        except KubeError as error:
            _LOG.info("session %s is saved later: %s", sandbox_id, error)
        finally:
            del self._saving[obj.meta.uid]
            self._again(obj.meta.namespace, again)

    async def _saved(self, obj: SandboxSnapshot, sandbox_id: str) -> Event:
        known = self._kubernetes.session_of(sandbox_id)
        if known is None or not known.bound:
            there = self._kubernetes.object_of(sandbox_id) is not None
            reason = SuspendReason.NOT_CLAIMED if there else ClaimReason.SANDBOX_NOT_FOUND
            why = "no claim of the fleet has made it" if there else "there is no such sandbox, or it has ended"
            raise reason.error(f"cannot save {sandbox_id}: {why}", sandbox_id)
        if known.state in ASLEEP:
            raise ClaimReason.SANDBOX_SUSPENDED.error(f"cannot save {sandbox_id}: it sleeps", sandbox_id)
        party = self._parties.of(await self._kubernetes.fleet.get(known.sandbox_id, reachable=True))
        check_no_id(obj.meta.name)
        words = {"name": obj.meta.name, "labels": {OBJECT: obj.meta.uid}, "reason": "manual"}
        last: Event = {}
        owner = f"sandboxsnapshots/{obj.meta.name}"
        days, count = obj.spec.days, obj.spec.count
        saving = self._transfers.save(party, owner, words, keep_days=days, keep_count=count)
        async with aclosing(saving) as events:
            async for event in events:
                last = event
        return last

    async def _say(self, obj: SandboxSnapshot, error: FleetError | None) -> None:
        """Raises KubeError."""
        reason = SavedReason.NOT_SAVED if error else SavedReason.SAVING
        status = says(obj, reason, error.problem.message if error else "", self._clock())
        if status != obj.status:
            await self._merge(obj, {"status": encode(status)}, "status")

    async def _create(self, namespace: str, name: str, snapshot_id: str) -> None:
        metadata = {"namespace": namespace, "name": name, "finalizers": [FINALIZER]}
        obj = {"apiVersion": API_VERSION, "kind": "SandboxSnapshot", "metadata": metadata}
        with contextlib.suppress(AlreadyExists, Invalid):
            await self._kube.create({**obj, "spec": {"snapshotID": snapshot_id}})

    async def _finalizers(self, obj: SandboxSnapshot, ours: list[str]) -> None:
        """Sets ours, and leaves those of others."""
        found = await self._found_object(obj)
        if found is not None:
            others = [one for one in found["metadata"].get("finalizers") or () if one != FINALIZER]
            meta = {"finalizers": [*others, *ours], "resourceVersion": found["metadata"]["resourceVersion"]}
            with contextlib.suppress(NotFound, Conflict):
                await self._kube.merge(_ref(obj), {"metadata": meta})

    async def _found_object(self, obj: SandboxSnapshot) -> Json | None:
        try:
            found = await self._kube.get(_ref(obj))
        except NotFound:
            return None
        return found if found["metadata"]["uid"] == obj.meta.uid else None

    async def _merge(self, obj: SandboxSnapshot, patch: Json, subresource: str = "") -> None:
        with contextlib.suppress(NotFound, Conflict):
            await self._kube.merge(_ref(obj), {"metadata": {"uid": obj.meta.uid}, **patch}, subresource)


def _ref(obj: SandboxSnapshot) -> Ref:
    return Ref(SANDBOX_SNAPSHOT, obj.meta.namespace, obj.meta.name)
