"""Actions applied to the API server in memory; each answer is in the store."""

import pytest
from sandfleet_operator.api.conditions import Reason
from sandfleet_operator.api.kinds.sandbox import SandboxStatus, code_sandbox
from sandfleet_operator.api.kube import (
    CODE_SANDBOX,
    CONFIG_MAP,
    NETWORK_POLICY,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    Ref,
    ServerError,
    failure,
)
from sandfleet_operator.cluster.lease import NotLeadingError
from sandfleet_operator.cluster.store import Store
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.sandbox.actions import (
    AdjustVolume,
    AdoptPod,
    CreatePod,
    CreateVolume,
    DeletePod,
    EnsureKeys,
    EnsurePolicy,
    RemovePolicy,
)
from sandfleet_operator.reconciler.apply import Applier, RefusedError, reason_of
from support.fakes.kube_memory import After, Before, MemoryKube

SPACE = "team-a"
A_POD, A_CLAIM = Ref(POD, SPACE, "demo"), Ref(PERSISTENT_VOLUME_CLAIM, SPACE, "work")
A_POLICY, KEYS = Ref(NETWORK_POLICY, SPACE, "deny"), Ref(CONFIG_MAP, SPACE, names.KEYS_CONFIG_MAP)
OWNER = {"apiVersion": "sandfleet.io/v1alpha1", "kind": "CodeSandbox", "name": "demo", "uid": "u"}
STRANGER = "00000000-0000-4000-8000-ffffffffffff"


def manifest(ref: Ref, **fields):
    meta = {"namespace": ref.namespace, "name": ref.name, **fields.pop("metadata", {})}
    return {"apiVersion": ref.kind.api_version, "kind": ref.kind.kind, "metadata": meta, **fields}


class Bed:
    def __init__(self) -> None:
        self.kube, self.store = MemoryKube(manager="operator"), Store()
        self.keys, self.number = "one", 7
        self.applier = Applier(self.kube, self.store, lambda: self.keys, lambda: self.number)

    def there(self, ref: Ref):
        return self.kube.cluster.objects.get(ref)

    async def make(self, ref: Ref, **fields):
        """An object of another user, which the store does not know."""
        return await MemoryKube(self.kube.cluster).create(manifest(ref, **fields))

    async def known(self, ref: Ref, **fields):
        made = await self.make(ref, **fields)
        self.store.put(ref.kind, made)
        return made

    def fails(self, fault: Before | After) -> None:
        self.kube.fault = lambda _write: fault


@pytest.fixture
async def bed() -> Bed:
    made = Bed()
    await MemoryKube(made.kube.cluster).create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    return made


POD_MANIFEST = manifest(A_POD, spec={"containers": []})


async def test_created_objects_are_in_the_store_at_once(bed: Bed):
    await bed.applier.apply(CreatePod(POD_MANIFEST))
    await bed.applier.apply(CreateVolume(manifest(A_CLAIM, spec={})))
    await bed.applier.apply(EnsurePolicy(manifest(A_POLICY, spec={"podSelector": {}})))
    for ref in (A_POD, A_CLAIM, A_POLICY):
        assert bed.store.get(ref)["metadata"]["uid"] == bed.there(ref)["metadata"]["uid"]


async def test_an_existing_object_is_read(bed: Bed):
    made = await bed.make(A_POD, spec={"containers": []})
    await bed.applier.apply(CreatePod(POD_MANIFEST))
    assert bed.store.get(A_POD)["metadata"]["uid"] == made["metadata"]["uid"]


@pytest.mark.parametrize(
    ("status", "answer", "why"),
    [
        (403, {"reason": "Forbidden", "message": "exceeded quota: small, requested: pods=1"}, Reason.QUOTA_EXCEEDED),
        (403, {"reason": "Forbidden", "message": "failed quota: q: must specify limits.cpu"}, Reason.QUOTA_EXCEEDED),
        (403, {"reason": "Forbidden", "message": 'RuntimeClass "gvisor" not found'}, Reason.RUNTIME_CLASS_NOT_FOUND),
        (403, {"reason": "Forbidden", "message": "violates PodSecurity"}, Reason.FORBIDDEN),
        (404, {"reason": "NotFound", "message": 'namespaces "team-a" not found'}, Reason.FORBIDDEN),
        (422, {"reason": "Invalid", "message": "spec.priorityClassName: no such class"}, Reason.TEMPLATE_INVALID),
    ],
)
@pytest.mark.parametrize("action", [CreatePod(POD_MANIFEST), CreateVolume(manifest(A_CLAIM, spec={}))])
async def test_a_refusal_has_its_reason(bed: Bed, action, status, answer, why):
    bed.fails(Before(failure("create it", status, answer)))
    with pytest.raises(RefusedError, match=answer["message"].split()[0]) as refused:
        await bed.applier.apply(action)
    assert refused.value.reason is why
    assert reason_of(failure("create it", status, answer)) is why


@pytest.mark.parametrize("fault", [Before(ServerError(500, "InternalError", "no")), After()])
async def test_a_failed_action_is_left_to_the_next_round(bed: Bed, fault):
    bed.fails(fault)
    with pytest.raises(KubeError) as failed:
        await bed.applier.apply(CreatePod(POD_MANIFEST))
    assert failed.value.unsettled


async def test_an_applier_that_does_not_lead_writes_nothing(bed: Bed):
    bed.number = None
    for action in (
        CreatePod(POD_MANIFEST),
        EnsureKeys(SPACE),
        RemovePolicy(SPACE, "deny"),
        DeletePod(SPACE, "demo", "u"),
    ):
        with pytest.raises(NotLeadingError):
            await bed.applier.apply(action)
    assert bed.kube.writes == []


# Keys.


async def test_keys_are_published_once_and_again_after_a_possible_change(bed: Bed):
    assert not bed.applier.has_keys(SPACE)
    await bed.applier.apply(EnsureKeys(SPACE))
    assert bed.there(KEYS)["data"] == {"keys.json": "one"}
    assert bed.applier.has_keys(SPACE)
    bed.keys = "two"
    assert not bed.applier.has_keys(SPACE)
    await bed.applier.apply(EnsureKeys(SPACE))
    assert bed.there(KEYS)["data"] == {"keys.json": "two"}
    assert bed.applier.has_keys(SPACE)
    assert not bed.applier.has_keys("team-b")


async def test_keys_do_not_count_as_published_after_a_failure(bed: Bed):
    bed.fails(After())
    with pytest.raises(KubeError):
        await bed.applier.apply(EnsureKeys(SPACE))
    assert not bed.applier.has_keys(SPACE)


# Deletions.


async def test_a_pod_is_deleted_by_its_uid(bed: Bed):
    made = await bed.known(A_POD, spec={"containers": []})
    await bed.applier.apply(DeletePod(SPACE, "demo", STRANGER))
    assert bed.there(A_POD)
    await bed.applier.apply(DeletePod(SPACE, "demo", made["metadata"]["uid"]))
    assert not bed.there(A_POD)
    assert bed.store.get(A_POD) is None


async def test_a_pod_that_ends_slowly_is_known_as_deleting(bed: Bed):
    made = await bed.known(A_POD, spec={"containers": [], "nodeName": "node-1"})
    await bed.applier.apply(DeletePod(SPACE, "demo", made["metadata"]["uid"]))
    assert "deletionTimestamp" in bed.store.get(A_POD)["metadata"]


async def test_a_late_answer_does_not_bring_a_deleted_object_back(bed: Bed):
    made = await bed.known(A_POD, spec={"containers": []})
    await MemoryKube(bed.kube.cluster).delete(A_POD)
    bed.kube.lag = 1
    await bed.applier.apply(DeletePod(SPACE, "demo", made["metadata"]["uid"]))
    assert bed.store.get(A_POD) is None
    assert await bed.applier.look(A_POD) is None


async def test_a_policy_is_removed(bed: Bed):
    await bed.known(A_POLICY, spec={})
    await bed.applier.apply(RemovePolicy(SPACE, "deny"))
    assert not bed.there(A_POLICY)
    assert bed.store.get(A_POLICY) is None


@pytest.mark.parametrize("again", [False, True])
async def test_a_policy_that_was_changed_or_made_anew_since_stays(bed: Bed, again):
    await bed.known(A_POLICY, spec={})
    if again:
        await bed.kube.delete(A_POLICY)
        await bed.make(A_POLICY, spec={"podSelector": {}})
    else:
        await bed.kube.merge(A_POLICY, {"spec": {"podSelector": {}}})
    await bed.applier.apply(RemovePolicy(SPACE, "deny"))
    assert bed.there(A_POLICY)["spec"] == {"podSelector": {}}
    # The next decision is based on what is there now.
    assert bed.store.get(A_POLICY)["spec"] == {"podSelector": {}}


async def test_a_policy_that_no_watch_has_shown_is_not_removed(bed: Bed):
    await bed.make(A_POLICY, spec={})
    await bed.applier.apply(RemovePolicy(SPACE, "deny"))
    assert bed.there(A_POLICY)


# Patches.

LABELS = {"app": "web", "a/b~c": "1", "state": "warm"}


@pytest.mark.parametrize("in_store", [True, False])
async def test_an_adoption_changes_what_it_names_and_nothing_else(bed: Bed, in_store):
    make = bed.known if in_store else bed.make
    made = await make(A_POD, spec={"containers": []}, metadata={"labels": LABELS})
    changes = {"state": "claimed", "a/b~c": None, "never/there": None, "new": "1"}
    before = made["metadata"]
    await bed.applier.apply(AdoptPod(SPACE, "demo", before["uid"], changes, OWNER, before["resourceVersion"]))
    meta = bed.there(A_POD)["metadata"]
    assert meta["labels"] == {"app": "web", "state": "claimed", "new": "1"}
    assert meta["ownerReferences"] == [OWNER]
    assert bed.store.get(A_POD)["metadata"]["labels"] == meta["labels"]


@pytest.mark.parametrize("in_store", [True, False])
async def test_an_owner_set_meanwhile_keeps_the_pod(bed: Bed, in_store):
    """Even if no watch has shown it: the patch tests the version that was seen without an owner."""
    make = bed.known if in_store else bed.make
    seen = (await make(A_POD, spec={"containers": []}))["metadata"]
    other = {**OWNER, "name": "other", "uid": "o"}
    theirs = await MemoryKube(bed.kube.cluster).merge(A_POD, {"metadata": {"ownerReferences": [other]}})
    adopt = AdoptPod(SPACE, "demo", seen["uid"], {"state": "claimed"}, OWNER, seen["resourceVersion"])
    await bed.applier.apply(adopt)
    assert bed.there(A_POD) == theirs
    # The next round sees its owner.
    assert bed.store.get(A_POD)["metadata"]["ownerReferences"] == [other]


async def test_a_pod_without_labels_gets_its_labels(bed: Bed):
    made = await bed.known(A_POD, spec={"containers": []})
    await bed.applier.apply(AdoptPod(SPACE, "demo", made["metadata"]["uid"], {"state": "claimed"}))
    assert bed.there(A_POD)["metadata"]["labels"] == {"state": "claimed"}
    assert "ownerReferences" not in bed.there(A_POD)["metadata"]


async def test_another_pod_of_the_same_name_is_not_adopted(bed: Bed):
    made = await bed.known(A_POD, spec={"containers": []}, metadata={"labels": LABELS})
    await bed.applier.apply(AdoptPod(SPACE, "demo", STRANGER, {"state": "claimed"}, OWNER))
    assert bed.there(A_POD) == made


async def test_a_gone_pod_is_removed_from_the_store(bed: Bed):
    made = await bed.known(A_POD, spec={"containers": []})
    await MemoryKube(bed.kube.cluster).delete(A_POD)
    await bed.applier.apply(AdoptPod(SPACE, "demo", made["metadata"]["uid"], {"state": "claimed"}))
    assert bed.store.get(A_POD) is None


def adjusted(made, before=()):
    return AdjustVolume(
        namespace=SPACE,
        name="work",
        uid=made["metadata"]["uid"],
        owners=(OWNER,),
        before=before,
        version=made["metadata"]["resourceVersion"],
        annotations={"kept": "Delete"},
        labels={"sandbox": "demo"},
    )


@pytest.mark.parametrize("before", [(), ({"kind": "Pod", "name": "warm-1", "uid": "u-1"},)])
async def test_a_volume_claim_that_has_got_another_owner_since_keeps_it(bed: Bed, before):
    made = await bed.known(A_CLAIM, spec={}, metadata={"ownerReferences": [dict(one) for one in before]})
    theirs = [{"kind": "CodeSandbox", "name": "other", "uid": "u-2"}]
    await bed.kube.merge(A_CLAIM, {"metadata": {"ownerReferences": theirs}})
    await bed.applier.apply(adjusted(made, before))
    assert bed.there(A_CLAIM)["metadata"]["ownerReferences"] == theirs


async def test_a_volume_claim_is_given_away_by_the_owner_that_was_seen(bed: Bed):
    warm = {"kind": "Pod", "name": "warm-1", "uid": "u-1"}
    made = await bed.known(A_CLAIM, spec={}, metadata={"ownerReferences": [warm]})
    # Its status changes while a volume is made for it.
    await bed.kube.merge(A_CLAIM, {"metadata": {"annotations": {"bound": "yes"}}})
    await bed.applier.apply(adjusted(made, (warm,)))
    assert bed.there(A_CLAIM)["metadata"]["ownerReferences"] == [OWNER]


@pytest.mark.parametrize("in_store", [True, False])
async def test_a_volume_claim_keeps_labels_and_annotations_of_others(bed: Bed, in_store):
    """In particular the annotations of the volume binder."""
    make = bed.known if in_store else bed.make
    theirs = {"pv.kubernetes.io/bind-completed": "yes"}
    made = await make(A_CLAIM, spec={}, metadata={"annotations": theirs, "labels": {"app": "web"}})
    await bed.applier.apply(adjusted(made))
    meta = bed.there(A_CLAIM)["metadata"]
    assert meta["annotations"] == {**theirs, "kept": "Delete"}
    assert meta["labels"] == {"app": "web", "sandbox": "demo"}
    assert meta["ownerReferences"] == [OWNER]


# The status.


async def a_sandbox(bed: Bed):
    made = await bed.make(Ref(CODE_SANDBOX, SPACE, "demo"), spec={"templateRef": {"name": "python"}})
    return code_sandbox(made)


async def test_a_status_is_written_over_the_decided_version(bed: Bed):
    sandbox = await a_sandbox(bed)
    await bed.applier.write_status(sandbox, SandboxStatus(pod="demo", crashes=2))
    status = code_sandbox(bed.store.get(Ref(CODE_SANDBOX, SPACE, "demo"))).status
    assert (status.pod, status.crashes, status.fencing) == ("demo", 2, 7)
    with pytest.raises(Conflict):
        await bed.applier.write_status(sandbox, SandboxStatus())


async def test_dropped_status_fields_are_removed(bed: Bed):
    await bed.applier.write_status(await a_sandbox(bed), SandboxStatus(pod="demo", node="node-1"))
    now = code_sandbox(bed.there(Ref(CODE_SANDBOX, SPACE, "demo")))
    await bed.applier.write_status(now, SandboxStatus(pod="demo"))
    assert "nodeName" not in bed.there(Ref(CODE_SANDBOX, SPACE, "demo"))["status"]


async def test_a_read_removes_a_missing_object_from_the_store(bed: Bed):
    await bed.known(A_POD, spec={"containers": []})
    await MemoryKube(bed.kube.cluster).delete(A_POD)
    assert await bed.applier.look(A_POD) is None
    assert bed.store.get(A_POD) is None


async def test_an_unknown_action_is_an_error(bed: Bed):
    with pytest.raises(TypeError, match="cannot apply"):
        await bed.applier.apply("a pod")


def test_only_lasting_errors_are_refusals():
    assert {type(failure("x", status, {})) for status in (403, 404, 422)} == {Forbidden, NotFound, Invalid}
