"""CodeSandbox: one isolated environment."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Annotated

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kept import once
from sandfleet_operator.api.kinds import mounts as mounted
from sandfleet_operator.api.kinds.meta import Condition, Meta, meta_of, part
from sandfleet_operator.api.kinds.template import (
    Contract,
    Egress,
    Resources,
    TemplateSpec,
    Workspace,
    inline_template,
)
from sandfleet_operator.api.limits import Limits
from sandfleet_operator.api.table import Json, as_type, at, decode, encode, moment, unreadable, variables, whole
from sandfleet_operator.api.values import Mark

# Characters of a reviewer's name.
MAX_VOTER = 256


class OperatingMode(Enum):
    RUNNING = "Running"
    SUSPENDED = "Suspended"


class SuspendTo(Enum):
    """What keeps the session of a suspended sandbox."""

    VOLUME = "Volume"
    SNAPSHOT = "Snapshot"


class OnIdle(Enum):
    """What becomes of a session of a claim when its idle timeout is over."""

    END = "End"
    SUSPEND = "Suspend"
    SNAPSHOT = "Snapshot"


class RecoveryFrom(Enum):
    """What a session of a claim goes on with when its pod is lost."""

    WORKSPACE = "Workspace"
    SNAPSHOT = "Snapshot"


class ServiceState(Enum):
    """State of a declared service: the executor's states, and Unknown while the executor does not answer."""

    # It waits for the services in its `after`.
    WAITING = "Waiting"
    STARTING = "Starting"
    # It runs, but is not ready.
    RUNNING = "Running"
    READY = "Ready"
    # The executor stops it: for good, to restart it, or because its liveness probe failed.
    STOPPING = "Stopping"
    RESTARTING = "Restarting"
    FAILING = "Failing"
    # It ended and restarts after a pause.
    BACK_OFF = "BackOff"
    # It ended on its own with exit code 0.
    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPED = "Stopped"
    UNKNOWN = "Unknown"


def _state(value: object, path: str) -> ServiceState:
    """Reads a state of a later version as Unknown, so that the sandbox stays readable."""
    text = as_type(value, str, path)
    return next((one for one in ServiceState if one.value == text), ServiceState.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """Spec of a CodeSandbox: a template, either by name or inline, and the limits that its owner lowers."""

    template: Annotated[str, at("templateRef.name")] = ""
    inline: Annotated[TemplateSpec | None, at("inline", inline_template)] = None
    # In the place of the template's, if that lists it; empty: the template's.
    image: Annotated[str, at("image")] = ""
    pool: Annotated[str, at("poolRef.name")] = ""
    queue: Annotated[str, at("queueRef.name")] = ""
    # A class of its queue; empty: the last.
    priority: Annotated[str, at("priorityClass")] = ""
    operating_mode: Annotated[OperatingMode, at("operatingMode")] = OperatingMode.RUNNING
    suspend_to: Annotated[SuspendTo, at("suspend.to")] = SuspendTo.VOLUME
    workspace: Annotated[Workspace, at("workspace")] = field(default_factory=Workspace)
    resources: Annotated[Resources, at("resources.limits")] = field(default_factory=Resources)
    limits: Annotated[Limits, at("executionLimits")] = field(default_factory=Limits)
    envs: Annotated[Mapping[str, str], at("env", variables)] = field(default_factory=dict)
    mounts: Annotated[Mapping[str, str], at("mounts", mounted.read)] = field(default_factory=dict)
    # None: the template's.
    egress: Annotated[Egress | None, at("egress")] = None
    contract: Annotated[Contract | None, at("contract")] = None
    lifetime: Annotated[float | None, at("lifetimeSeconds", whole)] = None
    idle_timeout: Annotated[float | None, at("idleTimeoutSeconds", whole)] = None
    on_idle: Annotated[OnIdle, at("onIdle")] = OnIdle.END
    recovery: Annotated[RecoveryFrom, at("recovery")] = RecoveryFrom.WORKSPACE
    snapshot_period: Annotated[float | None, at("snapshotPeriodSeconds", whole)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Why a sandbox got another pod or container, and when (seconds since the epoch)."""

    reason: Annotated[str, at("reason", required=True)]
    time: Annotated[float, at("time", moment)] = 0.0
    message: Annotated[str, at("message")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStatus:
    """One service that the template declares, from the executor's last answer."""

    name: Annotated[str, at("name", required=True)]
    state: Annotated[ServiceState, at("state", _state)] = ServiceState.UNKNOWN
    reason: Annotated[str, at("reason", empty="left out")] = ""
    message: Annotated[str, at("message", empty="left out")] = ""
    # Starts after the first, in this pod.
    restarts: Annotated[int, at("restarts")] = 0
    # Known TCP ports on which it listens.
    ports: Annotated[tuple[int, ...], at("ports", empty="left out")] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingStatus:
    """The warm pod that the fleet has bound, and the record of its claim: plan/sandbox/binding.py."""

    pod: Annotated[str, at("podName", required=True)]
    pod_uid: Annotated[str, at("podUID", required=True)]
    claim: Annotated[str, at("claim", required=True)]


class AdmissionState(Enum):
    """What the fleet has decided for a CodeSandbox that it has looked at."""

    PENDING = "Pending"
    ADMITTED = "Admitted"
    # Its pod is to end. It counts against the quota until the operator says that the pod is gone.
    ENDING = "Ending"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionStatus:
    """Its place in a queue."""

    queue: Annotated[str, at("queue", required=True)]
    state: Annotated[AdmissionState, at("state")] = AdmissionState.PENDING
    # When it was admitted, or since when it waits.
    time: Annotated[float, at("time", moment)] = 0.0
    # What its pod may request, as quantities.
    cpu: Annotated[str, at("cpu", empty="null")] = ""
    memory: Annotated[str, at("memory", empty="null")] = ""
    # Why it waits; null where it does not, so that a merge patch removes an older value.
    reason: Annotated[str, at("reason", empty="null")] = ""
    message: Annotated[str, at("message", empty="null")] = ""
    # Of the fleet that wrote this.
    fencing: Annotated[int, at("fencing")] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewStatus:
    """What waits for the approval of a person; left out where nothing does."""

    state: Annotated[str, at("state")] = ""
    waiting: Annotated[int, at("waiting")] = 0
    # Since when the oldest request waits, by the executor's word.
    since: Annotated[float, at("since", moment)] = 0.0
    fencing: Annotated[int, at("fencing")] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedStatus:
    """Since when the session has received content of each kind; None: it has not."""

    untrusted: Annotated[float | None, at("untrusted", moment, empty="left out")] = None
    secret: Annotated[float | None, at("secret", moment, empty="left out")] = None

    @property
    def marks(self) -> frozenset[Mark]:
        return frozenset(one for one in Mark if getattr(self, one.value) is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallVoteStatus:
    """Who has approved a call of a tool that waits for more approvals. `digest`: what they have looked at."""

    digest: Annotated[str, at("digest", required=True)]
    voters: Annotated[tuple[str, ...], at("voters")] = ()
    since: Annotated[float, at("since", moment)] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotStatus:
    """The snapshot with which a session goes on: plan/sandbox/parked.py."""

    id: Annotated[str, at("id", required=True)]
    # Of its manifest: no other snapshot is put in its place.
    digest: Annotated[str, at("digest", empty="null")] = ""
    # Of the pod whose session it is.
    pod_uid: Annotated[str, at("podUID")] = ""
    # When it was saved, and until when nothing in the session can have changed since.
    time: Annotated[float, at("time", moment)] = 0.0
    held_until: Annotated[float, at("heldUntil", moment)] = 0.0
    # Taken from time to time, of a session that works on; without it: of one that is to sleep.
    automatic: Annotated[bool, at("automatic", empty="left out")] = False
    # Of the pod that the session was put into. Of one that was to sleep the snapshot is then about to be deleted.
    filled: Annotated[str, at("filledPodUID", empty="null")] = ""
    # Of the fleet that wrote this.
    fencing: Annotated[int, at("fencing")] = 0


def _call_votes(value: object, path: str) -> dict[str, CallVoteStatus]:
    votes = as_type(value, dict, path)
    return {name: decode(CallVoteStatus, one, f"{path}.{name}") for name, one in votes.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxStatus:
    """Status of a CodeSandbox.

    The fleet writes `binding`, `admission`, `review`, `received`, `call_votes` and `snapshot`, and the operator
    everything else.
    """

    conditions: Annotated[tuple[Condition, ...], at("conditions")] = ()
    observed_generation: Annotated[int, at("observedGeneration")] = 0
    pod: Annotated[str, at("podName", empty="null")] = ""
    # The audience of the sandbox's tokens.
    pod_uid: Annotated[str, at("podUID", empty="null")] = ""
    node: Annotated[str, at("nodeName", empty="null")] = ""
    # HOST:PORT of the executor.
    address: Annotated[str, at("address", empty="null")] = ""
    # As the executor reports it: "gvisor", or what else it found itself in.
    runtime: Annotated[str, at("runtime", empty="null")] = ""
    image_digest: Annotated[str, at("imageDigest", empty="null")] = ""
    workspace_claim: Annotated[str, at("workspaceClaimName", empty="null")] = ""
    # The ControllerRevision that keeps the template's spec; its next pods are made from that.
    template_revision: Annotated[str, at("templateRevision", empty="null")] = ""
    restarts: Annotated[int, at("restarts")] = 0
    # The last ten, oldest first.
    restart_history: Annotated[tuple[Restart, ...], at("restartHistory")] = ()
    # Crashes without a stable period between them.
    crashes: Annotated[int, at("crashes")] = 0
    # In the order of their declaration; empty without a pod.
    services: Annotated[tuple[ServiceStatus, ...], at("services", empty="null")] = ()
    # "N/M": N of M services are ready or completed; empty without services.
    services_ready: Annotated[str, at("servicesReady", empty="null")] = ""
    binding: Annotated[BindingStatus | None, at("binding", empty="left out")] = None
    admission: Annotated[AdmissionStatus | None, at("admission", empty="left out")] = None
    review: Annotated[ReviewStatus | None, at("review", empty="left out")] = None
    received: Annotated[ReceivedStatus | None, at("received", empty="left out")] = None
    # By a hash of the call's id.
    call_votes: Annotated[Mapping[str, CallVoteStatus] | None, at("callVotes", _call_votes, empty="left out")] = None
    snapshot: Annotated[SnapshotStatus | None, at("snapshot", empty="left out")] = None
    # Id of the snapshot that is the session: neither a pod nor a volume has it.
    restores_from: Annotated[str, at("restoresFrom", empty="null")] = ""
    # The `time` of the admission that the rest of this status follows; None: of none.
    observed_admission: Annotated[float | None, at("observedAdmissionTime", moment, empty="null")] = None
    # The fencing number of the leader that wrote this.
    fencing: Annotated[int, at("fencing")] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeSandbox:
    meta: Meta
    spec: SandboxSpec
    status: SandboxStatus = SandboxStatus()


@once
def code_sandbox(value: object) -> CodeSandbox:
    """Raises FleetError."""
    spec = decode(SandboxSpec, part(value, "spec"), "spec")
    if bool(spec.template) == (spec.inline is not None):
        raise unreadable("spec", "exactly one of templateRef and inline has to be there")
    status = decode(SandboxStatus, part(value, "status"), "status")
    return CodeSandbox(meta=meta_of(value), spec=spec, status=status)


def readable(value: object) -> CodeSandbox | None:
    """None if it cannot be read."""
    try:
        return code_sandbox(value)
    except FleetError:
        return None


def by_metadata(value: object) -> CodeSandbox:
    """Of an object that is gone: the rest need not be readable. Raises FleetError."""
    return readable(value) or CodeSandbox(meta=meta_of(value), spec=SandboxSpec())


def status_json(status: SandboxStatus) -> Json:
    """Every field of the operator's, null for an empty one, so that a merge patch removes an older value."""
    return encode(replace(status, admission=None, review=None, received=None, call_votes=None, snapshot=None))
