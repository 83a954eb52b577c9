"""A tenant's CodeSandbox is input: what it says of its pod gives it no session, no token and no files of others."""

import json

import pytest
from sandfleet_operator.api.kube import CODE_SANDBOX, PERSISTENT_VOLUME_CLAIM, POD, Ref
from sandfleet_operator.plan.claims.record import object_name, read_record
from sandfleet_operator.plan.pods import names
from support.kubernetes.world import TEAM, World, pool_object, sandbox_object, template_object


@pytest.fixture
async def world():
    async with World() as made:
        await made.add(template_object(), pool_object())
        yield made


def pod_of(world, sandbox):
    return world.cluster.objects[Ref(POD, TEAM, sandbox.sandbox_id.partition("/")[2])]


def object_of(sandbox, world):
    return pod_of(world, sandbox)["metadata"]["labels"][names.SANDBOX]


async def settled(world, sandbox):
    """Returns the claim's CodeSandbox once the fleet has written all that belongs to it."""
    pod, ref = pod_of(world, sandbox), Ref(CODE_SANDBOX, TEAM, object_of(sandbox, world))
    await world.until(
        lambda: (world.cluster.objects.get(Ref(POD, TEAM, pod["metadata"]["name"])) or pod)["metadata"].get(
            "ownerReferences"
        )
    )
    return world.cluster.objects[ref]


def forged(world, sandbox, name="forged", **changes):
    """An object of another tenant, with the annotations of this session's object."""
    pod = pod_of(world, sandbox)["metadata"]
    record = {**json.loads(pod["annotations"][names.CLAIM]), **changes}
    made = sandbox_object(name, pool="none")
    bound = f"{pod['name']}/{pod['uid']}"
    made["metadata"]["annotations"] = {names.BOUND_POD: bound, names.CLAIM: json.dumps(record)}
    return made


FORGERIES = [{}, {"object": "forged"}, {"object": "forged", "uid": "u-1"}, {"object": "forged", "request": "r2"}]


@pytest.mark.parametrize("changes", FORGERIES)
@pytest.mark.parametrize("takeover", [False, True])
async def test_a_forged_binding_maps_no_object_to_the_session_of_another(world, changes, takeover):
    fleet = await world.fleet()
    victim = await world.claim(fleet)
    await settled(world, victim)
    await world.add(forged(world, victim, **changes))
    if takeover:
        await world.kill(fleet)
        fleet = await world.fleet()
    await world.until(lambda: fleet._store.get(Ref(CODE_SANDBOX, TEAM, "forged")))
    # No token for the victim's pod: access goes by the session that the object has.
    assert fleet.session_of(f"{TEAM}/forged") is None
    assert fleet.session_of(f"{TEAM}/{object_of(victim, world)}").sandbox_id == victim.sandbox_id
    await world.kube.delete(Ref(CODE_SANDBOX, TEAM, "forged"))
    await world.until(lambda: fleet._store.get(Ref(CODE_SANDBOX, TEAM, "forged")) is None)
    await world.claim(fleet, "r9")
    session = fleet.session_of(f"{TEAM}/{object_of(victim, world)}")
    assert session is not None
    assert (session.state.value, session.bound) == ("Claimed", True)
    assert pod_of(world, victim)["metadata"].get("deletionTimestamp") is None


async def test_a_forged_status_of_a_foreign_pod_ends_nothing_either(world):
    """As a restore of a backup with its status may write it: the record names another object."""
    fleet = await world.fleet()
    victim = await world.claim(fleet)
    binding = (await settled(world, victim))["status"]["binding"]
    await world.add(sandbox_object("forged", pool="none"))
    await world.kube.merge(Ref(CODE_SANDBOX, TEAM, "forged"), {"status": {"binding": binding}}, "status")
    await world.until(lambda: (fleet._store.get(Ref(CODE_SANDBOX, TEAM, "forged")) or {}).get("status"))
    assert fleet.session_of(f"{TEAM}/forged") is None
    await world.kube.delete(Ref(CODE_SANDBOX, TEAM, "forged"))
    await world.claim(fleet, "r9")
    assert fleet.session_of(f"{TEAM}/{object_of(victim, world)}").bound


async def test_an_object_of_the_claims_name_that_a_tenant_made_first_gets_no_pod(world):
    """The fleet takes an object for its own only if its write may have made it, whatever the annotations say."""
    kube = world.client()
    fleet = await world.fleet(kube)
    squatted = []

    def squat(write):
        if write.verb == "create" and write.ref.kind == CODE_SANDBOX and not squatted:
            squatted.append(write.ref.name)
            made = json.loads(json.dumps(write.body))
            world.kube._create(write.ref, made)

    kube.fault = squat
    victim = await world.claim(fleet)
    name = object_of(victim, world)
    await world.until(lambda: Ref(POD, TEAM, victim.sandbox_id.partition("/")[2]) not in world.cluster.objects)
    assert squatted == [name]
    await world.until(lambda: fleet.session_of(f"{TEAM}/{name}") is None)


@pytest.mark.parametrize("lost", [(names.BOUND_POD,), (names.CLAIM,), (names.BOUND_POD, names.CLAIM)])
async def test_a_session_goes_on_when_its_object_is_replaced_without_annotations(world, lost):
    fleet = await world.fleet()
    mine = await world.claim(fleet, lease=600.0)
    name = (await settled(world, mine))["metadata"]["name"]
    await world.kube.merge(Ref(CODE_SANDBOX, TEAM, name), {"metadata": {"annotations": dict.fromkeys(lost)}})
    await world.kill(fleet)
    leader = await world.fleet()
    session = leader.session_of(f"{TEAM}/{name}")
    assert (session.sandbox_id, session.claim.lease, session.bound) == (mine.sandbox_id, 600.0, True)
    assert (await world.claim(leader)).sandbox_id == mine.sandbox_id
    assert await leader.fleet.release(session.sandbox_id)
    await world.until(lambda: not world.objects())


async def test_a_declared_object_that_lost_its_annotations_gets_no_second_pod(world):
    fleet = await world.fleet()
    await world.add(sandbox_object())
    await world.until(lambda: any(one["metadata"].get("ownerReferences") for one in world.pods("claimed")))
    (before,) = world.pods("claimed")
    gone = dict.fromkeys((names.BOUND_POD, names.CLAIM))
    await world.kube.merge(Ref(CODE_SANDBOX, TEAM, "mine"), {"metadata": {"annotations": gone}})
    await world.claim(fleet, "r9")
    await world.kill(fleet)
    leader = await world.fleet()
    await world.claim(leader, "r10")
    found = [one for one in world.pods("claimed") if one["metadata"]["labels"][names.SANDBOX] == "mine"]
    assert [one["metadata"]["uid"] for one in found] == [before["metadata"]["uid"]]
    assert leader.session_of(f"{TEAM}/mine") is not None


async def test_a_claimed_workspace_belongs_to_its_object_without_the_operator(world):
    """No operator runs here: the fleet settles who owns the files."""
    fleet = await world.fleet()
    mine = await world.claim(fleet)
    made = await settled(world, mine)
    pod = pod_of(world, mine)["metadata"]
    workspace = Ref(PERSISTENT_VOLUME_CLAIM, TEAM, names.workspace_claim_name(pod["name"]))
    owners = world.cluster.objects[workspace]["metadata"]["ownerReferences"]
    assert [(one["kind"], one["uid"]) for one in owners] == [("CodeSandbox", made["metadata"]["uid"])]
    binding = made["status"]["binding"]
    assert (binding["podName"], binding["podUID"]) == (pod["name"], pod["uid"])
    assert read_record(binding["claim"]) == read_record(pod["annotations"][names.CLAIM])
    # Eviction: the pod goes, and the garbage collector with it.
    await world.kube.delete(Ref(POD, TEAM, pod["name"]), grace_seconds=0)
    await world.until(lambda: fleet.session_of(f"{TEAM}/{made['metadata']['name']}").state.value == "Recovering")
    world.cluster.collect()
    assert workspace in world.cluster.objects
    await world.kill(fleet)
    leader = await world.fleet()
    session = leader.session_of(f"{TEAM}/{made['metadata']['name']}")
    assert (session.state.value, session.claim.key) == ("Recovering", mine.claim.key)


@pytest.mark.parametrize("writes", range(1, 6))
async def test_a_claim_is_settled_by_the_next_leader_wherever_the_first_one_ended(world, writes):
    kube = world.client()
    fleet = await world.fleet(kube)
    await world.until(lambda: fleet.scheduler.summary("team/fast").warm == 2)
    done = []

    def crash(write):
        claiming = write.ref.kind in {POD, CODE_SANDBOX, PERSISTENT_VOLUME_CLAIM} and write.verb in {
            "patch",
            "create",
            "merge",
        }
        if not claiming or (write.ref.kind == POD and write.verb == "create"):
            return
        done.append(str(write.ref))
        if len(done) == writes:
            fleet.state["leading"] = None

    kube.fault = crash
    mine = await world.claim(fleet)
    await world.until(lambda: len(done) >= writes)
    await world.kill(fleet)
    await world.fleet()
    made = await settled(world, mine)
    assert made["metadata"]["name"] == object_name(mine.claim.key) or made["metadata"]["name"].startswith("claim-")
    pod = pod_of(world, mine)["metadata"]
    assert made["status"]["binding"]["podUID"] == pod["uid"]
    workspace = Ref(PERSISTENT_VOLUME_CLAIM, TEAM, names.workspace_claim_name(pod["name"]))
    assert [one["kind"] for one in world.cluster.objects[workspace]["metadata"]["ownerReferences"]] == ["CodeSandbox"]


async def test_a_workspace_that_belongs_to_another_object_is_not_taken(world):
    """Re-owning tests the old owner in the same patch."""
    kube = world.client()
    fleet = await world.fleet(kube)
    theirs = [{"apiVersion": CODE_SANDBOX.api_version, "kind": "CodeSandbox", "name": "other", "uid": "u-other"}]
    taken = []

    def take(write):
        if write.ref.kind == PERSISTENT_VOLUME_CLAIM and write.verb == "patch" and not taken:
            taken.append(write.ref)
            world.cluster.edit(write.ref, lambda obj: obj["metadata"].update(ownerReferences=theirs))

    kube.fault = take
    mine = await world.claim(fleet)
    await settled(world, mine)
    (workspace,) = taken
    found = world.cluster.objects.get(workspace)
    # The garbage collector of this world may have ended the volume claim of an owner that never was.
    assert found is None or found["metadata"]["ownerReferences"] == theirs


async def test_a_volume_claim_that_was_there_before_its_warm_pod_is_not_used(world):
    """A fleet ended between pod and volume: a tenant may have made a volume claim of that name since."""
    world.starts = False
    kube = world.client()
    fleet = await world.fleet(kube)
    await world.until(lambda: len(world.pods("warm")) == 2)
    await world.kill(fleet)
    pod = world.pods("warm")[0]["metadata"]
    workspace = Ref(PERSISTENT_VOLUME_CLAIM, TEAM, names.workspace_claim_name(pod["name"]))
    theirs = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "name": "node-0",
            "uid": world.cluster.objects[next(ref for ref in world.cluster.objects if ref.kind.kind == "Node")][
                "metadata"
            ]["uid"],
        }
    ]
    world.cluster.edit(workspace, lambda obj: obj["metadata"].update(ownerReferences=theirs))
    await world.fleet()
    world.starts = True
    await world.until(lambda: Ref(POD, TEAM, pod["name"]) not in world.cluster.objects)


async def test_a_volume_claim_whose_owner_is_forged_is_not_used_either(world):
    """The maker of a volume claim can name the warm pod as its owner: the label says who has made it."""
    world.starts = False
    fleet = await world.fleet()
    await world.until(lambda: len(world.pods("warm")) == 2)
    await world.kill(fleet)
    pod = world.pods("warm")[0]["metadata"]
    workspace = Ref(PERSISTENT_VOLUME_CLAIM, TEAM, names.workspace_claim_name(pod["name"]))
    world.cluster.edit(workspace, lambda obj: obj["metadata"].pop("labels"))
    assert world.cluster.objects[workspace]["metadata"]["ownerReferences"][0]["uid"] == pod["uid"]
    await world.fleet()
    world.starts = True
    await world.until(lambda: Ref(POD, TEAM, pod["name"]) not in world.cluster.objects)


async def test_a_claim_with_a_large_environment_is_settled_and_keeps_it(world):
    fleet = await world.fleet()
    envs = {f"NAME_{number}": "ü" * 500 for number in range(60)}
    mine = await world.claim(fleet, envs=envs)
    made = await settled(world, mine)
    assert len(made["status"]["binding"]["claim"]) < 32768
    await world.kill(fleet)
    leader = await world.fleet()
    assert leader.session_of(f"{TEAM}/{made['metadata']['name']}").claim.envs == envs
