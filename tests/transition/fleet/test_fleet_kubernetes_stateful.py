"""The fleet's real code on an arbitrary cluster: fleets are killed at any step, writes arrive late, replies are lost.

Time is the loop's own: what waits for minutes takes milliseconds. SANDFLEET_EXAMPLES makes the search longer.
"""

import asyncio
import logging
import os
import random
from dataclasses import replace
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sandfleet_operator.api import kube
from sandfleet_operator.api.errors import Code, FleetError, Problem
from sandfleet_operator.api.kube import CODE_SANDBOX, PERSISTENT_VOLUME_CLAIM, POD, SANDBOX_POOL, SANDBOX_TEMPLATE, Ref
from sandfleet_operator.api.values import Claim, RequestKey, State
from sandfleet_operator.fleet.kubernetes import catalog
from sandfleet_operator.plan.claims.record import object_name, read_record, record_text
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.scheduler.claim_queue import Queued
from support.fakes.kube_memory import After, Before
from support.kubernetes.rough import RoughWorld
from support.kubernetes.world import TEAM, pool_object, sandbox_object, template_object
from transition.fake_time import FakeLoop

EXAMPLES = int(os.environ.get("SANDFLEET_EXAMPLES", "25"))
EPOCH = 1_800_000_000.0
# Seconds of the loop's time within which everything has to be in order again.
IN_ORDER = 240.0
MAX_WAIT = 20.0
FAULTS = {
    "lost": After(),
    "never sent": Before(kube.Unreachable(0, "ConnectionFailed", "cannot write: connection refused")),
    "done, 500": After(kube.ServerError(500, "InternalError", "cannot write: 500")),
    "500": Before(kube.ServerError(500, "InternalError", "cannot write: 500")),
    "429": Before(kube.TooManyRequests(429, "TooManyRequests", "cannot write: 429", 1.0)),
    "409": Before(kube.Conflict(409, "Conflict", "cannot write: 409")),
    # As a failed test of a patch has it, too.
    "422": Before(kube.Invalid(422, "Invalid", "cannot write: a policy denies it")),
    "403": Before(kube.Forbidden(403, "Forbidden", "cannot write: a policy denies it")),
}
WRITES = [
    *((verb, fault) for verb in ("patch", "create", "merge") for fault in FAULTS),
    # Of a deletion, Conflict means that another object has the name.
    *(("delete", fault) for fault in FAULTS if fault != "409"),
]
# Of deletions only those of pods are delayed: a release that was on its way when its fleet was killed ends the session
# also where its caller has asked for it again.
DELAYED = ["patch", "patch", "create", "merge", "delete"]
REQUESTS = st.sampled_from([f"r{number}" for number in range(6)])
OBJECTS = st.sampled_from(["mine-0", "mine-1"])
# Turns of the loop, or seconds.
PAUSES = st.one_of(st.integers(0, 40), st.sampled_from([0.1, 0.5, 2.0]))
CLAIM = st.tuples(st.just("claim"), REQUESTS, st.sampled_from([None, None, None, 0.0, 0.2, 3.0]), st.booleans())
RELEASE = st.tuples(st.just("release"), REQUESTS, st.booleans())
STEPS = st.one_of(
    CLAIM,
    CLAIM,
    CLAIM,
    RELEASE,
    RELEASE,
    st.tuples(st.just("make"), OBJECTS),
    st.tuples(st.just("unmake"), OBJECTS),
    st.tuples(st.just("resize"), st.integers(0, 3)),
    st.tuples(st.just("change_template"), st.integers(1, 3)),
    st.tuples(st.just("lose_pod"), st.integers(0, 5)),
    st.tuples(st.just("refuse"), st.integers(1, 3)),
    st.tuples(st.just("open_slowly"), st.sampled_from([0.0, 0.3, 2.0])),
    st.tuples(st.just("replace_fleet"), st.booleans()),
    st.tuples(st.just("replace_fleet"), st.booleans()),
    st.tuples(st.just("trouble"), st.sampled_from(WRITES), st.integers(1, 3)),
    st.tuples(st.just("trouble"), st.sampled_from(WRITES), st.integers(1, 3)),
    st.tuples(st.just("delay"), st.sampled_from(DELAYED), st.sampled_from([0.05, 0.5, 4.0])),
    st.tuples(st.just("watch_late"), st.sampled_from([POD, CODE_SANDBOX, SANDBOX_POOL]), st.sampled_from([0.0, 0.3])),
)
PLANS = st.lists(st.tuples(STEPS, PAUSES), min_size=1, max_size=40)


class Errors(logging.Handler):
    """What the fleet could not carry out: a bug, whatever else comes of it."""

    def __init__(self):
        super().__init__(logging.ERROR)
        self.said = []

    def emit(self, record):
        self.said.append(record.getMessage())


class Story:
    """One world, and what its clients were told."""

    def __init__(self, world):
        self.world = world
        # The newest leads; what is left of older ones goes on believing that it does.
        self.fleets = []
        self.clients = set()
        # Request → sandbox id: the leader has answered the claim, and it has not ended.
        self.held, self.lost_pods = {}, set()
        # Sandbox → requests that were answered with it.
        self.holders = {}
        self.wrong = []

    # What happens.

    async def claim(self, request, patience, older):
        self._client(self._claims(self._fleet(older), request, patience))

    async def release(self, request, older):
        self.held.pop(request, None)
        self._client(self._releases(self._fleet(older), request))

    async def make(self, name):
        if Ref(CODE_SANDBOX, TEAM, name) not in self.world.cluster.objects:
            await self.world.add(sandbox_object(name))

    async def unmake(self, name):
        await self.world.kube.delete(Ref(CODE_SANDBOX, TEAM, name))

    async def resize(self, size):
        await self.world.kube.merge(Ref(SANDBOX_POOL, TEAM, "fast"), {"spec": {"replicas": size}})

    async def change_template(self, number):
        image = {"spec": {"image": f"registry/executor:{number}"}}
        await self.world.kube.merge(Ref(SANDBOX_TEMPLATE, TEAM, "python"), image)

    async def lose_pod(self, number):
        pods = sorted(self.world.pods(), key=lambda pod: pod["metadata"]["uid"])
        if pods:
            pod = pods[number % len(pods)]["metadata"]
            self.lost_pods.add(pod["name"])
            await self.world.kube.delete(Ref(POD, TEAM, pod["name"]), uid=pod["uid"])

    async def refuse(self, many):
        self.world.refusals = many

    async def open_slowly(self, seconds):
        self.world.opening = seconds

    async def replace_fleet(self, split):
        if not split:
            for fleet in list(self.fleets):
                await self._kill(fleet)
        self.fleets.append(self.world.process())

    async def trouble(self, what, many):
        verb, fault = what
        self.world.faults.append([verb, FAULTS[fault], many])

    async def delay(self, verb, seconds):
        self.world.delays.append([verb, seconds, 1])

    async def watch_late(self, kind, seconds):
        self.world.late[kind] = seconds

    # Clients.

    def _fleet(self, older):
        return self.fleets[0 if older else -1]

    def _client(self, work):
        task = asyncio.create_task(self._client_of(work))
        self.clients.add(task)
        task.add_done_callback(self.clients.discard)

    async def _client_of(self, work):
        try:
            await work
        except (FleetError, TimeoutError, kube.KubeError):
            pass
        except Exception as error:  # noqa: BLE001 - whatever it is, it is wrong
            self.wrong.append(f"a client got {error!r}")

    async def _claims(self, fleet, request, patience):
        async with asyncio.timeout(patience):
            sandbox = await self._bound(fleet, request)
        self.holders.setdefault(sandbox.sandbox_id, set()).add(request)
        if fleet is self.fleets[-1] and (len(self.fleets) == 1 or self._bound_by(fleet, sandbox)):
            self.held[request] = sandbox.sandbox_id

    def _bound_by(self, fleet, sandbox):
        """What it has from an older fleet that goes on believing, that one may still undo."""
        pod = self.world.cluster.objects.get(Ref(POD, TEAM, sandbox.sandbox_id.partition("/")[2]))
        record = read_record(((pod or {}).get("metadata", {}).get("annotations") or {}).get(names.CLAIM, ""))
        return record is not None and record.number == fleet.state["leading"]

    async def _bound(self, fleet, request):
        """As the service does it."""
        check_serving(fleet)
        watch = fleet.fleet.claim(
            Claim(key=RequestKey("alice", request, f"{TEAM}/fast"), pool=f"{TEAM}/fast", max_wait=MAX_WAIT)
        )
        try:
            while isinstance(news := await watch.next(), Queued):
                check_serving(fleet)
            check_serving(fleet)
            fleet.note_session(news)
            return await fleet.fleet.get(news.sandbox_id, reachable=False)
        finally:
            watch.leave()

    async def _releases(self, fleet, request):
        check_serving(fleet)
        try:
            known = fleet.session_of(f"{TEAM}/{object_of(request)}")
            if known is not None and known.bound:
                await fleet.fleet.release(known.sandbox_id)
            else:
                await self.world.kube.delete(Ref(CODE_SANDBOX, TEAM, object_of(request)))
        finally:
            self.held.pop(request, None)

    # The end.

    async def run(self, plan):
        self.fleets.append(self.world.process())
        for (step, *values), pause in plan:
            await self._replace_dead()
            await getattr(self, step)(*values)
            if isinstance(pause, float):
                await asyncio.sleep(pause)
            else:
                for _ in range(pause):
                    await asyncio.sleep(0)
        await self.end()

    async def end(self):
        self.world.calm()
        for fleet in self.fleets[:-1]:
            await self._kill(fleet)
        await self._in_order("all is quiet", self._unquiet)
        await self._end_sessions()
        await self._in_order("all is released", self._left_over)
        for fleet in list(self.fleets):
            await self._kill(fleet)
        await asyncio.sleep(1)
        mine = {asyncio.current_task(), self.world._kubelet}
        assert not asyncio.all_tasks() - mine, "something of the fleet goes on after its end"
        assert not self.world._kubelet.done()
        self._check_history()
        assert not self.wrong, self.wrong

    async def _in_order(self, when, looks):
        """After a while, and still a while later."""
        end = asyncio.get_running_loop().time() + IN_ORDER
        while found := looks():
            assert asyncio.get_running_loop().time() < end, f"when {when}: {found}"
            await asyncio.sleep(0.5)
            await self._replace_dead()
        await asyncio.sleep(5)
        assert not (found := looks()), f"when {when}, a little later: {found}"

    async def _end_sessions(self):
        leader = self.fleets[-1]
        for name in ("mine-0", "mine-1"):
            await self.unmake(name)
        for sandbox in leader.scheduler.inventory.all():
            if sandbox.bound:
                await leader.fleet.release(sandbox.sandbox_id)

    def _unquiet(self):
        leader = self.fleets[-1]
        if not leader.serving or self.clients or self.world.flying:
            return f"no end of {leader.serving=}, {len(self.clients)} clients, {self.world.flying}"
        pods = {pod["metadata"]["name"]: pod for pod in self.world.pods()}
        found = [f"{name} is known to no fleet" for name in strays(leader, pods)]
        for request in (f"r{number}" for number in range(6)):
            mine = [pod["metadata"]["name"] for pod in pods.values() if request_of(pod) == request]
            if len(mine) > 1:
                found.append(f"{request} has {mine}")
        for request, sandbox_id in self.held.items():
            found += self._lost(leader, pods, request, sandbox_id)
        for sandbox in self.world.objects():
            if names.BOUND_POD not in (sandbox["metadata"].get("annotations") or {}):
                found.append(f"{sandbox['metadata']['name']} has no pod")
        return found

    def _lost(self, leader, pods, request, sandbox_id):
        pod = pods.get(sandbox_id.partition("/")[2])
        if self.lost_pods & {sandbox_id.partition("/")[2], object_of(request)}:
            # The operator has put another one in its place.
            return []
        if pod is None or request_of(pod) != request:
            return [f"{sandbox_id} of {request} is lost"]
        session = leader.session_of(f"{TEAM}/{object_of(request)}")
        if session is None or session.sandbox_id != sandbox_id or not session.bound:
            return [f"{sandbox_id} of {request} is not known to who leads, who has {session}"]
        owners = [one["name"] for one in pod["metadata"].get("ownerReferences") or ()]
        return [] if owners == [object_of(request)] else [f"{sandbox_id} of {request} is owned by {owners}"]

    def _left_over(self):
        leader, cluster = self.fleets[-1], self.world.cluster.objects
        size = cluster[Ref(SANDBOX_POOL, TEAM, "fast")]["spec"]["replicas"]
        image = cluster[Ref(SANDBOX_TEMPLATE, TEAM, "python")]["spec"]["image"]
        pods = {f"{TEAM}/{pod['metadata']['name']}": pod for pod in self.world.pods()}
        volumes = sum(1 for ref in cluster if ref.kind == PERSISTENT_VOLUME_CLAIM)
        expected = {
            "pods": (len(pods), size),
            "volumes": (volumes, size),
            "warm": (sum(fresh(pod, image) for pod in pods.values()), size),
            "objects": ([one["metadata"]["name"] for one in self.world.objects()], []),
            "waiting": (dict(leader.scheduler.inventory.waiting), {}),
            "known": (
                {one.sandbox_id: one.state for one in leader.scheduler.inventory.all()},
                dict.fromkeys(pods, State.WARM),
            ),
            "runs": (set(leader._backend._runs), set(pods)),
        }
        return {what: found for what, found in expected.items() if found[0] != found[1]}

    def _check_history(self):
        """Of every pod that there ever was."""
        claims, owners = {}, {}
        for change in self.world.cluster.changes:
            if change.ref is None or change.ref.kind != POD or change.after is None:
                continue
            meta = change.after["metadata"]
            record = read_record((meta.get("annotations") or {}).get(names.CLAIM, ""))
            # Whichever fleet has it.
            claim = record and record_text(replace(record, keeper=0))
            assert claims.setdefault(meta["uid"], claim or None) in {None, claim}, f"{meta['name']} has another claim"
            claims[meta["uid"]] = claim
            for owner in meta.get("ownerReferences") or ():
                if owner["kind"] == "CodeSandbox":
                    assert owners.setdefault(meta["uid"], owner["name"]) == owner["name"], "two sandboxes of one pod"
        for sandbox, requests in self.holders.items():
            assert len(requests) == 1, f"{sandbox} was given to {requests}"

    async def _replace_dead(self):
        """A fleet whose takeover failed is started again; an older one never leads again under its old number."""
        if self.fleets and self.fleets[-1].task.done():
            await self._kill(self.fleets[-1])
            self.fleets.append(self.world.process())
        elif not self.fleets:
            self.fleets.append(self.world.process())

    async def _kill(self, fleet):
        self.fleets.remove(fleet)
        if fleet.task.done() and not fleet.task.cancelled():
            _, rest = fleet.task.exception().split(kube.KubeError)
            if rest:
                self.wrong.append(f"a fleet ended with {rest!r}")
        await self.world.kill(fleet)


def check_serving(fleet):
    if not fleet.serving:
        raise FleetError(Problem(Code.UNAVAILABLE, "NotServing", "cannot go on: another fleet leads"))


def object_of(request):
    return object_name(RequestKey("alice", request, f"{TEAM}/fast"))


def strays(leader, pods):
    """Each labelled pod is known, on its way out, or another fleet's; here there is no other fleet any more."""
    known = {one.sandbox_uid for one in leader.scheduler.inventory.all()} | set(leader._backend._runs)
    return [
        name
        for name, pod in pods.items()
        if f"{TEAM}/{name}" not in known and "deletionTimestamp" not in pod["metadata"]
    ]


def request_of(pod):
    record = read_record((pod["metadata"].get("annotations") or {}).get(names.CLAIM, ""))
    return record.request if record is not None else None


def fresh(pod, image):
    metadata, spec = pod["metadata"], pod["spec"]
    return metadata["labels"][names.STATE] == "warm" and spec["containers"][0]["image"] == image


async def _story(plan):
    async with RoughWorld(clock=lambda: EPOCH + asyncio.get_running_loop().time()) as world:
        await world.add(template_object(), pool_object())
        await Story(world).run(plan)


def _play(plan):
    errors, loose = Errors(), []
    logger = logging.getLogger("sandfleet_operator")
    logger.addHandler(errors)
    try:
        with (
            mock.patch.object(catalog, "secrets", random.Random(1)),
            asyncio.Runner(loop_factory=FakeLoop) as runner,
        ):
            loop = runner.get_loop()
            loop.set_exception_handler(lambda _, context: loose.append(context))
            runner.run(_story(plan))
            assert not loop.busy, f"something turned for ever at {loop.busy}"
    finally:
        logger.removeHandler(errors)
    assert not errors.said, errors.said
    assert not loose, loose


@pytest.mark.slow
@settings(derandomize=True, max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(plan=PLANS)
def test_a_pod_always_has_one_holder_and_in_the_end_nothing_is_left(plan):
    _play(plan)
