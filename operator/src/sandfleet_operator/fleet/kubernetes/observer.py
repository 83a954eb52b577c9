"""What the watches show: pods and CodeSandboxes that the fleet adopts, follows, completes or removes."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.meta import Meta
from sandfleet_operator.api.kinds.sandbox import CodeSandbox, by_metadata, code_sandbox, readable
from sandfleet_operator.api.kube import (
    CODE_SANDBOX,
    NETWORK_POLICY,
    NODE,
    POD,
    SANDBOX_POOL,
    SANDBOX_QUEUE,
    SANDBOX_SNAPSHOT,
    SANDBOX_TEMPLATE,
    Json,
    Kind,
    Ref,
)
from sandfleet_operator.api.reasons import EndReason
from sandfleet_operator.api.values import Isolation, Sandbox, State
from sandfleet_operator.cluster.reflector import Keep, show_each
from sandfleet_operator.cluster.store import Store
from sandfleet_operator.cluster.tasks import BackgroundTasks
from sandfleet_operator.fleet.driver import FleetDriver
from sandfleet_operator.fleet.kubernetes import adoption
from sandfleet_operator.fleet.kubernetes.adoption import Fate, LeaderTerm
from sandfleet_operator.fleet.kubernetes.backend import KubernetesBackend
from sandfleet_operator.fleet.kubernetes.catalog import Catalog, key_of, pool_name, pool_of_pod
from sandfleet_operator.fleet.kubernetes.declared_claims import DeclaredClaims
from sandfleet_operator.fleet.kubernetes.egress import EgressChecks
from sandfleet_operator.fleet.kubernetes.sessions.ids import SessionIds
from sandfleet_operator.fleet.kubernetes.sessions.sleepers import Sleepers
from sandfleet_operator.fleet.kubernetes.unrecorded_claims import Found, UnrecordedClaims
from sandfleet_operator.fleet.kubernetes.writer import Writer
from sandfleet_operator.plan.claims.lease_end import lease_end
from sandfleet_operator.plan.claims.record import Record, object_of
from sandfleet_operator.plan.claims.suspension import is_suspended
from sandfleet_operator.plan.pods import names, openings
from sandfleet_operator.plan.pods.names import SANDBOX_SELECTOR
from sandfleet_operator.plan.pods.podspec import PodState, made_from
from sandfleet_operator.plan.sandbox.binding import Binding, binding_of, claims_own, has_begun, pod_names
from sandfleet_operator.plan.sandbox.observed import Pod, pod_of
from sandfleet_operator.plan.sandbox.parked import has_to_be_filled

WATCHED: dict[Kind, str] = {
    # Those of others, too: they may open a sandbox.
    NETWORK_POLICY: "",
    SANDBOX_TEMPLATE: "",
    SANDBOX_POOL: "",
    SANDBOX_QUEUE: "",
    SANDBOX_SNAPSHOT: "",
    NODE: "",
    CODE_SANDBOX: "",
    POD: SANDBOX_SELECTOR,
}
# What is remembered of an object, where that is less than all of it.
KEPT: dict[Kind, Keep] = {NETWORK_POLICY: openings.kept}

# Seconds.
LOOK_EVERY = 1.0

_LOG = logging.getLogger(__name__)


class Observer:
    """Takes in pods and CodeSandboxes. `term` is None while this fleet does not lead."""

    def __init__(
        self,
        store: Store,
        writer: Writer,
        backend: KubernetesBackend,
        driver: FleetDriver,
        *,
        catalog: Catalog,
        egresses: EgressChecks,
        queue_of: Callable[[CodeSandbox], str],
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._writer = writer
        self._backend = backend
        self._driver = driver
        self._scheduler = driver.scheduler
        self._egresses = egresses
        self._clock = clock
        self.term: LeaderTerm | None = None
        self._ids = SessionIds()
        # UID of a CodeSandbox → the claimed pod that it owns.
        self._owned: dict[str, str] = {}
        self.unrecorded = UnrecordedClaims(store, writer, take=self._complete, left=self.look_at_sandbox)
        self._declared = DeclaredClaims(driver, queue_of)
        self.sleepers = Sleepers(backend, driver, queue_of=queue_of, clock=clock)
        self._pods_first, self._background = False, BackgroundTasks()

    async def take_over(self) -> None:
        """Adopts everything that the store has."""
        self._pods_first = True
        await show_each(self._store, POD, partial(self.pod, gone=False))
        await self.unrecorded.settled()
        self._pods_first = False
        await show_each(self._store, CODE_SANDBOX, partial(self.sandbox, gone=False))

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            self.sleepers.look_again()

    async def close(self) -> None:
        self._declared.close()
        self.sleepers.close()
        await self.unrecorded.close()
        self._background.close()

    def session_of(self, name: str) -> Sandbox | None:
        """What serves this CodeSandbox, NAMESPACE/NAME; None if no claim does."""
        return self._scheduler.inventory.get(self._ids.serving(name))

    def why_ended(self, name: str) -> str | None:
        """Why its session has ended, in a word of EndReason; None where this leader does not know, or not any more."""
        return self._scheduler.why_ended(self._ids.last(name))

    def note_session(self, sandbox: Sandbox) -> str:
        """A claim was answered; the name of its CodeSandbox, which may not exist yet."""
        assert sandbox.claim is not None
        name = f"{sandbox.sandbox_id.partition('/')[0]}/{object_of(sandbox.claim)}"
        self._ids.put(name, sandbox.sandbox_id)
        self._egresses.look_young(name)
        return name

    def pod(self, obj: Json, *, gone: bool) -> None:
        key = key_of(obj)
        if gone:
            self._forget_owner(pod_of(obj))
        if self._backend.is_taken(key, obj):
            self._driver.do(self._scheduler.taken(key, self._clock()))
        elif self._backend.run(key) is not None:
            self._backend.saw_pod(obj, gone=gone)
            self._note_hold(key, pod_of(obj))
            self._look_at_session(obj)
            return
        if gone or self.term is None:
            return
        self._look_at_session(obj)
        pod = pod_of(obj)
        record = adoption.record_on(pod.annotations)
        if record is not None and pod.owner:
            self._owned[pod.owner] = pod.name
        match adoption.fate(pod, record, self.term):
            case Fate.WARM:
                self._adopt_warm(key, pod, obj)
            case Fate.SESSION if record is not None and not pod.owner:
                self.unrecorded.add(Found(key, pod, record))
                if self.term.serving:
                    self.unrecorded.begin()
            case Fate.REMOVE:
                self._discard(key, pod, record)

    def _forget_owner(self, pod: Pod) -> None:
        # The owner may have gone before, and may have another pod.
        if self._owned.get(pod.owner) == pod.name:
            del self._owned[pod.owner]

    def _discard(self, key: str, pod: Pod, record: Record | None) -> None:
        """Removes a pod that no fleet is to use."""
        ref = Ref(POD, key.partition("/")[0], pod.name)
        if adoption.is_in_reach(pod, record):
            self._writer.discard_later(ref, pod.uid, record)
        else:
            self._writer.delete_later(ref, pod.uid)

    def lost(self, ref: Ref) -> None:
        """Another fleet claimed this pod. If that fleet is deposed, this one has to clean up."""
        obj = self._store.get(ref)
        if obj is not None and (obj["metadata"].get("labels") or {}).get(names.STATE) != PodState.WARM.value:
            self.pod(obj, gone=False)
            record = adoption.record_on(pod_of(obj).annotations)
            if record is not None:
                self.look_at_sandbox(Ref(CODE_SANDBOX, ref.namespace, record.object))

    def _adopt_warm(self, key: str, pod: Pod, obj: Json) -> None:
        namespace = obj["metadata"]["namespace"]
        pool = pool_of_pod(namespace, pod)
        recipe = self._catalog.recipe(pool)
        found = self._scheduler.pool(pool)
        if recipe is None or found is None:
            self._discard(key, pod, None)
            return
        self._backend.know(key, pod.uid)
        sandbox = adoption.warm(
            pod,
            key,
            pool=pool,
            template=recipe.template,
            revision=made_from(pod.annotations.get(names.SPEC_HASH, ""), pod.annotations.get(names.SNAPSHOT, "")),
            isolation=found.template.isolation,
            now=self._clock(),
            fills=bool(recipe.spec.snapshot),
        )
        self._driver.do(self._scheduler.adopt(sandbox, self._clock()))
        if adoption.may_lack_volume(pod):
            self._background.begin(self._backend.complete(sandbox), f"complete pod {key}")
        self._backend.saw_pod(obj, gone=False)
        self._note_hold(key, pod)

    def _note_hold(self, sandbox_id: str, pod: Pod) -> None:
        """Tells the scheduler whether the pod of a start can start now."""
        if not (pod.deleting or pod.ended):
            self._driver.do(self._scheduler.held(sandbox_id, pod.hold, self._clock()))

    def _complete(self, found: Found) -> None:
        """A claim that was not written down yet: its fleet ended after it had bound the pod."""
        key, pod, record = found.key, found.pod, found.record
        made_of = (pool_of_pod(found.ref.namespace, pod), pod.labels.get(names.TEMPLATE, ""))
        if self._scheduler.inventory.of_session(record.key(made_of[0])) is not None:
            # Its caller has another one by now.
            self._writer.discard_later(found.ref, pod.uid, record)
            return
        self._adopt_session(key, (key, pod.uid), record, made_of)
        sandbox = self._scheduler.inventory.get(key)
        if sandbox is not None:
            self._background.begin(_reopened(self._driver, key, ask=True), f"open {key}")
        if sandbox is not None and sandbox.answered:
            self._egresses.look_young(f"{found.ref.namespace}/{record.object}")
            # Before anything else is seen of its pod, which may have ended.
            self._backend.answered(sandbox)
            self._driver.write_down(sandbox)

    def _adopt_session(
        self, key: str, serves: tuple[str, str], record: Record, made_of: tuple[str, str], owner: Meta | None = None
    ) -> None:
        """`serves` is the serving pod's key and uid (empty: no pod serves it); `made_of` is pool and template."""
        (uid_key, pod_uid), (pool, template) = serves, made_of
        if self._scheduler.inventory.get(key) is not None:
            return
        namespace = key.partition("/")[0]
        self._backend.know(uid_key, pod_uid, record, owner)
        answered = record.gang is None or owner is not None or self._is_told(namespace, record)
        if answered:
            self._ids.put(f"{namespace}/{record.object}", key)
        found = self._scheduler.pool(pool)
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
            lease_end=lease_end(owner.annotations, self._clock()) if owner else None,
            answered=answered,
        )
        self._driver.do(self._scheduler.adopt(sandbox, self._clock()))

    def _is_told(self, namespace: str, part: Record) -> bool:
        """Whether the gang of an unrecorded claim was answered: then an earlier leader has begun to write it down."""
        read = (readable(obj) for obj in self._store.all(CODE_SANDBOX, namespace))
        written = (found.record for one in read if one is not None and (found := self._binding(one)) is not None)
        return any((one.holder, one.gang) == (part.holder, part.gang) for one in written)

    def sandbox(self, obj: Json, *, gone: bool) -> None:
        if self._pods_first and not gone:
            return  # The takeover comes to it once it knows all claims.
        name = key_of(obj)
        try:
            sandbox = by_metadata(obj) if gone else code_sandbox(obj)
        except FleetError:
            # The feed logs it, and the operator says so in its status.
            return
        if gone or adoption.is_over(sandbox):
            self._ended(name, sandbox, gone=gone)
            return
        binding = self._binding(sandbox)
        if binding is None and self._is_unwritten(name):
            # It has the name of a claim that is not written down yet: looked at again when that is over.
            return
        if adoption.wants_pool(sandbox, binding):
            self._declared.ask(name, sandbox)
        elif binding is not None:
            self._bound(name, sandbox, binding)

    def _is_unwritten(self, name: str) -> bool:
        """Whether a session of this name has no object yet."""
        known = self.session_of(name)
        run = self._backend.run(known.sandbox_uid) if known is not None else None
        return run is not None and run.record is not None and not run.record.uid and run.object is None

    def _binding(self, sandbox: CodeSandbox) -> Binding | None:
        meta = sandbox.meta
        owned = self._owned.get(meta.uid)
        places = (*pod_names(sandbox), *((owned,) if owned else ()))
        found = (self._store.get(Ref(POD, meta.namespace, place)) for place in places)
        return binding_of(sandbox, (pod_of(one) for one in found if one is not None))

    def is_of(self, sandbox: CodeSandbox, known: Sandbox) -> bool:
        """Whether it is the CodeSandbox of this very session."""
        run = self._backend.run(known.sandbox_uid)
        return adoption.is_of(sandbox, known, self._binding(sandbox), run.object if run else None)

    def _ended(self, name: str, sandbox: CodeSandbox, *, gone: bool) -> None:
        self._declared.drop(name)
        self._egresses.forget(name)
        reason = EndReason.RELEASED.value if gone or sandbox.meta.deleting else EndReason.EXPIRED.value
        known = self.session_of(name)
        if known is None:
            self._ids.forget(name)
        elif self.is_of(sandbox, known):
            self._ids.forget(name)
            self._backend.removed(known.sandbox_uid, reason)
        if gone:
            self._owned.pop(sandbox.meta.uid, None)
            self.sleepers.gone(sandbox)
        elif not sandbox.meta.deleting and claims_own(sandbox) is not None:
            # Only the fleet removes an object that the fleet has made.
            self._remove_object(sandbox)

    def _remove_object(self, sandbox: CodeSandbox) -> None:
        self._writer.delete_later(Ref(CODE_SANDBOX, sandbox.meta.namespace, sandbox.meta.name), sandbox.meta.uid)

    def look_at_sandbox(self, ref: Ref) -> None:
        """What it was waiting for is settled, or it was never written and its session is over."""
        obj, name = self._store.get(ref), f"{ref.namespace}/{ref.name}"
        is_over = self.session_of(name) is None
        if is_over:
            # The object may get a session of its own.
            self._ids.forget(name)
        if obj is not None:
            self.sandbox(obj, gone=False)
        elif is_over:
            self._egresses.forget(name)

    def _bound(self, name: str, sandbox: CodeSandbox, binding: Binding) -> None:
        namespace, spec, record = sandbox.meta.namespace, sandbox.spec, binding.record
        key = f"{namespace}/{binding.pod}"
        serves = self._serving(sandbox)
        known = self._scheduler.inventory.get(self._ids.serving(name, key))
        if known is not None and not self.is_of(sandbox, known):
            # Of a fleet that was deposed: whose object stays is settled where ours is written.
            return
        if known is None and key in self.unrecorded:
            return
        late = self.term is not None and adoption.is_late(record, self.term) and not has_begun(sandbox.status)
        if known is None and self.term is not None and late:
            if record.number < self.term.fencing:
                self._remove_object(sandbox)
        elif known is None:
            pool = pool_name(namespace, spec.pool, spec.template, record.contract)
            first = self._store.get(Ref(POD, namespace, binding.pod))
            alive = first is not None and first["metadata"]["uid"] == binding.pod_uid
            has_session = None if has_to_be_filled(sandbox) else serves
            present = adoption.present(sandbox, binding, first_is_alive=alive, serves=has_session)
            self._adopt_session(key, present, record, (pool, spec.template), sandbox.meta)
            known = self._scheduler.inventory.get(key)
        if known is not None:
            self._ids.put(name, self._ids.serving(name, known.sandbox_id))
            self.sleepers.look(known, sandbox)
            self._follow_pod(known.sandbox_id, sandbox, binding, serves)
        self._egresses.look(name, spec.egress)

    def _follow_pod(self, sandbox_id: str, sandbox: CodeSandbox, binding: Binding, serves: str | None) -> None:
        """Its next pod is Ready."""
        known = self._scheduler.inventory.get(sandbox_id)
        if known is None or not serves or is_suspended(sandbox):
            return
        recovering = known.state is State.RECOVERING and sandbox.status.pod_uid != binding.pod_uid
        if recovering or known.state is State.RESUMING:
            self._backend.know(serves, sandbox.status.pod_uid, binding.record, sandbox.meta)
            self._driver.do(self._scheduler.recovered(sandbox_id, serves, self._clock()))
        if recovering:
            self._background.begin(_reopened(self._driver, sandbox_id), f"open {sandbox_id}")

    def _serving(self, sandbox: CodeSandbox) -> str | None:
        """The pod that serves it, NAMESPACE/POD. The status may still name one that went while no operator ran."""
        found = self._store.get(Ref(POD, sandbox.meta.namespace, sandbox.status.pod))
        pod = pod_of(found) if found is not None else None
        is_there = pod is not None and pod.uid == sandbox.status.pod_uid and not pod.deleting and pod.ended is None
        return adoption.incarnation(sandbox) if is_there else None

    def _look_at_session(self, obj: Json) -> None:
        """A pod comes into view, perhaps after the status that names it, or goes, perhaps after its end was written."""
        meta = obj["metadata"]
        ref = Ref(CODE_SANDBOX, meta["namespace"], (meta.get("labels") or {}).get(names.SANDBOX, ""))
        known = self.session_of(f"{ref.namespace}/{ref.name}")
        if known is not None and known.state in {State.RECOVERING, State.RESUMING, State.SUSPENDING}:
            self._note_hold(known.sandbox_id, pod_of(obj))
            self.look_at_sandbox(ref)


async def _reopened(driver: FleetDriver, sandbox_id: str, *, ask: bool = False) -> None:
    """Its lease and environment, as far as the executor has none of this claim.

    `ask`: an earlier leader may have renewed the lease.
    """
    if ask:
        await driver.learn_lease(sandbox_id)
    sandbox = driver.scheduler.inventory.get(sandbox_id)
    if sandbox is not None and sandbox.lease_expires is not None and sandbox.state is State.CLAIMED:
        await driver.reopen(sandbox)
