"""Where a template places pods: checks, as the CRD's schema bounds only lengths, and the pod's fields.

The API server would refuse the pod for each of these mistakes, or the pod would get what only the control plane gives.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from sandfleet_operator.api.errors import FleetError, invalid
from sandfleet_operator.api.kinds.meta import GROUP
from sandfleet_operator.api.kinds.placement import (
    Affinity,
    Expression,
    LabelSelector,
    Operator,
    PodAffinity,
    PodTerm,
    Spread,
    Unsatisfiable,
)
from sandfleet_operator.api.kinds.template import TemplateSpec
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.api.table import encode
from sandfleet_operator.api.validate import check_label
from sandfleet_operator.plan.pods import names

DOING = "place pods"
MAX_WEIGHT = 100
# Bytes of keys and values together; Kubernetes allows 256 KiB, and the record of a claim needs most of them.
MAX_ANNOTATIONS = 16 << 10
# Domains of annotations with which runtimes, networks and meshes change what isolates a pod, beside Kubernetes' own.
ISOLATING = (
    "cilium.io",
    "cncf.io",
    "containerd.io",
    "gvisor.dev",
    "istio.io",
    "katacontainers.io",
    "linkerd.io",
    "multus-cni.io",
    "openshift.io",
    "ovn.org",
    "projectcalico.org",
)
NUMERIC = {Operator.GREATER, Operator.LESS}
VALUELESS = {Operator.EXISTS, Operator.DOES_NOT_EXIST}


def check(template: TemplateSpec) -> None:
    """Raises FleetError for the first mistake."""
    for key, value in template.node_selector.items():
        check_label(key, value, doing=DOING)
    for number, toleration in enumerate(template.tolerations):
        if why := _wrong(toleration):
            raise invalid("InvalidToleration", f"cannot {DOING}: tolerations[{number}] {why}", f"tolerations[{number}]")
    _check_affinity(template.affinity)
    _check_spread(template.spread)
    _check_labels(template.pod_labels)
    _check_annotations(template.pod_annotations)


def _wrong(toleration: Mapping[str, object]) -> str:
    """Why the API server would refuse the toleration; empty if it is valid."""
    key, value = str(toleration.get("key") or ""), str(toleration.get("value") or "")
    exists = toleration.get("operator") == "Exists"
    if not key and not exists:
        return "names no key, which only operator Exists may leave out"
    if exists and value:
        return "has a value, which operator Exists does not compare"
    if toleration.get("tolerationSeconds") is not None and toleration.get("effect") != "NoExecute":
        return "has tolerationSeconds, which only effect NoExecute may have"
    check_label(key or "any", value, doing=DOING)
    return ""


def _check_affinity(affinity: Affinity) -> None:
    if nodes := affinity.nodes:
        terms = [*(nodes.required.terms if nodes.required else ()), *(one.preference for one in nodes.preferred)]
        if nodes.required and not nodes.required.terms:
            raise _refusal("the required node affinity has no term")
        if not all(term.expressions for term in terms):
            raise _refusal("a term of the node affinity has no expression, and would match no node")
        for term in terms:
            for one in term.expressions:
                _check_expression(one, of_nodes=True)
        _check_weights(one.weight for one in nodes.preferred)
    for pods in (affinity.pods, affinity.anti_pods):
        for pod_term in _pod_terms(pods):
            check_label(pod_term.topology_key, "", doing=DOING)
            _check_selector(pod_term.selector)
        _check_weights(one.weight for one in (pods.preferred if pods else ()))


def _pod_terms(pods: PodAffinity | None) -> Iterator[PodTerm]:
    if pods is not None:
        yield from pods.required
        yield from (one.term for one in pods.preferred)


def _check_weights(weights: Iterator[int]) -> None:
    for weight in weights:
        if not 1 <= weight <= MAX_WEIGHT:
            raise _refusal(f"the weight {weight} of a preference is not from 1 to {MAX_WEIGHT}")


def _check_selector(selector: LabelSelector | None) -> None:
    if selector is None:
        return
    for key, value in selector.labels.items():
        _check_foreign(key)
        check_label(key, value, doing=DOING)
    for one in selector.expressions:
        _check_foreign(one.key)
        _check_expression(one, of_nodes=False)


def _check_foreign(key: str) -> None:
    """The control plane changes its labels with each claim, and may rename them."""
    domain = key.rpartition("/")[0]
    if key in names.OWN_LABELS or domain == GROUP or domain.endswith(f".{GROUP}"):
        why = "a labelSelector that is left out selects the template's sandboxes"
        raise _refusal(f"label {key[:100]!r} is the control plane's; {why}")


def _check_expression(one: Expression, *, of_nodes: bool) -> None:
    what = f"the expression on {one.key[:100]!r}"
    if one.operator in NUMERIC and not of_nodes:
        raise _refusal(f"{what} has operator {one.operator.value}, which only a node's labels have")
    if one.operator in NUMERIC and (len(one.values) != 1 or not _is_whole(one.values[0])):
        raise _refusal(f"{what} has operator {one.operator.value}, which needs one whole number")
    if one.operator in VALUELESS and one.values:
        raise _refusal(f"{what} has values, which operator {one.operator.value} does not compare")
    if one.operator not in VALUELESS and not one.values:
        raise _refusal(f"{what} has no values, which operator {one.operator.value} needs")
    for value in one.values or ("",):
        check_label(one.key, value, doing=DOING)


def _is_whole(text: str) -> bool:
    # No label's value begins with a sign.
    return text.isascii() and text.isdigit() and len(text) <= 18


def _check_spread(constraints: tuple[Spread, ...]) -> None:
    seen = set()
    for number, one in enumerate(constraints):
        check_label(one.topology_key, "", doing=DOING)
        what = f"topologySpreadConstraints[{number}]"
        if one.max_skew < 1 or (one.min_domains is not None and one.min_domains < 1):
            raise _refusal(f"{what} has a maxSkew or minDomains below 1")
        if one.min_domains is not None and one.unsatisfiable is not Unsatisfiable.DO_NOT_SCHEDULE:
            raise _refusal(f"{what} has minDomains, which only whenUnsatisfiable DoNotSchedule may have")
        if (one.topology_key, one.unsatisfiable) in seen:
            raise _refusal(f"{what} has the topologyKey and whenUnsatisfiable of one before it")
        seen.add((one.topology_key, one.unsatisfiable))


def _check_labels(labels: Mapping[str, str]) -> None:
    for key, value in labels.items():
        if why := _taken(key):
            raise ClaimReason.INVALID_LABEL.error(f"cannot label pods: {why}", "podLabels")
        check_label(key, value, doing="label pods")


def _check_annotations(annotations: Mapping[str, str]) -> None:
    size = sum(len(key) + len(value.encode("utf-8", "surrogatepass")) for key, value in annotations.items())
    if size > MAX_ANNOTATIONS:
        raise _annotation(f"{size} bytes of them are more than {MAX_ANNOTATIONS}")
    for key, value in annotations.items():
        if why := _taken(key):
            raise _annotation(why)
        if "/" not in key:
            # Runtimes read keys without a domain as their settings: dev.gvisor.flag.network.
            better = f"example.com/{key[:40]}"
            raise _annotation(f"{key[:100]!r} has no domain; write it as {better!r}")
        check_label(key, "", doing="annotate pods")
        if not value.isprintable() and not value.replace("\n", "").isprintable():
            raise _annotation(f"the value of {key[:100]!r} has control characters")


def _taken(key: str) -> str:
    """Why a template may not set this key; empty if it may."""
    domain = key.rpartition("/")[0].lower()
    isolates = any(domain == one or domain.endswith(f".{one}") for one in ISOLATING)
    if names.is_reserved(key) or isolates:
        return f"{key[:100]!r} is Kubernetes' or Sandfleet's, or changes what isolates the pod"
    return ""


def _refusal(why: str) -> FleetError:
    return invalid("InvalidPlacement", f"cannot {DOING}: {why}")


def _annotation(why: str) -> FleetError:
    return invalid("InvalidAnnotation", f"cannot annotate pods: {why}", "podAnnotations")


def fields_of(template: TemplateSpec, name: str) -> dict[str, Any]:
    """The pod's fields, empty ones included. `name` is the template's; empty for an inline template."""
    labels = {names.COMPONENT: names.SANDBOX_COMPONENT, **({names.TEMPLATE: names.bounded(name)} if name else {})}
    own = LabelSelector(labels)
    return {
        "nodeSelector": dict(template.node_selector),
        "tolerations": [dict(toleration) for toleration in template.tolerations],
        "affinity": encode(_filled(template.affinity, own)),
        "topologySpreadConstraints": [{**encode(one), "labelSelector": encode(own)} for one in template.spread],
        "priorityClassName": template.priority_class,
    }


def _filled(affinity: Affinity, own: LabelSelector) -> Affinity:
    def term(one: PodTerm) -> PodTerm:
        return one if one.selector is not None else replace(one, selector=own)

    def terms(pods: PodAffinity | None) -> PodAffinity | None:
        if pods is None:
            return None
        preferred = tuple(replace(one, term=term(one.term)) for one in pods.preferred)
        return PodAffinity(tuple(map(term, pods.required)), preferred)

    return replace(affinity, pods=terms(affinity.pods), anti_pods=terms(affinity.anti_pods))
