"""What a decision asks for, as data. The fleet's loop carries it out and reports back with an event."""

from dataclasses import dataclass

from sandfleet_operator.api.errors import Problem
from sandfleet_operator.api.kube import NotCreated
from sandfleet_operator.api.values import Claim, RequestKey, Sandbox


@dataclass(frozen=True, slots=True)
class Start:
    """Start the process of this incarnation. Followed by ready or unfit, and by exited in any case."""

    sandbox: Sandbox


@dataclass(frozen=True, slots=True)
class Bind:
    """Open the sandbox for its claim. Followed by bound or unfit."""

    sandbox: Sandbox


@dataclass(frozen=True, slots=True)
class Stop:
    """End the process. Followed by exited."""

    sandbox: Sandbox


@dataclass(frozen=True, slots=True)
class Suspend:
    """End the process and keep the session. Followed by exited."""

    sandbox: Sandbox


@dataclass(frozen=True, slots=True)
class Resume:
    """Start a process for the suspended session. Followed as Start is."""

    sandbox: Sandbox


@dataclass(frozen=True, slots=True)
class AskLease:
    """Ask the executor what is left of its lease. Followed by lease_told, unless no executor answers."""

    sandbox: Sandbox


@dataclass(frozen=True, slots=True)
class DropWorkspace:
    """Remove this workspace: no claim can ask for it again."""

    workspace_id: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Tell the callers of this claim that it has this sandbox, or that it failed."""

    key: RequestKey
    result: Sandbox | Problem


@dataclass(frozen=True, slots=True)
class Gone:
    """The sandbox is no more; neither is its process. This is its last record."""

    sandbox: Sandbox


@dataclass(frozen=True, slots=True)
class Admit:
    """The declared sandbox with this key has its quota: the operator may make its pod."""

    key: str


Action = Start | Bind | Stop | Suspend | Resume | AskLease | DropWorkspace | Answer | Gone | Admit


@dataclass(frozen=True, slots=True)
class Lost:
    """A start or a binding came to nothing; the claim that it was for, if any, waits again."""

    claim: Claim | None
    problem: Problem


@dataclass(frozen=True, slots=True)
class SessionBegun:
    """The caller of the sandbox's claim can be told."""


@dataclass(frozen=True, slots=True)
class SessionResumed:
    """The caller who has taken the suspended session on can be told."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Another fleet has the sandbox that this claim was to get. The claim waits again, without a failure."""

    key: RequestKey


@dataclass(frozen=True, slots=True)
class Refused:
    """The API server does not take this claim, and would not take it with another sandbox."""

    key: RequestKey
    problem: Problem


@dataclass(frozen=True, slots=True)
class Hindered:
    """The API server did not let a start be made. The claim that it was for, if any, waits again, without a failure."""

    claim: Claim | None
    why: NotCreated


Outcome = Lost | SessionBegun | SessionResumed | Taken | Refused | Hindered
