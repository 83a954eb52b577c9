"""Names, labels and annotations of the objects that the control plane creates.

Names that are too long end in a hash.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

from sandfleet_operator.api.kinds.meta import API_VERSION, GROUP, Meta

# Length of a label's value and of a DNS label.
MAX_NAME = 63
MIN_HASH = 12
# Length of a session id.
MAX_SESSION_ID = 64
SESSION_HASH = 16

MANAGED_BY = "app.kubernetes.io/managed-by"
PART_OF = "app.kubernetes.io/part-of"
PRODUCT = "sandfleet"
COMPONENT = f"{GROUP}/component"
SANDBOX_COMPONENT = "sandbox"
EGRESS_COMPONENT = "egress"
SANDBOX_SELECTOR = f"{COMPONENT}={SANDBOX_COMPONENT}"
SANDBOX = f"{GROUP}/sandbox"
STATE = f"{GROUP}/state"
TEMPLATE = f"{GROUP}/template"
POOL = f"{GROUP}/pool"
# The pod's contract; missing for autonomous.
CONTRACT = f"{GROUP}/contract"
EGRESS_CLASS = f"{GROUP}/egress-class"
EGRESS_OWN = f"{GROUP}/egress-own"
# Of pods whose sessions have secrets put into their requests.
EGRESS_SECRETS = f"{GROUP}/egress-secrets"
SPEC_HASH = f"{GROUP}/spec-hash"
# Annotation of a pod: the names of its services, separated by commas; missing if it has none.
SERVICES = f"{GROUP}/services"
# Annotation of a pod of the operator's making: the queue of its namespace that has admitted its sandbox; missing: none.
QUEUE = f"{GROUP}/queue"
TRACEPARENT = f"{GROUP}/traceparent"
# Annotation of a pod: the ControllerRevision that keeps the template's spec that it was made from.
TEMPLATE_REVISION = f"{GROUP}/template-revision"
# Annotation of a pod that was started for one claim: the image that the claim has named. No other claim gets the pod.
IMAGE = f"{GROUP}/image"
# Annotation of a pod of a pool: the snapshot that the pool starts from, as its spec names it; missing if from none.
SNAPSHOT = f"{GROUP}/snapshot"
# Annotation of a pod of a pool: what the snapshot that fills it had received, separated by commas; missing: it is not
# filled.
FILLED = f"{GROUP}/filled"
# Annotation of a pod: when the fleet gave it, warm, to a session that comes out of its snapshot, in seconds since the
# epoch.
GIVEN = f"{GROUP}/given"
# Annotation of a CodeSandbox: "NAME/UID" of the warm pod that the fleet has bound to it. The pod's SANDBOX label names
# it.
BOUND_POD = f"{GROUP}/bound-pod"
# Annotation of a claimed pod and of its CodeSandbox: the record of the claim, see plan/claims/record.py.
CLAIM = f"{GROUP}/claim"
# Annotation of a pod: whether a cluster autoscaler may end it to free its node. It may end a warm pod, whose
# directories would otherwise keep the node for ever, but no session.
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
# Annotation of a pod: whether Karpenter has to leave it where it is. The same holds.
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
# A mesh's sidecar would open a way out of the pod, and would be beside the session's code.
OUT_OF_MESHES = {"sidecar.istio.io/inject": "false", "istio.io/dataplane-mode": "none"}
NO_LINKERD = {"linkerd.io/inject": "disabled"}
# When the lease of a claim's CodeSandbox ends, in seconds since the epoch, once it was renewed.
LEASE_EXPIRES = f"{GROUP}/lease-expires"
# When a suspended claim's CodeSandbox ends, in seconds since the epoch; empty while it is not suspended.
SUSPENDED_UNTIL = f"{GROUP}/suspended-until"
# Since when a claim's session is preempted and when its claim has arrived, "SECONDS-SECONDS" since the epoch; empty
# while it is not.
PREEMPTED = f"{GROUP}/preempted"
# Annotation of a claimed pod: the newest head of its journal that the fleet has signed, see plan/witness.py.
JOURNAL_HEAD = f"{GROUP}/journal-head"
# Annotation of a workspace's volume claim: what happens to it when its CodeSandbox is deleted.
RETENTION = f"{GROUP}/retention"
# Labels of a pod that only the control plane sets.
OWN_LABELS = frozenset({MANAGED_BY, COMPONENT, SANDBOX, STATE, TEMPLATE, POOL, CONTRACT, EGRESS_CLASS, EGRESS_OWN})
# The metadata of control: the chart's ValidatingAdmissionPolicy lets only the control plane write it. Of COMPONENT only
# SANDBOX_COMPONENT counts. TRACEPARENT is not in it, because owners of sandboxes may write it.
CONTROL_LABELS = frozenset({COMPONENT, SANDBOX, STATE, TEMPLATE, POOL, CONTRACT, EGRESS_CLASS, EGRESS_OWN})
CONTROL_ANNOTATIONS = frozenset(
    {
        SPEC_HASH,
        EGRESS_SECRETS,
        SERVICES,
        BOUND_POD,
        CLAIM,
        JOURNAL_HEAD,
        LEASE_EXPIRES,
        RETENTION,
        SUSPENDED_UNTIL,
        PREEMPTED,
        TEMPLATE_REVISION,
        IMAGE,
        SNAPSHOT,
        FILLED,
        GIVEN,
        QUEUE,
    }
)

DEFAULT_DENY = "sandfleet-default-deny"
CLASS_POLICY, OWN_POLICY = "sandfleet-egress-", "sandfleet-own-egress-"
POLICY_PREFIXES = (CLASS_POLICY, OWN_POLICY)
KEYS_CONFIG_MAP = "sandfleet-keys"
CA_CONFIG_MAP = "sandfleet-ca"


def bounded(name: str) -> str:
    """The name, or 63 characters with a hash that stand for a longer name.

    A name of 63 characters is hashed, too, so that a result is never another object's full name.
    """
    if len(name) < MAX_NAME:
        return name
    head = name[: MAX_NAME - MIN_HASH - 1].rstrip("-.")
    return f"{head}-{hashlib.sha256(name.encode()).hexdigest()[: MAX_NAME - 1 - len(head)]}"


def class_policy(template: str) -> str:
    return bounded(f"{CLASS_POLICY}{template}")


def own_policy(sandbox: str) -> str:
    # No template name makes `class_policy` return the same.
    return bounded(f"{OWN_POLICY}{sandbox}")


def workspace_claim_name(sandbox: str) -> str:
    return f"workspace-{sandbox}"


def pod_name(pool: str, suffix: str) -> str:
    """Name of a pod of this pool; the suffix tells it from the others."""
    return f"{pool[: MAX_NAME - 1 - len(suffix)].rstrip('-')}-{suffix}"


def session_id(namespace: str, name: str) -> str:
    """The id of a CodeSandbox's session: `namespace.name`, or 64 characters with a hash that stand for a longer one.

    No two objects share an id, because neither part has a dot. An id of 64 characters is hashed, too, so that a result
    is never another object's full id.
    """
    whole = f"{namespace}.{name}"
    if len(whole) < MAX_SESSION_ID:
        return whole
    return f"{whole[: MAX_SESSION_ID - 1 - SESSION_HASH]}-{hashlib.sha256(whole.encode()).hexdigest()[:SESSION_HASH]}"


def owned_by(kind: str, meta: Meta) -> dict[str, Any]:
    """An owner reference that does not block its owner's deletion."""
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "name": meta.name,
        "uid": meta.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def own_labels(**more: str) -> dict[str, str]:
    """Labels of all objects that belong to sandboxes."""
    return {MANAGED_BY: PRODUCT, COMPONENT: SANDBOX_COMPONENT, **more}


def autoscaler_marks(*, claimed: bool) -> dict[str, str]:
    """Annotations of a pod for what may end it to free its node."""
    return {SAFE_TO_EVICT: "false" if claimed else "true", DO_NOT_DISRUPT: "true" if claimed else "false"}


def is_reserved(label: str) -> bool:
    """Whether Kubernetes or Sandfleet gives the label a meaning, so that owners of sandboxes may not set it."""
    domain, slash, _ = label.rpartition("/")
    if not slash:
        return False
    return any(domain == known or domain.endswith(f".{known}") for known in (GROUP, "kubernetes.io", "k8s.io"))


def copied(labels: Mapping[str, str], wanted: tuple[str, ...]) -> dict[str, str]:
    return {key: labels[key] for key in wanted if key in labels and not is_reserved(key)}
