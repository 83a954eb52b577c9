"""What the product expects of the Kubernetes API, in memory and real: writing.

Who runs these sentences has a fixture `bed`.
"""

import pytest
from contract.kube.bed import MAX_ANNOTATIONS, MAX_OBJECT, STRANGER, THING, Bed, version
from sandfleet_operator.api.kube import (
    CONFIG_MAP,
    NETWORK_POLICY,
    POD,
    AlreadyExists,
    Conflict,
    Invalid,
    NotFound,
    ServerError,
    ref_of,
)

# Creating and reading.


async def test_a_created_object_is_read_back_with_the_servers_additions(bed: Bed):
    made = await bed.api.create(bed.config(labels={"a": "b"}))
    assert made == await bed.api.get(bed.ref(CONFIG_MAP))
    assert {"uid", "resourceVersion", "creationTimestamp"} <= made["metadata"].keys()
    assert made["metadata"]["labels"] == {"a": "b"}
    assert made["data"] == {"color": "blue"}
    assert ref_of(made) == bed.ref(CONFIG_MAP)


async def test_a_name_is_taken_once_and_a_new_object_has_another_uid(bed: Bed):
    first = await bed.api.create(bed.config())
    with pytest.raises(AlreadyExists) as refusal:
        await bed.api.create(bed.config())
    assert (refusal.value.status, refusal.value.reason) == (409, "AlreadyExists")
    await bed.api.delete(bed.ref(CONFIG_MAP))
    assert (await bed.api.create(bed.config()))["metadata"]["uid"] != first["metadata"]["uid"]


async def test_the_server_generates_a_name(bed: Bed):
    nameless = bed.config(generateName="made-")
    del nameless["metadata"]["name"]
    names = {(await bed.api.create(nameless))["metadata"]["name"] for _ in range(2)}
    assert len(names) == 2
    assert all(name.startswith("made-") for name in names)


async def test_a_missing_object_is_not_found(bed: Bed):
    with pytest.raises(NotFound) as refusal:
        await bed.api.get(bed.ref(CONFIG_MAP, "none"))
    assert (refusal.value.status, refusal.value.reason) == (404, "NotFound")
    for write in (bed.api.patch(bed.ref(CONFIG_MAP), []), bed.api.merge(bed.ref(CONFIG_MAP), {})):
        with pytest.raises(NotFound):
            await write


async def test_nothing_is_created_in_a_missing_namespace(bed: Bed):
    with pytest.raises(NotFound, match="namespace"):
        await bed.api.create(bed.config(namespace="kube-contract-none"))
    with pytest.raises(NotFound, match="namespace"):
        await bed.api.apply(bed.config(namespace="kube-contract-none"))


async def test_an_object_with_a_resource_version_cannot_be_created(bed: Bed):
    # The API server reports an internal error.
    with pytest.raises(ServerError, match="resourceVersion should not be set"):
        await bed.api.create(bed.config(resourceVersion="1"))
    assert not await bed.there(bed.ref(CONFIG_MAP))


# Sizes.


@pytest.mark.parametrize("sign", ["x", "ü", "😀"])
async def test_annotations_are_bounded_in_bytes(bed: Bed, sign: str):
    room = MAX_ANNOTATIONS - len("text")
    fits = sign * (room // len(sign.encode()))
    await bed.api.create(bed.config(annotations={"text": fits}))
    with pytest.raises(Invalid, match="annotations: Too long") as refusal:
        await bed.api.merge(bed.ref(CONFIG_MAP), {"metadata": {"annotations": {"text": fits + sign}}})
    assert (refusal.value.status, refusal.value.reason) == (422, "Invalid")
    # As a failed test of a patch: only a look at the object tells them apart.
    patch = [{"op": "add", "path": "/metadata/annotations/more", "value": "x"}]
    with pytest.raises(Invalid, match="annotations: Too long") as refusal:
        await bed.api.patch(bed.ref(CONFIG_MAP), patch)
    assert (refusal.value.status, refusal.value.reason) == (422, "Invalid")
    with pytest.raises(Invalid) as refusal:
        await bed.api.patch(bed.ref(CONFIG_MAP), [{"op": "test", "path": "/data/color", "value": "red"}])
    assert (refusal.value.status, refusal.value.reason) == (422, "Invalid")


async def test_an_object_is_bounded_by_the_store_behind_the_server(bed: Bed):
    with pytest.raises(ServerError, match="too large"):
        await bed.api.create(bed.thing(spec={"text": "x" * (MAX_OBJECT + 1)}))
    assert not await bed.there(bed.ref(THING))


# Versions and generations.


async def test_each_change_has_a_new_version_and_no_change_has_none(bed: Bed):
    made = await bed.api.create(bed.config())
    ref = bed.ref(CONFIG_MAP)
    changed = await bed.api.merge(ref, {"data": {"color": "red"}})
    assert version(changed) > version(made)
    for same in (
        await bed.api.merge(ref, {"data": {"color": "red"}}),
        await bed.api.patch(ref, [{"op": "replace", "path": "/data/color", "value": "red"}]),
    ):
        assert version(same) == version(changed)


GENERATIONS = [
    (THING, {"metadata": {"labels": {"a": "b"}}}, 1),
    (THING, {"spec": {"size": 2}}, 2),
    (POD, {"metadata": {"labels": {"a": "b"}}}, 1),
    (POD, {"spec": {"activeDeadlineSeconds": 60}}, 2),
    (NETWORK_POLICY, {"metadata": {"labels": {"a": "b"}}}, 1),
    (NETWORK_POLICY, {"spec": {"policyTypes": ["Egress"]}}, 2),
    (CONFIG_MAP, {"data": {"color": "red"}}, None),
]


@pytest.mark.parametrize(("kind", "change", "generation"), GENERATIONS, ids=str)
async def test_the_generation_counts_changes_of_the_spec(bed: Bed, kind, change, generation):
    policy = bed.make(NETWORK_POLICY, "one", {}, spec={"podSelector": {}, "policyTypes": ["Ingress"]})
    made = {THING: bed.thing(), POD: bed.pod(nodeName="nowhere"), NETWORK_POLICY: policy, CONFIG_MAP: bed.config()}
    assert (await bed.api.create(made[kind]))["metadata"].get("generation") == (1 if generation else None)
    assert (await bed.api.merge(bed.ref(kind), change))["metadata"].get("generation") == generation


async def test_a_status_is_written_through_its_subresource_only(bed: Bed):
    made = await bed.api.create({**bed.thing(), "status": {"phase": "Invented"}})
    assert "status" not in made
    ref = bed.ref(THING)
    assert "status" not in await bed.api.merge(ref, {"status": {"phase": "Invented"}})
    stated = await bed.api.merge(ref, {"status": {"phase": "True"}, "spec": {"size": 5}}, "status")
    assert stated["status"] == {"phase": "True"}
    assert stated["spec"] == {"size": 1}
    assert stated["metadata"]["generation"] == 1
    assert version(stated) > version(made)
    wanted = await bed.api.merge(ref, {"spec": {"size": 2}, "status": None})
    assert (wanted["spec"], wanted["status"]) == ({"size": 2}, {"phase": "True"})


async def test_a_pods_spec_is_immutable(bed: Bed):
    await bed.api.create(bed.pod(nodeName="nowhere"))
    with pytest.raises(Invalid):
        await bed.api.merge(bed.ref(POD), {"spec": {"hostname": "other"}})


# Patches.


async def test_a_json_patch_is_applied_whole_when_its_tests_hold(bed: Bed):
    await bed.api.create(bed.config(labels={"sandfleet.io/state": "warm", "old": "x"}))
    operations = [
        {"op": "test", "path": "/metadata/labels/sandfleet.io~1state", "value": "warm"},
        {"op": "replace", "path": "/metadata/labels/sandfleet.io~1state", "value": "claimed"},
        {"op": "add", "path": "/metadata/annotations", "value": {"claim": "7"}},
        {"op": "add", "path": "/metadata/annotations/more", "value": "8"},
        {"op": "remove", "path": "/metadata/labels/old"},
    ]
    done = await bed.api.patch(bed.ref(CONFIG_MAP), operations)
    assert done["metadata"]["labels"] == {"sandfleet.io/state": "claimed"}
    assert done["metadata"]["annotations"] == {"claim": "7", "more": "8"}
    with pytest.raises(Invalid) as refusal:
        await bed.api.patch(bed.ref(CONFIG_MAP), operations)
    assert (refusal.value.status, refusal.value.reason) == (422, "Invalid")
    assert await bed.api.get(bed.ref(CONFIG_MAP)) == done


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/metadata/labels/state", "value": "warm"},
        {"op": "test", "path": "/data/color", "value": "red"},
        {"op": "replace", "path": "/metadata/labels/state", "value": "warm"},
        {"op": "remove", "path": "/data/size"},
        {"op": "add", "path": "/metadata/annotations/claim", "value": "7"},
        {"op": "test", "path": "/metadata/resourceVersion", "value": "1"},
    ],
    ids=lambda operation: f"{operation['op']} {operation['path']}",
)
async def test_a_json_patch_that_does_not_fit_is_invalid(bed: Bed, operation):
    made = await bed.api.create(bed.config())
    with pytest.raises(Invalid):
        await bed.api.patch(
            bed.ref(CONFIG_MAP), [{"op": "replace", "path": "/data/color", "value": "green"}, operation]
        )
    assert await bed.api.get(bed.ref(CONFIG_MAP)) == made


async def test_a_json_patch_can_test_for_absence(bed: Bed):
    await bed.api.create(bed.config(labels={"a": "b"}))
    claim = [
        {"op": "test", "path": "/metadata/labels/claim", "value": None},
        {"op": "add", "path": "/metadata/labels/claim", "value": "7"},
    ]
    assert (await bed.api.patch(bed.ref(CONFIG_MAP), claim))["metadata"]["labels"] == {"a": "b", "claim": "7"}
    with pytest.raises(Invalid):
        await bed.api.patch(bed.ref(CONFIG_MAP), claim)


async def test_managed_fields_can_be_cleared_for_good(bed: Bed):
    await bed.api.create(bed.pod())
    closing = [{"op": "add", "path": "/metadata/managedFields", "value": [{}]}]
    assert "managedFields" not in (await bed.api.patch(bed.ref(POD), closing))["metadata"]
    label = [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]
    done = await bed.api.patch(bed.ref(POD), label)
    assert "managedFields" not in done["metadata"]
    assert done["metadata"]["labels"] == {"a": "b"}


async def test_a_merge_patch_removes_nulls_and_keeps_other_fields(bed: Bed):
    await bed.api.create(bed.config(labels={"a": "b", "c": "d"}))
    done = await bed.api.merge(bed.ref(CONFIG_MAP), {"metadata": {"labels": {"a": None, "e": "f"}}})
    assert done["metadata"]["labels"] == {"c": "d", "e": "f"}
    assert done["data"] == {"color": "blue"}


async def test_a_merge_patch_of_another_version_conflicts(bed: Bed):
    made = await bed.api.create(bed.config())
    ref, old = bed.ref(CONFIG_MAP), {"resourceVersion": made["metadata"]["resourceVersion"]}
    now = await bed.api.merge(ref, {"metadata": old, "data": {"a": "1"}})
    with pytest.raises(Conflict) as refusal:
        await bed.api.merge(ref, {"metadata": old, "data": {"a": "2"}})
    assert (refusal.value.status, refusal.value.reason) == (409, "Conflict")
    assert await bed.api.get(ref) == now


async def test_a_merge_patch_of_another_uid_is_invalid(bed: Bed):
    made = await bed.api.create(bed.config())
    with pytest.raises(Invalid, match=r"metadata.uid.*immutable"):
        await bed.api.merge(bed.ref(CONFIG_MAP), {"metadata": {"uid": STRANGER}, "data": {"a": "2"}})
    assert await bed.api.get(bed.ref(CONFIG_MAP)) == made


# Server-side apply.


async def test_apply_creates_and_a_second_apply_writes_nothing(bed: Bed):
    made = await bed.api.apply(bed.thing(labels={"a": "b"}))
    assert made["spec"] == {"size": 1}
    assert made["metadata"]["generation"] == 1
    again = await bed.api.apply(bed.thing(labels={"a": "b"}))
    assert version(again) == version(made)


async def test_apply_removes_its_earlier_fields_and_keeps_fields_of_others(bed: Bed):
    ref = bed.ref(THING)
    await bed.api.apply(bed.thing(spec={"size": 1, "mode": {"a": 1}}, labels={"ours": "1", "gone": "1"}))
    await bed.api.merge(ref, {"metadata": {"labels": {"theirs": "1"}}, "spec": {"extra": True}})
    now = await bed.api.apply(bed.thing(spec={"size": 2}, labels={"ours": "1"}))
    assert now["metadata"]["labels"] == {"ours": "1", "theirs": "1"}
    assert now["spec"] == {"size": 2, "extra": True}


async def test_apply_takes_over_a_field_of_another_manager(bed: Bed):
    await bed.api.create(bed.thing(spec={"size": 1}))
    assert (await bed.api.apply(bed.thing(spec={"size": 2})))["spec"] == {"size": 2}


async def test_apply_corrects_drifted_fields(bed: Bed):
    def policy(**spec):
        kinds = {"policyTypes": ["Ingress", "Egress"]}
        return bed.make(NETWORK_POLICY, "one", {"labels": {"ours": "1"}}, spec={**kinds, **spec})

    wanted = policy(podSelector={"matchLabels": {"app": "a"}}, ingress=[])
    made = await bed.api.apply(wanted)
    opened = {
        "podSelector": {"matchLabels": {"more": "b"}},
        "policyTypes": ["Ingress"],
        "ingress": [{}],
        "egress": [{}],
    }
    drifted = {"metadata": {"labels": {"ours": "2"}}, "spec": opened}
    await bed.api.merge(bed.ref(NETWORK_POLICY), drifted)
    now = await bed.api.apply(wanted)
    assert now["metadata"]["labels"] == {"ours": "1"}
    assert now["spec"]["policyTypes"] == ["Ingress", "Egress"]
    # A selector and a list of rules are one value each.
    assert now["spec"]["podSelector"] == {"matchLabels": {"app": "a"}}
    assert not now["spec"].get("ingress")
    # A field that the patch does not name stays: here, egress that another manager opened.
    assert now["spec"]["egress"] == [{}]
    assert not (await bed.api.apply(policy(podSelector={}, ingress=[], egress=[])))["spec"].get("egress")
    assert made["metadata"]["uid"] == now["metadata"]["uid"]


async def test_lists_of_named_items_are_applied_by_name(bed: Bed):
    def pod(**container):
        volumes = [{"name": "scratch", "emptyDir": {}}]
        return bed.pod(nodeName="nowhere", volumes=volumes, containers=[{"name": "main", "image": "a", **container}])

    await bed.api.apply(pod())
    await bed.api.merge(bed.ref(POD), {"metadata": {"annotations": {"theirs": "1"}}})
    now = await bed.api.apply(pod(image="b"))
    assert [(container["name"], container["image"]) for container in now["spec"]["containers"]] == [("main", "b")]
    assert now["metadata"]["annotations"] == {"theirs": "1"}
    assert now["metadata"]["generation"] == 2
    with pytest.raises(Invalid):
        await bed.api.apply(pod(env=[{"name": "A", "value": "1"}]))


async def test_an_applied_map_is_removed_with_its_applied_content(bed: Bed):
    await bed.api.apply(bed.thing(spec={"size": 1, "mode": {"a": {"b": 1}}}, annotations={"ours": "1"}))
    now = await bed.api.apply(bed.thing(spec={"size": 1}))
    assert now["spec"] == {"size": 1}
    assert "annotations" not in now["metadata"]


async def test_applied_finalizers_and_owners_are_added_to_those_of_others(bed: Bed):
    owner = (await bed.api.create(bed.config("owner")))["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"]}
    await bed.api.create(bed.thing(finalizers=["example.org/theirs"]))
    now = await bed.api.apply(bed.thing(finalizers=["sandfleet.io/ours"], ownerReferences=[reference]))
    assert set(now["metadata"]["finalizers"]) == {"example.org/theirs", "sandfleet.io/ours"}
    now = await bed.api.apply(bed.thing())
    assert now["metadata"]["finalizers"] == ["example.org/theirs"]
    assert "ownerReferences" not in now["metadata"]
    await bed.api.merge(bed.ref(THING), {"metadata": {"finalizers": None}})


async def test_apply_keeps_a_status(bed: Bed):
    await bed.api.apply(bed.thing())
    await bed.api.merge(bed.ref(THING), {"status": {"phase": "Good"}}, "status")
    now = await bed.api.apply({**bed.thing(spec={"size": 2}), "status": {"phase": "Invented"}})
    assert (now["spec"], now["status"]) == ({"size": 2}, {"phase": "Good"})


async def test_apply_with_a_uid_never_creates_another_object(bed: Bed):
    made = await bed.api.create(bed.thing())
    uid = made["metadata"]["uid"]
    assert (await bed.api.apply(bed.thing(spec={"size": 2}, uid=uid)))["metadata"]["uid"] == uid
    await bed.api.delete(bed.ref(THING))
    with pytest.raises(Conflict):
        await bed.api.apply(bed.thing(uid=uid))
    assert not await bed.there(bed.ref(THING))


async def test_apply_with_a_uid_never_changes_another_object(bed: Bed):
    made = await bed.api.create(bed.thing())
    with pytest.raises(Invalid, match=r"metadata.uid.*immutable"):
        await bed.api.apply(bed.thing(spec={"size": 2}, uid=STRANGER))
    assert await bed.api.get(bed.ref(THING)) == made


async def test_a_uid_does_not_guard_the_status_of_a_custom_resource(bed: Bed):
    await bed.api.create(bed.thing())
    stated = await bed.api.merge(bed.ref(THING), {"metadata": {"uid": STRANGER}, "status": {"phase": "Two"}}, "status")
    assert stated["status"] == {"phase": "Two"}


async def test_a_version_or_a_uid_test_guards_a_status(bed: Bed):
    made = (await bed.api.create(bed.thing()))["metadata"]
    ref = bed.ref(THING)
    of_this = {"resourceVersion": made["resourceVersion"]}
    stated = await bed.api.merge(ref, {"metadata": of_this, "status": {"phase": "One"}}, "status")
    with pytest.raises(Conflict):
        await bed.api.merge(ref, {"metadata": of_this, "status": {"phase": "Two"}}, "status")

    def operations(uid: str, phase: str):
        return [
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "replace", "path": "/status/phase", "value": phase},
        ]

    with pytest.raises(Invalid):
        await bed.api.patch(ref, operations(STRANGER, "Two"), "status")
    assert await bed.api.get(ref) == stated
    assert (await bed.api.patch(ref, operations(made["uid"], "Two"), "status"))["status"] == {"phase": "Two"}


async def test_apply_with_an_old_version_conflicts(bed: Bed):
    made = await bed.api.create(bed.thing())
    await bed.api.merge(bed.ref(THING), {"spec": {"size": 3}})
    with pytest.raises(Conflict):
        await bed.api.apply(bed.thing(spec={"size": 2}, resourceVersion=made["metadata"]["resourceVersion"]))
