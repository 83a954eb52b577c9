"""A pod without its CodeSandbox counts only for what the control plane has written on it."""

import json

import pytest
from hypothesis import given
from sandfleet_operator.api.values import Amount
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.podspec import PodState
from sandfleet_operator.plan.sandbox.observed import pod_of
from sandfleet_operator.plan.sandbox.remains import Remains, remains_of
from support.kubernetes.any_json import JSON

RECORD = {"object": "demo", "request": "r1", "holder": "alice", "fencing": 1, "at": 1.0}
QUEUED = {**RECORD, "queue": "team-a/main", "amount": {"sandboxes": 1, "cpu": 500, "memory": 1024}}
REQUESTS = {"cpu": "250m", "memory": "1Mi"}
SESSION = Remains("team-a/main", Amount(sandboxes=1, cpu=500, memory=1024))
MAIN = Remains("team-a/main", Amount(sandboxes=1, cpu=250, memory=1 << 20))


def a_pod(*, queue=None, record=None, state=PodState.CLAIMED, owned=True, deleting=False, requests=REQUESTS, phase=""):
    annotations = {names.QUEUE: queue} if queue is not None else {}
    if record is not None:
        annotations[names.CLAIM] = json.dumps(record)
    metadata = {"namespace": "team-a", "name": "demo", "uid": "uid-1", "annotations": annotations}
    metadata["labels"] = {names.STATE: state.value, names.SANDBOX: "demo"}
    if owned:
        metadata["ownerReferences"] = [{"kind": "CodeSandbox", "name": "demo", "uid": "uid-0"}]
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    container = {"name": "executor", "resources": {"requests": requests}}
    return {"metadata": metadata, "spec": {"containers": [container]}, "status": {"phase": phase}}


POLICY = {
    "of the operator's making": (a_pod(queue="main"), MAIN),
    "that is ending": (a_pod(queue="main", deleting=True), MAIN),
    "that was deleted without its dependents": (a_pod(queue="main", owned=False), MAIN),
    "without a queue": (a_pod(), None),
    "that names no queue": (a_pod(queue=""), None),
    "that is warm": (a_pod(queue="main", state=PodState.WARM), None),
    "of a session": (a_pod(record=QUEUED), SESSION),
    "of a session that is ending": (a_pod(record=QUEUED, deleting=True), SESSION),
    "of a session that is ending and was never written down": (a_pod(record=QUEUED, deleting=True, owned=False), SESSION),
    "of a claim that was undone": (a_pod(record=QUEUED, state=PodState.RETIRING, owned=False), SESSION),
    "of a session whose processes have ended": (a_pod(record=QUEUED, deleting=True, phase="Failed"), None),
    "of a session that is not written down yet": (a_pod(record=QUEUED, owned=False), None),
    "of a session without a queue": (a_pod(record=RECORD), None),
    "of a session that names another team's queue": (a_pod(record={**QUEUED, "queue": "team-b/main"}), None),
    "that names another team's queue": (a_pod(queue="../team-b/main"), None),
    "whose requests cannot be read": (a_pod(queue="main", requests={"cpu": "much"}), Remains("team-a/main", Amount(sandboxes=1))),
}  # fmt: skip


@pytest.mark.parametrize(("obj", "counts"), POLICY.values(), ids=POLICY)
def test_a_pod_without_its_object_counts(obj, counts):
    assert remains_of(pod_of(obj), obj) == counts


@given(JSON, JSON)
def test_no_specification_of_a_pod_stops_the_count(spec, requests):
    obj = a_pod(queue="main")
    pod = pod_of(obj)
    for one in ({**obj, "spec": spec}, a_pod(queue="main", requests=requests)):
        found = remains_of(pod, one)
        assert found is not None
        assert found.amount.sandboxes == 1
