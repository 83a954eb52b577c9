"""How claims change pods: JSON patches that begin with tests, so that the API server gives a pod to one caller only.

This holds for any number of fleets. Binding leaves the record of the claim on the pod.
"""

from collections.abc import Iterable, Mapping, Sequence

from sandfleet_operator.api.kinds.meta import Meta
from sandfleet_operator.api.kube import Json
from sandfleet_operator.api.validate import trace_parent
from sandfleet_operator.api.values import Mark
from sandfleet_operator.plan.claims.record import Record, record_text
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.podspec import PodState


def claim_patch(pod_uid: str, record: Record, egress_class: str, copied: Mapping[str, str]) -> list[Json]:
    """Binds a warm pod. `egress_class` is the label's value where the template allows anything, else empty."""
    labels = {names.SANDBOX: record.object, **copied}
    if egress_class and record.egress:
        labels[names.EGRESS_CLASS] = egress_class
    annotations = {names.CLAIM: record_text(record), **names.autoscaler_marks(claimed=True)}
    if trace := trace_parent(record.traceparent):
        annotations[names.TRACEPARENT] = trace
    return _take_patch(pod_uid, labels, annotations, [])


def give_patch(pod_uid: str, owner: Meta, now: float, copied: Mapping[str, str]) -> list[Json]:
    """Gives a warm pod to a session that comes out of its snapshot: it is the operator's from then on, as its own one.

    It has no record of a claim: that of the session stands in its CodeSandbox. What it may reach is the operator's to
    say.
    """
    labels = {names.SANDBOX: owner.name, **copied}
    annotations = {names.GIVEN: str(int(now)), **names.autoscaler_marks(claimed=True)}
    return _take_patch(pod_uid, labels, annotations, [names.owned_by("CodeSandbox", owner)])


def _take_patch(
    pod_uid: str, labels: Mapping[str, str], annotations: Mapping[str, str], owners: list[Json]
) -> list[Json]:
    return [
        {"op": "test", "path": _label(names.STATE), "value": PodState.WARM.value},
        {"op": "test", "path": "/metadata/uid", "value": pod_uid},
        {"op": "replace", "path": _label(names.STATE), "value": PodState.CLAIMED.value},
        *({"op": "add", "path": _label(key), "value": value} for key, value in labels.items()),
        *({"op": "add", "path": annotation_path(key), "value": value} for key, value in annotations.items()),
        # Neither its pool nor its template takes it away from now on.
        {"op": "replace", "path": "/metadata/ownerReferences", "value": owners},
        # The field managers are not used, and tracking them is half of the API server's work on a patch.
        {"op": "add", "path": "/metadata/managedFields", "value": [{}]},
    ]


def retire_patch(pod_uid: str, record: Record | None = None) -> list[Json]:
    """Retires a pod, so that no fleet can use it: a warm pod, or with `record` the pod of exactly this claim."""
    still = {"op": "test", "path": _label(names.STATE), "value": PodState.WARM.value}
    if record is not None:
        still = {"op": "test", "path": annotation_path(names.CLAIM), "value": record_text(record)}
    return [
        still,
        {"op": "test", "path": "/metadata/uid", "value": pod_uid},
        {"op": "replace", "path": _label(names.STATE), "value": PodState.RETIRING.value},
    ]


def filled_patch(pod_uid: str, received: Iterable[Mark]) -> list[Json]:
    """Notes that a warm pod is filled, so that the next leader can hand it out before it has asked its executor."""
    return [
        {"op": "test", "path": "/metadata/uid", "value": pod_uid},
        {"op": "add", "path": annotation_path(names.FILLED), "value": ",".join(sorted(one.value for one in received))},
    ]


def keep_patch(pod_uid: str, record: Record, kept: Record) -> list[Json]:
    """Moves a deposed fleet's claim to its successor; the old fleet's pending undo then fails its test."""
    return [
        {"op": "test", "path": _label(names.STATE), "value": PodState.CLAIMED.value},
        {"op": "test", "path": "/metadata/uid", "value": pod_uid},
        {"op": "test", "path": annotation_path(names.CLAIM), "value": record_text(record)},
        {"op": "replace", "path": annotation_path(names.CLAIM), "value": record_text(kept)},
    ]


def owner_patch(pod_uid: str, record: Record, owner: Meta) -> list[Json]:
    """Gives a claimed pod to its CodeSandbox, but only while the claim is unchanged: a late write does nothing."""
    return [
        {"op": "test", "path": "/metadata/uid", "value": pod_uid},
        {"op": "test", "path": annotation_path(names.CLAIM), "value": record_text(record)},
        {"op": "add", "path": "/metadata/ownerReferences", "value": [names.owned_by("CodeSandbox", owner)]},
    ]


def journal_patch(pod_uid: str, text: str) -> list[Json]:
    """Writes down the newest signed head of a pod's journal, for the next leader."""
    return [
        {"op": "test", "path": "/metadata/uid", "value": pod_uid},
        {"op": "add", "path": annotation_path(names.JOURNAL_HEAD), "value": text},
    ]


def tests_hold(obj: Json, patch: Sequence[Json]) -> bool:
    """Whether the patch finds the object as it expects it: an API server that refuses it then refuses the write itself.

    The API server answers both with 422.
    """
    return all(_at(obj, one["path"]) == one["value"] for one in patch if one["op"] == "test")


def _at(obj: Json, path: str) -> object:
    found: object = obj
    for part in path.split("/")[1:]:
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found


def _label(key: str) -> str:
    return f"/metadata/labels/{_escaped(key)}"


def annotation_path(key: str) -> str:
    return f"/metadata/annotations/{_escaped(key)}"


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
