"""Scenarios: what users and clusters do to a sandbox. Each one ends when the cluster is in its expected final state."""

import asyncio

from sandfleet_operator.api.kinds.sandbox import code_sandbox
from sandfleet_operator.api.kube import (
    CODE_SANDBOX,
    CONFIG_MAP,
    NETWORK_POLICY,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SANDBOX_POOL,
    SANDBOX_TEMPLATE,
    Json,
    Ref,
)
from sandfleet_operator.api.times import time_text
from sandfleet_operator.plan.claims.record import Record, record_text
from sandfleet_operator.plan.claims.sandbox_object import bound_annotations
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.merge import Refusal, effective
from sandfleet_operator.plan.pods.networkpolicy import default_deny
from sandfleet_operator.plan.pods.podspec import PodRequest, sandbox_pod
from sandfleet_operator.plan.pods.volume import workspace_claim
from sandfleet_operator.plan.sandbox.observed import OUT_OF_SERVICE
from support.operator.builders import IMAGE, SETTINGS, a_spec, a_template
from transition.nodes import NODE, claim_of, ended, evicted, node_answers, tainted, unheard
from transition.queue_scenarios import QUEUE_SCENARIOS
from transition.service_scenarios import services_that_come_and_go
from transition.workspace_scenarios import (
    CLAIM,
    SANDBOX,
    Scenario,
    begin,
    cold_start,
    given_away_with_its_sandbox,
    made_anew_at_once,
    named_workspace,
    wanted_by_three,
)
from transition.world import NAME, NAMESPACE, World

DENY = Ref(NETWORK_POLICY, NAMESPACE, names.DEFAULT_DENY)
KEYS = Ref(CONFIG_MAP, NAMESPACE, names.KEYS_CONFIG_MAP)
WARM = "warm-1"


async def suspend_and_resume(world: World) -> None:
    await begin(world, cold_start)
    await world.change(operatingMode="Suspended")
    await world.until(lambda: world.says("Suspended") and not world.there(POD, NAME), "suspended")
    assert world.there(PERSISTENT_VOLUME_CLAIM, CLAIM.name)
    await world.change(operatingMode="Running")
    await world.until_ready()


async def cold_start_without_egress(world: World) -> None:
    """In a namespace without a template that opens egress."""
    await world.user.delete(Ref(SANDBOX_TEMPLATE, NAMESPACE, "python"))
    await world.make_sandbox(templateRef={"name": "closed"})
    await world.until_ready()


async def delete(world: World) -> None:
    """The last sandbox of its namespace and then the template, after which the namespace has no object of ours left."""
    await begin(world, cold_start_without_egress)
    await world.user.delete(SANDBOX)
    await world.until(lambda: not world.there(POD, NAME), "without a pod")
    await world.user.delete(Ref(SANDBOX_TEMPLATE, NAMESPACE, "closed"))


async def executor_crash(world: World) -> None:
    await begin(world, cold_start)
    world.cluster.edit(Ref(POD, NAMESPACE, NAME), lambda pod: ended(pod, 1))
    await _is_back(world, after="ExecutorCrashed")


async def pod_deleted(world: World) -> None:
    await begin(world, cold_start)
    await world.user.delete(Ref(POD, NAMESPACE, NAME))
    await _is_back(world, after="PodDeleted")


async def eviction(world: World) -> None:
    await begin(world, cold_start)
    world.cluster.edit(Ref(POD, NAMESPACE, NAME), evicted)
    await _is_back(world, after="Evicted")


async def node_lost(world: World) -> None:
    """The pod may still run there, until an administrator confirms that the node is off."""
    await begin(world, cold_start)
    pod = Ref(POD, NAMESPACE, NAME)
    world.nodes.silent = True
    since = time_text(world.clock())
    silent = {"type": "Ready", "status": "Unknown", "lastTransitionTime": since}
    world.edit_node(lambda node: node["status"].update(conditions=[silent]))
    world.cluster.edit(pod, unheard)
    await world.until(lambda: world.reason() == "NodeNotResponding", "told that the node is silent")
    uid = world.cluster.objects[pod]["metadata"]["uid"]
    world.cluster.edit(pod, tainted)
    await world.user.delete(pod)
    await asyncio.sleep(60)
    assert world.cluster.objects[pod]["metadata"]["uid"] == uid
    world.edit_node(lambda node: node.update(spec={"taints": [{"key": OUT_OF_SERVICE, "effect": "NoExecute"}]}))
    await world.until(lambda: world.reason() == "NodeLost", "told that the node is gone")
    world.cluster.remove(pod, 0)
    world.nodes.silent = False
    world.edit_node(node_answers)
    await _is_back(world, after="NodeLost")


async def idle(world: World) -> None:
    await begin(world, cold_start)
    world.cluster.edit(Ref(POD, NAMESPACE, NAME), lambda pod: ended(pod, 41))
    await world.until(lambda: world.says("Expired") and not world.there(POD, NAME), "expired")


async def egress_changed(world: World) -> None:
    await world.make_sandbox(egress={"allow": [{"cidr": "203.0.113.0/25"}]})
    await world.until_ready()
    await world.change(egress={"allow": [{"cidr": "198.51.100.7/32"}]})

    def opened() -> bool:
        policy = world.there(NETWORK_POLICY, names.own_policy(NAME))
        return policy is not None and "198.51.100.7/32" in str(policy["spec"])

    await world.until(opened, "opened to the other network")
    await world.change(egress={"allow": []})
    await world.until(lambda: not world.there(NETWORK_POLICY, names.own_policy(NAME)), "closed")


async def policy_deleted(world: World) -> None:
    await begin(world, cold_start)
    with world.by_hand():
        await world.user.delete(DENY)
    await world.until(lambda: DENY in world.cluster.objects, "closed again")


async def labels_lost(world: World) -> None:
    """Removes the labels that the operator's watches select by: of the pod, the volume claim and the policy."""
    await begin(world, cold_start)

    def strip(obj) -> None:
        del obj["metadata"]["labels"][names.COMPONENT]

    with world.by_hand():
        for ref in (Ref(POD, NAMESPACE, NAME), CLAIM, DENY):
            world.cluster.edit(ref, strip)

    def mended() -> bool:
        return all(
            world.cluster.objects[ref]["metadata"]["labels"].get(names.COMPONENT)
            for ref in (Ref(POD, NAMESPACE, NAME), CLAIM, DENY)
        )

    await world.until(mended, "with all its labels")


async def owners_lost(world: World) -> None:
    await begin(world, cold_start)
    refs = (Ref(POD, NAMESPACE, NAME), CLAIM)
    for ref in refs:
        world.cluster.edit(ref, lambda obj: obj["metadata"].pop("ownerReferences"))
    await world.until(
        lambda: all(world.cluster.objects[ref]["metadata"].get("ownerReferences") for ref in refs), "owned"
    )


async def retained(world: World) -> None:
    await world.make_sandbox(workspace={"retention": "Retain"})
    await world.until_ready()
    uid = world.cluster.objects[CLAIM]["metadata"]["uid"]
    await world.user.delete(SANDBOX)
    await world.until(lambda: not world.there(POD, NAME), "without a pod")
    await world.make_sandbox(workspace={"retention": "Retain"})
    await world.until_ready()
    assert world.cluster.objects[CLAIM]["metadata"]["uid"] == uid


async def claimed(world: World) -> None:
    """Binds as the fleet does: patches the warm pod, then creates the object."""
    uid = await _warm_pod(world)
    await world.make_sandbox(annotations=_bound(uid), poolRef={"name": "warm"})
    await world.until_ready()
    assert not [one for one in world.greeted if one.first]


async def claimed_by_name(world: World) -> None:
    """A CodeSandbox is created first, and waits for a pod."""
    await world.make_sandbox(poolRef={"name": "warm"})
    await world.until(lambda: world.says("Ready", "False"), "waiting")
    mine = _uid_of(world, NAME)
    uid = await _warm_pod(world, people=mine)
    await world.user.merge(SANDBOX, {"metadata": {"annotations": _bound(uid, people=mine)}})
    await world.until_ready()


async def claimed_without_operator(world: World, *, settled: bool) -> None:
    """The fleet binds a pod and gives it to the object while no operator runs. `settled`: it writes all that it has."""
    world.end_operator(away=True)
    await world.make_sandbox(poolRef={"name": "warm"})
    uid, mine = await _warm_pod(world, owner=NAME), _uid_of(world, NAME)
    await world.user.merge(SANDBOX, {"metadata": {"annotations": _bound(uid, people=mine)}})
    if settled:
        owners = [names.owned_by("CodeSandbox", code_sandbox(world.cluster.objects[SANDBOX]).meta)]
        given = {"ownerReferences": owners, "labels": names.own_labels(**{names.SANDBOX: NAME})}
        await world.user.merge(Ref(PERSISTENT_VOLUME_CLAIM, NAMESPACE, f"workspace-{WARM}"), {"metadata": given})
        binding = {"podName": WARM, "podUID": uid, "claim": record_text(_record(mine))}
        await world.user.merge(SANDBOX, {"status": {"binding": binding}}, "status")


async def claimed_and_crashed(world: World) -> None:
    await begin(world, claimed)
    world.cluster.edit(Ref(POD, NAMESPACE, WARM), lambda pod: ended(pod, 1))
    await _is_back(world, after="ExecutorCrashed")
    _is_on_the_workspace_of_the_warm_pod(world)


async def claimed_and_deleted_pod(world: World) -> None:
    await begin(world, claimed)
    await world.user.delete(Ref(POD, NAMESPACE, WARM))
    await _is_back(world, after="PodDeleted")
    _is_on_the_workspace_of_the_warm_pod(world)


async def claimed_and_suspended(world: World) -> None:
    await begin(world, claimed)
    await world.change(operatingMode="Suspended")
    await world.until(lambda: world.says("Suspended") and not world.there(POD, WARM), "suspended")
    await world.change(operatingMode="Running")
    await world.until_ready()
    _is_on_the_workspace_of_the_warm_pod(world)


async def claimed_while_suspended(world: World) -> None:
    """A sandbox is suspended before the operator has seen its pod: the pod goes, and its files stay."""
    await world.make_sandbox(poolRef={"name": "warm"}, operatingMode="Suspended")
    await world.until(lambda: world.says("Suspended"), "suspended")
    mine = _uid_of(world, NAME)
    uid = await _warm_pod(world, people=mine)
    await world.user.merge(SANDBOX, {"metadata": {"annotations": _bound(uid, people=mine)}})
    await world.until(lambda: not world.there(POD, WARM), "without the warm pod")
    await world.change(operatingMode="Running")
    await world.until_ready()
    _is_on_the_workspace_of_the_warm_pod(world)


async def claimed_and_released_before_its_object_came(world: World) -> None:
    """A deposed fleet undoes its claim: no caller waits for it, and it is over for good."""
    uid = await _warm_pod(world)
    await world.user.delete(Ref(POD, NAMESPACE, WARM))
    await world.until(lambda: not world.there(POD, WARM), "without the warm pod")
    await world.make_sandbox(annotations=_bound(uid), poolRef={"name": "warm"})
    await world.until(lambda: world.says("Expired"), "expired")
    assert world.reason() == "ClaimOver"
    assert not world.there(POD, NAME)
    # By the fleet that leads now.
    await world.user.delete(SANDBOX)


async def claimed_twice(world: World) -> None:
    """An object written late names a pod of another owner: the pod stays with that owner, and is deleted with it."""
    await world.make_sandbox("first", poolRef={"name": "warm"})
    uid = await _warm_pod(world, owner="first")
    await world.make_sandbox(annotations=_bound(uid), poolRef={"name": "warm"})
    await world.until(lambda: world.says("Expired"), "expired")
    owners = world.cluster.objects[Ref(POD, NAMESPACE, WARM)]["metadata"]["ownerReferences"]
    assert [one["name"] for one in owners] == ["first"]
    await world.user.delete(Ref(CODE_SANDBOX, NAMESPACE, "first"))
    await world.until(lambda: not world.there(POD, WARM), "without the pod")
    await world.user.delete(SANDBOX)


async def pool_made_and_removed(world: World) -> None:
    """Its namespace gets default deny before the fleet creates the first pod, and keeps it until the pool is gone."""
    await world.remove_templates()
    await world.until(lambda: DENY not in world.cluster.objects, "left")
    await world.make(SANDBOX_POOL, "warm", spec={"templateRef": {"name": "closed"}, "replicas": 1})
    await world.until(lambda: DENY in world.cluster.objects and KEYS in world.cluster.objects, "closed")
    await asyncio.sleep(60)
    assert DENY in world.cluster.objects
    await world.user.delete(Ref(SANDBOX_POOL, NAMESPACE, "warm"))
    await world.until(lambda: DENY not in world.cluster.objects, "left")


async def template_made_and_removed(world: World) -> None:
    """A template is enough: the fleet starts the pod of a claim only in a closed namespace (issue 16, B.1)."""
    await world.remove_templates()
    await world.until(lambda: DENY not in world.cluster.objects, "left")
    await world.make(SANDBOX_TEMPLATE, "closed", spec={"image": IMAGE})
    await world.until(lambda: DENY in world.cluster.objects and KEYS in world.cluster.objects, "closed")
    await asyncio.sleep(60)
    assert DENY in world.cluster.objects
    await world.user.delete(Ref(SANDBOX_TEMPLATE, NAMESPACE, "closed"))
    await world.until(lambda: DENY not in world.cluster.objects and KEYS not in world.cluster.objects, "left")


def _record(people: str, name: str = NAME) -> Record:
    return Record(object=name, request="r", holder="h", fencing=1, at=0.0, lease=300.0, uid=people)


def _bound(uid: str, people: str = "") -> dict[str, str]:
    """The annotations of a claim's object; `people` is the UID of an object that a user created before."""
    return bound_annotations(WARM, uid, _record(people))


def _uid_of(world: World, name: str) -> str:
    return str(world.cluster.objects[Ref(CODE_SANDBOX, NAMESPACE, name)]["metadata"]["uid"])


async def _warm_pod(world: World, owner: str = "", people: str = "") -> str:
    """A claimed pod, as the fleet leaves it or one step further; its UID."""
    wanted = effective(a_template(), a_spec(), SETTINGS)
    assert not isinstance(wanted, Refusal)
    await world.user.apply(default_deny(NAMESPACE, SETTINGS))
    manifest = sandbox_pod(PodRequest(namespace=NAMESPACE, name=WARM, wanted=wanted, pool="warm"), SETTINGS)
    manifest["metadata"]["labels"][names.SANDBOX] = owner or NAME
    said = record_text(_record(_uid_of(world, owner) if owner else people, owner or NAME))
    manifest["metadata"]["annotations"] = {**manifest["metadata"].get("annotations", {}), names.CLAIM: said}
    if owner:
        first = code_sandbox(world.cluster.objects[Ref(CODE_SANDBOX, NAMESPACE, owner)]).meta
        manifest["metadata"]["ownerReferences"] = [names.owned_by("CodeSandbox", first)]
    pod = await world.user.create(manifest)
    uid = str(pod["metadata"]["uid"])
    volume = workspace_claim(NAMESPACE, WARM, wanted, owner=None)
    volume["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": WARM, "uid": uid}]
    await world.user.create(volume)
    return uid


async def _is_back(world: World, after: str) -> None:
    await world.until_ready(restarts=1)
    history = world.status()["restartHistory"]
    assert [one["reason"] for one in history] == [after], history


def _is_on_the_workspace_of_the_warm_pod(world: World) -> None:
    pod = world.there(POD, NAME)
    assert pod is not None
    assert claim_of(pod) == f"workspace-{WARM}"


async def corrected(world: World) -> None:
    """The image of the template is in no registry, until that is corrected."""
    wrong = f"{IMAGE}-no-such"
    await world.make(SANDBOX_TEMPLATE, "wrong", spec={"image": wrong})

    def cannot_be_pulled(pod: Json) -> None:
        if pod["spec"]["containers"][0]["image"] == wrong:
            pod["spec"]["nodeName"] = NODE
            waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
            pod["status"]["containerStatuses"] = [{"name": "executor", "state": {"waiting": waiting}}]

    world.nodes.holds_up = cannot_be_pulled

    async def pulls_in_vain(here: World) -> None:
        await here.make_sandbox(templateRef={"name": "wrong"})
        await here.until(lambda: here.reason() == "ImagePullFailed", "told that there is no image")

    await begin(world, pulls_in_vain)
    await world.user.merge(Ref(SANDBOX_TEMPLATE, NAMESPACE, "wrong"), {"spec": {"image": IMAGE}})
    await _is_back(world, after="ImagePullFailed")
    assert world.status()["crashes"] == 0


SCENARIOS: tuple[Scenario, ...] = (
    cold_start,
    cold_start_without_egress,
    suspend_and_resume,
    delete,
    executor_crash,
    pod_deleted,
    eviction,
    corrected,
    node_lost,
    idle,
    egress_changed,
    policy_deleted,
    labels_lost,
    owners_lost,
    retained,
    named_workspace,
    given_away_with_its_sandbox,
    wanted_by_three,
    made_anew_at_once,
    claimed,
    claimed_by_name,
    claimed_and_crashed,
    claimed_and_deleted_pod,
    claimed_and_suspended,
    claimed_while_suspended,
    claimed_and_released_before_its_object_came,
    claimed_twice,
    pool_made_and_removed,
    template_made_and_removed,
    services_that_come_and_go,
    *QUEUE_SCENARIOS,
)
