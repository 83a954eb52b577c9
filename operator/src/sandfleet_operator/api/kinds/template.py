"""SandboxTemplate: what sandboxes are made of. A new field is one line of TemplateSpec."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from enum import Enum, StrEnum
from typing import Annotated, get_type_hints

from sandfleet_operator.api.kinds import mounts as mounted
from sandfleet_operator.api.kinds import services as declared
from sandfleet_operator.api.kinds.meta import Meta, meta_of, part
from sandfleet_operator.api.kinds.packages import DEFAULT_SECONDS
from sandfleet_operator.api.kinds.placement import Affinity, Spread
from sandfleet_operator.api.limits import TEMPLATE_LIMITS, Limits
from sandfleet_operator.api.table import (
    at,
    decode,
    in_bytes,
    in_cores,
    listed,
    names,
    optional_text,
    raw,
    variables,
    whole,
)

GIB = 1 << 30


class Retention(Enum):
    """What becomes of the workspace's volume when its sandbox is deleted."""

    DELETE = "Delete"
    RETAIN = "Retain"


class ReviewRule(StrEnum):
    """A rule that approves requests of a reviewed sandbox without a person. The value is what an approval says."""

    PURE_EXPRESSION = "PureExpression"
    SAME_CELL = "SameCell"


class Contract(Enum):
    """Who may run code. An owner may only move down this list: each contract allows less than the one before."""

    AUTONOMOUS = "autonomous"
    BROKERED = "brokered"
    REVIEWED = "reviewed"

    @property
    def word(self) -> str:
        """As the custom resources write it: Autonomous."""
        return self.value.capitalize()


class ExecutorPlace(Enum):
    """Where the executor of a sandbox is."""

    # In the image if that is of the repository of the installation's executor, else beside it.
    AUTO = "Auto"
    IN_IMAGE = "InImage"
    # Its container has the image as it is, and the executor comes from the installation's image.
    BESIDE = "Beside"


class NetworkClosure(Enum):
    """What follows when a NetworkPolicy of others opens a sandbox."""

    # The condition Isolated says so.
    REPORTED = "Reported"
    # No sandbox is started or handed out.
    REQUIRED = "Required"


@dataclass(frozen=True, slots=True)
class Resources:
    """Resources of the executor's container. 0 means: the template's value."""

    cpu: Annotated[float, at("cpu", in_cores)] = 0.0
    memory: Annotated[int, at("memory", in_bytes)] = 0
    ephemeral_storage: Annotated[int, at("ephemeral-storage", in_bytes)] = 0


@dataclass(frozen=True, slots=True)
class Port:
    protocol: Annotated[str, at("protocol")] = "TCP"
    port: Annotated[int, at("port", required=True)] = 0
    # Inclusive; 0 means one port only.
    end_port: Annotated[int, at("endPort")] = 0


@dataclass(frozen=True, slots=True)
class EgressRule:
    """One network that a sandbox may reach, and its ports (none: all)."""

    cidr: Annotated[str, at("cidr", required=True)]
    excluded: Annotated[tuple[str, ...], at("except")] = ()
    ports: Annotated[tuple[Port, ...], at("ports")] = ()


@dataclass(frozen=True, slots=True)
class EgressName:
    """Hosts that a sandbox may reach by name, as `*.example.org`, and their ports (none: those of the web).

    Requests have one of the methods and a path of one of the patterns; none: any.
    """

    host: Annotated[str, at("host", required=True)]
    ports: Annotated[tuple[int, ...], at("ports")] = ()
    methods: Annotated[tuple[str, ...], at("methods")] = ()
    paths: Annotated[tuple[str, ...], at("paths")] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressCredential:
    """A secret that the egress process puts into the requests to one host. Sandboxes never see it."""

    host: Annotated[str, at("host", required=True)]
    header: Annotated[str, at("header")] = "Authorization"
    # {value} stands for the value.
    format: Annotated[str, at("format")] = "{value}"
    # Of the template's namespace.
    secret: Annotated[str, at("secretRef.name", required=True)]
    key: Annotated[str, at("secretRef.key", required=True)]
    # The variable whose value stands for the secret in the sandbox; empty: there is none.
    env: Annotated[str, at("env")] = ""


@dataclass(frozen=True, slots=True)
class Egress:
    """The networks and hosts that a sandbox may reach. The empty value allows none."""

    allow: Annotated[tuple[EgressRule, ...], at("allow")] = ()
    dns: Annotated[bool, at("dns")] = False
    names: Annotated[tuple[EgressName, ...], at("names")] = ()
    # Lists of hosts of the installation, by their names.
    sets: Annotated[tuple[str, ...], at("sets")] = ()
    credentials: Annotated[tuple[EgressCredential, ...], at("credentials")] = ()

    @property
    def by_name(self) -> bool:
        """Whether any host may be reached by name."""
        return bool(self.names or self.sets)


@dataclass(frozen=True, slots=True)
class Workspace:
    """The workspace. 0 and None mean: the template's value."""

    size: Annotated[int, at("size", in_bytes)] = 0
    storage_class: Annotated[str | None, at("storageClassName", optional_text)] = None
    retention: Annotated[Retention | None, at("retention")] = None
    # A directory of the pod instead of a volume: created faster, lost with the pod. Only a template sets it.
    ephemeral: Annotated[bool, at("ephemeral")] = False
    # The volume claim of a released session, instead of a new one. Only a sandbox sets it.
    claim_name: Annotated[str, at("claimName")] = ""


@dataclass(frozen=True, slots=True)
class SecretEnv:
    """Every key of a Secret of the sandbox's namespace becomes a variable, with the prefix before its name."""

    secret: Annotated[str, at("secretRef.name", required=True)]
    prefix: Annotated[str, at("prefix")] = ""
    optional: Annotated[bool, at("secretRef.optional")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """Whether contexts keep a copy of their last state, so that a killed cell costs no variables."""

    enabled: Annotated[bool, at("enabled")] = True
    # Largest interpreter that is copied, in bytes; never more than half of the sandbox's memory.
    max_memory_bytes: Annotated[int, at("maxMemory", in_bytes)] = GIB


@dataclass(frozen=True, slots=True)
class ToExecutor:
    """The executor's configuration has the attribute as `key`, unless the attribute `when` is empty."""

    key: str
    when: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateSpec:
    """What sandboxes are made of: spec of a SandboxTemplate."""

    image: Annotated[str, at("image", required=True)]
    # Patterns of images that a sandbox may name in its place.
    images: Annotated[tuple[str, ...], at("images")] = ()
    image_pull_policy: Annotated[str, at("imagePullPolicy")] = "IfNotPresent"
    image_pull_secrets: Annotated[tuple[str, ...], at("imagePullSecrets", names)] = ()
    executor: Annotated[ExecutorPlace, at("executor")] = ExecutorPlace.AUTO
    # Who code is where the executor comes beside the image: "root" or a number; empty: the image's user.
    user: Annotated[str, at("user")] = ""
    runtime_class: Annotated[str, at("runtimeClassName")] = "gvisor"
    # The most that a sandbox gets; the requests are below or equal.
    resources: Annotated[Resources, at("resources.limits")]
    requests: Annotated[Resources, at("resources.requests")] = Resources()
    limits: Annotated[Limits, at("executionLimits")] = TEMPLATE_LIMITS
    rollback: Annotated[Rollback, at("rollback"), ToExecutor("rollback", "rollback")] = Rollback()
    workspace: Annotated[Workspace, at("workspace")]
    envs: Annotated[Mapping[str, str], at("env", variables)] = field(default_factory=dict)
    secret_envs: Annotated[tuple[SecretEnv, ...], at("envFrom")] = ()
    # Path in the session → folder of the workspace; "" for the folder of the same path.
    mounts: Annotated[Mapping[str, str], at("mounts", mounted.read), ToExecutor("mounts", "mounts")] = field(
        default_factory=dict
    )
    # As in the executor's configuration; kinds/services.py reads them.
    services: Annotated[
        tuple[Mapping[str, object], ...], at("services", declared.read), ToExecutor("services", "services")
    ] = ()
    # Requirements to install with each session, and the seconds that the installation may take.
    packages: Annotated[tuple[str, ...], at("packages"), ToExecutor("packages", "packages")] = ()
    packages_timeout: Annotated[
        float, at("packagesTimeoutSeconds", whole), ToExecutor("packages_timeout", "packages")
    ] = float(DEFAULT_SECONDS)
    # Modules of the image that each context has in memory from its start.
    preload: Annotated[tuple[str, ...], at("preload"), ToExecutor("preload", "preload")] = ()
    egress: Annotated[Egress, at("egress")] = Egress()
    network_closure: Annotated[NetworkClosure, at("networkClosure")] = NetworkClosure.REPORTED
    contracts: Annotated[tuple[Contract, ...], at("contracts")] = (Contract.AUTONOMOUS,)
    # Of a reviewed sandbox: how many reviewers have to approve each request.
    approvals: Annotated[int, at("approvals")] = 1
    # The rules that approve by themselves; none: a person decides about all.
    review_rules: Annotated[tuple[ReviewRule, ...], at("reviewRules")] = ()
    max_lifetime: Annotated[float | None, at("maxLifetimeSeconds", whole)] = None
    max_idle_timeout: Annotated[float | None, at("maxIdleTimeoutSeconds", whole)] = None
    node_selector: Annotated[Mapping[str, str], at("nodeSelector")] = field(default_factory=dict)
    # As Kubernetes writes them.
    tolerations: Annotated[tuple[Mapping[str, object], ...], at("tolerations", listed(raw))] = ()
    affinity: Annotated[Affinity, at("affinity")] = field(default_factory=Affinity)
    spread: Annotated[tuple[Spread, ...], at("topologySpreadConstraints")] = ()
    pod_labels: Annotated[Mapping[str, str], at("podLabels")] = field(default_factory=dict)
    pod_annotations: Annotated[Mapping[str, str], at("podAnnotations")] = field(default_factory=dict)
    priority_class: Annotated[str, at("priorityClassName")] = ""
    # Seconds that a pod of a pool or of a claim has from its creation until its executor answers.
    start_timeout: Annotated[float, at("startTimeoutSeconds", whole)] = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxTemplate:
    meta: Meta
    spec: TemplateSpec


# The schema's defaults.
DEFAULTS = TemplateSpec(
    image="",
    resources=Resources(cpu=1.0, memory=2 * GIB, ephemeral_storage=4 * GIB),
    requests=Resources(cpu=0.25, memory=GIB // 2, ephemeral_storage=GIB),
    limits=replace(TEMPLATE_LIMITS, memory_bytes=0),
    workspace=Workspace(size=GIB, retention=Retention.DELETE),
)
# Of an inline template: an absent value stays 0 or empty, since only the settings say whether a default fits.
OPEN = TemplateSpec(
    image="", resources=Resources(), limits=Limits(), workspace=Workspace(retention=Retention.DELETE), contracts=()
)


def sandbox_template(value: object) -> SandboxTemplate:
    """Raises FleetError."""
    spec = decode(TemplateSpec, part(value, "spec"), "spec", DEFAULTS)
    spec = replace(spec, requests=_at_most(spec.requests, spec.resources))
    return SandboxTemplate(meta=meta_of(value), spec=spec)


def inline_template(value: object, path: str) -> TemplateSpec:
    """Of a CodeSandbox. Raises FleetError."""
    return decode(TemplateSpec, value, path, OPEN)


def _at_most(requests: Resources, limits: Resources) -> Resources:
    """Lowers default requests to the limits, so that a template with low limits need not set its requests."""
    return Resources(
        cpu=min(requests.cpu, limits.cpu),
        memory=min(requests.memory, limits.memory),
        ephemeral_storage=min(requests.ephemeral_storage, limits.ephemeral_storage),
    )


def for_executor(spec: TemplateSpec) -> dict[str, object]:
    """The values of a template that the executor's configuration has unchanged."""
    found = {}
    for name, hint in get_type_hints(TemplateSpec, include_extras=True).items():
        told = next((one for one in getattr(hint, "__metadata__", ()) if isinstance(one, ToExecutor)), None)
        if told is not None and getattr(spec, told.when):
            found[told.key] = _plain(getattr(spec, name))
    return found


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value
