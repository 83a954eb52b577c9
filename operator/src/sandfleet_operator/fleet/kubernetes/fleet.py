"""The fleet on Kubernetes: what the watches show goes to the engine, what the engine decides goes to the API server."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kube import (
    CODE_SANDBOX,
    NODE,
    POD,
    SANDBOX_TEMPLATE,
    Json,
    Kind,
    Ref,
)
from sandfleet_operator.api.parse import code_sandbox
from sandfleet_operator.api.resources import CodeSandbox, Meta
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.api.values import Isolation, Sandbox, State
from sandfleet_operator.effects.background import Background
from sandfleet_operator.effects.facts import Facts
from sandfleet_operator.effects.kubeapi import KubeApi
from sandfleet_operator.effects.store import Store
from sandfleet_operator.fleet.kubernetes import adoption, objects
from sandfleet_operator.fleet.kubernetes.adoption import Fate, Moment
from sandfleet_operator.fleet.kubernetes.asking import Asking
from sandfleet_operator.fleet.kubernetes.backend import KubernetesBackend
from sandfleet_operator.fleet.kubernetes.catalog import Catalog, Recipe, pool_name
from sandfleet_operator.fleet.kubernetes.changes import Changes
from sandfleet_operator.fleet.kubernetes.egress import Egresses, ProbingExecutors
from sandfleet_operator.fleet.kubernetes.sizes import Sizes
from sandfleet_operator.fleet.kubernetes.statuses import Statuses
from sandfleet_operator.fleet.kubernetes.unwritten import Found, Unwritten
from sandfleet_operator.fleet.kubernetes.upkeep import Upkeep
from sandfleet_operator.fleet.kubernetes.watching import Watching
from sandfleet_operator.fleet.kubernetes.writer import Writer
from sandfleet_operator.fleet.loop import Fleet
from sandfleet_operator.plan import names
from sandfleet_operator.plan.claims import Record
from sandfleet_operator.plan.engine import Engine
from sandfleet_operator.plan.lifecycle import ImpossibleEventError
from sandfleet_operator.plan.lines import Level
from sandfleet_operator.plan.podspec import PodState
from sandfleet_operator.plan.policy import Policy
from sandfleet_operator.plan.pool import Pool
from sandfleet_operator.plan.sandbox.observed import Pod, pod_of

# Of the Lease: the highest number of a fleet that had looked at everything before it served.
SERVED = f"{names.POOL.partition('/')[0]}/served"
# Starts at the same time.
MAX_STARTING = 300
MAX_SANDBOXES = 50_000
MAX_WAITING = 20_000

_LOG = logging.getLogger(__name__)


class KubernetesFleet:
    """`leading` gives the fencing number, None when leadership may be over; `clock` never goes back, `wall_clock` is the epoch's."""

    def __init__(
        self,
        kube: KubeApi,
        settings: Settings,
        executors: Callable[[Store], ProbingExecutors],
        *,
        lease: Ref,
        leading: Callable[[], int | None],
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        listens: Callable[[Pod], bool],
    ) -> None:
        self._kube = kube
        self._settings = settings
        self._lease = lease
        self._leading = leading
        self._clock = clock
        self._store = Store()
        self.changes = Changes(self._store, lambda one: self.egresses.describe(one))  # noqa: PLW0108 - made below
        self._facts = Facts(kube, self._store, wall_clock)
        self.catalog = Catalog(self._store, settings)
        self._writer = Writer(kube, leading)
        self._backend = KubernetesBackend(
            kube,
            self._store,
            self.catalog,
            self._writer,
            settings=settings,
            user_namespaces=self._facts.user_namespaces,
            listens=listens,
            wall_clock=wall_clock,
        )
        self._backend.lost = self._lost
        self._backend.unbound = self._look_at_sandbox
        policy = Policy(
            max_sandboxes=MAX_SANDBOXES,
            max_starting=MAX_STARTING,
            max_waiting=MAX_WAITING,
            start_timeout=120.0,
            recovers=False,
            keeps_workspaces=False,
        )
        self.engine = Engine([], policy, new_id=objects.new_name)
        self.executors = executors(self._store)
        self.fleet = Fleet(self.engine, self._backend, self.executors, clock)
        tell = self.changes.say_again
        self.egresses = Egresses(self.executors, self.catalog, settings, self.session_of, say=tell, clock=wall_clock)
        self._watching = Watching(kube, self._store, self._saw, settings.watch_namespaces)
        # CodeSandbox → the engine's id of what serves it.
        self._sessions: dict[str, str] = {}
        self._unwritten = Unwritten(self._store, self._writer, take=self._complete, left=self._look_at_sandbox)
        self._asking = Asking(self.fleet)
        sizes = Sizes()
        statuses = Statuses(kube, sizes, leading, wall_clock)
        self._upkeep = Upkeep(
            kube,
            self._store,
            self.catalog,
            self.fleet,
            facts=self._facts,
            sizes=sizes,
            statuses=statuses,
            clock=clock,
        )
        self._moment: Moment | None = None
        self._background = Background()

    @property
    def serving(self) -> bool:
        """Whether it may answer callers: nobody is told anything by a fleet that may have been deposed."""
        return self._moment is not None and self._moment.serving and self._leading() is not None

    # Its life.

    async def follow(self) -> None:
        """Keeps the store fresh until it is cancelled, also while another one leads."""
        await self._watching.follow()

    async def lead(self, fencing: int) -> None:
        """Takes over what is there, then serves until it is cancelled. Raises KubeError where the takeover fails."""
        await self._watching.synced()
        # What the watches have shown may be older than the last write of who led before.
        await self._watching.refresh()
        lease = await self._kube.get(self._lease)
        served = int((lease["metadata"].get("annotations") or {}).get(SERVED, "0"))
        self._moment = Moment(fencing, served, serving=False)
        self.fleet.begin()
        await self._upkeep.begin()
        for obj in list(self._store.all(POD)):
            self._pod(obj, gone=False)
        await self._unwritten.settled()
        for obj in list(self._store.all(CODE_SANDBOX)):
            self._sandbox(obj, gone=False)
        annotations = {"metadata": {"annotations": {SERVED: str(fencing)}}}
        await self._kube.merge(self._lease, annotations)
        # What has turned up meanwhile: later it is late.
        await self._unwritten.settled()
        self._moment = replace(self._moment, serving=True)
        self._upkeep.open()
        _LOG.info("serving %d sandboxes", len(self.engine.inventory))
        async with asyncio.TaskGroup() as group:
            group.create_task(self.fleet.run())
            group.create_task(self._upkeep.run())

    async def close(self) -> None:
        self._asking.close()
        self.egresses.close()
        await self._unwritten.close()
        self._background.close()
        await self.fleet.close()

    # What the watches show.

    def _saw(self, kind: Kind, gone: bool, obj: Json) -> None:
        try:
            self._see(kind, gone, obj)
        except (ImpossibleEventError, FleetError) as error:
            _LOG.error("cannot take in %s %s: %s", kind, obj["metadata"].get("name"), error)

    def _see(self, kind: Kind, gone: bool, obj: Json) -> None:
        if kind == CODE_SANDBOX:
            self.changes.say(obj, gone=gone)
        if self._moment is None:
            return
        if kind == POD:
            self._pod(obj, gone=gone)
        elif kind == CODE_SANDBOX:
            self._sandbox(obj, gone=gone)
        elif kind == NODE:
            self._upkeep.count_nodes()
        else:
            self._upkeep.look_soon()
            if kind == SANDBOX_TEMPLATE:
                self.egresses.look_again()

    def _pod(self, obj: Json, *, gone: bool) -> None:
        key = objects.key_of(obj)
        if self._backend.is_taken(key, obj):
            self.fleet.do(self.engine.taken(key, self._clock()))
        elif self._backend.run(key) is not None:
            self._backend.saw_pod(obj, gone=gone)
            return
        if gone or self._moment is None:
            return
        pod = pod_of(obj)
        record = adoption.record_on(pod.annotations)
        match adoption.fate(pod, record, self._moment):
            case Fate.WARM:
                self._adopt_warm(key, pod, obj)
            case Fate.SESSION if record is not None and not pod.owner:
                self._unwritten.add(Found(key, pod, record))
                if self._moment.serving:
                    self._unwritten.begin()
            case Fate.REMOVE:
                self._discard(key, pod, record)

    def _discard(self, key: str, pod: Pod, record: Record | None) -> None:
        """Nobody is to have it."""
        ref = Ref(POD, key.partition("/")[0], pod.name)
        if adoption.is_in_reach(pod):
            self._writer.discard_later(ref, pod.uid, record)
        else:
            self._writer.delete_later(ref, pod.uid)

    def _lost(self, ref: Ref) -> None:
        """A pod is somebody else's: where that one leads no more, nobody else removes it."""
        obj = self._store.get(ref)
        if obj is not None and (obj["metadata"].get("labels") or {}).get(names.STATE) != PodState.WARM.value:
            self._pod(obj, gone=False)
            record = adoption.record_on(pod_of(obj).annotations)
            if record is not None:
                self._look_at_sandbox(Ref(CODE_SANDBOX, ref.namespace, record.object))

    def _adopt_warm(self, key: str, pod: Pod, obj: Json) -> None:
        namespace = obj["metadata"]["namespace"]
        pool = objects.pool_of(namespace, pod)
        recipe = self.catalog.recipe(pool)
        found = self.engine.pool(pool)
        if recipe is None or found is None:
            self._discard(key, pod, None)
            return
        self._backend.know(key, pod.uid)
        sandbox = adoption.warm(
            pod,
            key,
            pool=pool,
            template=recipe.template,
            revision=pod.annotations.get(names.SPEC_HASH, ""),
            isolation=found.template.isolation,
            now=self._clock(),
        )
        self.fleet.do(self.engine.adopt(sandbox, self._clock()))
        if adoption.may_lack_volume(pod):
            self._background.begin(self._backend.complete(sandbox), f"complete pod {key}")
        self._backend.saw_pod(obj, gone=False)

    def _complete(self, found: Found) -> None:
        """A claim that was not written down yet: its fleet ended after it had bound the pod."""
        key, pod, record = found.key, found.pod, found.record
        if self.engine.inventory.of_session(record.key) is not None:
            # Its caller has another one by now.
            self._writer.discard_later(found.ref, pod.uid, record)
            return
        made_of = (objects.pool_of(found.ref.namespace, pod), pod.labels.get(names.TEMPLATE, ""))
        self._adopt_session(key, (key, pod.uid), record, made_of)
        sandbox = self.engine.inventory.get(key)
        if sandbox is not None:
            self._background.begin(self._reopened(key), f"open {key}")
            self._background.begin(self._backend.record(sandbox), f"write down {key}")

    def _adopt_session(
        self, key: str, serves: tuple[str, str], record: Record, made_of: tuple[str, str], owner: Meta | None = None
    ) -> None:
        """`serves` is the pod that does now, its key and its uid (none: no pod does); `made_of` is pool and template."""
        (uid_key, pod_uid), (pool, template) = serves, made_of
        if self.engine.inventory.get(key) is not None:
            return
        namespace = key.partition("/")[0]
        self._backend.know(uid_key, pod_uid, record, owner)
        self._sessions[f"{namespace}/{record.object}"] = key
        found = self.engine.pool(pool)
        isolation = found.template.isolation if found else Isolation.NAMESPACE
        sandbox = adoption.session(
            record,
            key,
            uid_key,
            pool=pool,
            template=template,
            isolation=isolation,
            now=self._clock(),
            running=bool(pod_uid),
        )
        self.fleet.do(self.engine.adopt(sandbox, self._clock()))

    def _sandbox(self, obj: Json, *, gone: bool) -> None:
        name = objects.key_of(obj)
        try:
            sandbox = code_sandbox(obj)
        except FleetError:
            return
        if gone or adoption.is_over(sandbox):
            self._ended(name, sandbox, gone=gone)
        elif adoption.wants_pool(sandbox):
            self._asking.ask(name, sandbox)
        elif names.BOUND_POD in sandbox.meta.annotations:
            self._bound(name, sandbox)

    def _ended(self, name: str, sandbox: CodeSandbox, *, gone: bool) -> None:
        self._asking.drop(name)
        self.egresses.forget(name)
        reason = "Released" if gone or sandbox.meta.deleting else "Expired"
        known = self.session_of(name)
        if known is None:
            self._sessions.pop(name, None)
        elif adoption.is_of(sandbox, known):
            del self._sessions[name]
            self._backend.removed(known.sandbox_uid, reason)
        record = adoption.record_on(sandbox.meta.annotations)
        if not gone and not sandbox.meta.deleting and record is not None and not record.uid:
            # The fleet has made it, and nobody else would remove it.
            self._remove_object(sandbox)

    def _remove_object(self, sandbox: CodeSandbox) -> None:
        self._writer.delete_later(Ref(CODE_SANDBOX, sandbox.meta.namespace, sandbox.meta.name), sandbox.meta.uid)

    def _look_at_sandbox(self, ref: Ref) -> None:
        """What it was waiting for is settled."""
        obj = self._store.get(ref)
        if obj is not None:
            self._sandbox(obj, gone=False)

    def _bound(self, name: str, sandbox: CodeSandbox) -> None:
        record = adoption.record_on(sandbox.meta.annotations)
        if record is None:
            return
        namespace, spec = sandbox.meta.namespace, sandbox.spec
        pod_name, _, pod_uid = sandbox.meta.annotations[names.BOUND_POD].partition("/")
        key = f"{namespace}/{pod_name}"
        serves = adoption.incarnation(sandbox)
        known = self.engine.inventory.get(self._sessions.get(name, key))
        if known is not None and not adoption.is_of(sandbox, known):
            # Of a fleet that was deposed: whose object stays is settled where ours is written.
            return
        if known is None and key in self._unwritten:
            return
        if known is None and self._moment is not None and adoption.is_late(record, self._moment):
            if record.number < self._moment.fencing:
                self._remove_object(sandbox)
        elif known is None:
            pool = pool_name(namespace, spec.pool, spec.template)
            first = self._store.get(Ref(POD, namespace, pod_name))
            alive = first is not None and first["metadata"]["uid"] == pod_uid
            present = adoption.present(sandbox, first_is_alive=alive)
            self._adopt_session(key, present, record, (pool, spec.template), sandbox.meta)
        elif known.state is State.RECOVERING and serves and sandbox.status.pod_uid != pod_uid:
            self._backend.know(serves, sandbox.status.pod_uid, record, sandbox.meta)
            self.fleet.do(self.engine.recovered(known.sandbox_id, serves, self._clock()))
            self._background.begin(self._reopened(known.sandbox_id), f"open {name}")
        if known is not None:
            self._sessions.setdefault(name, known.sandbox_id)
        self.egresses.look(name, spec.egress)

    async def _reopened(self, sandbox_id: str) -> None:
        """Its lease and environment, as far as the executor has none of this claim."""
        sandbox = self.engine.inventory.get(sandbox_id)
        if sandbox is not None and sandbox.lease_expires is not None and sandbox.state is State.CLAIMED:
            await self.executors.open(sandbox, max(1.0, sandbox.lease_expires - self._clock()))

    # For who serves callers.

    def session_of(self, name: str) -> Sandbox | None:
        """What serves this CodeSandbox, NAMESPACE/NAME; None where no claim does."""
        return self.engine.inventory.get(self._sessions.get(name, ""))

    def note_session(self, sandbox: Sandbox) -> str:
        """A claim was answered; the name of its CodeSandbox, which may not be there yet."""
        assert sandbox.claim is not None
        name = f"{sandbox.sandbox_id.partition('/')[0]}/{objects.object_of(sandbox.claim)}"
        self._sessions[name] = sandbox.sandbox_id
        return name

    def resolve(self, namespace: str, pool: str, template: str) -> Recipe:
        """What a claim asks for; the engine knows it from now on. Raises FleetError."""
        recipe = self.catalog.resolve(namespace, pool, template)
        if self.engine.pool(recipe.name) is None:
            self._upkeep.look_at_pools()
        return recipe

    def pools(self) -> list[tuple[Pool, Level]]:
        """By name, with how full each is."""
        return [(pool, self._upkeep.level(pool.name)) for pool, _ in self.fleet.pools()]

    def pod_of(self, sandbox: Sandbox) -> Pod | None:
        namespace, _, name = sandbox.sandbox_uid.partition("/")
        found = self._store.get(Ref(POD, namespace, name))
        return pod_of(found) if found else None
