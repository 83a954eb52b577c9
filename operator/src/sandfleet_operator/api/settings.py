"""What the platform team decides for the whole installation: the values that Helm hands to the control plane."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from sandfleet_operator.api.egress import parse_all
from sandfleet_operator.api.errors import invalid
from sandfleet_operator.api.kinds.meta import GROUP
from sandfleet_operator.api.kinds.template import TemplateSpec, sandbox_template
from sandfleet_operator.api.networks import network
from sandfleet_operator.api.validate import DNS_LABEL, check_label

MIB = 1 << 20
DOING = "take the settings"
IMAGE_VOLUME, INIT_CONTAINER = "ImageVolume", "InitContainer"
DELIVERIES = (IMAGE_VOLUME, INIT_CONTAINER)

# REPOSITORY[:TAG][@DIGEST]; a colon with a slash behind it belongs to the registry's port.
IMAGE = re.compile(
    r"(?P<repository>[^\s@]+?)(:(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}|\*))?(@(?P<digest>sha256:([0-9a-f]{64}|\*)))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """How a crashed sandbox comes back. Durations are seconds."""

    # Before the first new pod; it doubles from crash to crash up to the most.
    backoff_base: float = 1.0
    backoff_max: float = 300.0
    # After so many crashes without a stable stretch it stays down and says Degraded.
    max_crashes: int = 8
    # A sandbox that was ready for so long starts with a clean record.
    stable_seconds: float = 600.0
    # A node may be silent for so long before the status says so.
    node_grace: float = 40.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Starts:
    """How long the fleet leaves a pod that cannot start, in seconds; then another one takes its place.

    The start's own time (startTimeoutSeconds) does not run meanwhile.
    """

    # Another controller holds it back by scheduling gates.
    scheduling_gated: float = 86400.0
    # No node has room; an autoscaler may bring one.
    unschedulable: float = 900.0
    # Its node pulls the image.
    image_pulling: float = 900.0

    def __post_init__(self) -> None:
        """Raises FleetError."""
        _check_above_zero(self, "starts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dns:
    """The pods that resolve names."""

    namespace: str = "kube-system"
    labels: Mapping[str, str] = field(default_factory=lambda: {"k8s-app": "kube-dns"})
    ports: tuple[int, ...] = (53,)


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressByName:
    """The egress process, which connects sandboxes to hosts by name."""

    # Its Service, as HOST:PORT; empty: none is installed.
    service: str = ""
    # Address and port of that Service, which each process looks up at its start: sandboxes resolve no names.
    address: str = ""
    # Lists of hosts that templates have by name.
    sets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Networks that are not public, to which names may lead.
    networks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raises FleetError."""
        for hosts in self.sets.values():
            parse_all(hosts)
        for cidr in self.networks:
            network(cidr)

    @property
    def port(self) -> int:
        """0 where there is none."""
        return int(self.service.rpartition(":")[2] or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    """The executor that comes beside images which have none."""

    # Its image; empty: every image has an executor of its own.
    image: str = ""
    # How it gets there: as a volume that is the image (Kubernetes 1.35, or the gate ImageVolume), or copied.
    delivery: str = IMAGE_VOLUME

    def __post_init__(self) -> None:
        """Raises FleetError."""
        _must(not self.image or IMAGE.fullmatch(self.image), f"executor.image {self.image!r} is no image")
        _must(self.delivery in DELIVERIES, f"executor.delivery is one of {', '.join(DELIVERIES)}")

    def is_in(self, image: str) -> bool:
        """Whether the image is of the executor's repository."""
        return not self.image or _repository(self.image) == _repository(image)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    control_plane_namespace: str
    # None named: all.
    watch_namespaces: tuple[str, ...] = ()
    # What sandboxes may be made from; see `image_allowed`. None: nothing.
    allowed_images: tuple[str, ...] = ()
    executor: Executor = field(default_factory=Executor)
    # The most that a sandbox may ask for that brings its template with it; None: no sandbox may.
    inline: TemplateSpec | None = None
    # Services, API servers and nodes: where no egress list leads.
    blocked_cidrs: tuple[str, ...] = ()
    executor_port: int = 50051
    # RuntimeClasses that are gVisor: an executor that does not find itself in it is not handed out.
    gvisor_classes: tuple[str, ...] = ("gvisor",)
    # Pods with this label set to "true" may talk to executors: in the same namespace, or in one with the same label.
    client_label: str = f"{GROUP}/client"
    # Labels that a pod gets from its CodeSandbox. Others' policies and services select by labels, so none by default.
    copied_labels: tuple[str, ...] = ()
    # Of the container's memory: what executor and gVisor need before any user code runs, in bytes.
    memory_reserve: int = 192 * MIB
    # Claims that may wait in one namespace for a sandbox; the next one is refused.
    max_waiting_per_namespace: int = 5000
    # Seconds that a claim's session may stay suspended; then it ends.
    suspend_timeout_seconds: float = 7 * 86400.0
    # Seconds for which a claim without a volume is only its pod; 0: its CodeSandbox is written at once.
    young_claim_seconds: float = 5.0
    # Whether a snapshotter is installed: preempted sessions without a volume wait for it, however long it is away.
    snapshotter: bool = False
    # ValidatingAdmissionPolicies without which the fleet does not start, each with a binding of its name. None named:
    # each account that may create pods beside its own is trusted.
    admission_policies: tuple[str, ...] = ()
    recovery: Recovery = Recovery()
    starts: Starts = field(default_factory=Starts)
    dns: Dns = Dns()
    egress: EgressByName = field(default_factory=EgressByName)

    def __post_init__(self) -> None:
        """Raises FleetError for the first value that cannot be."""
        for name in (self.control_plane_namespace, self.dns.namespace, *self.watch_namespaces):
            _must(DNS_LABEL.fullmatch(name), f"{name!r} is no name of a namespace")
        for pattern in self.allowed_images:
            _must(is_pattern(pattern), f"{pattern!r} is neither an image nor REPOSITORY:* nor REPOSITORY@sha256:*")
        for cidr in self.blocked_cidrs:
            network(cidr)
        for port in (self.executor_port, *self.dns.ports):
            _must(0 < port < 65536, f"{port} is no port")
        for label in (self.client_label, *self.copied_labels):
            check_label(label, "", doing=DOING)
        _must(self.client_label not in self.copied_labels, f"copied label {self.client_label!r} opens executors")
        _must(self.suspend_timeout_seconds > 0, "suspendTimeoutSeconds is not above 0")
        _must(self.young_claim_seconds >= 0, "youngClaimSeconds is below 0")
        _must(self.max_waiting_per_namespace > 0, "maxWaitingPerNamespace is not above 0")
        _must(self.memory_reserve >= 0, "the memory reserve is below 0")
        _check_recovery(self.recovery)

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """From a JSON object with camelCase names. Raises FleetError for a missing, unknown or wrong field."""
        given = _fields(cls, values, "")
        _must("control_plane_namespace" in given, "controlPlaneNamespace is missing")
        if given.get("inline") is not None:
            given["inline"] = _ceiling(_object(given["inline"], "inline"))
        for name, kind in PARTS.items():
            if name in given:
                given[name] = kind(**_fields(kind, _object(given[name], name), f"{name}."))
        return cls(**given)


# Field of the settings → what it is an object of.
PARTS = {"executor": Executor, "recovery": Recovery, "starts": Starts, "dns": Dns, "egress": EgressByName}


def _ceiling(spec: Mapping[str, Any]) -> TemplateSpec:
    """Written as a SandboxTemplate's spec, but without an image: which may be used is said by `allowed_images`."""
    template = {"metadata": {"name": "inline"}, "spec": {"image": "none", **spec}}
    return sandbox_template(template).spec


def image_allowed(image: str, patterns: tuple[str, ...]) -> bool:
    """Whether one of the patterns is the image as it is written, or

    `REPOSITORY:*`, for every tag of exactly that repository, or `REPOSITORY@sha256:*`, for whatever is pinned by
    digest.
    """
    found = IMAGE.fullmatch(image)
    if found is None or "*" in image:
        return False
    return any(_matches(pattern, image, found) for pattern in patterns)


def _matches(pattern: str, image: str, found: re.Match[str]) -> bool:
    if pattern == image:
        return True
    if pattern == f"{found['repository']}:*":
        return found["tag"] is not None
    return pattern == f"{found['repository']}@sha256:*" and found["digest"] is not None


def _repository(image: str) -> str:
    """With the registry that Docker's names leave out; empty for what is no image."""
    found = IMAGE.fullmatch(image)
    return found["repository"].removeprefix("docker.io/") if found else ""


def is_pattern(pattern: str) -> bool:
    """Whether `image_allowed` can go by it."""
    found = IMAGE.fullmatch(pattern)
    return found is not None and "*" not in found["repository"]


def _check_recovery(recovery: Recovery) -> None:
    _check_above_zero(recovery, "recovery")
    _must(recovery.backoff_base <= recovery.backoff_max, "recovery.backoffBase is above recovery.backoffMax")


def _check_above_zero(part: "Recovery | Starts", name: str) -> None:
    for one in fields(part):
        _must(getattr(part, one.name) > 0, f"{name}.{_camel(one.name)} is not above 0")


def _must(holds: object, why: str) -> None:
    if not holds:
        raise invalid("InvalidSettings", f"cannot {DOING}: {why}")


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _object(value: Any, where: str) -> Mapping[str, Any]:
    _must(isinstance(value, Mapping), f"{where} is no object")
    return dict(value)


def _fields(kind: type, values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The values by the names of the class's fields, each of the kind that the field has."""
    known = {_camel(one.name): one for one in fields(kind)}
    unknown = sorted(set(values) - set(known))
    _must(not unknown, f"unknown {', '.join(where + name for name in unknown)}")
    return {known[name].name: _typed(value, known[name].type, where + name) for name, value in values.items()}


def _typed(value: Any, kind: object, where: str) -> Any:
    reader = READERS.get(kind)
    if reader is None:
        return value
    try:
        return reader(value)
    except (TypeError, ValueError):
        raise invalid("InvalidSettings", f"cannot {DOING}: {where} is {value!r}") from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    return float(value)


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise TypeError
    return tuple(map(_text, value))


def _wholes(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list | tuple):
        raise TypeError
    return tuple(map(_whole, value))


def _labels(value: Any) -> dict[str, str]:
    return {_text(key): _text(label) for key, label in dict(value).items()}


def _lists(value: Any) -> dict[str, tuple[str, ...]]:
    return {_text(key): _texts(one) for key, one in dict(value).items()}


READERS: Mapping[object, Callable[[Any], Any]] = {
    str: _text,
    int: _whole,
    float: _number,
    bool: _truth,
    tuple[str, ...]: _texts,
    tuple[int, ...]: _wholes,
    Mapping[str, str]: _labels,
    Mapping[str, tuple[str, ...]]: _lists,
}
