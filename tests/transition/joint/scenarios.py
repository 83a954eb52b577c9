"""What tenants, nodes and the API server do to the control plane, one scenario for each defect that once was there.

A scenario fails by an assertion, or by what the world notes in `wrong`. Each ends with World.end: all promises are
kept, and nothing is left.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from sandfleet_api.fleet.v1 import fleet_pb2
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.sandbox import OperatingMode
from sandfleet_operator.api.kube import (
    CODE_SANDBOX,
    CONFIG_MAP,
    CONTROLLER_REVISION,
    LEASE,
    NETWORK_POLICY,
    POD,
    SANDBOX_POOL,
    SANDBOX_TEMPLATE,
    Json,
    Ref,
    TooManyRequests,
)
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.sandbox.observed import pod_of
from support.fakes.kube_admission import denies
from support.fakes.kube_memory import After, Before, Write
from transition.joint.processes import Process
from transition.joint.world import Session, World, duration
from transition.nodes import ended, evicted

# Seconds of a claim that waits for nothing but its own pod.
SOON = 4.0
Scenario = Callable[[World], Awaitable[None]]
JUNK: tuple[Any, ...] = (
    "",
    "{",
    "[]",
    json.dumps({"object": "x", "request": "r", "holder": ["h"], "fencing": 1, "at": 0, "lease": 1}),
    json.dumps({"object": "x", "request": "r", "holder": "h", "fencing": "x", "at": 0, "lease": 1}),
    json.dumps({"object": [], "request": {}, "holder": None, "fencing": 1e400, "at": "then", "lease": [], "uid": 1}),
)


async def an_ordinary_day(world: World) -> None:
    """Claims, renewals, declared sandboxes, a crash, and a change of leader."""
    await world.make_pool(size=2)
    await world.make_pool(namespace="team-b")
    sessions = [await world.claim("alice", "r1", pool="fast"), await world.claim("bob", "r1", pool="fast")]
    sessions.append(await world.claim("alice", "r2", "team-c"))
    await world.renew(sessions[0], 3600)
    for name, namespace, spec in (("mine", "team-b", {"poolRef": {"name": "fast"}}), ("own", "team-a", {})):
        sessions.append(world.sessions[await world.declare("bob", name, namespace, **spec)])
        await world.until_used(sessions[-1])
    await asyncio.sleep(5)
    world.edit_pod(sessions[0].ref, lambda pod: ended(pod, 1))
    world.edit_pod(sessions[3].ref, evicted)
    for session in (sessions[0], *sessions[3:]):
        if not session.over:
            await world.until_used(session)
    await world.release(sessions[1])


async def a_suspended_day(world: World) -> None:
    """Sessions of a pool and of a template sleep, through changes of leader, and go on with what they had."""
    await world.make_pool(size=1)
    sessions = [await world.claim("alice", "r1", pool="fast", lease=60), await world.claim("bob", "r2", "team-c")]
    for session in sessions:
        await world.suspend(session)
        assert await world.state_of(session) == fleet_pb2.SANDBOX_STATE_SUSPENDED
    world.end_leader()
    # Longer than their leases.
    await asyncio.sleep(600)
    for session in sessions:
        assert world.pod_of(session.ref) is None
        await world.resume(session)
        await world.until_used(session)
    await world.suspend(sessions[0])
    await world.release(sessions[0])


async def a_parked_day(world: World) -> None:
    """Sessions sleep in snapshots, through changes of leader, and go on elsewhere with what they had."""
    await world.make_pool(size=1)
    sessions = [await world.claim("alice", "r1", pool="fast", lease=60), await world.claim("bob", "r2", "team-c")]
    for session in sessions:
        await world.suspend(session, to_snapshot=True)
        assert await world.state_of(session) == fleet_pb2.SANDBOX_STATE_SUSPENDED
    world.end_leader()
    await asyncio.sleep(600)
    for session in sessions:
        assert world.pod_of(session.ref) is None
        await world.resume(session)
        await world.until_used(session)
    # With kubectl, and from the volume that the second pod has got.
    await world.set_mode(sessions[0], OperatingMode.SUSPENDED, suspend={"to": "Snapshot"})
    await world.until(lambda: world.status(sessions[0].ref).get("restoresFrom"), "asleep", within=400)
    while await world.state_of(sessions[0]) != fleet_pb2.SANDBOX_STATE_SUSPENDED:
        await asyncio.sleep(1)
    await world.resume(sessions[0])
    await world.until_used(sessions[0])
    await world.suspend(sessions[1], to_snapshot=True)
    await world.release(sessions[1])


async def an_unattended_day(world: World) -> None:
    """A session falls asleep when it is idle; another one goes back to its last snapshot when its pod is lost."""
    await world.make_pool(size=2)
    idle = await world.claim(
        "alice", "r1", pool="fast", lease=3600, idle_timeout=duration(30), on_idle=fleet_pb2.ON_IDLE_SNAPSHOT
    )
    period = {"recovery": fleet_pb2.RECOVERY_SNAPSHOT, "snapshot_period": duration(20)}
    kept = await world.claim("bob", "r2", pool="fast", lease=3600, **period)
    await world.until(lambda: world.status(idle.ref).get("restoresFrom"), "asleep")
    assert world.pod_of(idle.ref) is None
    await world.until(lambda: world.status(kept.ref).get("snapshot", {}).get("automatic"), "saved")
    for ends in (lambda pod: ended(pod, 137), evicted):
        saved, pod = world.status(kept.ref)["snapshot"], world.pod_of(kept.ref)
        assert pod is not None
        memory = world.executors.memory(pod)
        world.edit_pod(kept.ref, ends)
        await world.until(lambda saved=saved: world.status(kept.ref)["snapshot"] != saved, "filled")
        await world.until_used(kept)
        pod = world.pod_of(kept.ref)
        assert pod is not None
        assert memory <= world.executors.memory(pod)
        # Used again, it is saved again.
        await world.until(lambda: not world.status(kept.ref)["snapshot"].get("filledPodUID"), "saved again")
    await world.resume(idle)


async def an_unnamed_snapshot(world: World) -> None:
    """A leader ends once it has saved a session, before its CodeSandbox names the snapshot. Then the pod is lost."""
    await world.make_pool(size=2)
    period = {"recovery": fleet_pb2.RECOVERY_SNAPSHOT, "snapshot_period": duration(20)}
    session = await world.claim("alice", "r1", pool="fast", lease=3600, **period)
    await world.until(lambda: world.status(session.ref).get("snapshot", {}).get("automatic"), "saved")
    crash(world, 1, done=False, counts=lambda _, write: "snapshot" in (write.body or {}).get("status", {}))
    await world.until_used(session)
    named, pod = world.status(session.ref)["snapshot"]["id"], world.pod_of(session.ref)
    assert pod is not None
    memory = world.executors.memory(pod)
    await world.until(lambda: list(world.snapshotter.saved)[-1][1] != named, "saved again")
    assert named in [one for _, one in world.snapshotter.saved], "what is named is gone"
    world.edit_pod(session.ref, evicted)
    await world.until(lambda: world.status(session.ref)["snapshot"].get("filledPodUID"), "filled")
    await world.until_used(session)
    pod = world.pod_of(session.ref)
    assert pod is not None
    # The last that was saved has all; the named one is older.
    assert memory <= world.executors.memory(pod)


async def a_late_end(world: World) -> None:
    """The operator is away while a session is saved, and its holder works on once it is not held any more."""
    await world.make_pool(size=1)
    session = await world.claim("alice", "r1", pool="fast", lease=3600)
    # Until it is written down.
    await asyncio.sleep(20)
    world.operator.hold()
    pod = world.pod_of(session.ref)
    with suppress(FleetError):
        await world.suspend(session, to_snapshot=True)
    assert world.snapshotter.saved
    assert pod is not None
    while not world.work(session):
        await asyncio.sleep(5)
    session.kept = world.executors.memory(pod)
    world.operator.held = False
    await world.until(lambda: world.pod_of(session.ref) is None, "asleep", within=400)
    await world.resume(session)


def crash(
    world: World, number: int, *, done: bool, counts: Callable[[Process, Write], bool] = lambda _, write: True
) -> None:
    """The process that does the write with this number, of those that count, ends with it; `done`: or just after it."""
    left = [number]

    def ends(process: Process, write: Write) -> Before | After | None:
        if write.ref.kind == LEASE or not counts(process, write):
            return None
        left[0] -= 1
        if left[0]:
            return None
        world.slot_of(process).crash()
        return (After if done else Before)(asyncio.CancelledError())

    world.faults.append(ends)


async def an_annotation_of_any_content(world: World) -> None:
    """A.1: it stops no fleet, neither the one that leads nor the next."""
    await world.make_pool(size=2)
    session = await world.claim("alice", "r1", pool="fast")
    for number, junk in enumerate(JUNK):
        await world.forge(f"junk-{number}", {names.BOUND_POD: "x/y", names.CLAIM: junk})
    warm = next(Ref(POD, "team-a", name) for name, pod in world.there(POD, "team-a").items() if is_warm(pod))
    await world.deface(warm, JUNK[4])
    await world.deface(warm, JUNK[4], **{names.STATE: "claimed"})
    await asyncio.sleep(5)
    world.end_leader()
    await world.until_used(session)
    await world.claim("alice", "r2", pool="fast")


async def a_replaced_object(world: World) -> None:
    """A.2: a GitOps tool replaces the object of a claim, and its annotations are lost."""
    await world.make_pool()
    session = await world.claim("alice", "r1", pool="fast")
    await world.until(lambda: world.condition(session.ref, "Ready").get("status") == "True", "ready")
    await world.user.merge(session.ref, {"metadata": {"annotations": {names.BOUND_POD: None, names.CLAIM: None}}})
    await asyncio.sleep(30)
    world.end_leader()
    await asyncio.sleep(60)


async def a_replaced_object_before_the_operator_looked(world: World) -> None:
    """A.2 with the status still empty."""
    await world.make_pool()
    await world.until(lambda: any(map(is_warm, world.there(POD, "team-a").values())), "warm")
    world.operator.hold()
    session = await world.claim("alice", "r1", pool="fast")
    await world.until(lambda: session.ref in world.cluster.objects, "written down")
    await asyncio.sleep(1)
    await world.user.merge(session.ref, {"metadata": {"annotations": {names.BOUND_POD: None, names.CLAIM: None}}})
    world.operator.held = False
    await asyncio.sleep(30)


async def a_sandbox_named_like_a_warm_pod(world: World) -> None:
    """A.3: it gets neither that pod's volume nor, after the release, its files."""
    await world.make_pool()
    await world.until(lambda: any(map(is_warm, world.there(POD, "team-a").values())), "warm")
    (warm,) = world.there(POD, "team-a")
    ref = await world.declare("mallory", warm)
    await asyncio.sleep(10)
    session = await world.claim("alice", "r1", pool="fast")
    await asyncio.sleep(5)
    await world.release(session)
    await world.until_used(world.sessions[ref])


async def a_forged_binding(world: World) -> None:
    """A.4: an object that names another user's pod gives no token for it, and its deletion ends nothing."""
    await world.make_pool()
    session = await world.claim("alice", "r1", pool="fast")
    await world.until(lambda: world.pod_of(session.ref), "served")
    pod = world.pod_of(session.ref)
    assert pod is not None
    meta = world.cluster.objects[pod]["metadata"]
    forged = json.loads(meta["annotations"][names.CLAIM]) | {"object": "evil", "request": "r9"}
    for late in (False, True):
        if late:
            # The next leader adopts what it finds.
            world.end_leader()
            await asyncio.sleep(20)
        bound = {names.BOUND_POD: f"{pod.name}/{meta['uid']}", names.CLAIM: json.dumps(forged)}
        ref = await world.forge("evil", bound, poolRef={"name": "fast"})
        if not late:
            world.end_leader()
        await world.until(lambda: world.leader, "served")
        await asyncio.sleep(2)
        await tries(world.use(world.sessions[ref]))
        await world.remove(ref)
        await asyncio.sleep(5)
    await world.until_used(session)


async def an_eviction_while_the_operator_is_away(world: World) -> None:
    """A.5: the session goes on with its files once the operator is back."""
    await world.make_pool()
    await world.until(lambda: any(map(is_warm, world.there(POD, "team-a").values())), "warm")
    world.operator.hold()
    session = await world.claim("alice", "r1", pool="fast", lease=3600)
    await world.until(lambda: session.ref in world.cluster.objects, "written down")
    await asyncio.sleep(2)
    pod = world.pod_of(session.ref)
    assert pod is not None
    world.edit_pod(session.ref, evicted)
    await world.user.delete(pod)
    await asyncio.sleep(20)
    world.operator.held = False
    await world.until_used(session)


async def a_pod_lost_while_the_operator_is_away_and_another_leader(world: World) -> None:
    """The next leader finds a status that is out of date, and goes on with the pod that the operator makes later."""
    await world.make_pool()
    session = await world.claim("alice", "r1", pool="fast", lease=3600)
    await world.until(lambda: world.condition(session.ref, "Ready").get("status") == "True", "ready")
    for _ in range(2):
        world.operator.hold()
        pod = world.pod_of(session.ref)
        assert pod is not None
        world.end_leader()
        await world.user.delete(pod)
        await asyncio.sleep(1)
        await world.until(lambda: world.leader, "served")
        await asyncio.sleep(5)
        world.operator.held = False
        await world.until_used(session)
        await asyncio.sleep(15)


async def a_renewed_lease_and_another_leader(world: World) -> None:
    """A.6: the next leader knows the lease as renewed."""
    await world.make_pool()
    session = await world.claim("alice", "r1", pool="fast", lease=2)
    await world.renew(session, 3600)
    await asyncio.sleep(1)
    world.end_leader()
    await asyncio.sleep(60)
    await world.until_used(session)


async def one_request_id_in_two_places(world: World) -> None:
    """A.7: the same id in another namespace or pool is another request."""
    for name, namespace in (("fast", "team-a"), ("other", "team-a"), ("fast", "team-b")):
        await world.make_pool(name, namespace)
        await tries(world.claim("alice", "r1", namespace, pool=name))


async def an_unrecorded_claim(world: World) -> Session:
    """All processes end after a claim was answered, and before its object is written."""

    def all_end(_process: Process, write: Write) -> Before | None:
        if write.verb != "create" or write.ref.kind != CODE_SANDBOX:
            return None
        for slot in (world.operator, *world.fleets):
            slot.hold()
        return Before(asyncio.CancelledError())

    world.faults.append(all_end)
    session = await world.claim("alice", "r1", pool="fast", lease=3600)
    await world.until(lambda: world.leader is None, "ended")
    world.faults.clear()
    return session


def begin_again(world: World) -> None:
    for slot in (world.operator, *world.fleets):
        slot.held = False


async def a_reinstallation(world: World) -> None:
    """A.8: Leases that begin anew strand no claim that was not written down yet."""
    await world.make_pool()
    for _ in range(3):
        await world.until(lambda: world.leader, "served")
        world.end_leader()
        await asyncio.sleep(20)

    session = await an_unrecorded_claim(world)
    for ref in [one for one in world.cluster.objects if one.kind == LEASE]:
        await world.user.delete(ref)
    await asyncio.sleep(5)
    begin_again(world)
    await world.until_used(session)
    await world.claim("alice", "r2", pool="fast")


async def deletions(world: World) -> None:
    """A.9: each has a precondition."""
    await world.make_pool()
    await world.release(await world.claim("alice", "r1", pool="fast"))
    own = {"allow": [{"cidr": "198.51.100.0/24"}]}
    template = Ref(SANDBOX_TEMPLATE, "team-a", "python")
    await world.user.merge(template, {"spec": {"egress": own}})
    ref = await world.declare("bob", "mine", egress={"allow": [{"cidr": "198.51.100.7/32"}]})
    await world.until_used(world.sessions[ref])
    await world.user.merge(ref, {"spec": {"egress": {"allow": []}}})
    await world.user.merge(template, {"spec": {"egress": None}})
    await asyncio.sleep(5)


async def a_record_of_a_newer_version(world: World) -> None:
    """A.10: a fleet that was rolled back goes on with claims that a newer one wrote."""
    await world.make_pool()
    session = await an_unrecorded_claim(world)
    pod = world.pod_of(session.ref)
    assert pod is not None

    def newer(obj: Json) -> None:
        record = json.loads(obj["metadata"]["annotations"][names.CLAIM])
        obj["metadata"]["annotations"][names.CLAIM] = json.dumps({"newer": {"a": 1}, **record}, indent=1)

    world.cluster.edit(pod, newer)
    begin_again(world)
    await world.until_used(session)
    await world.until(lambda: session.ref in world.cluster.objects, "written down")
    await asyncio.sleep(1)
    for obj in (world.cluster.objects[pod], world.cluster.objects[session.ref]):
        assert json.loads(obj["metadata"]["annotations"][names.CLAIM])["newer"] == {"a": 1}
    world.end_leader()
    await asyncio.sleep(20)
    await world.release(session)
    await world.until(lambda: pod not in world.cluster.objects, "without its pod")


async def a_claim_in_an_empty_namespace(world: World) -> None:
    """B.1: of a template without a pool, where nothing else of ours is."""
    await world.claim("alice", "r1", "team-c")


async def refused_creations(world: World) -> None:
    """B.2: a 429 ends no claim that waits."""
    left = [3]

    def busy(_process: Process, write: Write) -> Before | None:
        if write.verb == "create" and write.ref.kind == POD and left[0]:
            left[0] -= 1
            return Before(TooManyRequests(429, "TooManyRequests", "cannot write: 429", 1.0))
        return None

    await world.make_pool(size=0)
    await asyncio.sleep(5)
    world.faults.append(busy)
    claims = [world.claim("alice", f"r{number}", pool="fast") for number in range(3)]
    await asyncio.gather(*claims)


async def a_pool_whose_pods_hang(world: World) -> None:
    """B.3: the pods of one pool hang on their nodes, and those of another start all the same."""

    def hangs(pod: Json) -> None:
        if pod["metadata"]["labels"].get(names.POOL) == "stuck":
            pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]

    world.nodes.holds_up = hangs
    await world.make_pool("stuck", size=40)
    await asyncio.sleep(20)
    await world.make_pool("fast", "team-b", size=1)
    # The fleet has to see the pool before a claim can name it.
    await asyncio.sleep(1)
    await world.claim("alice", "r1", "team-b", pool="fast", wait=30)


async def an_unreadable_object(world: World) -> None:
    """B.4: lists go on without it, and it says itself that it cannot be read."""
    ref = await world.declare("mallory", "strange")
    await world.until_used(world.sessions[ref])
    world.sessions[ref].over = "unreadable"
    world.cluster.edit(ref, lambda obj: obj["spec"].update(templateRef=["python"], idleTimeoutSeconds="x"))
    mine = await world.declare("bob", "mine")
    await world.until_used(world.sessions[mine])
    await asyncio.sleep(5)
    assert await world.listed("bob") >= 1
    ready = world.condition(ref, "Ready")
    assert ready.get("status") != "True", ready
    assert world.status(ref).get("conditions"), "nothing is said of it"


async def a_policy_that_opens(world: World) -> None:
    """B.5: Isolated is not True while another policy lets the sandbox out."""
    ref = await world.declare("bob", "mine")
    await world.until_used(world.sessions[ref])
    spec = {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{}]}
    await world.make(NETWORK_POLICY, "open", "team-a", spec=spec)
    await asyncio.sleep(30)
    isolated = world.condition(ref, "Isolated")
    assert isolated.get("status") != "True", isolated
    assert "open" in isolated.get("message", ""), isolated
    await world.user.delete(Ref(NETWORK_POLICY, "team-a", "open"))
    await world.until(lambda: world.condition(ref, "Isolated").get("status") == "True", "isolated again")


async def a_deleted_template(world: World) -> None:
    """B.6: a sandbox that runs recovers without it, and the spec that was kept for it goes with it."""
    await world.make_pool()
    session = await world.claim("alice", "r1", pool="fast", lease=3600)
    mine = await world.declare("bob", "mine")
    await world.until_used(world.sessions[mine])
    await asyncio.sleep(5)
    await world.user.delete(Ref(SANDBOX_TEMPLATE, "team-a", "python"))
    await asyncio.sleep(5)
    for ref in (session.ref, mine):
        world.edit_pod(ref, lambda pod: ended(pod, 1))
    for ref in (session.ref, mine):
        await world.until_used(world.sessions[ref])


async def an_uninstall(world: World) -> None:
    """B.7: after the commands of docs/howto/install.md no policy, no key and no pod is left."""
    await world.user.merge(
        Ref(SANDBOX_TEMPLATE, "team-a", "python"), {"spec": {"egress": {"allow": [{"cidr": "198.51.100.0/24"}]}}}
    )
    await world.make_pool()
    await world.claim("alice", "r1", pool="fast", lease=3600)
    await world.claim("alice", "r2", "team-c")
    own = {"allow": [{"cidr": "198.51.100.7/32"}]}
    await world.until_used(world.sessions[await world.declare("bob", "mine", egress=own)])
    await uninstall(world)


async def uninstall(world: World) -> None:
    """Users delete their objects and wait; then Helm ends the processes."""
    for kind in (CODE_SANDBOX, SANDBOX_POOL, SANDBOX_TEMPLATE):
        for ref in [one for one in world.cluster.objects if one.kind == kind]:
            await world.remove(ref)

    def left() -> list[str]:
        return [str(ref) for ref in world.ours() if ref.kind in {NETWORK_POLICY, CONFIG_MAP, POD}]

    await world.until(lambda: not left(), "removed", within=300.0)
    for slot in (world.operator, *world.fleets):
        slot.hold()
    # Listed there, with the commands that remove them.
    listed = {CONTROLLER_REVISION}
    assert {ref.kind for ref in world.ours()} <= listed, world.ours()


async def an_uninstall_while_the_operator_crashes(world: World) -> None:
    """B.7: the next operator finds what the one before has not removed."""
    await world.until_used(world.sessions[await world.declare("bob", "mine")])
    # The later one first: a fault that strikes hides the write from those behind it.
    for number, done in ((2, True), (1, False)):
        crash(world, number, done=done, counts=lambda _, write: (write.verb, write.ref.kind) == ("delete", CONFIG_MAP))
    await uninstall(world)


async def marks_for_autoscalers(world: World) -> None:
    """B.8: a node may be emptied of warm pods, and of no claimed one."""
    await world.make_pool()
    session = await world.claim("alice", "r1", pool="fast")
    await world.until(lambda: any(map(is_warm, world.there(POD, "team-a").values())), "warm again")
    await asyncio.sleep(5)
    marks = {
        is_warm(pod): pod["metadata"]["annotations"].get("cluster-autoscaler.kubernetes.io/safe-to-evict")
        for pod in world.there(POD, "team-a").values()
    }
    assert marks == {True: "true", False: "false"}, marks
    await world.release(session)


async def a_policy_that_refuses_claims(world: World) -> None:
    """42.4: no pod is forgotten for it, and claims are told why."""

    def binds(_: Ref, old: Json | None, new: Json) -> bool:
        return bool(old and is_warm(old) and names.CLAIM in new["metadata"]["annotations"])

    await world.make_pool(size=2)
    await world.until(lambda: sum(map(is_warm, world.there(POD, "team-a").values())) == 2, "warm")
    admit, world.cluster.admit = world.cluster.admit, denies(422, "closed", binds)
    for number in range(6):
        with pytest.raises(FleetError, match="closed"):
            await world.claim("alice", f"r{number}", pool="fast", wait=5)
    assert len(world.there(POD, "team-a")) <= 4, "pods for a pool of 2"
    world.cluster.admit = admit
    await world.release(await world.claim("alice", "r0", pool="fast"))


async def tries(work: Awaitable[object]) -> None:
    """It may be refused."""
    with suppress(FleetError):
        await work


def is_warm(pod: Json) -> bool:
    return bool(pod["metadata"]["labels"].get(names.STATE) == "warm")


async def silent_executors_of_a_tenant(world: World) -> None:
    """42.15: they hold up no first contact of another one."""
    world.executors.silent.add("team-b")
    await world.make_pool(namespace="team-b", size=40)
    await world.until(lambda: len(world.there(POD, "team-b")) >= 10, "started")
    await asyncio.sleep(15)
    begun = asyncio.get_running_loop().time()
    await world.claim("alice", "r1", "team-c")
    assert asyncio.get_running_loop().time() - begun < SOON, "it waited for executors of another tenant"
    world.executors.silent.clear()
    await asyncio.sleep(60)


async def a_takeover_before_first_contacts(world: World) -> None:
    """42.16: warm pods that are ready are handed out, also before the next leader has contacted them."""
    await world.make_pool(size=2)
    await world.until(lambda: sum(map(is_ready, world.there(POD, "team-a").values())) == 2, "ready")
    await asyncio.sleep(5)
    warm = set(world.there(POD, "team-a"))
    world.executors.silences = 2
    world.end_leader()
    await world.until(lambda: world.leader and world.executors.silences <= 0, "contacted")
    begun = asyncio.get_running_loop().time()
    session = await world.claim("alice", "r1", pool="fast")
    pod = world.pod_of(session.ref)
    assert pod is not None
    assert pod.name in warm, "a warm pod was not used"
    assert asyncio.get_running_loop().time() - begun < SOON, "it waited for a first contact"


def is_ready(pod: Json) -> bool:
    return pod_of(pod).ready
