"""What is kept of an object that was read: what the readers of `observed` use of pods and nodes, less of the others.

So a pod takes about 4 KiB of memory instead of 30, and no memory for what a tenant adds to it.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

from sandfleet_operator.api.kept import Kept
from sandfleet_operator.api.kinds.meta import GROUP
from sandfleet_operator.api.kube import CODE_SANDBOX, NODE, POD, Json, Kind
from sandfleet_operator.plan.pods.names import SANDBOX
from sandfleet_operator.plan.pods.podspec import CONTAINER
from sandfleet_operator.plan.sandbox.observed import OUT_OF_SERVICE

META = (
    "namespace",
    "name",
    "uid",
    "generation",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "labels",
)
CONDITIONS = ("Ready", "PodScheduled", "DisruptionTarget")
# Texts up to this length are shared with equal ones of other objects where there are few different ones.
SHARED = 128
# Fields with few different values.
ONE_OF_FEW = frozenset(
    {
        "namespace",
        "kind",
        "type",
        "status",
        "reason",
        "phase",
        "nodeName",
        "runtimeClassName",
        "imageID",
        "message",
        "apiVersion",
        "cpu",
        "memory",
    }
)
# Parts up to this length, as text, that are shared with equal ones; and how many different ones.
MAX_PART, MAX_PARTS = 1024, 1024
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

T = TypeVar("T")
_PARTS: dict[str, object] = {}


def kept(kind: Kind, obj: Json) -> Kept:
    """Of an object that can be read: what the store keeps of it."""
    slim = READ.get(kind, _lean)(obj)
    if kind == CODE_SANDBOX:
        (slim["metadata"].get("annotations") or {}).pop(LAST_APPLIED, None)
    return Kept(slim)


def _pod(obj: Json) -> Json:
    meta, spec, status = obj["metadata"], _dict(obj, "spec"), _dict(obj, "status")
    annotations = meta.get("annotations") or {}
    slim = _only(meta, META)
    slim["annotations"] = {key: value for key, value in _interned(annotations) if key.startswith(f"{GROUP}/")}
    labels = meta.get("labels") or {}
    slim["labels"] = {key: value if key == SANDBOX else _shared(value) for key, value in _interned(labels)}
    if owners := meta.get("ownerReferences"):
        slim["ownerReferences"] = [_only(one, ("apiVersion", "kind", "name", "uid")) for one in owners]
    workspace = [_only(one, ("name", "persistentVolumeClaim")) for one in _named(spec, "volumes", "name", "workspace")]
    asked = _same([_requests(one) for one in _named(spec, "containers", "name", CONTAINER)])
    ran = _same([_container(one) for one in _named(status, "containerStatuses", "name", CONTAINER)])
    told = [one for name in CONDITIONS for one in _named(status, "conditions", "type", name)]
    said = _same([_only(one, ("type", "status", "reason", "message")) for one in told])
    return {
        **_head(obj),
        "metadata": slim,
        "spec": {
            **_only(spec, ("nodeName", "runtimeClassName")),
            **({"volumes": workspace} if workspace else {}),
            "containers": asked,
        },
        "status": {
            **_only(status, ("phase", "podIP", "reason", "message")),
            **({"containerStatuses": ran} if ran else {}),
            **({"conditions": said} if said else {}),
        },
    }


def _requests(container: Json) -> Json:
    requests = _dict(_dict(container, "resources"), "requests")
    return {"name": CONTAINER, "resources": {"requests": _only(requests, ("cpu", "memory"))}}


def _container(status: Json) -> Json:
    slim, state = _only(status, ("name", "imageID")), _dict(status, "state")
    if told := _only(state, ("waiting", "terminated")):
        slim["state"] = told
    return slim


def _node(obj: Json) -> Json:
    spec, status = _dict(obj, "spec"), _dict(obj, "status")
    said = _named(status, "conditions", "type", "Ready")
    return {
        **_head(obj),
        "metadata": _only(obj["metadata"], META),
        "spec": {"taints": [_only(one, ("key",)) for one in _named(spec, "taints", "key", OUT_OF_SERVICE)]},
        "status": {
            "conditions": [_only(one, ("type", "status", "lastTransitionTime")) for one in said],
            **_only(status, ("runtimeHandlers",)),
        },
    }


def _lean(obj: Json) -> Json:
    """All of it, without what only the API server and kubectl use. Equal texts of one object are one text."""
    meta = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    texts: dict[str, str] = {}
    lean: Json = _of_shared({**obj, "metadata": meta}, texts)
    if "spec" in lean:
        lean["spec"] = _same(lean["spec"])
    return lean


def _of_shared(value: Any, texts: dict[str, str]) -> Any:
    if isinstance(value, dict):
        told = "lastTransitionTime" in value
        return {
            sys.intern(key): _shared(inner) if told and isinstance(inner, str) else _of_shared(inner, texts)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_of_shared(one, texts) for one in value]
    return texts.setdefault(value, value) if isinstance(value, str) else value


READ: Mapping[Kind, Callable[[Json], Json]] = {POD: _pod, NODE: _node}


def _head(obj: Json) -> Json:
    return {name: _shared(obj[name]) for name in ("apiVersion", "kind") if name in obj}


def _only(value: Mapping[str, Any], names: tuple[str, ...]) -> Json:
    return {name: _shared(value[name]) if name in ONE_OF_FEW else value[name] for name in names if name in value}


def _shared(text: Any) -> Any:
    return sys.intern(text) if type(text) is str and len(text) <= SHARED else text


def _interned(texts: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((sys.intern(key), value) for key, value in texts.items())


def _same(part: T) -> T:
    """The part itself, or an equal one of another object."""
    text = repr(part)
    if len(text) > MAX_PART:
        return part
    if len(_PARTS) >= MAX_PARTS:
        _PARTS.clear()
    return cast("T", _PARTS.setdefault(text, part))


def _dict(obj: Mapping[str, Any], name: str) -> Json:
    value = obj.get(name)
    return value if isinstance(value, dict) else {}


def _named(obj: Mapping[str, Any], part: str, name: str, value: str) -> list[Json]:
    """The first item of a list that is called so: all that readers look at."""
    items = obj.get(part)
    there = items if isinstance(items, list) else ()
    return next(([one] for one in there if isinstance(one, dict) and one.get(name) == value), [])
