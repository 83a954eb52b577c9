"""Observe → plan → apply, for one sandbox at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.meta import Condition, referred
from sandfleet_operator.api.kinds.sandbox import CodeSandbox, code_sandbox
from sandfleet_operator.api.kinds.template import SandboxTemplate
from sandfleet_operator.api.kube import (
    CODE_SANDBOX,
    NETWORK_POLICY,
    NODE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SANDBOX_POOL,
    SANDBOX_QUEUE,
    Conflict,
    Forbidden,
    Invalid,
    Json,
    NotFound,
    Ref,
)
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.cluster.intake import Unreadable
from sandfleet_operator.cluster.store import Store
from sandfleet_operator.executors.services import ServiceWatch
from sandfleet_operator.plan.pods.merge import Refusal, effective
from sandfleet_operator.plan.sandbox import status as conditions
from sandfleet_operator.plan.sandbox.actions import (
    AwaitTurn,
    CreatePod,
    EnsureKeys,
    EnsurePolicy,
    Greet,
    Plan,
    SandboxAction,
)
from sandfleet_operator.plan.sandbox.admission import queue_of
from sandfleet_operator.plan.sandbox.binding import binding_of, claims_own, current_pod, current_uid, pod_names, told
from sandfleet_operator.plan.sandbox.dependencies import is_own, volume_claim_name
from sandfleet_operator.plan.sandbox.observed import (
    Contact,
    Node,
    Observed,
    Pod,
    Trouble,
    Volume,
    has_no_volume,
    node_of,
    owner_of,
    pod_of,
    volume_of,
)
from sandfleet_operator.plan.sandbox.plan import plan as decide
from sandfleet_operator.plan.sandbox.unreadable import unreadable_conditions
from sandfleet_operator.plan.sandbox.workspaces import is_before, read_users, users
from sandfleet_operator.reconciler.apply import Applier, RefusedError, reason_of
from sandfleet_operator.reconciler.templates import Templates
from sandfleet_operator.reconciler.turns import StartTurns

# Rounds in one go: after each action the sandbox is observed and planned again.
MAX_ROUNDS = 6
# Seconds for which an unimportant change of the status may wait to be written.
QUIET_SECONDS = 2.0
# Seconds between two rounds while an object of the sandbox is shown by no watch.
UNSEEN_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Key:
    """What to reconcile: a "sandbox" or "template" by name, or a whole "namespace"."""

    what: str
    namespace: str
    name: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in (self.what, self.namespace, self.name) if part)


class Cluster(Protocol):
    """Facts about the cluster, which are the same for all sandboxes and seldom change."""

    async def storage_problem(self, storage_class: str | None) -> str:
        """Why no volume of this class (None: the default class) can be created; empty if one can."""
        ...

    async def user_namespaces(self, runtime_class: str) -> bool:
        """Whether every node's runtime can give pods of this class user namespaces."""
        ...


Greeter = Callable[[CodeSandbox, Greet], Awaitable[Contact]]
Tell = Callable[[CodeSandbox, Condition], Awaitable[None]]


class Reconciler:
    """Runs the rounds of all sandboxes.

    `owned` gives namespace and name of an owner's pods; `greet` verifies executors; `tell` writes Events; `wake`
    enqueues a key; `clock` is seconds since the epoch. No round starts in a namespace that is `paused`.
    """

    def __init__(
        self,
        store: Store,
        applier: Applier,
        cluster: Cluster,
        settings: Settings,
        *,
        owned: Callable[[str], Iterable[tuple[str, str]]],
        greet: Greeter,
        tell: Tell,
        services: ServiceWatch,
        turns: StartTurns,
        wake: Callable[[Key], None],
        paused: Callable[[str], bool],
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._applier = applier
        self._cluster = cluster
        self._settings = settings
        self._owned = owned
        self._greet = greet
        self._tell = tell
        self._services = services
        self._turns = turns
        self._wake = wake
        self._paused = paused
        self._clock = clock
        self.unreadable = Unreadable()
        # By the sandbox's uid.
        self._contacts: dict[str, Contact] = {}
        self._troubles: dict[str, Trouble] = {}
        # When an unimportant change of the status, not yet written, was first seen.
        self._quiet: dict[str, float] = {}
        # With the UID of the pod whose executor is being greeted.
        self._greetings: dict[str, tuple[str, asyncio.Task[None]]] = {}
        self._templates = Templates(store, applier.revisions)

    async def sandbox(self, key: Key) -> float | None:
        """Runs rounds until nothing is left to do; seconds until the next. Raises KubeError and NotLeadingError."""
        if self._paused(key.namespace):
            return 1.0
        ref = Ref(CODE_SANDBOX, key.namespace, key.name)
        for _ in range(MAX_ROUNDS):
            obj = self._store.get(ref)
            if obj is None:
                return None
            try:
                sandbox = code_sandbox(obj)
            except FleetError as error:
                await self._say_unreadable(obj, error)
                return None
            seen = await self._observe(sandbox)
            plan = decide(seen, self._clock(), self._settings)
            self._services.follow(sandbox, plan.ask)
            try:
                if not await self._apply(seen, plan):
                    return self._until_seen(seen, await self._settle(seen, plan))
            except RefusedError as refused:
                uid, now = sandbox.meta.uid, self._clock()
                self._troubles[uid] = Trouble(reason=refused.reason, message=str(refused), at=now)
            except Conflict:
                # The decision was based on an older version of the object.
                await self._applier.look(ref)
            except NotFound:
                if await self._applier.look(ref) is not None:
                    raise
                # No watch has shown that it was deleted.
                self.forget(sandbox.meta.uid)
                self._wake(Key("namespace", key.namespace))
        return 0.0

    async def _say_unreadable(self, obj: Json, error: FleetError) -> None:
        """The schema refuses unreadable objects, but an older operator may meet newer fields."""
        self.unreadable.note(CODE_SANDBOX, obj, error)
        if "deletionTimestamp" in obj["metadata"]:
            return
        conditions = unreadable_conditions(obj, error.problem.message, self._clock())
        if conditions is not None:
            with suppress(Invalid, NotFound):
                await self._applier.write_conditions(obj, conditions)

    def forget(self, uid: str) -> None:
        """The sandbox is gone."""
        self._contacts.pop(uid, None)
        self._troubles.pop(uid, None)
        self._quiet.pop(uid, None)
        self._services.forget(uid)
        if greeting := self._greetings.pop(uid, None):
            greeting[1].cancel()

    async def close(self) -> None:
        tasks = [task for _, task in self._greetings.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _observe(self, sandbox: CodeSandbox) -> Observed:
        meta = sandbox.meta
        pod, gone = await self._pod(sandbox)
        has_turn = pod is not None or self._turns.has(meta, first=_goes_on(sandbox))
        template, problem = self._templates.now(sandbox)
        manifest, there, kept = await self._templates.kept(sandbox)
        part = Observed(sandbox=sandbox, template=template, kept=kept, pod=pod)
        volume = await self._volume(part)
        made_of = part.made_of
        return Observed(
            sandbox=sandbox,
            template=template,
            template_problem=problem,
            revision=manifest,
            revision_there=there,
            kept=kept,
            pod=pod,
            pod_gone=gone,
            volume=volume,
            workspace_users=await self._workspace_users(Observed(sandbox=sandbox, pod=pod, volume=volume)),
            policies=self._store.specs(NETWORK_POLICY, meta.namespace),
            queues=frozenset(self._store.specs(SANDBOX_QUEUE, meta.namespace)),
            keys=self._applier.has_keys(meta.namespace),
            storage_problem=await self._storage_problem(sandbox, template),
            pool_problem=self._pool_problem(sandbox),
            node=self._node(pod),
            user_namespaces=await self._cluster.user_namespaces(made_of.runtime_class) if made_of else False,
            contact=self._contacts.get(meta.uid),
            heard=self._services.heard(meta.uid),
            trouble=self._troubles.get(meta.uid),
            has_turn=has_turn,
        )

    async def _pod(self, sandbox: CodeSandbox) -> tuple[Pod | None, bool]:
        """The current pod, and whether the API server has confirmed that the earlier one is gone."""
        meta = sandbox.meta
        refs = [Ref(POD, meta.namespace, name) for name in pod_names(sandbox)]
        pods = [pod_of(found) for ref in refs if (found := self._store.get(ref))]
        current = current_uid(sandbox, binding_of(sandbox, pods))
        if not any(pod.uid == current for pod in pods):
            pods += self._owned_pods(sandbox)
        pod = current_pod(sandbox, pods)
        # Another pod does not prove that the recorded one is gone.
        if pod is not None and (not current or pod.uid == current):
            return pod, False
        if not current and told(sandbox) is None:
            return pod, False
        # A cache is no reason to start another pod: ask the API server.
        pods = [pod_of(found) for ref in refs if (found := await self._applier.look(ref))]
        labelled = await self._applier.pods(meta.namespace, meta.name)
        pods += [pod_of(one) for one in labelled if self._store.intake.is_readable(POD, one)]
        pod = current_pod(sandbox, pods)
        return pod, pod is None

    def _owned_pods(self, sandbox: CodeSandbox) -> Iterator[Pod]:
        """Pods that belong to the sandbox, under any name."""
        for namespace, name in self._owned(sandbox.meta.uid):
            found = self._store.get(Ref(POD, namespace, name))
            if found is not None and namespace == sandbox.meta.namespace and owner_of(found) == sandbox.meta.uid:
                yield pod_of(found)

    async def _volume(self, seen: Observed) -> Volume | None:
        sandbox = seen.sandbox
        if has_no_volume(seen):
            return None
        ref = Ref(PERSISTENT_VOLUME_CLAIM, sandbox.meta.namespace, volume_claim_name(seen))
        found = self._store.get(ref)
        if found is None and (sandbox.status.workspace_claim or seen.claimed_pod):
            # A cache is no proof that files are lost: ask the API server.
            found = await self._applier.look(ref)
        return volume_of(found) if found else None

    async def _workspace_users(self, seen: Observed) -> tuple[str, ...]:
        """Other users of an existing workspace that the sandbox wants and does not have yet."""
        mine, volume = seen.sandbox, seen.volume
        has_it = mine.status.workspace_claim or (seen.pod is not None and is_own(seen.pod, seen))
        if volume is None or volume.owner or volume.pod_owner or has_it:
            return ()
        namespace = mine.meta.namespace
        sandboxes, unreadable = read_users(volume.name, self._store.all(CODE_SANDBOX, namespace))
        others = [one for one in sandboxes if one.meta.uid != mine.meta.uid and is_before(one, mine)]
        readable = (one for one in await self._applier.pods(namespace) if self._store.intake.is_readable(POD, one))
        pods = [pod_of(one) for one in readable]
        # A pod of the sandbox's own name is waited for in any case.
        found = users(volume.name, others, [one for one in pods if one.name != mine.meta.name])
        return tuple(one.name for one in (*found, *unreadable))

    async def _storage_problem(self, sandbox: CodeSandbox, template: SandboxTemplate | None) -> str:
        """Why the workspace's volume, if it is still to be created, cannot be."""
        there = sandbox.status.workspace_claim or sandbox.spec.workspace.claim_name
        if there or has_no_volume(Observed(sandbox=sandbox, template=template)):
            return ""
        wanted = effective(template.spec if template else None, sandbox.spec, self._settings)
        # A refused sandbox gets no volume.
        if isinstance(wanted, Refusal):
            return ""
        return await self._cluster.storage_problem(wanted.workspace.storage_class)

    def _pool_problem(self, sandbox: CodeSandbox) -> str:
        """Why the sandbox's pool cannot give it a pod; empty if it can, or if the spec names no pool."""
        meta, spec = sandbox.meta, sandbox.spec
        if not spec.pool:
            return ""
        found = self._store.get(Ref(SANDBOX_POOL, meta.namespace, spec.pool))
        if found is None or "deletionTimestamp" in found["metadata"]:
            where = f"in namespace {meta.namespace}"
            return f"cannot take a sandbox from the pool: there is no SandboxPool {spec.pool!r} {where}"
        template = referred(found, "templateRef")
        if template != spec.template:
            why = f"SandboxPool {spec.pool!r} is of template {template!r}, and the sandbox names {spec.template!r}"
            return f"cannot take a sandbox from the pool: {why}"
        return ""

    def _node(self, pod: Pod | None) -> Node | None:
        found = self._store.get(Ref(NODE, "", pod.node)) if pod and pod.node else None
        return node_of(found) if found else None

    async def _apply(self, seen: Observed, plan: Plan) -> bool:
        """Applies the plan. Whether another round has to follow at once."""
        if plan.status_first and not conditions.is_unchanged(seen.sandbox.status, plan.status):
            await self._write(seen, plan)
            return True
        done = False
        if not any(isinstance(action, AwaitTurn | CreatePod) for action in plan.actions):
            self._turns.leave(seen.sandbox.meta.namespace, seen.sandbox.meta.uid)
        for action in plan.actions:
            if isinstance(action, Greet):
                self._begin_greeting(seen.sandbox, action)
                continue
            if isinstance(action, AwaitTurn):
                self._turns.wait(seen.sandbox.meta)
                continue
            if isinstance(action, CreatePod):
                await self._create_pod(seen, action)
                return True
            await self._apply_action(action)
            done = True
        if done:
            self._troubles.pop(seen.sandbox.meta.uid, None)
        return done

    async def _create_pod(self, seen: Observed, action: CreatePod) -> None:
        """Nothing is created where a queue turns up, or another sandbox has taken the turn meanwhile."""
        meta = seen.sandbox.meta
        if await self._has_new_queue(seen) or not self._turns.take(meta, first=_goes_on(seen.sandbox)):
            return
        try:
            await self._apply_action(action)
        except BaseException:  # Also a cancellation: the turn is another one's then.
            self._turns.give_back(meta.namespace, meta.uid)
            raise
        self._troubles.pop(meta.uid, None)

    async def _has_new_queue(self, seen: Observed) -> bool:
        """Whether there is a queue that no watch has shown. It may be older than the sandbox, and decides then."""
        if queue_of(seen.sandbox, seen.queues):
            return False
        return await self._applier.look_for_queues(seen.sandbox.meta.namespace)

    async def _apply_action(self, action: SandboxAction) -> None:
        try:
            await self._applier.apply(action)
        except (Forbidden, Invalid) as error:
            if not isinstance(action, EnsurePolicy | EnsureKeys):
                raise
            raise RefusedError(reason_of(error), error.message) from error

    async def _settle(self, seen: Observed, plan: Plan) -> float | None:
        """No action is left: writes the status, at once or batched with the next important change."""
        old = seen.sandbox.status
        if conditions.is_unchanged(old, plan.status):
            self._quiet.pop(seen.sandbox.meta.uid, None)
            return plan.requeue_after
        # A greeting in progress will soon change the status again.
        quiet = seen.sandbox.meta.uid in self._greetings or not conditions.is_urgent(old, plan.status)
        if quiet and (left := self._quiet_left(seen.sandbox.meta.uid)) > 0:
            return min(left, plan.requeue_after if plan.requeue_after is not None else left)
        await self._write(seen, plan)
        return plan.requeue_after

    def _until_seen(self, seen: Observed, requeue_after: float | None) -> float | None:
        """Comes back soon for objects that no watch has shown, because no watch would wake us for them."""
        namespace = seen.sandbox.meta.namespace
        read = [Ref(POD, namespace, seen.pod.name)] if seen.pod else []
        if seen.volume:
            read.append(Ref(PERSISTENT_VOLUME_CLAIM, namespace, seen.volume.name))
        if all(self._store.get(ref) for ref in read):
            return requeue_after
        return UNSEEN_SECONDS if requeue_after is None else min(requeue_after, UNSEEN_SECONDS)

    def _quiet_left(self, uid: str) -> float:
        """How long a low-priority status write may still wait to be batched with the next important one."""
        return self._quiet.setdefault(uid, self._clock()) + QUIET_SECONDS - self._clock()

    async def _write(self, seen: Observed, plan: Plan) -> None:
        sandbox = seen.sandbox
        self._quiet.pop(sandbox.meta.uid, None)
        await self._applier.write_status(sandbox, plan.status)
        told = conditions.ready_change(sandbox.status, plan.status)
        # Callers that claim sandboxes learn the outcome from the fleet. Their sandboxes get Events after a restart
        # only.
        if told and (plan.status.restarts or claims_own(sandbox) is None):
            await self._tell(sandbox, told)
        await self._services.written(sandbox, plan.status.services)

    def _begin_greeting(self, sandbox: CodeSandbox, action: Greet) -> None:
        uid = sandbox.meta.uid
        pod_uid, task = self._greetings.get(uid, ("", None))
        if pod_uid == action.pod_uid:
            return
        if task is not None:
            # The pod has been replaced: the result is no longer needed.
            task.cancel()
        self._greetings[uid] = action.pod_uid, asyncio.create_task(self._finish_greeting(sandbox, action))

    async def _finish_greeting(self, sandbox: CodeSandbox, action: Greet) -> None:
        meta = sandbox.meta
        try:
            self._contacts[meta.uid] = await self._greet(sandbox, action)
        finally:
            if self._greetings.get(meta.uid, ("",))[0] == action.pod_uid:
                del self._greetings[meta.uid]
            self._wake(Key("sandbox", meta.namespace, meta.name))


def _goes_on(sandbox: CodeSandbox) -> bool:
    """Whether it has run before, so that it comes before those that begin."""
    return bool(sandbox.status.restarts) or claims_own(sandbox) is not None
