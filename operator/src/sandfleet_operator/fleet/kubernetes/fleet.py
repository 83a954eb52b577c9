"""The fleet on Kubernetes: watches feed the scheduler, and its decisions go to the API server."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain

from sandfleet_operator.api.conditions import Reason
from sandfleet_operator.api.kinds.sandbox import CodeSandbox, readable
from sandfleet_operator.api.kinds.template import Contract
from sandfleet_operator.api.kube import (
    CODE_SANDBOX,
    NODE,
    POD,
    SANDBOX_QUEUE,
    SANDBOX_SNAPSHOT,
    SANDBOX_TEMPLATE,
    Json,
    Kind,
    Ref,
)
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.api.values import Hold, Sandbox, State
from sandfleet_operator.cluster.kube_api import KubeApi
from sandfleet_operator.cluster.node_facts import NodeFacts
from sandfleet_operator.cluster.policies import check_policies
from sandfleet_operator.cluster.reflector import TURN, Reflectors
from sandfleet_operator.cluster.store import Store
from sandfleet_operator.cluster.tasks import in_turns
from sandfleet_operator.fleet.driver import FleetDriver
from sandfleet_operator.fleet.incarnations import Preparation
from sandfleet_operator.fleet.kubernetes import adoption, feed
from sandfleet_operator.fleet.kubernetes.adoption import LeaderTerm
from sandfleet_operator.fleet.kubernetes.backend import KubernetesBackend
from sandfleet_operator.fleet.kubernetes.catalog import Catalog, Recipe, new_name
from sandfleet_operator.fleet.kubernetes.egress import EgressChecks, ProbingExecutors
from sandfleet_operator.fleet.kubernetes.ended_record import EndedRecord
from sandfleet_operator.fleet.kubernetes.feed import SandboxFeed
from sandfleet_operator.fleet.kubernetes.observer import KEPT, WATCHED, Observer
from sandfleet_operator.fleet.kubernetes.pool_status import PoolSizes, PoolStatuses
from sandfleet_operator.fleet.kubernetes.queues.queues import Queues
from sandfleet_operator.fleet.kubernetes.reviews.pods import ReviewedPods
from sandfleet_operator.fleet.kubernetes.sessions.modes import Give
from sandfleet_operator.fleet.kubernetes.sessions.parked import ParkedObjects, SnapshotKeeper
from sandfleet_operator.fleet.kubernetes.sessions.young import YoungSessions
from sandfleet_operator.fleet.kubernetes.upkeep import Upkeep
from sandfleet_operator.fleet.kubernetes.workspaces import Workspaces
from sandfleet_operator.fleet.kubernetes.writer import Writer
from sandfleet_operator.fleet.leases.renewals import Renewals
from sandfleet_operator.fleet.preemptor import Preemptor
from sandfleet_operator.fleet.suspender import Suspender
from sandfleet_operator.plan.claims.lease_end import lease_end_patch
from sandfleet_operator.plan.claims.record import Record, object_of
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.egress_probe import Known
from sandfleet_operator.plan.sandbox.binding import is_its
from sandfleet_operator.plan.sandbox.observed import Pod, pod_of
from sandfleet_operator.plan.scheduler.limits import FleetLimits
from sandfleet_operator.plan.scheduler.pool_queues import PoolSummary
from sandfleet_operator.plan.scheduler.refill import Pool
from sandfleet_operator.plan.scheduler.scheduler import Scheduler

# Of the Lease: the highest number of a fleet that had looked at everything before it served.
SERVED = f"{names.POOL.partition('/')[0]}/served"
LIMITS = FleetLimits(
    max_sandboxes=50_000,
    max_starting=300,
    max_waiting=20_000,
    max_suspended=50_000,
    start_timeout=120.0,
    recovers=False,
    keeps_workspaces=False,
    confirms_starts=True,
    confirms_suspensions=True,
)

_LOG = logging.getLogger(__name__)


class KubernetesFleet:
    """`leading` gives the fencing number, None when leadership may be over; `clock` never goes back.

    `authority` gives the public key that has to have signed the keys that executors take; empty: they take any.
    """

    # Is told a namespace whose snapshots have changed.
    on_snapshots: Callable[[str], None] | None = None

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
        authority: Callable[[], str] = lambda: "",
    ) -> None:
        self._authority, self._policies = authority, settings.admission_policies
        self._kube, self._lease, self._leading, self.clock = kube, lease, leading, clock
        store = self.store = self._store = Store(in_order=(CODE_SANDBOX,))
        self.catalog = Catalog(store, settings)
        self.feed = SandboxFeed(store, self._egress_of, YoungSessions(settings, self._is_served))
        self._facts, self._writer = NodeFacts(kube, store, wall_clock), Writer(kube, leading)
        self._backend = self._made_backend(settings, listens, wall_clock)
        self.scheduler, self.executors = Scheduler([], _limits(settings), new_id=new_name), executors(store)
        self._ended = EndedRecord(kube, lease.namespace, self.scheduler.ended_claims, lambda: leading() is not None)
        # What is called before all else is closed.
        self.at_end: list[Callable[[], None]] = []
        # What runs as long as it leads.
        self.beside: list[Callable[[], Coroutine[object, object, None]]] = []
        self._renewals = Renewals(self.scheduler.inventory.get, self._write_lease, clock)
        self.fleet = FleetDriver(
            self.scheduler, self._backend, self.executors, clock, self._renewals.renewed, admitted=self._admitted
        )
        self._queues = self._made_queues(wall_clock)
        self.egresses = EgressChecks(
            self.executors, self.catalog, settings, self.session_of, say=self.feed.say_again, clock=wall_clock
        )
        self._observer, self.reviewed = self._made_observer(clock), ReviewedPods()
        self.parked = ParkedObjects(store, self._writer, self._observer.is_of)
        self._reflectors = Reflectors(kube, store, WATCHED, self._saw, namespaces=settings.watch_namespaces, kept=KEPT)
        statuses = PoolStatuses(kube, PoolSizes(), leading, wall_clock)
        self._upkeep = Upkeep(kube, store, self.catalog, self.fleet, facts=self._facts, statuses=statuses, clock=clock)

    def _made_queues(self, wall_clock: Callable[[], float]) -> Queues:
        return Queues(
            self._kube,
            self._store,
            self._writer,
            self.fleet,
            self.catalog,
            leading=self._leading,
            clock=self.clock,
            wall_clock=wall_clock,
        )

    def _made_backend(
        self, settings: Settings, listens: Callable[[Pod], bool], wall_clock: Callable[[], float]
    ) -> KubernetesBackend:
        return KubernetesBackend(
            self._kube,
            self._store,
            self.catalog,
            self._writer,
            settings=settings,
            user_namespaces=self._facts.user_namespaces,
            listens=listens,
            wall_clock=wall_clock,
            lost=self._pod_lost,
            unbound=self._sandbox_unbound,
            goes=self._pod_goes,
            authority=self._authority,
        )

    def _made_observer(self, clock: Callable[[], float]) -> Observer:
        return Observer(
            self._store,
            self._writer,
            self._backend,
            self.fleet,
            catalog=self.catalog,
            egresses=self.egresses,
            queue_of=self._queues.queue_of,
            clock=clock,
        )

    @property
    def serving(self) -> bool:
        """Whether it may answer callers: a fleet that may have been deposed answers none."""
        term = self._observer.term
        return term is not None and term.serving and self._leading() is not None

    @property
    def synced(self) -> bool:
        """Whether everything that exists has been seen once."""
        return self._reflectors.are_synced

    # Its life.

    async def follow(self) -> None:
        """Keeps the store fresh until it is cancelled, also while another one leads."""
        await self._reflectors.follow()

    async def numbers_seen(self) -> Callable[[], Awaitable[Sequence[int]]]:
        """Waits for the first list; the function gives the fencing numbers that earlier leaders have left on claims."""
        await self._reflectors.synced()
        return self._numbers

    async def _numbers(self) -> Sequence[int]:
        objects = chain.from_iterable(self._store.all(kind) for kind in (POD, CODE_SANDBOX))
        found = set()
        async for obj in in_turns(objects, TURN):
            record = adoption.record_on(obj["metadata"].get("annotations") or {})
            if record is not None:
                found.add(record.number)
        return sorted(found)

    async def lead(self, fencing: int) -> None:
        """Takes over what exists, then serves until it is cancelled.

        Raises KubeError if the takeover fails, and UnguardedError where others could have made the pods that it finds.
        """
        await check_policies(self._kube, self._policies)
        await self._reflectors.synced()
        # The watches may be behind the last write of the previous leader.
        await self._reflectors.catch_up()
        lease = await self._kube.get(self._lease)
        served = adoption.served_of(str((lease["metadata"].get("annotations") or {}).get(SERVED, "")), fencing)
        term = self._observer.term = LeaderTerm(fencing, served, serving=False)
        self.fleet.begin()
        await self._ended.load()
        await self._upkeep.begin()
        self._queues.grants.begin()
        await self._observer.take_over()
        await self._queues.take_over()
        annotations = {"metadata": {"annotations": {SERVED: str(fencing)}}}
        await self._kube.merge(self._lease, annotations)
        # Claims that turned up meanwhile; later ones are too late.
        await self._observer.unrecorded.settled()
        self._observer.term = replace(term, serving=True)
        self._queues.grants.open()
        self._upkeep.open()
        _LOG.info("serving %d sandboxes", len(self.scheduler.inventory))
        async with asyncio.TaskGroup() as group:
            group.create_task(self.fleet.run())
            group.create_task(self._upkeep.run())
            group.create_task(self._observer.run())
            group.create_task(self._queues.run())
            group.create_task(self._preemptor.run())
            group.create_task(self._ended.hold())
            for work in self.beside:
                group.create_task(work())

    async def close(self) -> None:
        for end in self.at_end:
            end()
        self.egresses.close()
        self._renewals.close()
        await self._preemptor.close()
        await self._observer.close()
        await self._queues.close()
        await self.fleet.close()

    # What the watches show.

    def _saw(self, kind: Kind, gone: bool, obj: Json, _before: Json | None) -> None:
        self._store.intake.take(kind, obj, lambda: self._see(kind, gone, obj))

    def _see(self, kind: Kind, gone: bool, obj: Json) -> None:
        if kind == CODE_SANDBOX:
            self.feed.say(obj, gone=gone)
        elif kind == POD:
            self._upkeep.saw_pod(obj, gone=gone)
            self.feed.saw_pod(obj, gone=gone)
            self.reviewed.saw(obj, gone=gone)
        if self._observer.term is None:
            return
        if kind == POD:
            self._observer.pod(obj, gone=gone)
            self._queues.orphans.look(obj, gone=gone)
        elif kind == CODE_SANDBOX:
            self._observer.sandbox(obj, gone=gone)
            self._queues.saw_sandbox(obj, gone=gone)
        elif kind == SANDBOX_QUEUE:
            self._queues.grants.saw(obj, gone=gone)
        elif kind == NODE:
            self._upkeep.count_nodes()
        elif kind == SANDBOX_SNAPSHOT:
            self.snapshots_changed(obj["metadata"]["namespace"])
        else:
            self._upkeep.look_soon()
            if kind == SANDBOX_TEMPLATE:
                self.egresses.look_again(obj["metadata"]["namespace"], obj["metadata"]["name"])
                self._queues.saw_template(obj)

    def _admitted(self, name: str) -> None:
        self._queues.admissions.admitted(name)

    def _pod_lost(self, ref: Ref) -> None:
        self._observer.lost(ref)

    def _pod_goes(self, ref: Ref, uid: str, record: Record) -> None:
        self._queues.orphans.session_over(ref, uid, record)

    def _sandbox_unbound(self, ref: Ref) -> None:
        self._observer.look_at_sandbox(ref)

    def _is_served(self, name: str) -> bool:
        session = self.session_of(name)
        return session is not None and session.bound and session.state is not State.ENDED

    def _egress_of(self, name: str) -> Known | None:
        return self.egresses.of(name)

    async def _write_lease(self, sandbox: Sandbox) -> bool:
        """On the CodeSandbox of the session, once that is there."""
        assert sandbox.claim is not None
        assert sandbox.lease_expires is not None
        ref = Ref(CODE_SANDBOX, sandbox.sandbox_id.partition("/")[0], object_of(sandbox.claim))
        found = self._store.get(ref)
        made = readable(found) if found else None
        if found is None or made is None or not self._observer.is_of(made, sandbox):
            return False
        return await self._writer.patch(ref, lease_end_patch(found["metadata"]["uid"], sandbox.lease_expires))

    def snapshots_changed(self, namespace: str) -> None:
        """A snapshot of the namespace, or an object that stands for one, has come, changed or gone."""
        if self.on_snapshots is not None:
            self.on_snapshots(namespace)

    def park_with(self, keeper: SnapshotKeeper, give: Give) -> None:
        """From now on sessions can be kept in snapshots."""
        self.fleet.incarnations.refill = keeper
        self._observer.sleepers.parking = keeper
        self._backend.modes.give = give

    def prepare_with(self, preparation: Preparation) -> None:
        """From now on pools can start from snapshots."""
        self.fleet.incarnations.preparation = preparation

    # For the fleet's API.

    def session_of(self, name: str) -> Sandbox | None:
        """What serves this CodeSandbox, NAMESPACE/NAME; None if no claim does."""
        return self._observer.session_of(name)

    def why_ended(self, name: str) -> str | None:
        """Why the session of this CodeSandbox has ended, in a word of EndReason; None where that is not known."""
        return self._observer.why_ended(name)

    def note_session(self, sandbox: Sandbox) -> str:
        """A claim was answered; the name of its CodeSandbox, which may not exist yet."""
        return self._observer.note_session(sandbox)

    async def record(self, sandbox: Sandbox) -> None:
        """Writes the CodeSandbox of a session that has none yet."""
        await self._backend.record(sandbox)

    def resolve(self, namespace: str, pool: str, template: str, contract: Contract | None = None) -> Recipe:
        """The pool that serves a claim, which the scheduler knows from now on. Raises FleetError."""
        recipe = self.catalog.resolve(namespace, pool, template, contract)
        if self.scheduler.pool(recipe.name) is None:
            self._upkeep.look_at_pools()
        return recipe

    def pools(self) -> list[tuple[Pool, PoolSummary]]:
        """By name, with how full each pool is."""
        return [(pool, self._upkeep.summary(pool.name)) for pool, _ in self.fleet.pools()]

    @cached_property
    def workspaces(self) -> Workspaces:
        return Workspaces(self._kube, self._store)

    @cached_property
    def suspender(self) -> Suspender:
        return Suspender(self.fleet, self._backend, self.executors)

    @cached_property
    def _preemptor(self) -> Preemptor:
        return Preemptor(self.fleet, self.suspender)

    def object_of(self, name: str) -> CodeSandbox | None:
        """The CodeSandbox NAMESPACE/NAME, as far as the watches show."""
        namespace, _, own = name.partition("/")
        found = self._store.get(Ref(CODE_SANDBOX, namespace, own))
        return readable(found) if found else None

    def endpoint(self, sandbox: CodeSandbox) -> feed.Endpoint:
        """The way to a ready CodeSandbox without a session. Raises FleetError.

        The status says which pod serves it, and accounts of the namespace may write the status. So the pod has to be
        one of the object's own namespace, and has to name the object.
        """
        said = feed.endpoint(sandbox)
        found = self._store.get(Ref(POD, sandbox.meta.namespace, sandbox.status.pod))
        pod = pod_of(found) if found else None
        if pod is None or (pod.uid, pod.address) != (said.pod_uid, said.host) or not is_its(sandbox, pod):
            why = f"its status names pod {sandbox.status.pod[:80]!r} at {said.address[:80]}, which is not its own"
            raise feed.closed(feed.sandbox_id(sandbox), Reason.POD_STARTING.value, why)
        return said

    def contract_of(self, sandbox: CodeSandbox) -> str:
        """As its pod was made."""
        found = self._store.get(Ref(POD, sandbox.meta.namespace, sandbox.status.pod))
        return pod_of(found).contract if found else Contract.AUTONOMOUS.value

    def known_as(self, sandbox: Sandbox) -> tuple[str, str]:
        """The id of a claim's session as its caller has it, and the uid of its pod."""
        assert sandbox.claim is not None
        pod = self.pod_of(sandbox)
        return f"{sandbox.sandbox_id.partition('/')[0]}/{object_of(sandbox.claim)}", pod.uid if pod else ""

    def pod_of(self, sandbox: Sandbox) -> Pod | None:
        found = self._store.get(_pod_ref(sandbox))
        return pod_of(found) if found else None

    def annotation_of(self, sandbox: Sandbox, name: str) -> str:
        """Of its pod; empty where that has none."""
        found = self._store.get(_pod_ref(sandbox))
        return str(found["metadata"].get("annotations", {}).get(name, "")) if found else ""

    async def patch_pod(self, sandbox: Sandbox, operations: list[Json]) -> bool:
        """Whether it is done: not where a test fails, or the pod is gone. Raises NotLeadingError."""
        return await self._writer.patch(_pod_ref(sandbox), operations)


def _pod_ref(sandbox: Sandbox) -> Ref:
    namespace, _, name = sandbox.sandbox_uid.partition("/")
    return Ref(POD, namespace, name)


def _limits(settings: Settings) -> FleetLimits:
    starts = settings.starts
    return replace(
        LIMITS,
        max_waiting_per_namespace=settings.max_waiting_per_namespace,
        longest_suspension=settings.suspend_timeout_seconds,
        hold_timeouts={
            Hold.SCHEDULING_GATED: starts.scheduling_gated,
            Hold.UNSCHEDULABLE: starts.unschedulable,
            Hold.IMAGE_PULLING: starts.image_pulling,
        },
    )
