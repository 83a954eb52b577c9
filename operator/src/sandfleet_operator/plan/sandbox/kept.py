"""What is kept of an object that was read: what the readers of `observed` use of pods and nodes, less of the others.

So a pod takes about 4 KiB of memory instead of 30, and no memory for what a tenant adds to it.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

from sandfleet_operator.api.kept import Kept
from sandfleet_operator.api.kinds.meta import GROUP
from sandfleet_operator.api.kinds.sandbox import readable
from sandfleet_operator.api.kube import CODE_SANDBOX, NODE, PERSISTENT_VOLUME_CLAIM, POD, Json, Kind
from sandfleet_operator.plan.pods.names import CLAIM, SANDBOX
from sandfleet_operator.plan.pods.podspec import CONTAINER
from sandfleet_operator.plan.sandbox.observed import OUT_OF_SERVICE, pod_of

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
CONDITIONS = ("Ready", "PodScheduled", "PodReadyToStartContainers", "DisruptionTarget")
# Texts up to this length are shared with equal ones of other objects where there are few different ones.
SHARED = 128
# The record of a claim stands on its pod and on its CodeSandbox.
RECORD = 4096
RECORDS = frozenset({CLAIM, "claim"})
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
        "creationTimestamp",
        "runtime",
        "imageDigest",
    }
)
# Parts up to this length, as text, that are shared with equal ones; and how many different ones.
MAX_PART, MAX_PARTS = 1024, 1024
# Of a status.
ASKED = ("podName", "podUID", "templateRevision")
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

T = TypeVar("T")
_PARTS: dict[str, object] = {}


def kept(kind: Kind, obj: Json) -> Kept:
    """Of an object that can be read: what the store keeps of it."""
    if kind == POD:
        return _pod(obj)
    return _sandbox(obj) if kind == CODE_SANDBOX else Kept(READ.get(kind, _lean)(obj))


def _pod(obj: Json) -> Kept:
    """Reads it now. Beside that and the metadata, only what the pods of a pool have in common stays."""
    spec, status = _dict(obj, "spec"), _dict(obj, "status")
    slim = _meta(obj)
    if owners := obj["metadata"].get("ownerReferences"):
        slim["ownerReferences"] = [_only(one, ("apiVersion", "kind", "name", "uid")) for one in owners]
    asked = _same({"containers": [_requests(one) for one in _named(spec, "containers", "name", CONTAINER)]})
    ran = [_container(one) for one in _named(status, "containerStatuses", "name", CONTAINER)]
    told = [one for name in CONDITIONS for one in _named(status, "conditions", "type", name)]
    said = {**_only(status, ("phase", "podIP", "reason", "message")), "containerStatuses": ran, "conditions": told}
    volumes = _named(spec, "volumes", "name", "workspace")
    whole = {
        "metadata": slim,
        "spec": {**_only(spec, ("nodeName", "runtimeClassName", "schedulingGates")), "volumes": volumes},
        "status": said,
    }
    found = Kept({**_head(obj), "metadata": slim, "spec": asked})
    found.read_from(pod_of, whole)
    return found


def _sandbox(obj: Json) -> Kept:
    """Reads it now. Beside that, of its status only what is asked of sandboxes that cannot be read, too."""
    lean = _lean(obj)
    (lean["metadata"].get("annotations") or {}).pop(LAST_APPLIED, None)
    found = Kept(lean)
    if readable(found) is None:
        return found
    status = _dict(lean, "status")
    asked: Json = {name: status[name] for name in ASKED if name in status}
    # What they say has been read.
    if status.get("binding"):
        asked["binding"] = True
    if said := status.get("conditions"):
        asked["conditions"] = _same([_only(one, ("type", "status")) for one in said])
    found["status"] = asked
    return found


def _volume(obj: Json) -> Json:
    """With the annotations of others, which the operator writes back."""
    slim = _meta(obj, prefix="")
    if owners := obj["metadata"].get("ownerReferences"):
        slim["ownerReferences"] = [{sys.intern(name): _only(one, (name,))[name] for name in one} for one in owners]
    return {**_head(obj), "metadata": slim, "status": _only(_dict(obj, "status"), ("phase",))}


def _meta(obj: Json, prefix: str = f"{GROUP}/") -> Json:
    """Of the annotations those with this prefix. Words that many objects have are shared."""
    meta = obj["metadata"]
    slim = {**_only(meta, META), "annotations": {}}
    for key, value in _interned(meta.get("annotations") or {}):
        if key.startswith(prefix):
            slim["annotations"][key] = _shared(value, longest=RECORD)
    labels = meta.get("labels") or {}
    slim["labels"] = {key: value if key == SANDBOX else _shared(value) for key, value in _interned(labels)}
    return slim


def _requests(container: Json) -> Json:
    requests = _dict(_dict(container, "resources"), "requests")
    return {"name": CONTAINER, "resources": {"requests": _only(requests, ("cpu", "memory"))}}


def _container(status: Json) -> Json:
    slim, state = _only(status, ("name", "imageID")), _dict(status, "state")
    if told := _only(state, ("waiting", "running", "terminated")):
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
        if "lastTransitionTime" in value:
            return _same({sys.intern(key): _shared(inner) for key, inner in value.items()})
        return {sys.intern(key): _word(key, inner, texts) for key, inner in value.items()}
    if isinstance(value, list):
        return [_of_shared(one, texts) for one in value]
    return texts.setdefault(value, value) if isinstance(value, str) else value


def _word(key: str, value: Any, texts: dict[str, str]) -> Any:
    if isinstance(value, str) and (key in ONE_OF_FEW or key in RECORDS):
        return _shared(value, longest=RECORD)
    return _of_shared(value, texts)


READ: Mapping[Kind, Callable[[Json], Json]] = {NODE: _node, PERSISTENT_VOLUME_CLAIM: _volume}


def _head(obj: Json) -> Json:
    return {name: _shared(obj[name]) for name in ("apiVersion", "kind") if name in obj}


def _only(value: Mapping[str, Any], names: tuple[str, ...]) -> Json:
    return {name: _shared(value[name]) if name in ONE_OF_FEW else value[name] for name in names if name in value}


def _shared(text: Any, longest: int = SHARED) -> Any:
    return sys.intern(text) if type(text) is str and len(text) <= longest else text


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
