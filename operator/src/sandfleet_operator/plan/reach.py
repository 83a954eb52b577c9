"""Whether a sandbox reaches what its egress list opens: what can be asked about it, and what the answers say."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from sandfleet_operator.api.networks import network
from sandfleet_operator.api.resources import Egress, EgressRule
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.plan import egress as networks

# Of one list: one that answers is enough, since a list is one policy.
MAX_TARGETS = 4


@dataclass(frozen=True, slots=True)
class Target:
    """A TCP port, or the sandbox's name servers where there is no address."""

    address: str = ""
    port: int = 0

    def __str__(self) -> str:
        if not self.address:
            return "name resolution"
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


NAME_SERVERS = Target()


class ReachState(Enum):
    """As fleet.v1 has them."""

    DENIED = "denied"
    OPENING = "opening"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Reach:
    """What is known. `reason` is one word, `message` is for people; fleet.v1's EgressStatus says which there are."""

    state: ReachState
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Known:
    """`since` is seconds since the epoch, None where nobody has looked yet."""

    reach: Reach
    since: float | None = None


ASKING = Reach(ReachState.OPENING, "Asking", "the cluster's network may not have applied it yet: the sandbox is asked")
NOTHING = Reach(ReachState.DENIED, "NothingAllowed", "nothing may be reached")
ALL_BLOCKED = Reach(ReachState.DENIED, "NothingAllowed", "the installation blocks all that is allowed")
NOT_PROBEABLE = Reach(
    ReachState.OPENING,
    "NotProbeable",
    "cannot know whether it is open: only name resolution and single addresses with a TCP port can be asked, and it"
    " allows neither",
)


def targets(wanted: Egress, settings: Settings) -> tuple[Target, ...]:
    """What can be asked from inside; empty where nothing can."""
    if wanted.dns:
        return (NAME_SERVERS,)
    found = (Target(address, port) for rule in _left(wanted, settings) for address, port in _hosts(rule))
    return tuple(dict.fromkeys(found))[:MAX_TARGETS]


def at_first(wanted: Egress, settings: Settings) -> Reach:
    """What is known before anybody was asked. Asking is said only where there are targets."""
    if networks.allows_nothing(wanted):
        return NOTHING
    if not (wanted.dns or _left(wanted, settings)):
        return ALL_BLOCKED
    return ASKING if targets(wanted, settings) else NOT_PROBEABLE


def after(asked: Sequence[Target], reached: Sequence[bool]) -> Reach | None:
    """None where the answers prove nothing: none was reached, or they are not answers to what was asked."""
    if len(reached) != len(asked):
        return None
    answered = [str(target) for target, good in zip(asked, reached, strict=True) if good]
    return Reach(ReachState.OPEN, "Answered", f"answered: {', '.join(answered)}") if answered else None


def at_last(asked: Sequence[Target], why: str) -> Reach:
    """Nobody has answered for as long as is asked; `why` is the sandbox's own failure, where it could not be asked."""
    names = ", ".join(map(str, asked))
    said = why or f"no answer from {names}: the network has not applied the list, or nobody listens there"
    return Reach(ReachState.OPENING, "NoAnswer", f"cannot know whether it is open: {said}")


def _left(wanted: Egress, settings: Settings) -> list[EgressRule]:
    """What the policy opens: plan/networkpolicy.py takes away the same."""
    forbidden = networks.blocked(settings.blocked_cidrs)
    return [left for rule in wanted.allow if (left := networks.without(rule, forbidden)) is not None]


def _hosts(rule: EgressRule) -> list[tuple[str, int]]:
    whole = network(rule.cidr)
    if whole.num_addresses > 1:
        return []
    return [(str(whole.network_address), port.port) for port in rule.ports if port.protocol == "TCP" and port.port]
