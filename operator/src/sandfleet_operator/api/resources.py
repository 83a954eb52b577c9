"""The custom resources of `sandfleet.io/v1alpha1` as frozen values. Durations are seconds, sizes are bytes, CPU is cores.

What a field means stands once, in the schema (charts/sandfleet/files/crds); docs/reference/crds.md is made from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from sandfleet_operator.api.values import TEMPLATE_LIMITS, Limits

GROUP = "sandfleet.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"


class OperatingMode(Enum):
    RUNNING = "Running"
    SUSPENDED = "Suspended"


class Retention(Enum):
    """What becomes of the workspace's volume when its sandbox is deleted."""

    DELETE = "Delete"
    RETAIN = "Retain"


class ServiceState(Enum):
    """Of a declared service: the executor's states, and that nobody answers for it."""

    # It is to run, and waits for what it comes after.
    WAITING = "Waiting"
    STARTING = "Starting"
    # It runs and is not ready.
    RUNNING = "Running"
    READY = "Ready"
    # Going down: for good, to be started again, because it failed its liveness.
    STOPPING = "Stopping"
    RESTARTING = "Restarting"
    FAILING = "Failing"
    # It ended, and is started again after a pause.
    BACK_OFF = "BackOff"
    # It ended by itself and well.
    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPED = "Stopped"
    UNKNOWN = "Unknown"


class Contract(Enum):
    """Who may run code. Its owner may only move down this list: each leaves less to the code than the one before."""

    AUTONOMOUS = "autonomous"
    BROKERED = "brokered"
    REVIEWED = "reviewed"


@dataclass(frozen=True, slots=True)
class Resources:
    """Of the executor's container; requests equal limits where a template does not say otherwise. 0: as the template says."""

    cpu: float = 0.0
    memory: int = 0
    ephemeral_storage: int = 0


@dataclass(frozen=True, slots=True)
class Port:
    protocol: str = "TCP"
    port: int = 0
    # Inclusive; 0 means one port only.
    end_port: int = 0


@dataclass(frozen=True, slots=True)
class EgressRule:
    """Where to: one network, and its ports (none: all)."""

    cidr: str
    excluded: tuple[str, ...] = ()
    ports: tuple[Port, ...] = ()


@dataclass(frozen=True, slots=True)
class Egress:
    """What a sandbox may reach. The empty value: nothing."""

    allow: tuple[EgressRule, ...] = ()
    dns: bool = False


@dataclass(frozen=True, slots=True)
class Workspace:
    """0 and None: as the template says."""

    size: int = 0
    storage_class: str | None = None
    retention: Retention | None = None
    # A directory of the pod instead of a volume: quick to have, and lost with the pod. A template's to say.
    ephemeral: bool = False
    # The volume claim of a released session, instead of a new one. A sandbox's to say.
    claim_name: str = ""


@dataclass(frozen=True, slots=True)
class SecretEnv:
    """Every key of a Secret of the sandbox's namespace becomes a variable, with the prefix before its name."""

    secret: str
    prefix: str = ""
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """Whether contexts keep a copy of their last state, so that a killed cell costs no variables."""

    enabled: bool = True
    # Largest interpreter that is copied, in bytes; never more than half of the sandbox's memory.
    max_memory_bytes: int = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateSpec:
    """What sandboxes are made of: spec of a SandboxTemplate."""

    image: str
    image_pull_policy: str = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    runtime_class: str = "gvisor"
    # The most that a sandbox gets; the requests are below or equal.
    resources: Resources
    requests: Resources = Resources()
    limits: Limits = TEMPLATE_LIMITS
    rollback: Rollback = Rollback()
    workspace: Workspace
    envs: Mapping[str, str] = field(default_factory=dict)
    secret_envs: tuple[SecretEnv, ...] = ()
    # As the executor is told them: api/services.py.
    services: tuple[Mapping[str, object], ...] = ()
    # Requirements that are installed with each session, and the seconds that this may take.
    packages: tuple[str, ...] = ()
    packages_timeout: float = 300.0
    egress: Egress = Egress()
    contracts: tuple[Contract, ...] = (Contract.AUTONOMOUS,)
    max_lifetime: float | None = None
    max_idle_timeout: float | None = None
    node_selector: Mapping[str, str] = field(default_factory=dict)
    # As Kubernetes writes them.
    tolerations: tuple[Mapping[str, object], ...] = ()
    priority_class: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """Spec of a CodeSandbox: a template by name or in place, and what its owner lowers. Exactly one of the two is set."""

    template: str = ""
    inline: TemplateSpec | None = None
    pool: str = ""
    queue: str = ""
    operating_mode: OperatingMode = OperatingMode.RUNNING
    workspace: Workspace = Workspace()
    resources: Resources = Resources()
    limits: Limits = field(default_factory=Limits)
    envs: Mapping[str, str] = field(default_factory=dict)
    # None: as the template says.
    egress: Egress | None = None
    contract: Contract | None = None
    lifetime: float | None = None
    idle_timeout: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSpec:
    """Spec of a SandboxPool."""

    template: str
    # Sandboxes to keep warm; with a target hit rate the least.
    size: int
    # The share of claims that is to find a warm sandbox, from 0.5 to below 1; None: the size is fixed.
    target_hit_rate: float | None = None
    # The most to keep warm for the hit rate; None: no bound of its own.
    max_warm: int | None = None
    # The most, warm and claimed together; None: no bound of its own.
    max_size: int | None = None
    # The most starts at the same time; None: no bound of its own.
    max_starting: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpec:
    """Spec of a SandboxQueue, in Kueue's words. Quotas count sandboxes."""

    weight: float = 1.0
    cohort: str = ""
    nominal_quota: int
    # More than the nominal quota that it may take from its cohort; None: without bound.
    borrowing_limit: int | None = None
    # The most of its nominal quota that it lends; None: all.
    lending_limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """Of any object."""

    namespace: str
    name: str
    uid: str
    generation: int = 0
    resource_version: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    # Seconds since the epoch.
    created: float = 0.0
    deleting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Why a sandbox got another pod or container, and when (seconds since the epoch)."""

    reason: str
    time: float
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    type: str
    # "True", "False" or "Unknown".
    status: str
    reason: str
    message: str = ""
    # Seconds since the epoch.
    changed: float = 0.0
    observed_generation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStatus:
    """One service that the template declares, as the executor said when it was asked last."""

    name: str
    state: ServiceState
    reason: str = ""
    message: str = ""
    # Starts after the first, in this pod.
    restarts: int = 0
    # TCP ports on which it listens, as far as that is known.
    ports: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxStatus:
    """Status of a CodeSandbox; the operator is its only writer."""

    conditions: tuple[Condition, ...] = ()
    observed_generation: int = 0
    pod: str = ""
    # The audience of the sandbox's tokens.
    pod_uid: str = ""
    node: str = ""
    # HOST:PORT of the executor.
    address: str = ""
    # As the executor reports it: "gvisor", or what else it found itself in.
    runtime: str = ""
    image_digest: str = ""
    workspace_claim: str = ""
    restarts: int = 0
    # The last few, oldest first.
    restart_history: tuple[Restart, ...] = ()
    # Crashes without a stable stretch between them.
    crashes: int = 0
    # In the order of their declaration; none where there is no pod, or one that declares none.
    services: tuple[ServiceStatus, ...] = ()
    # "N/M": so many of them are ready or have completed; empty without any.
    services_ready: str = ""
    # The fencing number of the leader that wrote this.
    fencing: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStatus:
    """Status of a SandboxPool; the fleet is its only writer."""

    conditions: tuple[Condition, ...] = ()
    observed_generation: int = 0
    # What is to be warm now: the size, or what the hit rate asks for within its bounds.
    target_warm: int = 0
    warm: int = 0
    starting: int = 0
    claimed: int = 0
    # Claims that no sandbox was found for yet.
    waiting: int = 0
    # The share of recent claims that found a warm sandbox; None: there were none.
    hit_rate: float | None = None

    @property
    def size(self) -> int:
        return self.warm + self.starting


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeSandbox:
    meta: Meta
    spec: SandboxSpec
    status: SandboxStatus = SandboxStatus()


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxTemplate:
    meta: Meta
    spec: TemplateSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPool:
    meta: Meta
    spec: PoolSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxQueue:
    meta: Meta
    spec: QueueSpec
