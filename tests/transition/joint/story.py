"""Any course of events: callers, tenants, nodes, crashes and an API server in trouble, one step after the other."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress

from hypothesis import strategies as st
from sandfleet_operator.api import kube
from sandfleet_operator.api.errors import Code, FleetError
from sandfleet_operator.api.kinds.sandbox import OperatingMode
from sandfleet_operator.api.kube import CODE_SANDBOX, NETWORK_POLICY, POD, SANDBOX_POOL, SANDBOX_QUEUE, Ref
from sandfleet_operator.plan.pods import names
from support.fakes.kube_memory import After, Before, Write
from transition.joint.processes import Process
from transition.joint.scenarios import JUNK, crash, is_warm
from transition.joint.world import SPACES, Session, World
from transition.nodes import ended, evicted

USERS = ("alice", "bob")
# Namespace and pool; without a pool the claim is one of the template.
PLACES = (("team-a", "fast"), ("team-a", "other"), ("team-b", "fast"), ("team-c", ""))
POOLS = tuple(place for place in PLACES if place[1])
LEASES = (20.0, 300.0, 3600.0)
# A sandbox that crashes more often may be given up.
MOST_CRASHES = 3
FAULTS = {
    "lost": After(),
    "500": Before(kube.ServerError(500, "InternalError", "cannot write: 500")),
    "done, 500": After(kube.ServerError(500, "InternalError", "cannot write: 500")),
    "429": Before(kube.TooManyRequests(429, "TooManyRequests", "cannot write: 429", 1.0)),
    "409": Before(kube.Conflict(409, "Conflict", "cannot write: 409")),
    "422": Before(kube.Invalid(422, "Invalid", "cannot write: a policy denies it")),
}
# A creation that is refused for good ends what it is for.
PASSING = FAULTS.keys() - {"409", "422"}
# What a claim may be answered if it gets no sandbox: an INTERNAL error has no reason.
TRUE = frozenset(Code) - {Code.INTERNAL, Code.INVALID_ARGUMENT, Code.UNAUTHENTICATED, Code.UNIMPLEMENTED}

NUMBERS = st.integers(0, 5)
# Of a queue.
STOPS = ("None", "None", "Hold", "HoldAndDrain")
CLAIM = st.tuples(st.just("claim"), st.sampled_from(USERS), NUMBERS, st.sampled_from(PLACES), st.sampled_from(LEASES))
DECLARE = st.tuples(st.just("declare"), st.sampled_from(USERS), NUMBERS, st.sampled_from(PLACES))
WRITE = st.sampled_from(
    [("create", fault) for fault in FAULTS if fault in PASSING] + [("patch", fault) for fault in FAULTS]
)
STEPS = st.one_of(
    CLAIM,
    CLAIM,
    DECLARE,
    st.tuples(st.just("release"), NUMBERS),
    st.tuples(st.just("renew"), NUMBERS, st.sampled_from(LEASES)),
    st.tuples(st.just("use"), NUMBERS),
    st.tuples(st.just("suspend"), NUMBERS, st.sampled_from([20.0, 3600.0])),
    st.tuples(st.just("resume"), NUMBERS, st.sampled_from([0.0, 1.0, 60.0])),
    st.tuples(st.just("set_mode"), NUMBERS, st.sampled_from(OperatingMode)),
    st.tuples(st.just("remove"), NUMBERS),
    st.tuples(st.just("resize"), st.sampled_from(POOLS), st.integers(0, 2)),
    st.tuples(st.just("lose_pod"), NUMBERS, st.sampled_from(["crash", "evict", "delete"])),
    st.tuples(st.just("operator_away"), st.sampled_from([1.0, 30.0])),
    st.tuples(st.just("end_leader")),
    st.tuples(st.just("crash_at"), st.integers(1, 25), st.booleans()),
    st.tuples(st.just("trouble"), WRITE, st.integers(1, 4)),
    st.tuples(st.just("slow"), st.sampled_from([0.0, 0.05, 1.0])),
    st.tuples(st.just("watches"), st.booleans()),
    st.tuples(st.just("reinstall")),
    st.tuples(st.just("deface"), NUMBERS, st.sampled_from(JUNK)),
    st.tuples(st.just("deface_pod"), NUMBERS, st.sampled_from(JUNK)),
    st.tuples(st.just("replaced"), NUMBERS),
    st.tuples(st.just("copycat"), NUMBERS),
    st.tuples(st.just("forge"), NUMBERS, st.booleans()),
    st.tuples(st.just("broken"), NUMBERS),
    st.tuples(st.just("opened"), NUMBERS),
    st.tuples(st.just("queue"), st.sampled_from(SPACES), st.integers(0, 2), st.sampled_from(STOPS)),
    st.tuples(st.just("queue"), st.just("team-c"), st.integers(0, 2), st.just("None")),
    st.tuples(st.just("unqueue"), st.sampled_from(SPACES)),
    st.tuples(st.just("operate"), NUMBERS, st.sampled_from(["Suspended", "Running"])),
)
PAUSES = st.sampled_from([0.0, 0.0, 0.05, 0.3, 1.0, 5.0, 20.0])
PLANS = st.lists(st.tuples(STEPS, PAUSES), min_size=8, max_size=40)


class Story:
    def __init__(self, world: World) -> None:
        self.world = world
        self.held: list[Session] = []
        self._callers: set[asyncio.Task[None]] = set()
        self._crashes: dict[Ref, int] = {}
        self._declared = 0
        self._away: list[asyncio.Task[None]] = []
        # Those that are being suspended or resumed.
        self._changing: set[Ref] = set()

    async def run(self, plan: list[tuple[tuple[object, ...], float]]) -> None:
        for namespace, name in POOLS:
            await self.world.make_pool(name, namespace)
        for (step, *values), pause in plan:
            await getattr(self, str(step))(*values)
            await asyncio.sleep(pause)
        self.world.faults.clear()
        self.world.cluster.latency = 0.0
        await asyncio.gather(*self._away)
        for number in range(len(self.held)):
            await self.operate(number, "Running")
        for name in self.world.there(NETWORK_POLICY, "team-a"):
            if name.startswith("open-"):
                await self.world.user.delete(Ref(NETWORK_POLICY, "team-a", name))
        await self.world.until(lambda: not self._callers, "answered to all callers", within=300.0)

    def _one(self, number: int) -> Session | None:
        return self.held[number % len(self.held)] if self.held else None

    # Callers.

    def _caller(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._callers.add(task)  # type: ignore[arg-type] # a coroutine makes a task
        task.add_done_callback(self._callers.discard)  # type: ignore[arg-type]

    async def claim(self, user: str, number: int, place: tuple[str, str], lease: float) -> None:
        async def claimed() -> None:
            namespace, pool = place
            request = f"{namespace}-{pool}-{number}"
            if any(one.over and one.request == request for one in self.held):
                # Its release may still be on its way.
                return
            try:
                session = await self.world.claim(user, request, namespace, pool=pool, lease=lease)
            except FleetError as error:
                if error.problem.code not in TRUE:
                    self.world.went_wrong(f"a claim of {place} ended without a reason: {error.problem}")
            else:
                if session not in self.held:
                    self.held.append(session)

        self._caller(claimed())

    async def _quietly(self, work: Awaitable[object]) -> None:
        """What fails because the session is over, is not wrong; World.end looks at those that are not."""
        with suppress(FleetError):
            await work

    async def release(self, number: int) -> None:
        if (session := self._one(number)) is not None:
            self._caller(self._quietly(self.world.release(session)))

    async def renew(self, number: int, lease: float) -> None:
        if (session := self._one(number)) is not None and not session.over:
            self._caller(self._quietly(self.world.renew(session, lease)))

    async def use(self, number: int) -> None:
        if (session := self._one(number)) is not None:
            self._caller(self._quietly(self.world.use(session)))

    async def suspend(self, number: int, seconds: float) -> None:
        await self._changes_mode(number, lambda session: self.world.suspend(session, seconds))

    async def resume(self, number: int, wait: float) -> None:
        await self._changes_mode(number, lambda session: self.world.resume(session, wait))

    async def _changes_mode(self, number: int, work: Callable[[Session], Awaitable[None]]) -> None:
        session = self._one(number)
        if session is None or session.over or session.ref in self._changing:
            return
        self._changing.add(session.ref)

        async def changed() -> None:
            try:
                await self._quietly(work(session))
            finally:
                self._changing.discard(session.ref)

        self._caller(changed())

    # Tenants.

    async def set_mode(self, number: int, mode: OperatingMode) -> None:
        """With kubectl. At the same time as a call of its holder, either may win."""
        session = self._one(number)
        if session is None or session.over or session.ref not in self.world.cluster.objects:
            return
        if session.ref in self._changing:
            session.over = "suspended and resumed at once"
        with suppress(kube.NotFound):
            await self.world.set_mode(session, mode)

    async def declare(self, user: str, number: int, place: tuple[str, str]) -> None:
        namespace, pool = place
        name = f"mine-{number}"
        if Ref(CODE_SANDBOX, namespace, name) in self.world.owners:
            return
        spec = {"poolRef": {"name": pool}} if pool else {}
        ref = await self.world.declare(user, name, namespace, **spec)
        self.held.append(self.world.sessions[ref])

    async def remove(self, number: int) -> None:
        if (session := self._one(number)) is not None:
            await self.world.remove(session.ref)

    async def deface(self, number: int, junk: str) -> None:
        """A tenant's object with annotations of any content; what comes of its own sandbox is not promised."""
        self._declared += 1
        bound = {names.BOUND_POD: "x/y" if number % 2 else junk, names.CLAIM: junk}
        await self.world.forge(f"junk-{self._declared}", bound)

    async def deface_pod(self, number: int, junk: str) -> None:
        """A warm pod of the same tenant's namespace."""
        warm = [name for name, pod in self.world.there(POD, "team-a").items() if is_warm(pod)]
        if warm:
            ref = Ref(POD, "team-a", warm[number % len(warm)])
            await self.world.deface(ref, junk, **({names.STATE: "claimed"} if number % 2 else {}))

    async def replaced(self, number: int) -> None:
        """A GitOps tool replaces an object and drops what it does not know."""
        session = self._one(number)
        if session is not None and session.ref in self.world.cluster.objects:
            dropped = {names.BOUND_POD: None, names.CLAIM: None}
            # It may go at the same moment.
            with suppress(kube.NotFound):
                await self.world.user.merge(session.ref, {"metadata": {"annotations": dropped}})

    async def copycat(self, number: int) -> None:
        """A sandbox with the name of a pod that is there. It may wait for ever, and gets nothing of the pod's."""
        pods = sorted(self.world.there(POD, "team-a"))
        if pods and Ref(CODE_SANDBOX, "team-a", pods[number % len(pods)]) not in self.world.owners:
            ref = await self.world.declare("mallory", pods[number % len(pods)])
            self.world.sessions[ref].over = "a copy"
            self.held.append(self.world.sessions[ref])

    async def forge(self, number: int, pooled: bool) -> None:
        """An object that says of itself what the fleet says of a session of another user."""
        session = self._one(number)
        pod = self.world.pod_of(session.ref) if session else None
        if pod is None or pod.namespace != "team-a":
            return
        meta = self.world.cluster.objects[pod]["metadata"]
        self._declared += 1
        name = f"forged-{self._declared}"
        claim = json.loads((meta.get("annotations") or {}).get(names.CLAIM) or "{}") | {"object": name}
        bound = {names.BOUND_POD: f"{pod.name}/{meta['uid']}", names.CLAIM: json.dumps(claim)}
        spec = {"poolRef": {"name": "fast"}} if pooled else {}
        ref = await self.world.forge(name, bound, **spec)
        self.held.append(self.world.sessions[ref])

    async def broken(self, number: int) -> None:
        """An object of another version, which nothing can read."""
        self._declared += 1
        ref = await self.world.declare("mallory", f"broken-{self._declared}")
        self.world.sessions[ref].over = "unreadable"
        wrong: list[dict[str, object]] = [{"templateRef": ["python"]}, {"idleTimeoutSeconds": "x"}, {"egress": 1}]
        self.world.cluster.edit(ref, lambda obj: obj["spec"].update(wrong[number % len(wrong)]))

    async def opened(self, number: int) -> None:
        """A policy of others lets all pods of a namespace out."""
        name = f"open-{number}"
        if name not in self.world.there(NETWORK_POLICY, "team-a"):
            spec = {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{}]}
            await self.world.make(NETWORK_POLICY, name, "team-a", spec=spec)

    # The platform team.

    async def queue(self, namespace: str, quota: int, stop: str) -> None:
        """Makes the default queue, or edits it."""
        spec = {"nominalQuota": {"sandboxes": quota}, "stopPolicy": stop}
        if stop == "HoldAndDrain":
            for session in self.world.sessions.values():
                if session.request and session.ref.namespace == namespace:
                    session.over = session.over or "drained"
        if "default" in self.world.there(SANDBOX_QUEUE, namespace):
            await self.world.user.merge(Ref(SANDBOX_QUEUE, namespace, "default"), {"spec": spec})
        else:
            await self.world.make_queue("default", namespace, quota, stopPolicy=stop)

    async def unqueue(self, namespace: str) -> None:
        with suppress(kube.NotFound):
            await self.world.user.delete(Ref(SANDBOX_QUEUE, namespace, "default"))

    async def operate(self, number: int, mode: str) -> None:
        """The owner suspends or resumes an object whose pods the operator makes."""
        session = self._one(number)
        if session is None or session.request or session.over or session.ref.namespace != "team-c":
            return
        with suppress(kube.NotFound):
            await self.world.user.merge(session.ref, {"spec": {"operatingMode": mode}})

    # The cluster.

    async def resize(self, place: tuple[str, str], size: int) -> None:
        await self.world.user.merge(Ref(SANDBOX_POOL, *place), {"spec": {"replicas": size}})

    async def lose_pod(self, number: int, how: str) -> None:
        session = self._one(number)
        pod = self.world.pod_of(session.ref) if session else None
        if session is None or pod is None:
            return
        self._crashes[session.ref] = self._crashes.get(session.ref, 0) + 1
        if self._crashes[session.ref] > MOST_CRASHES:
            return
        if how == "delete":
            self.world.edit_pod(session.ref, lambda _pod: None)
            await self.world.user.delete(pod)
        elif self.world.cluster.objects[pod]["status"].get("containerStatuses"):
            self.world.edit_pod(session.ref, evicted if how == "evict" else lambda obj: ended(obj, 1))

    async def operator_away(self, seconds: float) -> None:
        async def away() -> None:
            await asyncio.sleep(seconds)
            self.world.operator.held = False

        self.world.operator.hold()
        self._away.append(asyncio.create_task(away()))

    async def end_leader(self) -> None:
        self.world.end_leader()

    async def crash_at(self, number: int, done: bool) -> None:
        crash(self.world, number, done=done)

    async def slow(self, seconds: float) -> None:
        """The API server answers late from now on."""
        self.world.cluster.latency = seconds

    async def trouble(self, what: tuple[str, str], many: int) -> None:
        verb, fault = what
        left = [many]

        def meets(_process: Process, write: Write) -> Before | After | None:
            if write.verb != verb or not left[0] or write.ref.kind == kube.LEASE:
                return None
            left[0] -= 1
            return FAULTS[fault]

        self.world.faults.append(meets)

    async def watches(self, expire: bool) -> None:
        """All watches end; or what was seen is too old to go on from."""
        if expire:
            self.world.cluster.expire()
        else:
            self.world.cluster.end_watches()

    async def reinstall(self) -> None:
        """The processes and their Leases go with the old release."""
        for slot in (self.world.operator, *self.world.fleets):
            slot.crash()
        for ref in [one for one in self.world.cluster.objects if one.kind == kube.LEASE]:
            await self.world.user.delete(ref)
