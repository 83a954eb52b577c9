"""What the sessions of this machine have received. They end with the fleet, so its memory keeps the marks."""

from sandfleet_operator.api.values import Mark, received_before
from sandfleet_operator.plan.scheduler.inventory import Inventory

# Marks of sessions that have ended are dropped when there are so many.
MOST = 2048


class LocalReceived:
    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._marks: dict[str, frozenset[Mark]] = {}

    def note(self, sandbox_id: str, marks: frozenset[Mark]) -> frozenset[Mark]:
        """Adds marks to those of a session that lives; all of them."""
        sandbox = self._inventory.get(sandbox_id)
        known = self._marks.get(sandbox_id, frozenset())
        if marks - known:
            known = self._marks[sandbox_id] = known | marks
            self._prune()
        return known | received_before(sandbox.claim if sandbox else None)

    def _prune(self) -> None:
        if len(self._marks) > MOST:
            self._marks = {name: marks for name, marks in self._marks.items() if self._inventory.get(name)}
