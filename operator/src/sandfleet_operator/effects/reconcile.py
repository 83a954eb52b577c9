"""Observe → plan → apply, for one key at a time: a sandbox, a template or a namespace."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kube import (
    CODE_SANDBOX,
    NETWORK_POLICY,
    NODE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SANDBOX_POOL,
    SANDBOX_TEMPLATE,
    Conflict,
    Forbidden,
    Invalid,
    Json,
    Ref,
)
from sandfleet_operator.api.parse import code_sandbox, sandbox_template
from sandfleet_operator.api.resources import CodeSandbox, Condition, SandboxTemplate
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.effects.carry import Carrier, RefusedError, reason_of
from sandfleet_operator.effects.services import ServiceWatch
from sandfleet_operator.effects.store import Store
from sandfleet_operator.plan.effective import Refusal, effective
from sandfleet_operator.plan.sandbox import status as conditions
from sandfleet_operator.plan.sandbox.actions import Action, EnsureKeys, EnsurePolicy, Greet, Plan
from sandfleet_operator.plan.sandbox.observed import (
    Contact,
    Node,
    Observed,
    Pod,
    Trouble,
    Volume,
    bound_pod,
    current_uid,
    has_no_volume,
    is_claims_own,
    node_of,
    pod_names,
    pod_of,
    volume_of,
)
from sandfleet_operator.plan.sandbox.parts import claim_name, is_own
from sandfleet_operator.plan.sandbox.plan import plan as decide
from sandfleet_operator.plan.sandbox.workspaces import is_before, users

# Looks in one go: each action may show what the next one has to be.
MAX_ROUNDS = 6
# Seconds until a change that nobody waits for is written.
QUIET_SECONDS = 2.0
# Seconds between two looks at what is in no watch.
UNSEEN_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Key:
    """What is to be looked at: "sandbox" or "template" of a name, or a whole "namespace"."""

    what: str
    namespace: str
    name: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in (self.what, self.namespace, self.name) if part)


class Cluster(Protocol):
    """What is the same for all sandboxes and changes seldom."""

    async def storage_problem(self, storage_class: str | None) -> str:
        """Why no volume of this class (None: the default one) can be made; empty when one can."""
        ...

    async def user_namespaces(self, runtime_class: str) -> bool:
        """Whether every node's runtime can give pods of this class user namespaces."""
        ...


Greeter = Callable[[CodeSandbox, Greet], Awaitable[Contact]]
Tell = Callable[[CodeSandbox, Condition], Awaitable[None]]


class Reconciler:
    """`greet` proves executors; `tell` writes Events; `wake` asks for another look; `clock` is seconds since the epoch.

    Nothing is begun in a namespace that is `paused`.
    """

    def __init__(
        self,
        store: Store,
        carrier: Carrier,
        cluster: Cluster,
        settings: Settings,
        *,
        greet: Greeter,
        tell: Tell,
        services: ServiceWatch,
        wake: Callable[[Key], None],
        paused: Callable[[str], bool],
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._carrier = carrier
        self._cluster = cluster
        self._settings = settings
        self._greet = greet
        self._tell = tell
        self._services = services
        self._wake = wake
        self._paused = paused
        self._clock = clock
        # By the sandbox's uid.
        self._contacts: dict[str, Contact] = {}
        self._troubles: dict[str, Trouble] = {}
        # Since when the status has to say something that nobody waits for.
        self._quiet: dict[str, float] = {}
        # With the uid of the pod that is greeted.
        self._greetings: dict[str, tuple[str, asyncio.Task[None]]] = {}
        # Many sandboxes share one template: each version is read once.
        self._templates: dict[Ref, tuple[Json, SandboxTemplate]] = {}

    async def sandbox(self, key: Key) -> float | None:
        """When to look again, in seconds. Raises KubeError and NotLeadingError."""
        if self._paused(key.namespace):
            return 1.0
        ref = Ref(CODE_SANDBOX, key.namespace, key.name)
        for _ in range(MAX_ROUNDS):
            obj = self._store.get(ref)
            if obj is None:
                return None
            try:
                sandbox = code_sandbox(obj)
            except FleetError:
                # The schema lets none through that cannot be read; an older operator may meet newer fields.
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
                # Decided on an older version than there is.
                await self._carrier.look(ref)
        return 0.0

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
        template, problem = self._template(sandbox)
        volume = await self._volume(Observed(sandbox=sandbox, template=template, pod=pod))
        return Observed(
            sandbox=sandbox,
            template=template,
            template_problem=problem,
            pod=pod,
            pod_gone=gone,
            volume=volume,
            workspace_users=await self._workspace_users(Observed(sandbox=sandbox, pod=pod, volume=volume)),
            policies=self._store.specs(NETWORK_POLICY, meta.namespace),
            keys=self._carrier.has_keys(meta.namespace),
            storage_problem=await self._storage_problem(sandbox, template),
            pool_problem=self._pool_problem(sandbox),
            node=self._node(pod),
            user_namespaces=await self._cluster.user_namespaces(template.spec.runtime_class) if template else False,
            contact=self._contacts.get(meta.uid),
            heard=self._services.heard(meta.uid),
            trouble=self._troubles.get(meta.uid),
        )

    async def _pod(self, sandbox: CodeSandbox) -> tuple[Pod | None, bool]:
        """The pod that it has, and whether the one that it had is certainly gone."""
        refs = [Ref(POD, sandbox.meta.namespace, name) for name in pod_names(sandbox)]
        current = current_uid(sandbox)
        for ref in refs:
            pod = _meant(self._store.get(ref), sandbox)
            # One of another name does not say that the one that it had is gone.
            if pod and (len(refs) == 1 or not current or pod.uid == current):
                return pod, False
        if not sandbox.status.pod_uid and not bound_pod(sandbox):
            return None, False
        for ref in refs:
            # Never start another pod on what a cache says.
            if pod := _meant(await self._carrier.look(ref), sandbox):
                return pod, False
        return None, True

    def _template(self, sandbox: CodeSandbox) -> tuple[SandboxTemplate | None, str]:
        name = sandbox.spec.template
        ref = Ref(SANDBOX_TEMPLATE, sandbox.meta.namespace, name)
        found = self._store.get(ref) if name else None
        if found is None:
            self._templates.pop(ref, None)
            return None, ""
        read = self._templates.get(ref)
        if read is not None and read[0] is found:
            return read[1], ""
        try:
            template = sandbox_template(found)
        except FleetError as error:
            return None, error.problem.message
        self._templates[ref] = found, template
        return template, ""

    async def _volume(self, seen: Observed) -> Volume | None:
        sandbox = seen.sandbox
        if has_no_volume(seen):
            return None
        ref = Ref(PERSISTENT_VOLUME_CLAIM, sandbox.meta.namespace, claim_name(seen))
        found = self._store.get(ref)
        if found is None and (sandbox.status.workspace_claim or bound_pod(sandbox)):
            # Nobody is told on what a cache says that files are lost.
            found = await self._carrier.look(ref)
        return volume_of(found) if found else None

    async def _workspace_users(self, seen: Observed) -> tuple[str, ...]:
        """Of a workspace that was there before its sandbox, and that it has not got yet."""
        mine, volume = seen.sandbox, seen.volume
        has_it = mine.status.workspace_claim or (seen.pod is not None and is_own(seen.pod, seen))
        if volume is None or volume.owner or volume.pod_owner or has_it:
            return ()
        namespace = mine.meta.namespace
        others = [one for one in self._sandboxes(namespace) if one.meta.uid != mine.meta.uid and is_before(one, mine)]
        pods = [pod_of(one) for one in await self._carrier.pods(namespace)]
        # Of its own name there is one at most, which is waited for in any case.
        found = users(volume.name, others, [one for one in pods if one.name != mine.meta.name])
        return tuple(one.name for one in found)

    def _sandboxes(self, namespace: str) -> Iterator[CodeSandbox]:
        for obj in self._store.all(CODE_SANDBOX, namespace):
            with suppress(FleetError):
                yield code_sandbox(obj)

    async def _storage_problem(self, sandbox: CodeSandbox, template: SandboxTemplate | None) -> str:
        """Of a workspace that is still to be made."""
        there = sandbox.status.workspace_claim or sandbox.spec.workspace.claim_name
        if there or has_no_volume(Observed(sandbox=sandbox, template=template)):
            return ""
        wanted = effective(template.spec if template else None, sandbox.spec, self._settings)
        # What is refused gets no volume.
        return "" if isinstance(wanted, Refusal) else await self._cluster.storage_problem(wanted.storage_class)

    def _pool_problem(self, sandbox: CodeSandbox) -> str:
        """Why its pool can give it nothing; empty where it can, or where it asks for none."""
        meta, spec = sandbox.meta, sandbox.spec
        if not spec.pool:
            return ""
        found = self._store.get(Ref(SANDBOX_POOL, meta.namespace, spec.pool))
        if found is None or "deletionTimestamp" in found["metadata"]:
            where = f"in namespace {meta.namespace}"
            return f"cannot take a sandbox of a pool: there is no SandboxPool {spec.pool!r} {where}"
        template = found["spec"].get("template")
        if template != spec.template:
            why = f"SandboxPool {spec.pool!r} is of template {template!r}, and the sandbox names {spec.template!r}"
            return f"cannot take a sandbox of a pool: {why}"
        return ""

    def _node(self, pod: Pod | None) -> Node | None:
        found = self._store.get(Ref(NODE, "", pod.node)) if pod and pod.node else None
        return node_of(found) if found else None

    async def _apply(self, seen: Observed, plan: Plan) -> bool:
        """Whether something was done that asks for another look at once."""
        if plan.status_first and not conditions.same(seen.sandbox.status, plan.status):
            await self._write(seen, plan)
            return True
        done = False
        for action in plan.actions:
            if isinstance(action, Greet):
                self._begin_greeting(seen.sandbox, action)
                continue
            await self._carry(action)
            done = True
        if done:
            self._troubles.pop(seen.sandbox.meta.uid, None)
        return done

    async def _carry(self, action: Action) -> None:
        try:
            await self._carrier.carry(action)
        except (Forbidden, Invalid) as error:
            if not isinstance(action, EnsurePolicy | EnsureKeys):
                raise
            raise RefusedError(reason_of(error), error.message) from error

    async def _settle(self, seen: Observed, plan: Plan) -> float | None:
        """Nothing is left to do now: say so, at once or with what comes next."""
        old = seen.sandbox.status
        if conditions.same(old, plan.status):
            self._quiet.pop(seen.sandbox.meta.uid, None)
            return plan.again
        # A greeting that is on its way says in a moment what is to be written then.
        quiet = seen.sandbox.meta.uid in self._greetings or not conditions.urgent(old, plan.status)
        if quiet and (left := self._quiet_left(seen.sandbox.meta.uid)) > 0:
            return min(left, plan.again if plan.again is not None else left)
        await self._write(seen, plan)
        return plan.again

    def _until_seen(self, seen: Observed, again: float | None) -> float | None:
        """No watch will wake us for what no watch has shown: it is looked at until one has, or it is gone."""
        namespace = seen.sandbox.meta.namespace
        read = [Ref(POD, namespace, seen.pod.name)] if seen.pod else []
        if seen.volume:
            read.append(Ref(PERSISTENT_VOLUME_CLAIM, namespace, seen.volume.name))
        if all(self._store.get(ref) for ref in read):
            return again
        return UNSEEN_SECONDS if again is None else min(again, UNSEEN_SECONDS)

    def _quiet_left(self, uid: str) -> float:
        """Seconds for which a change that nobody waits for may wait for one that somebody does; from its first sight on."""
        return self._quiet.setdefault(uid, self._clock()) + QUIET_SECONDS - self._clock()

    async def _write(self, seen: Observed, plan: Plan) -> None:
        sandbox = seen.sandbox
        self._quiet.pop(sandbox.meta.uid, None)
        await self._carrier.write_status(sandbox, plan.status)
        told = conditions.news(sandbox.status, plan.status)
        # Whoever claims hundreds of sandboxes a minute hears from the fleet how it went; what went wrong later is told here too.
        if told and (plan.status.restarts or not is_claims_own(sandbox)):
            await self._tell(sandbox, told)
        await self._services.written(sandbox, plan.status.services)

    def _begin_greeting(self, sandbox: CodeSandbox, action: Greet) -> None:
        uid = sandbox.meta.uid
        pod_uid, task = self._greetings.get(uid, ("", None))
        if pod_uid == action.pod_uid:
            return
        if task is not None:
            # Of a pod that was replaced meanwhile: nobody waits for it any more.
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


def _meant(found: Json | None, sandbox: CodeSandbox) -> Pod | None:
    """Another pod that has the name of the warm one by now is not meant."""
    if found is None:
        return None
    pod, bound = pod_of(found), bound_pod(sandbox)
    is_other = bound is not None and pod.name == bound[0] != sandbox.meta.name and pod.uid != bound[1]
    return None if is_other else pod
