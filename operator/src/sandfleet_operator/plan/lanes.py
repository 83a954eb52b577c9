"""Lanes: what has to do with something in a tenant's hands goes in turns, so that it holds up that tenant alone.

A lane has bounds for all its turns, for those of one namespace and for those on one node. Namespaces take turns, and
within each its nodes do. The turns of a *party*, a namespace on a node, may stall: they end without any answer. After a
few rounds of stalls the party gets one turn at a time, after a pause that grows, until one of its turns has an answer.
A node that is lost costs each namespace its own turns there, and a namespace that stalls on purpose costs no other one.
"""

from collections import Counter, OrderedDict, deque
from dataclasses import dataclass
from typing import NamedTuple

from sandfleet_rules.backoff import Backoff

# Parties that a lane remembers as stalled.
MAX_STALLED = 4096
PAUSES = Backoff(first=1.0, longest=15.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Turns at the same time: of all, of one namespace, on one node; and how many may wait.

    A node has room for more than one namespace.
    """

    total: int
    per_namespace: int
    per_node: int
    waiting: int = 20_000
    # Rounds of stalls in a row until a party is paused.
    rounds: int = 2
    pauses: Backoff = PAUSES


class Party(NamedTuple):
    """A namespace on a node. Without a node only the namespace is bounded."""

    namespace: str
    node: str = ""


@dataclass(eq=False, slots=True)
class Turn:
    """A place in the line, then one of the turns. `begun` is the time at which it began; None: it waits."""

    party: Party
    begun: float | None = None


@dataclass(frozen=True, slots=True)
class _Stalled:
    rounds: int
    # Time of the last round's end, and until when no other turn begins.
    at: float
    until: float


class Lane:
    """The turns of one kind of work. Times are seconds of any clock that never goes back."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        # By namespace and node, each in the order of their next turns.
        self._line: OrderedDict[str, OrderedDict[str, deque[Turn]]] = OrderedDict()
        self._waiting = self._busy = 0
        # Turns under way of a namespace, on a node, and of both together.
        self._under_way: Counter[Party] = Counter()
        self._stalled: OrderedDict[Party, _Stalled] = OrderedDict()

    def ask(self, party: Party) -> Turn | None:
        """A place in the line; None where too many wait."""
        if self._waiting >= self.bounds.waiting:
            return None
        turn = Turn(party)
        self._line.setdefault(party.namespace, OrderedDict()).setdefault(party.node, deque()).append(turn)
        self._waiting += 1
        return turn

    def begin(self, now: float) -> list[Turn]:
        """The turns that begin now."""
        begun = []
        while self._busy < self.bounds.total and (turn := self._next(now)) is not None:
            begun.append(turn)
        return begun

    def leave(self, turn: Turn) -> None:
        """It waits no more, and has not begun."""
        self._line[turn.party.namespace][turn.party.node].remove(turn)
        self._dropped(turn.party)

    def end(self, turn: Turn, now: float, *, stalled: bool | None) -> None:
        """A turn is over. `stalled` None: it was given up before that could be told."""
        self._busy -= 1
        for whose in _counted(turn.party):
            self._under_way[whose] -= 1
            if not self._under_way[whose]:
                del self._under_way[whose]
        if stalled:
            self._stall(turn, now)
        elif stalled is not None:
            self._stalled.pop(turn.party, None)

    def wakes_at(self, now: float) -> float | None:
        """When the next pause of a party that waits is over; None where none waits for that."""
        ends = (
            one.until
            for party, one in self._stalled.items()
            if self._waiting and one.until > now and party.node in self._line.get(party.namespace, ())
        )
        return min(ends, default=None)

    def _next(self, now: float) -> Turn | None:
        for namespace in list(self._line):
            if self._under_way[Party(namespace)] >= self.bounds.per_namespace:
                continue
            for node in list(self._line[namespace]):
                if self._may_begin(Party(namespace, node), now):
                    return self._begun(Party(namespace, node), now)
        return None

    def _may_begin(self, party: Party, now: float) -> bool:
        if party.node and self._under_way[Party("", party.node)] >= self.bounds.per_node:
            return False
        stalled = self._stalled.get(party)
        paused = stalled is not None and stalled.rounds >= self.bounds.rounds
        return stalled is None or not paused or (now >= stalled.until and not self._under_way[party])

    def _begun(self, party: Party, now: float) -> Turn:
        turn = self._line[party.namespace][party.node].popleft()
        turn.begun = now
        self._busy += 1
        self._under_way.update(_counted(party))
        # Others go before its next one.
        self._line[party.namespace].move_to_end(party.node)
        self._line.move_to_end(party.namespace)
        self._dropped(party)
        return turn

    def _dropped(self, party: Party) -> None:
        """One less waits."""
        self._waiting -= 1
        nodes = self._line[party.namespace]
        if not nodes[party.node]:
            del nodes[party.node]
        if not nodes:
            del self._line[party.namespace]

    def _stall(self, turn: Turn, now: float) -> None:
        assert turn.begun is not None
        known = self._stalled.get(turn.party)
        if known is not None and turn.begun < known.at:
            # It was under way beside one that has counted.
            return
        rounds = known.rounds + 1 if known is not None else 1
        until = now + self.bounds.pauses.after(rounds - self.bounds.rounds + 1)
        self._stalled[turn.party] = _Stalled(rounds, now, until)
        self._stalled.move_to_end(turn.party)
        while len(self._stalled) > MAX_STALLED:
            self._stalled.popitem(last=False)


def _counted(party: Party) -> set[Party]:
    """The counts that a turn is part of: the namespace, the node, and both together."""
    return {Party(party.namespace), Party("", party.node), party}
