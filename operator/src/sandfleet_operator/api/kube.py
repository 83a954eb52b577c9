"""The Kubernetes API as values: kinds, references, paths, and the API server's refusals by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

# An object of the API, as its JSON says it.
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """`group` is "" for the core group; `plural` is the word in paths."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


POD = Kind("", "v1", "pods", "Pod")
NAMESPACE = Kind("", "v1", "namespaces", "Namespace", namespaced=False)
NODE = Kind("", "v1", "nodes", "Node", namespaced=False)
EVENT = Kind("", "v1", "events", "Event")
SECRET = Kind("", "v1", "secrets", "Secret")
CONFIG_MAP = Kind("", "v1", "configmaps", "ConfigMap")
PERSISTENT_VOLUME_CLAIM = Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
PERSISTENT_VOLUME = Kind("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
VOLUME_ATTACHMENT = Kind("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", namespaced=False)
STORAGE_CLASS = Kind("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
NETWORK_POLICY = Kind("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
RUNTIME_CLASS = Kind("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
CONTROLLER_REVISION = Kind("apps", "v1", "controllerrevisions", "ControllerRevision")
LEASE = Kind("coordination.k8s.io", "v1", "leases", "Lease")
CODE_SANDBOX = Kind("sandfleet.io", "v1alpha1", "codesandboxes", "CodeSandbox")
SANDBOX_TEMPLATE = Kind("sandfleet.io", "v1alpha1", "sandboxtemplates", "SandboxTemplate")
SANDBOX_POOL = Kind("sandfleet.io", "v1alpha1", "sandboxpools", "SandboxPool")
SANDBOX_QUEUE = Kind("sandfleet.io", "v1alpha1", "sandboxqueues", "SandboxQueue")
SANDBOX_SNAPSHOT = Kind("sandfleet.io", "v1alpha1", "sandboxsnapshots", "SandboxSnapshot")

KINDS = (
    POD,
    NAMESPACE,
    NODE,
    EVENT,
    SECRET,
    CONFIG_MAP,
    PERSISTENT_VOLUME_CLAIM,
    PERSISTENT_VOLUME,
    VOLUME_ATTACHMENT,
    STORAGE_CLASS,
    NETWORK_POLICY,
    RUNTIME_CLASS,
    CONTROLLER_REVISION,
    LEASE,
    CODE_SANDBOX,
    SANDBOX_TEMPLATE,
    SANDBOX_POOL,
    SANDBOX_QUEUE,
    SANDBOX_SNAPSHOT,
)


@dataclass(frozen=True, slots=True)
class Ref:
    """Names one object; `namespace` is "" where its kind has none."""

    kind: Kind
    namespace: str
    name: str

    def __str__(self) -> str:
        return "/".join(part for part in (str(self.kind), self.namespace, self.name) if part)


@dataclass(frozen=True, slots=True)
class Listing:
    """`resource_version` is where a watch that goes on from here begins."""

    items: tuple[Json, ...]
    resource_version: str


@dataclass(frozen=True, slots=True)
class Event:
    """`type` is ADDED, MODIFIED, DELETED or BOOKMARK; a bookmark's object has only metadata.resourceVersion."""

    type: str
    object: Json


def collection(kind: Kind, namespace: str = "") -> str:
    """The path of a kind's objects; without a namespace, of all namespaces. Raises ValueError."""
    if namespace and not kind.namespaced:
        raise ValueError(f"cannot address {kind} in namespace {namespace!r}: they have none")
    group = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    return f"{group}/namespaces/{_segment(namespace)}/{kind.plural}" if namespace else f"{group}/{kind.plural}"


def path(ref: Ref, subresource: str = "") -> str:
    """The path of one object. Raises ValueError where the names would make it the path of something else."""
    if ref.kind.namespaced and not ref.namespace:
        raise ValueError(f"cannot address {ref}: the namespace is missing")
    whole = f"{collection(ref.kind, ref.namespace)}/{_segment(ref.name)}"
    return f"{whole}/{subresource}" if subresource else whole


def _segment(name: str) -> str:
    # An empty name would make a deletion of one object a deletion of all of them.
    if not name or name in {".", ".."} or any(character in "/%?#" or not character.isprintable() for character in name):
        raise ValueError(f"cannot address {name!r}: it is not the name of an object")
    return name


def kind_of(obj: Mapping[str, Any], kinds: tuple[Kind, ...] = KINDS) -> Kind:
    """By apiVersion and kind. Raises ValueError for a kind that is not among `kinds`."""
    named = obj.get("apiVersion"), obj.get("kind")
    for kind in kinds:
        if named == (kind.api_version, kind.kind):
            return kind
    raise ValueError(f"cannot tell what kind {named[0]}, {named[1]} is")


def ref_of(obj: Mapping[str, Any], kinds: tuple[Kind, ...] = KINDS) -> Ref:
    """Raises ValueError as `kind_of` does; the name is "" where the API server is to make one (generateName)."""
    metadata = obj.get("metadata") or {}
    return Ref(kind_of(obj, kinds), metadata.get("namespace", ""), metadata.get("name", ""))


class KubeError(Exception):
    """The API server refused, failed or was not reached.

    `status` is the HTTP status, 0 without an answer; `reason` is the server's word (Status.reason); `retry_after` is in
    seconds, None where the server did not say.
    """

    # Whether a write that ended like this may have been done nevertheless.
    unsettled = False

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


class NotFound(KubeError):
    """There is no such object, namespace or kind (404)."""


class AlreadyExists(KubeError):
    """An object of this name is there already (409)."""


class Conflict(KubeError):
    """The object is not, or no longer, the one that was meant: its uid or resourceVersion is another (409)."""


class Expired(KubeError):
    """The resource version is too old to go on from (410): list again."""


class Invalid(KubeError):
    """Validation failed, or a `test` of a JSON patch did (422)."""


class Forbidden(KubeError):
    """No permission, admission refused, a quota is used up, or the namespace is going away (403)."""


class TooManyRequests(KubeError):
    """Come back later (429); see `retry_after`."""


class ServerError(KubeError):
    """The API server failed (5xx)."""

    unsettled = True


class Unreachable(KubeError):
    """No answer: the connection failed, broke, or the time was over (status 0)."""

    unsettled = True


# By reason first: 409 has two of them.
_BY_REASON: Mapping[str, type[KubeError]] = {
    "NotFound": NotFound,
    "AlreadyExists": AlreadyExists,
    "Conflict": Conflict,
    "Expired": Expired,
    "Gone": Expired,
    "Invalid": Invalid,
    "Forbidden": Forbidden,
    "TooManyRequests": TooManyRequests,
}
_BY_STATUS: Mapping[int, tuple[type[KubeError], str]] = {
    403: (Forbidden, "Forbidden"),
    404: (NotFound, "NotFound"),
    409: (Conflict, "Conflict"),
    410: (Expired, "Expired"),
    422: (Invalid, "Invalid"),
    429: (TooManyRequests, "TooManyRequests"),
}


def failure(doing: str, status: int, answer: Mapping[str, Any], retry_after: float | None = None) -> KubeError:
    """The error for a failed answer. `doing` completes "cannot "; `answer` is the server's Status, or {}."""
    by_status, word = _BY_STATUS.get(status, (ServerError if status >= 500 else KubeError, "InternalError"))
    reason = str(answer.get("reason") or word)
    raised = by_status if status >= 500 else _BY_REASON.get(reason, by_status)
    message = answer.get("message") or f"the API server answered {status}"
    return raised(status, reason, f"cannot {doing}: {message}", retry_after)


class Cause(Enum):
    """Why the API server did not create an object, as far as the next try depends on it."""

    # It told us to wait, did not answer, or failed: it takes the same object later.
    BUSY = "Busy"
    # A ResourceQuota of the namespace is used up.
    QUOTA = "Quota"
    # Rights, admission or the end of the namespace: a person has to change something outside the object.
    FORBIDDEN = "Forbidden"
    # The object itself is wrong.
    INVALID = "Invalid"


@dataclass(frozen=True, slots=True)
class NotCreated:
    """A create that came to nothing. `retry_after` is in seconds, None where the API server did not say."""

    cause: Cause
    message: str
    retry_after: float | None = None
    # An object of this name was there already.
    exists: bool = False
