"""What is kept of an object says the same to every reader as the object did."""

import json
import sys
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kept import Kept, once
from sandfleet_operator.api.kinds.sandbox import code_sandbox
from sandfleet_operator.api.kube import CODE_SANDBOX, NODE, PERSISTENT_VOLUME_CLAIM, POD
from sandfleet_operator.plan.sandbox.kept import kept
from sandfleet_operator.plan.sandbox.observed import node_of, owners_of, pod_of, volume_of
from sandfleet_operator.plan.sandbox.remains import remains_of
from support.kubernetes.any_json import JSON, PLACES, put

READERS = {POD: pod_of, NODE: node_of, PERSISTENT_VOLUME_CLAIM: volume_of, CODE_SANDBOX: code_sandbox}
META = {"namespace": "team", "name": "one", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}}
CONTAINERS = [
    {"name": "other", "imageID": "o"},
    {"name": "executor", "imageID": "e", "state": {"waiting": {"reason": "R", "message": "m"}}},
    {"name": "executor", "imageID": "second"},
]
ENDED = [{"name": "executor", "state": {"terminated": {"exitCode": 7, "reason": "Error", "message": "x"}}}]
VOLUMES = [{"name": "keys"}, {"name": "workspace", "persistentVolumeClaim": {"claimName": "w"}}]
TAINTS = [{"key": "x"}, {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]
CONDITIONS = [
    {"type": name, "status": status, "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    for name in ("Initialized", "Ready", "PodScheduled", "DisruptionTarget")
    for status in ("False", "True")
]
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "containers": st.just([{"name": "executor", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]) | JSON,
        "nodeName": st.sampled_from(["n"]) | JSON,
        "volumes": st.just(VOLUMES) | JSON,
        "taints": st.just(TAINTS) | JSON,
        "templateRef": st.just({"name": "python"}) | JSON,
    },
)
STATUSES = st.fixed_dictionaries(
    {},
    optional={
        "containerStatuses": st.sampled_from([CONTAINERS, ENDED]) | JSON,
        "conditions": st.permutations(CONDITIONS) | JSON,
        "phase": st.sampled_from(["Running", "Failed"]) | JSON,
        "podIP": JSON,
        "reason": JSON,
        "runtimeHandlers": st.just([{"name": "runsc", "features": {"userNamespaces": True}}]) | JSON,
    },
)


@given(kind=st.sampled_from(sorted(READERS, key=str)), spec=SPECS, status=STATUSES, places=st.lists(PLACES, max_size=3))
def test_every_reader_reads_the_same_from_what_is_kept(kind, spec, status, places):
    obj = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": deepcopy(META), "spec": spec}
    obj["status"] = status
    for place in places:
        put(obj, place)
    try:
        wanted = READERS[kind](obj), owners_of(obj)
    except FleetError:
        # The store keeps only what can be read.
        return
    found = kept(kind, obj)
    assert ours(READERS[kind](found)) == ours(wanted[0])
    assert kind == NODE or owners_of(found) == wanted[1]
    if kind == POD:
        assert remains_of(pod_of(found), found) == remains_of(wanted[0], obj)


def ours(value):
    """Of a pod's annotations only the product's own are kept."""
    if isinstance(getattr(value, "annotations", None), dict):
        value.annotations.update({key: "" for key in list(value.annotations) if not key.startswith("sandfleet.io/")})
        for key in [key for key, text in value.annotations.items() if text == ""]:
            del value.annotations[key]
    return value


def test_what_a_tenant_adds_to_a_pod_takes_no_memory():
    large = "x" * 100_000
    meta = {**META, "annotations": {"tenant/notes": large, "sandfleet.io/claim": "{}"}, "managedFields": [large]}
    status = {"conditions": [{"type": "tenant/gate", "message": large}], "message": ""}
    obj = {"kind": "Pod", "metadata": meta, "spec": {"containers": [{"env": [large]}]}, "status": status}
    found = kept(POD, obj)
    assert large not in str(found)
    assert found["metadata"]["annotations"] == {"sandfleet.io/claim": "{}"}


def test_what_the_operator_writes_back_to_a_volume_claim_is_kept_whole():
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
    meta = {
        **META,
        "annotations": {"tenant/notes": "x", "sandfleet.io/retention": "Delete"},
        "ownerReferences": [owner],
    }
    found = kept(PERSISTENT_VOLUME_CLAIM, {"kind": "PersistentVolumeClaim", "metadata": meta, "spec": {"large": "x"}})
    assert {name: found["metadata"][name] for name in meta} == meta
    assert "spec" not in found


def test_the_record_of_a_claim_is_one_text_on_its_pod_and_its_codesandbox():
    def a_record():
        return json.loads('"{\\"request\\": \\"r-1\\", \\"holder\\": \\"alice\\"}"')

    def record_of(kind, **fields):
        meta = {**META, "annotations": {"sandfleet.io/claim": a_record()}}
        return kept(kind, {"kind": kind.kind, "metadata": meta, **fields})["metadata"]["annotations"]

    sandbox = record_of(CODE_SANDBOX, status={"binding": {"claim": a_record()}})
    assert sandbox["sandfleet.io/claim"] is record_of(POD)["sandfleet.io/claim"]


def test_equal_words_of_many_objects_are_kept_once():
    def conditions():
        told = {"message": json.loads('"The sandbox is ready."'), "lastTransitionTime": "2026-01-01T00:00:00Z"}
        obj = {"kind": "CodeSandbox", "metadata": dict(META), "status": {"conditions": [told]}}
        return kept(CODE_SANDBOX, obj)["status"]["conditions"][0]

    assert conditions()["message"] is conditions()["message"]
    assert sys.intern("message") is next(iter(conditions()))


def test_a_kept_object_is_read_once_and_any_other_each_time():
    reads = []

    @once
    def read(obj):
        reads.append(obj)
        return len(reads)

    obj = Kept({"a": 1})
    assert (read(obj), read(obj), read({"a": 1}), read({"a": 1})) == (1, 1, 2, 3)


def test_a_kept_object_that_cannot_be_read_says_so_each_time():
    obj = kept(CODE_SANDBOX, {"kind": "CodeSandbox", "metadata": META, "spec": {"templateRef": 7}})
    said = []
    for _ in range(2):
        with pytest.raises(FleetError) as caught:
            code_sandbox(obj)
        said.append(caught.value)
    assert said[0] is not said[1]
    assert str(said[0]) == str(said[1])
