"""Sandboxes, claims and templates. Times are seconds since the epoch, durations are seconds, sizes are bytes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum

from sandfleet_operator.api.egress import Credential
from sandfleet_operator.api.limits import TEMPLATE_LIMITS, Limits


class State(Enum):
    STARTING = "Starting"
    WARM = "Warm"
    CLAIMED = "Claimed"
    RECOVERING = "Recovering"
    # Its process is ending; the session is kept.
    SUSPENDING = "Suspending"
    # No process is there: it holds no place.
    SUSPENDED = "Suspended"
    # It is taken on: a new process is being started, or opened.
    RESUMING = "Resuming"
    ENDED = "Ended"

    # A member is equal to itself alone. Enum hashes names, in Python, at each look-up of a counter.
    __hash__ = object.__hash__


# A session in these has no executor that callers could speak to.
ASLEEP = frozenset({State.SUSPENDING, State.SUSPENDED})
# For how long after its lease a session may be put to sleep that does not end with it.
SETTLE_SECONDS = 60.0


class Isolation(IntEnum):
    """A larger number isolates more; the numbers are those of the API."""

    NONE = 1
    NAMESPACE = 2
    GVISOR = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """What counts against a queue's quota: sandboxes, and the CPU (millicores) and memory (bytes) that they request."""

    sandboxes: int = 0
    cpu: int = 0
    memory: int = 0


@dataclass(frozen=True, slots=True)
class Image:
    """An unpacked root on this machine, and what its image says of programs in it."""

    path: str
    # Who code is in the session.
    user: int = 0
    # In the order of their names, so that equal images are equal.
    envs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """What a sandbox is made of."""

    name: str = "python"
    isolation: Isolation = Isolation.NAMESPACE
    limits: Limits = TEMPLATE_LIMITS
    # Modules that each context has in memory from its start; on Kubernetes the pod's configuration has them.
    preload: tuple[str, ...] = ()
    lease: float = 300.0
    # What one sandbox of it counts against the quota of a queue.
    amount: Amount = Amount(sandboxes=1)
    # Who may run code. It is fixed when a sandbox is made: a claim takes only sandboxes of its own contract.
    contract: str = "autonomous"
    # On one machine: the root of its sandboxes; None: folders of the machine.
    image: Image | None = None


@dataclass(frozen=True, slots=True)
class Gang:
    """Claims that are admitted and answered together or not at all: an id that the caller made, and their number."""

    gang_id: str
    size: int


@dataclass(frozen=True, slots=True)
class RequestKey:
    """What makes a claim the same claim: the caller, the id that the caller made, and the pool that it was made for."""

    holder: str
    request_id: str
    # As the claim names it; on Kubernetes NAMESPACE/NAME.
    pool: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The request that binds a sandbox to a caller."""

    key: RequestKey
    # Name of the pool that it is served from; on one machine each template has one of its name.
    pool: str = "python"
    labels: Mapping[str, str] = field(default_factory=dict)
    envs: Mapping[str, str] = field(default_factory=dict)
    # Path in the session → folder of the workspace; "" for the folder of the same path.
    mounts: Mapping[str, str] = field(default_factory=dict)
    lease: float = 300.0
    idle_timeout: float | None = None
    # Of an earlier session; empty means a new one.
    workspace_id: str = ""
    keep_workspace: bool = False
    max_wait: float = 60.0
    limits: Limits = field(default_factory=Limits)
    min_isolation: Isolation = Isolation.NAMESPACE
    # W3C Trace Context, or empty.
    traceparent: str = ""
    # Of the sandbox's object on Kubernetes; empty: one made from the key.
    name: str = ""
    # Of that object, where it was there before the claim.
    object_uid: str = ""
    contract: str = "autonomous"
    # On one machine: the root that its sandbox has; it is in no record, since a path says nothing elsewhere.
    image: Image | None = None
    # On Kubernetes: the image that its pod has in the place of its template's; empty: that one.
    pod_image: str = ""
    # Whether what the template allows may be reached.
    egress: bool = True
    # Hosts that may be reached by name; api/egress.py reads them.
    egress_names: tuple[str, ...] = ()
    # Secrets for some of them. They are in no record and no snapshot: a session that is taken on elsewhere has none.
    credentials: tuple[Credential, ...] = field(default=(), repr=False)
    # The queue in which it waits, on Kubernetes NAMESPACE/NAME; empty: none, and no quota.
    queue: str = ""
    # A priority class of that queue; empty: its last.
    priority: str = ""
    # What it counts against the queue's quota. The scheduler takes it from the template; None: it has not yet.
    amount: Amount | None = None
    # None: it is a claim of its own.
    gang: Gang | None = None
    # What becomes of it when the idle timeout is over: end, suspend or snapshot.
    on_idle: str = "end"
    # The same when its lease is over.
    on_timeout: str = "end"
    # Seconds between two automatic snapshots, with which the session goes on when it is lost; None: with its files.
    snapshot_period: float | None = None
    # What the sandbox that it has got was filled with had received.
    received: "frozenset[Mark]" = frozenset()

    @property
    def alone(self) -> bool:
        """Whether no warm sandbox can serve it: it needs a start of its own."""
        return bool(self.workspace_id or self.pod_image)

    @property
    def settles(self) -> float:
        """Seconds after its lease in which it is put to sleep; its executor lives so much longer."""
        return 0.0 if self.on_timeout == "end" else SETTLE_SECONDS


class Hold(Enum):
    """Why a start stands: its clock runs only while the pod can start."""

    NONE = ""
    # Another controller, such as Kueue, has not let the pod be scheduled.
    SCHEDULING_GATED = "SchedulingGated"
    # No node has room, and one may be on its way.
    UNSCHEDULABLE = "Unschedulable"
    # A node pulls the image.
    IMAGE_PULLING = "ImagePulling"

    @property
    def has_node(self) -> bool:
        """Whether a node is at work on the start, so that it takes a start slot."""
        return self not in {Hold.SCHEDULING_GATED, Hold.UNSCHEDULABLE}


class ExitCode(IntEnum):
    """Exit codes of an executor; docs/reference/executor.md says what each means."""

    CLOSED = 0
    LEASE = 40
    IDLE = 41
    OWNER_GONE = 42
    NO_ISOLATION = 43
    BAD_CONFIG = 44
    STUCK = 45


@dataclass(frozen=True, slots=True)
class Exit:
    """How a sandbox's process ended. Without code and signal it never ran, and the message says why."""

    code: int | None = None
    signal: str = ""
    message: str = ""
    # The kernel ended it, since the memory of all its processes was used up.
    out_of_memory: bool = False


class Mark(Enum):
    """What a session has received from the tools of its host."""

    # Content of others, which may try to steer the agent.
    UNTRUSTED = "untrusted"
    SECRET = "secret"  # noqa: S105 - a word


def marks_of(words: Iterable[str]) -> frozenset[Mark]:
    """A word that is unknown counts as untrusted."""
    known = {mark.value: mark for mark in Mark}
    return frozenset(known.get(word, Mark.UNTRUSTED) for word in words)


def received_before(claim: "Claim | None") -> frozenset[Mark]:
    """What a session has received before its first call: an earlier workspace does not say what is in it."""
    if claim is None:
        return frozenset()
    return claim.received | {Mark.UNTRUSTED} if claim.workspace_id else claim.received


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """One sandbox at one moment."""

    sandbox_id: str
    # Of the present incarnation: the audience of its tokens.
    sandbox_uid: str
    pool: str
    template: str
    workspace_id: str
    state: State
    created: float
    # When this incarnation was started, or got leave to look for a node.
    started: float
    isolation: Isolation
    # As its pool's template had it when it was made; its tokens repeat it.
    contract: str = "autonomous"
    # Of what it was made from; a warm one that differs from its pool's is stale.
    revision: str = ""
    # When this sandbox became ready for the first time.
    ready: float | None = None
    # What it was filled with had received; the claim that gets it has received the same.
    received: frozenset[Mark] = frozenset()
    # The claim that it serves or was started for.
    claim: Claim | None = None
    # It was ready before the claim came.
    warm: bool = False
    # Its executor is open for the claim: from now on an end is the end of a session.
    bound: bool = False
    # False of a bound sandbox whose claim waits for the rest of its gang.
    answered: bool = True
    lease_expires: float | None = None
    # Whether this leader has set the lease, or asked the executor for it; else an earlier leader may have renewed it.
    lease_known: bool = True
    # When the executor was asked, since the lease seems to be over.
    lease_asked: float | None = None
    # A process is there, or may be. False only while a replacement waits for its back-off.
    running: bool = True
    # When a replacement may be started.
    replace_at: float | None = None
    restarts: int = 0
    last_restart_reason: str = ""
    # Crashes without a stable stretch in between.
    crashes: int = 0
    # When a suspended session ends, unless it is resumed; None: not suspended, or as long as its object lives.
    suspended_until: float | None = None
    # Of a suspended session that only a snapshot keeps.
    parked: bool = False
    # When its claim has arrived; None: not known.
    arrived: float | None = None
    # When it was preempted: it is suspended, and waits in its queue to be resumed; None: it is not.
    preempted: float | None = None
    # Of an ended one.
    ended_reason: str = ""
    # It is to be started, and the backend has not said yet that this is on its way.
    unmade: bool = False
    # The sandbox was warm before this leader, which has not verified its executor yet.
    untried: bool = False
    # Why its start stands, and since when it stands or goes on; before `started`: since then.
    hold: Hold = Hold.NONE
    clock: float = 0.0

    @property
    def labels(self) -> Mapping[str, str]:
        return self.claim.labels if self.claim else {}

    @property
    def holder(self) -> str:
        """Whose claim it serves; empty: it is warm."""
        return self.claim.key.holder if self.claim else ""

    @property
    def keeps_workspace(self) -> bool:
        """Whether the workspace outlives the sandbox: the claim asked for it, or it is an earlier one, still unused."""
        claim = self.claim
        return claim is not None and (claim.keep_workspace if self.bound else bool(claim.workspace_id))
