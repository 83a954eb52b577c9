"""Whether a sandbox reaches what its egress list opens: which targets can be probed, and what the results mean."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from sandfleet_operator.api.kinds.template import Egress, EgressRule
from sandfleet_operator.api.networks import network
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.plan.pods import egress as networks

# Targets for one list. One that answers is enough, because a list is one policy.
MAX_TARGETS = 4


@dataclass(frozen=True, slots=True)
class Target:
    """A TCP port; without an address, the sandbox's name servers."""

    address: str = ""
    port: int = 0

    def __str__(self) -> str:
        if not self.address:
            return "name resolution"
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


NAME_SERVERS = Target()


class ReachState(Enum):
    """The states of fleet.v1."""

    DENIED = "denied"
    OPENING = "opening"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Reach:
    """What is known of the egress. fleet.v1's EgressStatus lists the reasons; `message` is for users."""

    state: ReachState
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Known:
    """`since` is seconds since the epoch, None before the first probe."""

    reach: Reach
    since: float | None = None


ASKING = Reach(
    ReachState.OPENING, "Asking", "the cluster's network may not have applied the list yet: the sandbox is being asked"
)
NOTHING = Reach(ReachState.DENIED, "NothingAllowed", "the egress list allows nothing")
ALL_BLOCKED = Reach(
    ReachState.DENIED, "NothingAllowed", "the installation blocks everything that the egress list allows"
)
BY_NAME = Reach(ReachState.OPEN, "ByName", "it reaches the hosts of its list by name, through the egress process")
NOT_PROBEABLE = Reach(
    ReachState.OPENING,
    "NotProbeable",
    "cannot know whether it is open: only name resolution and single addresses with a TCP port can be probed, and the"
    " list allows neither",
)


def targets(wanted: Egress, settings: Settings) -> tuple[Target, ...]:
    """The targets to probe from inside the sandbox; empty if the list allows none that can be probed."""
    if wanted.dns:
        return (NAME_SERVERS,)
    found = (Target(address, port) for rule in _left(wanted, settings) for address, port in _hosts(rule))
    return tuple(dict.fromkeys(found))[:MAX_TARGETS]


def at_first(wanted: Egress, settings: Settings) -> Reach:
    """What is known before the first probe. The reason is Asking only if there are targets."""
    if networks.allows_nothing(wanted):
        return BY_NAME if wanted.by_name else NOTHING
    if not (wanted.dns or _left(wanted, settings)):
        return ALL_BLOCKED
    return ASKING if targets(wanted, settings) else NOT_PROBEABLE


def after(asked: Sequence[Target], reached: Sequence[bool]) -> Reach | None:
    """What the results prove. None if no target was reached, or if their number is wrong."""
    if len(reached) != len(asked):
        return None
    answered = [str(target) for target, good in zip(asked, reached, strict=True) if good]
    return Reach(ReachState.OPEN, "Answered", f"answered: {', '.join(answered)}") if answered else None


def at_last(asked: Sequence[Target], why: str) -> Reach:
    """What is known after the last probe failed. `why` says why the sandbox could not be asked; empty if it was."""
    names = ", ".join(map(str, asked))
    said = why or f"no answer from {names}: the network has not applied the list, or no server listens there"
    return Reach(ReachState.OPENING, "NoAnswer", f"cannot know whether it is open: {said}")


def _left(wanted: Egress, settings: Settings) -> list[EgressRule]:
    """The rules that the policy opens: plan/pods/networkpolicy.py removes the same networks."""
    forbidden = networks.blocked(settings.blocked_cidrs)
    return [left for rule in wanted.allow if (left := networks.without(rule, forbidden)) is not None]


def _hosts(rule: EgressRule) -> list[tuple[str, int]]:
    whole = network(rule.cidr)
    if whole.num_addresses > 1:
        return []
    return [(str(whole.network_address), port.port) for port in rule.ports if port.protocol == "TCP" and port.port]
