"""Which NetworkPolicies of others open a sandbox.

NetworkPolicies add up: what one of them allows is open, whatever Sandfleet's own policies say. A policy counts if it
selects the sandbox's pod and allows anything in or out.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from sandfleet_operator.api.kube import Json
from sandfleet_operator.plan.pods import names

# The directions that a policy opens, in the spec of one that is kept without its rules.
OPENS = "opens"
# Characters of a selector that is kept. A longer one counts as selecting every pod, so that memory is bounded.
MAX_SELECTOR = 2_000
# The metadata that is kept.
IDENTITY = ("namespace", "name", "uid", "resourceVersion")
# Policies that a message names.
MAX_NAMED = 3


def is_ours(policy: Json) -> bool:
    """Whether the control plane wrote the policy, by its name and labels. Its content is checked where it counts."""
    meta = policy["metadata"]
    named = meta["name"] == names.DEFAULT_DENY or meta["name"].startswith(names.POLICY_PREFIXES)
    return named and names.own_labels().items() <= (meta.get("labels") or {}).items()


def kept(policy: Json) -> Json | None:
    """What to remember of a policy. None: it belongs to others and opens nothing, so that no decision depends on it.

    Of a policy of others only its selector and the directions are kept.
    """
    if is_ours(policy):
        return policy
    directions = opened(policy["spec"])
    if not directions:
        return None
    selector = policy["spec"].get("podSelector") or {}
    if len(json.dumps(selector)) > MAX_SELECTOR:
        selector = {}
    meta: Json = {key: policy["metadata"][key] for key in IDENTITY if key in policy["metadata"]}
    head: Json = {key: policy[key] for key in ("apiVersion", "kind") if key in policy}
    return {**head, "metadata": meta, "spec": {"podSelector": selector, OPENS: list(directions)}}


def opened(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The directions in which a policy allows anything."""
    if OPENS in spec:
        return tuple(spec[OPENS])
    types = spec.get("policyTypes") or ["Ingress", *(["Egress"] if spec.get("egress") else [])]
    return tuple(one for one in ("Ingress", "Egress") if one in types and spec.get(one.lower()))


def openers(
    policies: Mapping[str, Mapping[str, Any]],
    labels: Mapping[str, str],
    expected: Iterable[str],
    unknown: frozenset[str] = frozenset(),
) -> tuple[str, ...]:
    """Names of the policies that open a pod with these labels, beside the expected ones.

    `policies` is name → spec. The values of the `unknown` labels are not known yet: they may match anything.
    """
    ours = frozenset(expected)
    return tuple(
        name
        for name, spec in sorted(policies.items())
        if name not in ours and opened(spec) and selects(spec.get("podSelector") or {}, labels, unknown)
    )


def selects(selector: Mapping[str, Any], labels: Mapping[str, str], unknown: frozenset[str] = frozenset()) -> bool:
    """Whether a label selector selects, or may select, a pod with these labels."""
    wanted = (selector.get("matchLabels") or {}).items()
    if any(labels.get(key) != value for key, value in wanted if key not in unknown):
        return False
    return all(_holds(one, labels) for one in selector.get("matchExpressions") or () if one.get("key") not in unknown)


def _holds(term: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value, values = labels.get(term.get("key", "")), term.get("values") or ()
    match term.get("operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    # An operator of a newer Kubernetes: it may select the pod.
    return True


def listed(found: tuple[str, ...]) -> str:
    """The names for people, the first few of them."""
    more = f" and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
    return ", ".join(found[:MAX_NAMED]) + more
