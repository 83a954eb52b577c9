"""Which keys a changed object wakes."""

import pytest
from sandfleet_operator.api.conditions import Reason
from sandfleet_operator.api.kube import (
    CODE_SANDBOX,
    CONFIG_MAP,
    NETWORK_POLICY,
    NODE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SANDBOX_POOL,
    SANDBOX_TEMPLATE,
)
from sandfleet_operator.cluster.store import Store
from sandfleet_operator.plan.pods import names
from sandfleet_operator.reconciler.routes import concern_of, concerned, keys_of, on_nodes


def obj(name="x", namespace="team-a", owners=(), labels=None, annotations=None, **fields):
    references = [{"kind": kind, "name": owner, "uid": "u"} for kind, owner in owners]
    meta = {
        "namespace": namespace,
        "name": name,
        "ownerReferences": references,
        "labels": labels,
        "annotations": annotations,
        "resourceVersion": "1",
    }
    return {"metadata": meta, **fields}


STORE = Store()
for kind, made in (
    (CODE_SANDBOX, obj("one", spec={"templateRef": {"name": "python"}})),
    (CODE_SANDBOX, obj("two", spec={"templateRef": {"name": "python"}})),
    (CODE_SANDBOX, obj("three", spec={"templateRef": {"name": "other"}})),
    (CODE_SANDBOX, obj("four", spec={"inline": {}})),
    (CODE_SANDBOX, obj("five", spec={"templateRef": {"name": "other"}, "poolRef": {"name": "warm"}})),
    (
        CODE_SANDBOX,
        obj(
            "six",
            spec={"templateRef": {"name": "other"}, "poolRef": {"name": "warm"}},
            status={"binding": {"podName": "warm-1", "podUID": "u", "claim": "{}"}},
        ),
    ),
    (CODE_SANDBOX, obj("one", "team-b", spec={"templateRef": {"name": "python"}})),
    (POD, obj("one", labels={names.SANDBOX: "one"}, spec={"nodeName": "node-1"})),
    (POD, obj("two", labels={names.SANDBOX: "two"}, spec={"nodeName": "node-2"})),
    (POD, obj("one", "team-b", labels={names.SANDBOX: "one"}, spec={"nodeName": "node-1"})),
    (POD, obj("three", labels={names.SANDBOX: "three"}, spec={})),
):
    STORE.put(kind, made)

WAITS = {"type": "Ready", "status": "False", "reason": "WaitingForClaim"}
for name, message in (
    ("lost", "cannot take a sandbox from the pool: there is none"),
    ("waits", Reason.WAITING_FOR_CLAIM.meaning),
):
    said = {"conditions": [{**WAITS, "message": message}]}
    STORE.put(
        CODE_SANDBOX,
        obj(name, "team-c", spec={"templateRef": {"name": "python"}, "poolRef": {"name": "warm"}}, status=said),
    )
STORE.put(CODE_SANDBOX, obj("new", "team-c", spec={"templateRef": {"name": "python"}, "poolRef": {"name": "warm"}}))

OWNER = ("CodeSandbox", "demo")
TABLE = [
    (CODE_SANDBOX, obj("demo"), {"sandbox/team-a/demo", "namespace/team-a"}),
    (POD, obj(labels={names.SANDBOX: "demo"}), {"sandbox/team-a/demo", "namespace/team-a"}),
    (POD, obj(owners=[OWNER]), {"sandbox/team-a/demo", "namespace/team-a"}),
    # A user gave it to another sandbox: both are woken.
    (
        POD,
        obj(owners=[OWNER], labels={names.SANDBOX: "other"}),
        {"sandbox/team-a/demo", "sandbox/team-a/other", "namespace/team-a"},
    ),
    (POD, obj(owners=[("ReplicaSet", "demo")]), {"namespace/team-a"}),
    (PERSISTENT_VOLUME_CLAIM, obj(labels={names.SANDBOX: "demo"}), {"sandbox/team-a/demo"}),
    (PERSISTENT_VOLUME_CLAIM, obj(), set()),
    (NETWORK_POLICY, obj(names.DEFAULT_DENY, labels=names.own_labels()), {"namespace/team-a"}),
    (
        NETWORK_POLICY,
        obj(names.own_policy("demo"), owners=[OWNER], labels=names.own_labels()),
        {"sandbox/team-a/demo"},
    ),
    (
        NETWORK_POLICY,
        obj(names.class_policy("python"), owners=[("SandboxTemplate", "python")], labels=names.own_labels()),
        {"template/team-a/python"},
    ),
    # A policy of others may open every sandbox of its namespace.
    (NETWORK_POLICY, obj("allow-all", "team-b"), {"sandbox/team-b/one"}),
    (NETWORK_POLICY, obj(names.DEFAULT_DENY, "team-b"), {"namespace/team-b", "sandbox/team-b/one"}),
    (
        SANDBOX_TEMPLATE,
        obj("python"),
        {"template/team-a/python", "namespace/team-a", "sandbox/team-a/one", "sandbox/team-a/two"},
    ),
    # What waits for it.
    (SANDBOX_POOL, obj("warm"), {"namespace/team-a", "sandbox/team-a/five"}),
    # Its pods are looked for together with those of others.
    (NODE, obj("node-1", ""), set()),
    (CONFIG_MAP, obj("sandfleet-keys"), {"namespace/team-a"}),
]


@pytest.mark.parametrize(("kind", "seen", "keys"), TABLE)
def test_an_object_wakes_the_keys_it_concerns(kind, seen, keys):
    concern = concern_of(kind, seen)
    others = concerned(concern, STORE) if concern else ()
    found = [str(key) for key in (*keys_of(kind, seen), *others) if key is not None]
    assert set(found) == keys
    assert len(found) == len(keys)


def test_a_reader_can_pause_at_each_sandbox_and_pod_that_is_looked_at():
    template = concern_of(SANDBOX_TEMPLATE, obj("none"))
    assert list(concerned(template, STORE)) == [None] * 6
    assert list(on_nodes({"node-9"}, STORE)) == [None] * 4


@pytest.mark.parametrize(
    ("nodes", "keys"),
    [
        ({"node-1"}, ["sandbox/team-a/one", "sandbox/team-b/one"]),
        ({"node-1", "node-2"}, ["sandbox/team-a/one", "sandbox/team-a/two", "sandbox/team-b/one"]),
        ({"node-9"}, []),
    ],
)
def test_nodes_wake_the_sandboxes_whose_pods_they_have(nodes, keys):
    assert sorted(str(key) for key in on_nodes(nodes, STORE) if key is not None) == keys
