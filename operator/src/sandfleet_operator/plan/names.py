"""Names, labels and annotations of what the operator makes. A name that is too long for its place ends in a hash."""

import hashlib
from collections.abc import Mapping
from typing import Any

from sandfleet_operator.api.resources import API_VERSION, GROUP, Meta

# Of a label's value and of a DNS label.
MAX_NAME = 63
MIN_HASH = 12

MANAGED_BY = "app.kubernetes.io/managed-by"
PART_OF = "app.kubernetes.io/part-of"
PRODUCT = "sandfleet"
COMPONENT = f"{GROUP}/component"
SANDBOX_COMPONENT = "sandbox"
SANDBOX_SELECTOR = f"{COMPONENT}={SANDBOX_COMPONENT}"
SANDBOX = f"{GROUP}/sandbox"
STATE = f"{GROUP}/state"
TEMPLATE = f"{GROUP}/template"
POOL = f"{GROUP}/pool"
EGRESS_CLASS = f"{GROUP}/egress-class"
EGRESS_OWN = f"{GROUP}/egress-own"
SPEC_HASH = f"{GROUP}/spec-hash"
# Of a pod: the names of the services that it was made with, with commas between; without it there are none.
SERVICES = f"{GROUP}/services"
TRACEPARENT = f"{GROUP}/traceparent"
# Of a CodeSandbox: "NAME/UID" of the warm pod that the fleet has bound to it. The pod names the object in its SANDBOX label.
BOUND_POD = f"{GROUP}/bound-pod"
# Of a claimed pod and of its CodeSandbox: the record of the claim, see plan/claims.py.
CLAIM = f"{GROUP}/claim"
# Of a workspace's claim: what becomes of it when its CodeSandbox is deleted.
RETENTION = f"{GROUP}/retention"
# Labels of a pod that only the control plane sets.
OWN_LABELS = frozenset({MANAGED_BY, COMPONENT, SANDBOX, STATE, TEMPLATE, POOL, EGRESS_CLASS, EGRESS_OWN})

DEFAULT_DENY = "sandfleet-default-deny"
KEYS_CONFIG_MAP = "sandfleet-keys"
CA_CONFIG_MAP = "sandfleet-ca"


def bounded(name: str) -> str:
    """The name itself, or 63 characters that stand for a longer one.

    A name of 63 is hashed too: what is made here is never the name of something else.
    """
    if len(name) < MAX_NAME:
        return name
    head = name[: MAX_NAME - MIN_HASH - 1].rstrip("-.")
    return f"{head}-{hashlib.sha256(name.encode()).hexdigest()[: MAX_NAME - 1 - len(head)]}"


def class_policy(template: str) -> str:
    return bounded(f"sandfleet-egress-{template}")


def own_policy(sandbox: str) -> str:
    # No template's name makes the other function say this.
    return bounded(f"sandfleet-own-egress-{sandbox}")


def workspace_claim_name(sandbox: str) -> str:
    return f"workspace-{sandbox}"


def pod_name(pool: str, suffix: str) -> str:
    """Of a pod of this pool; the suffix tells it from the others."""
    return f"{pool[: MAX_NAME - 1 - len(suffix)].rstrip('-')}-{suffix}"


def owned_by(kind: str, meta: Meta) -> dict[str, Any]:
    """An owner reference that does not hold its owner's deletion up."""
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "name": meta.name,
        "uid": meta.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def own_labels(**more: str) -> dict[str, str]:
    """Of everything that belongs to a sandbox."""
    return {MANAGED_BY: PRODUCT, COMPONENT: SANDBOX_COMPONENT, **more}


def is_reserved(label: str) -> bool:
    """Whether a label means something to Kubernetes or to Sandfleet, so that no sandbox's owner may set it on a pod."""
    domain, slash, _ = label.rpartition("/")
    if not slash:
        return False
    return any(domain == known or domain.endswith(f".{known}") for known in (GROUP, "kubernetes.io", "k8s.io"))


def copied(labels: Mapping[str, str], wanted: tuple[str, ...]) -> dict[str, str]:
    return {key: labels[key] for key in wanted if key in labels and not is_reserved(key)}
