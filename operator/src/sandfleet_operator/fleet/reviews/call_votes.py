"""Approvals of calls of tools that need several of them. They outlive the host's connection, and the fleet's leader.

No executor keeps them, as it does those of code: the call is the host's, and its answer goes to the host.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from sandfleet_operator.plan.scheduler.recent import Recent

# Of one fleet of one machine.
REMEMBERED = 1000


@dataclass(frozen=True, slots=True)
class Ballot:
    """One call, as its reviewers see it. `name` stays the same where its host asks again; empty: it keeps no votes."""

    name: str
    digest: str


class CallVotes(Protocol):
    """By session."""

    def of(self, sandbox_id: str, ballot: Ballot) -> frozenset[str]:
        """Who has approved exactly this."""
        ...

    async def keep(self, sandbox_id: str, ballot: Ballot, voters: frozenset[str]) -> None:
        """In place of earlier votes for the same call; empty: it was answered. Raises FleetError."""
        ...


class VotesInMemory:
    """As long as this process lives."""

    def __init__(self) -> None:
        self._kept: Recent[tuple[str, str], tuple[str, frozenset[str]]] = Recent(REMEMBERED)

    def of(self, sandbox_id: str, ballot: Ballot) -> frozenset[str]:
        digest, voters = self._kept.get((sandbox_id, ballot.name)) or ("", frozenset())
        return voters if digest == ballot.digest else frozenset()

    async def keep(self, sandbox_id: str, ballot: Ballot, voters: frozenset[str]) -> None:
        self._kept.put((sandbox_id, ballot.name), (ballot.digest, voters))


def surplus(since: Mapping[str, float], name: str, most: int) -> list[str]:
    """Names of the oldest entries, which one more of this name would push out."""
    others = sorted(set(since) - {name}, key=lambda one: (since[one], one))
    return others[: max(0, len(others) + 1 - most)]
