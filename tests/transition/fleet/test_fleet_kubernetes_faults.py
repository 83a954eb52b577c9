"""The fleet over an API server that is late, refuses, or says what is wrong with a pod."""

import asyncio

import pytest
from sandfleet_operator.api.errors import Code, FleetError, Problem
from sandfleet_operator.api.kube import (
    CODE_SANDBOX,
    NODE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    RUNTIME_CLASS,
    SANDBOX_POOL,
    Forbidden,
    Ref,
    TooManyRequests,
    Unreachable,
    ref_of,
)
from sandfleet_operator.api.values import Claim, RequestKey
from sandfleet_operator.cluster.reviews import REVIEW_KINDS
from sandfleet_operator.fleet.kubernetes import unrecorded_claims as unwritten
from sandfleet_operator.fleet.kubernetes import upkeep, writer
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.podspec import PodState
from sandfleet_operator.plan.scheduler.claim_queue import Queued
from sandfleet_operator.plan.scheduler.starts.shares import STARTS_PER_NODE
from support.fakes.kube_memory import Before, MemoryKube
from support.kubernetes.world import TEAM, World, pool_object, sandbox_object, template_object, wall_clock


class Late(MemoryKube):
    """What `holds` names arrives only when `arrive` is set, whatever has become of who sent it."""

    def __init__(self, world):
        super().__init__(world.cluster, kinds=REVIEW_KINDS)
        self.holds, self.held, self.arrive = lambda _: False, [], asyncio.Event()

    async def _write(self, write, do):
        if not self.holds(write):
            return await super()._write(write, do)
        self.held.append(asyncio.create_task(self._arrives(super()._write(write, do))))
        return await asyncio.shield(self.held[-1])

    async def _arrives(self, writing):
        await self.arrive.wait()
        return await writing

    async def landed(self):
        self.arrive.set()
        await asyncio.gather(*self.held, return_exceptions=True)


def takes_a_pod(write):
    retires = write.verb == "patch" and any(one.get("value") == PodState.RETIRING.value for one in write.body)
    return write.ref.kind == POD and (write.verb == "delete" or retires)


def forbidden(message="cannot write: it is forbidden"):
    return Before(Forbidden(403, "Forbidden", message))


def first_times(many, matches, fault):
    met = []

    def faulty(write):
        if matches(write) and len(met) < many:
            met.append(write)
            return fault
        return None

    return faulty, met


@pytest.fixture
async def world():
    async with World() as made:
        await made.add(template_object(), pool_object())
        yield made


async def full(world, fleet, many=2):
    await world.until(lambda: fleet.scheduler.summary("team/fast").warm == many)


def owners(pod):
    return [one["name"] for one in pod["metadata"].get("ownerReferences") or ()]


def is_owned(world):
    """Whether the one claimed pod belongs to the one CodeSandbox."""
    objects, pods = world.objects(), world.pods("claimed")
    return [owners(pod) for pod in pods] == [[one["metadata"]["name"]] for one in objects] and len(pods) == 1


def pool_condition(world):
    pool = world.cluster.objects[Ref(SANDBOX_POOL, TEAM, "fast")]
    return next(iter((pool.get("status") or {}).get("conditions") or ()), {})


# Undone claims.


async def test_a_late_undo_does_not_undo_a_claim_that_the_next_fleet_has_answered(world):
    late = Late(world)
    first = await world.fleet(late)
    await full(world, first)
    late.holds = takes_a_pod
    first.pretended.open = lambda *_: asyncio.Event().wait()
    watch = first.fleet.claim(Claim(key=RequestKey("alice", "r1", f"{TEAM}/fast"), pool=f"{TEAM}/fast", max_wait=10.0))
    await world.until(lambda: world.pods("claimed"))
    sandbox = next(one for one in first.scheduler.inventory.all() if one.claim)
    await world.until(lambda: first._backend.run(sandbox.sandbox_id).claimed)
    watch.leave()
    await world.until(lambda: late.held)
    await world.kill(first)
    second = await world.fleet()
    answered = await world.claim(second)
    assert answered.sandbox_id == sandbox.sandbox_id
    await late.landed()
    await world.until(lambda: is_owned(world))
    assert second.session_of(f"{TEAM}/{world.objects()[0]['metadata']['name']}").sandbox_id == sandbox.sandbox_id


async def test_of_two_pods_of_a_request_the_next_fleet_keeps_the_answered_one(world):
    late = Late(world)
    first = await world.fleet(late)
    await full(world, first)
    late.holds = takes_a_pod
    opened, real = [], first.pretended.open

    async def open_second(sandbox, lease):
        opened.append(sandbox.sandbox_uid)
        if len(opened) == 1:
            raise FleetError(Problem(Code.INTERNAL, "OpenFailed", "cannot open the sandbox: it does not want to"))
        await real(sandbox, lease)

    first.pretended.open = open_second
    answered = await world.claim(first)
    await world.until(lambda: late.held and any(owners(pod) for pod in world.pods("claimed")))
    assert len(world.pods("claimed")) == 2
    await world.kill(first)
    second = await world.fleet()
    assert (await world.claim(second)).sandbox_id == answered.sandbox_id
    await late.landed()
    await world.until(lambda: len(world.pods("claimed")) == 1 and len(world.pods()) == 3)
    assert f"{TEAM}/{world.pods('claimed')[0]['metadata']['name']}" == answered.sandbox_id


# Refusals.


async def test_a_refused_release_is_retried(world):
    kube = world.client()
    fleet = await world.fleet(kube)
    sandbox = await world.claim(fleet)
    await world.until(lambda: is_owned(world))
    kube.fault, met = first_times(
        1, lambda write: write.verb == "delete" and write.ref.kind == CODE_SANDBOX, forbidden()
    )
    assert await fleet.fleet.release(sandbox.sandbox_id)
    await world.until(lambda: not world.pods("claimed") and not world.objects())
    assert met
    await full(world, fleet)


async def test_a_refused_deletion_of_a_surplus_warm_pod_is_retried(world):
    kube = world.client()
    fleet = await world.fleet(kube)
    await full(world, fleet)
    kube.fault, met = first_times(2, takes_a_pod, forbidden())
    await world.kube.merge(Ref(SANDBOX_POOL, TEAM, "fast"), {"spec": {"replicas": 1}})
    await world.until(lambda: len(world.pods()) == 1 == len(fleet.scheduler.inventory))
    assert len(met) == 2


@pytest.mark.parametrize(("at_once", "most"), [(2, 2), (100, 8)])
async def test_a_pool_that_is_emptied_leaves_connections_to_claims(world, monkeypatch, at_once, most):
    monkeypatch.setattr(writer, "RETIRING", at_once)
    kube, going, seen = world.client(), [0], []
    patch = kube.patch

    async def slow(*args, **options):
        going[0] += 1
        seen.append(going[0])
        await asyncio.sleep(0.02)
        going[0] -= 1
        return await patch(*args, **options)

    fleet = await world.fleet(kube)
    await world.kube.merge(Ref(SANDBOX_POOL, TEAM, "fast"), {"spec": {"replicas": 8}})
    await world.until(lambda: fleet.scheduler.summary("team/fast").warm == 8)
    monkeypatch.setattr(kube, "patch", slow)
    await world.kube.merge(Ref(SANDBOX_POOL, TEAM, "fast"), {"spec": {"replicas": 0}})
    await world.until(lambda: not world.pods())
    assert max(seen) == most


async def test_a_refused_adoption_of_a_claimed_pod_is_retried(world):
    kube = world.client()
    fleet = await world.fleet(kube)
    await full(world, fleet)

    def owns(write):
        patched = write.body if write.verb == "patch" else ()
        return any(one["path"] == "/metadata/ownerReferences" and one["value"] for one in patched)

    kube.fault, met = first_times(2, owns, forbidden())
    await world.claim(fleet)
    await world.until(lambda: is_owned(world))
    assert len(met) == 2


async def test_a_takeover_does_not_wait_for_a_pod_that_cannot_be_changed(world, monkeypatch):
    monkeypatch.setattr(unwritten, "SETTLE_SECONDS", 0.1)
    kube = world.client()
    first = await world.fleet(kube)
    await full(world, first)
    refused = Before(Unreachable(0, "ConnectionFailed", "cannot write: connection refused"))
    kube.fault = lambda write: refused if write.verb == "create" and write.ref.kind == CODE_SANDBOX else None
    sandbox = await world.claim(first)
    await world.kill(first)
    refused = world.client()
    refused.fault = lambda write: forbidden() if write.ref.name == sandbox.sandbox_id.partition("/")[2] else None
    second = await world.fleet(refused)
    assert (await world.claim(second, "other")).sandbox_id != sandbox.sandbox_id
    refused.fault = lambda _: None
    await world.until(lambda: len(world.objects()) == 2)


# Pods that lack something.


async def test_the_next_fleet_creates_the_volume_of_a_pod_whose_fleet_ended(world):
    world.starts = False
    late = Late(world)
    late.holds = lambda write: write.verb == "create" and write.ref.kind == PERSISTENT_VOLUME_CLAIM
    first = await world.fleet(late)
    # The second start waits until the API server has taken the first.
    await world.until(lambda: late.held)
    await world.kill(first)
    made = {pod["metadata"]["uid"] for pod in world.pods()}
    second = await world.fleet()
    await world.until(lambda: volumes(world) == {f"workspace-{pod['metadata']['name']}" for pod in world.pods()})
    world.starts = True
    await full(world, second)
    assert made < {pod["metadata"]["uid"] for pod in world.pods()}
    await late.landed()
    assert len(volumes(world)) == 2


async def test_a_pod_is_replaced_when_the_next_fleet_may_not_create_its_volume(world):
    world.starts = False
    late = Late(world)
    late.holds = lambda write: write.verb == "create" and write.ref.kind == PERSISTENT_VOLUME_CLAIM
    first = await world.fleet(late)
    # The second start waits until the API server has taken the first.
    await world.until(lambda: late.held)
    await world.kill(first)
    made = {pod["metadata"]["uid"] for pod in world.pods()}
    world.starts, kube = True, world.client()
    kube.fault, _ = first_times(2, late.holds, forbidden("cannot write: exceeded quota"))
    second = await world.fleet(kube)
    await world.until(lambda: not made & {pod["metadata"]["uid"] for pod in world.pods()}, within=20.0)
    await full(world, second)
    late.arrive.set()


def volumes(world):
    return {ref.name for ref in world.cluster.objects if ref.kind == PERSISTENT_VOLUME_CLAIM}


async def test_a_users_codesandbox_gets_another_pod_if_the_first_vanished_unrecorded(world):
    kube = world.client()
    fleet = await world.fleet(kube)
    await full(world, fleet)
    refused = Before(Unreachable(0, "ConnectionFailed", "cannot write: connection refused"))
    kube.fault = lambda write: refused if write.verb == "merge" and write.ref.kind == CODE_SANDBOX else None
    await world.add(sandbox_object())
    await world.until(lambda: world.pods("claimed"))
    lost = world.pods("claimed")[0]
    await world.until(lambda: any(one.bound for one in fleet.scheduler.inventory.all()))
    await world.kube.delete(ref_of(lost), grace_seconds=0)
    # The fleet has seen the end before its next try to write, which may be 5 s away.
    await world.until(lambda: fleet._backend.run(f"{TEAM}/{lost['metadata']['name']}") is None)
    kube.fault = lambda _: None
    await world.until(lambda: any(owners(pod) == ["mine"] for pod in world.pods("claimed")), 30)
    (made,) = world.objects()
    pods = {f"{pod['metadata']['name']}/{pod['metadata']['uid']}" for pod in world.pods("claimed")}
    assert {made["metadata"]["annotations"][names.BOUND_POD]} == pods


# What a pool says.


def waiting(reason, message):
    state = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "containerStatuses": [{"name": "executor", "ready": False, "state": state}]}


UNSCHEDULED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available",
}


@pytest.mark.parametrize(
    ("status", "node", "reason", "said"),
    [
        (waiting("ErrImagePull", "not found"), "node-0", "ImagePullFailed", "ErrImagePull: not found"),
        (waiting("ImagePullBackOff", "Back-off"), "node-0", "ImagePullFailed", "ImagePullBackOff: Back-off"),
        (
            waiting("CreateContainerError", "no runsc"),
            "node-0",
            "ContainerCreateFailed",
            "CreateContainerError: no runsc",
        ),
        ({"phase": "Pending", "conditions": [UNSCHEDULED]}, "", "Unschedulable", "0/3 nodes are available"),
    ],
)
async def test_a_pool_reports_at_once_why_its_pods_cannot_start(world, monkeypatch, status, node, reason, said):
    monkeypatch.setattr(upkeep, "SETTLED_SECONDS", 0.0)
    world.starts = False
    fleet = await world.fleet()
    await world.until(lambda: len(world.pods()) == 2)
    for pod in world.pods():
        world.cluster.edit(ref_of(pod), lambda obj: (obj.update(status=status), obj["spec"].update(nodeName=node)))
    await world.until(lambda: pool_condition(world).get("reason") == reason)
    assert (pool_condition(world)["status"], pool_condition(world)["message"]) == ("False", said)
    assert [level.reason for _, level in fleet.pools()] == [reason]
    for pod in world.pods():
        world.cluster.edit(ref_of(pod), lambda obj: obj.update(status={"phase": "Pending"}))
    world.starts = True
    await world.until(lambda: pool_condition(world).get("reason") == "Filled")
    assert not pool_condition(world)["message"]


GATED = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "Scheduling is blocked"}
PREPARED = {"type": "PodReadyToStartContainers", "status": "True"}
PULLS = waiting("ContainerCreating", "") | {"conditions": [PREPARED]}
# What a pod says that cannot start, its node, how long the fleet leaves it, and the reason of its pool.
HOLDS = [
    ({"phase": "Pending", "conditions": [GATED]}, "", 86400.0, "SchedulingGated"),
    ({"phase": "Pending", "conditions": [UNSCHEDULED]}, "", 900.0, "Unschedulable"),
    (PULLS, "node-0", 900.0, "ImagePulling"),
]


@pytest.mark.parametrize(("status", "node", "time", "reason"), HOLDS, ids=[row[-1] for row in HOLDS])
async def test_a_pod_that_cannot_start_keeps_its_place_for_the_time_of_its_hold(status, node, time, reason):
    late = [0.0]
    async with World(clock=lambda: wall_clock() + late[0]) as world:
        world.starts = False
        await world.add(template_object(), pool_object(size=1))
        fleet = await world.fleet()
        await world.until(lambda: len(world.pods()) == 1)
        (ref,) = (ref_of(pod) for pod in world.pods())
        gates = [{"name": "kueue.x-k8s.io/admission"}] if reason == "SchedulingGated" else []
        spec = {"nodeName": node, "schedulingGates": gates}
        world.cluster.edit(ref, lambda obj: (obj.update(status=status), obj["spec"].update(spec)))
        inventory = fleet.scheduler.inventory
        await world.until(lambda: inventory.get(f"{ref.namespace}/{ref.name}").hold.value == reason)
        late[0] += time - 5
        await world.until(lambda: pool_condition(world).get("reason") == reason)
        assert gates == [] or "kueue.x-k8s.io/admission" in pool_condition(world)["message"]
        # The next leader begins the hold anew.
        await world.kill(fleet)
        fleet = await world.fleet()
        late[0] += 30
        await asyncio.sleep(0.2)
        assert [ref_of(pod) for pod in world.pods()] == [ref]
        late[0] += time
        await world.until(lambda: ref not in [ref_of(pod) for pod in world.pods()])


async def test_a_pool_reports_the_api_servers_message_when_its_pods_are_refused(world):
    kube = world.client()
    kube.fault = lambda write: (
        forbidden("exceeded quota: team") if write.verb == "create" and write.ref.kind == POD else None
    )
    await world.fleet(kube)
    await world.until(lambda: pool_condition(world).get("reason") == "QuotaExceeded")
    assert "exceeded quota: team" in pool_condition(world)["message"]


# Trouble of the API server with new pods.


def creates_a_pod(write):
    return write.verb == "create" and write.ref.kind == POD


async def test_a_busy_api_server_fails_no_claim_and_the_pool_says_why_it_waits(world):
    kube, state = world.client(), {"busy": True}
    busy = Before(TooManyRequests(429, "TooManyRequests", "cannot create it: too many requests", 1.0))
    kube.fault = lambda write: busy if state["busy"] and creates_a_pod(write) else None
    fleet = await world.fleet(kube)
    waiting = [asyncio.create_task(world.claim(fleet, f"r{number}", within=30.0)) for number in range(5)]
    await world.until(lambda: sum(map(creates_a_pod, kube.writes)) >= 3)
    await world.until(lambda: pool_condition(world).get("reason") == "ApiServerFailed")
    assert "too many requests" in pool_condition(world)["message"]
    key = RequestKey("alice", "r4", f"{TEAM}/fast")
    assert fleet.scheduler.why_not(key).reason == "ApiServerFailed"
    assert [one.done() for one in waiting] == [False] * 5
    state["busy"] = False
    answered = await asyncio.gather(*waiting)
    assert len({one.sandbox_id for one in answered}) == 5
    await world.until(lambda: pool_condition(world).get("reason") == "Filled")


async def test_a_claim_on_a_full_quota_fails_at_its_own_longest_wait_and_names_the_quota(world):
    kube = world.client()
    kube.fault = lambda write: forbidden("cannot create it: exceeded quota: team") if creates_a_pod(write) else None
    fleet = await world.fleet(kube)
    watch = fleet.fleet.claim(Claim(key=RequestKey("alice", "r1", f"{TEAM}/fast"), pool=f"{TEAM}/fast", max_wait=1.0))
    with pytest.raises(FleetError) as caught:
        while isinstance(await watch.next(), Queued):
            pass
    watch.leave()
    problem = caught.value.problem
    assert (problem.code, problem.reason) == (Code.RESOURCE_EXHAUSTED, "QuotaExceeded")
    assert "exceeded quota: team" in problem.message


async def test_a_full_quota_is_asked_once_in_a_round_whatever_the_pool_wants(world):
    await world.kube.merge(Ref(SANDBOX_POOL, TEAM, "fast"), {"spec": {"replicas": 200}})
    kube = world.client()
    kube.fault = lambda write: forbidden("cannot create it: exceeded quota: team") if creates_a_pod(write) else None
    fleet = await world.fleet(kube)
    await world.until(lambda: sum(map(creates_a_pod, kube.writes)) == 3)
    (state,) = [one for one in fleet.scheduler._queues.all() if one.pool.name == f"{TEAM}/fast"]
    assert state.trouble.rounds >= 2


async def test_a_pod_whose_volume_is_refused_is_removed_and_its_claim_waits(world):
    kube = world.client()
    kube.fault, met = first_times(
        2,
        lambda write: write.verb == "create" and write.ref.kind == PERSISTENT_VOLUME_CLAIM,
        forbidden("cannot create it: exceeded quota: storage"),
    )
    fleet = await world.fleet(kube)
    assert (await world.claim(fleet)).bound
    await full(world, fleet)
    assert len(met) == 2
    await world.until(lambda: len(world.pods()) == 3 == len(volumes(world)))


# What pods are made as.


async def test_the_first_warm_pod_has_a_user_namespace_if_all_nodes_support_it(world):
    handlers = {"runtimeHandlers": [{"name": "runsc", "features": {"userNamespaces": True}}]}
    await world.kube.merge(Ref(NODE, "", "node-0"), {"status": handlers}, "status")
    runtime = {"apiVersion": RUNTIME_CLASS.api_version, "kind": RUNTIME_CLASS.kind, "handler": "runsc"}
    await world.kube.create({**runtime, "metadata": {"name": "gvisor"}})
    await world.fleet()
    await world.until(lambda: len(world.pods()) == 2)
    assert [pod["spec"].get("hostUsers") for pod in world.pods()] == [False, False]


async def test_the_fleet_rereads_the_capabilities_of_nodes(world, monkeypatch):
    monkeypatch.setattr(upkeep, "LEARN_EVERY", 0.0)
    handlers = {"runtimeHandlers": [{"name": "runsc", "features": {"userNamespaces": True}}]}
    await world.kube.merge(Ref(NODE, "", "node-0"), {"status": handlers}, "status")
    fleet = await world.fleet()
    await full(world, fleet)
    runtime = {"apiVersion": RUNTIME_CLASS.api_version, "kind": RUNTIME_CLASS.kind, "handler": "runsc"}
    await world.kube.create({**runtime, "metadata": {"name": "gvisor"}})

    async def learned():
        return await fleet._facts.user_namespaces("gvisor")

    await world.until(learned)


# Starts that never come about.


class Stuck(World):
    """No node has room for the pods of one pool."""

    def _start(self, pod, number):
        if pod["metadata"]["labels"].get(names.POOL) != "stuck":
            super()._start(pod, number)


async def test_a_pool_without_a_node_does_not_hold_back_the_first_start_of_another():
    async with Stuck() as world:
        await world.add(template_object(), pool_object("stuck", size=30))
        fleet = await world.fleet()
        await world.until(lambda: len(world.pods()) == STARTS_PER_NODE)
        await world.add(pool_object("other", size=0))
        await world.until(lambda: fleet.scheduler.pool("team/other"))
        assert (await world.claim(fleet, pool="other")).pool == "team/other"
        assert fleet.scheduler.summary("team/stuck").starting == STARTS_PER_NODE


async def test_a_pool_or_else_its_template_says_how_long_its_pods_may_take_to_start():
    async with Stuck() as world:
        await world.add(
            template_object(),
            template_object("large", startTimeoutSeconds=900),
            pool_object("stuck", size=0, template="large"),
            pool_object("slow", size=0, template="large", startTimeoutSeconds=1800),
            pool_object("usual", size=0),
        )
        fleet = await world.fleet()
        found = {name: fleet.scheduler.pool(f"team/{name}").start_timeout for name in ("stuck", "slow", "usual")}
        assert found == {"stuck": 900.0, "slow": 1800.0, "usual": 120.0}
