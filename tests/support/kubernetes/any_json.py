"""Any JSON in the places that tenants, other controllers and other versions write: annotations, labels, status."""

import json
from copy import deepcopy

from hypothesis import strategies as st
from sandfleet_operator.api.limits import Limits
from sandfleet_operator.plan.claims.record import Record, record_text
from sandfleet_operator.plan.pods import names

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([1 << 40, 1 << 70, -1, 0, 1e300])
    | st.text(max_size=6)
    | st.sampled_from(
        ["", "h", "True", "Running", "Failed", "9999-12-31T23:59:59-23:59", "2026-02-31T00:00:00Z", "../x"]
    )
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
    max_leaves=4,
)
RECORD = json.loads(record_text(Record(object="mine", request="r1", holder="alice", fencing=1, at=1.0, lease=9.0)))
FIELDS = sorted({*RECORD, "keeper", "workspace", "limits"})
FORGED = st.builds(
    lambda name, value: json.dumps({**RECORD, name: value}),
    st.sampled_from(FIELDS),
    JSON | st.sampled_from([["h"], "x", float("nan"), {"processes": "x"}, {"app": 1}]),
)
LIMITS = Limits()
TEXTS = (
    FORGED
    | JSON.map(json.dumps)
    | st.text(max_size=20)
    | st.sampled_from(
        [
            "warm",
            "claimed",
            "retiring",
            "/",
            "a/",
            "[" * 100_000,
            "1" * 5000,
            "\ud800".encode("unicode_escape").decode(),
        ]
    )
)
ANNOTATIONS = [names.CLAIM, names.BOUND_POD, names.TRACEPARENT, names.SERVICES, names.SPEC_HASH, names.RETENTION]
LABELS = [
    names.STATE,
    names.SANDBOX,
    names.POOL,
    names.TEMPLATE,
    names.EGRESS_CLASS,
    names.EGRESS_OWN,
    names.MANAGED_BY,
]
STATUS = [
    "conditions", "phase", "podIP", "containerStatuses", "reason", "message", "podName", "podUID", "address", "restarts",
    "restartHistory", "crashes", "services", "servicesReady", "workspaceClaimName", "observedGeneration", "fencing",
    "runtimeHandlers", "warm", "claimed", "targetWarm", "binding",
]  # fmt: skip
CONDITION = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["Ready", "Expired", "Isolated", "Suspended", "PodScheduled", "DisruptionTarget"])
        | JSON,
        "status": st.sampled_from(["True", "False"]) | JSON,
        "reason": JSON,
        "message": JSON,
        "lastTransitionTime": SCALARS,
    },
)
OWNER = st.fixed_dictionaries(
    {"uid": st.text(max_size=4)},
    optional={"kind": st.sampled_from(["CodeSandbox", "Pod", "SandboxPool"]) | JSON, "name": JSON, "controller": JSON},
)
PLACES = st.one_of(
    st.tuples(st.just("annotations"), st.sampled_from([names.CLAIM, *ANNOTATIONS]), TEXTS),
    st.tuples(st.just("labels"), st.sampled_from(LABELS), TEXTS),
    st.tuples(st.just("status"), st.sampled_from(STATUS), JSON | st.lists(CONDITION, max_size=2)),
    st.tuples(st.just("status"), st.just("conditions"), st.lists(CONDITION, min_size=1, max_size=2)),
    st.tuples(st.just("ownerReferences"), st.just(""), st.lists(OWNER, max_size=2)),
)


def put(obj, place):
    """Writes the value there."""
    where, key, value = deepcopy(place)
    if where in {"annotations", "labels"}:
        obj["metadata"][where] = {**(obj["metadata"].get(where) or {}), key: value}
    elif where == "ownerReferences":
        obj["metadata"][where] = value
    else:
        # The pretended kubelet reads the phase.
        obj["status"] = {**(obj.get("status") or {}), key: str(value) if key == "phase" else value}
