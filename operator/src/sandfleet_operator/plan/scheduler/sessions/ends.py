"""When leases and suspensions may be over, the first of them first: what is not over yet is not looked at."""

import heapq
import math
from collections.abc import Iterator, Mapping

from sandfleet_operator.api.values import ASLEEP, Sandbox, State

# Entries that are out of date are removed once they outnumber the sandboxes by this.
STALE = 64


class EndsOfSessions:
    """A lease that is renewed keeps its old entry until that is due, so that renewals cost nothing."""

    def __init__(self, sandboxes: Mapping[str, Sandbox]) -> None:
        self._sandboxes = sandboxes
        self._heap: list[tuple[float, str]] = []
        # Sandbox → its earliest entry.
        self._entries: dict[str, float] = {}

    def __len__(self) -> int:
        """Entries, those included that are out of date."""
        return len(self._heap)

    def note(self, sandbox: Sandbox) -> None:
        """The sandbox is new or has changed."""
        end = _end(sandbox)
        if end >= self._entries.get(sandbox.sandbox_id, math.inf):
            return
        self._put(end, sandbox.sandbox_id)
        if len(self._heap) > 2 * len(self._sandboxes) + STALE:
            self._rebuild()

    def over(self, now: float) -> list[str]:
        """Ids of the sandboxes with a lease or a suspension that ends by `now`.

        They are told again until that is another or they are gone.
        """
        found = list(self._due(now))
        for sandbox_id in found:
            self._put(_end(self._sandboxes[sandbox_id]), sandbox_id)
        return found

    def _due(self, now: float) -> Iterator[str]:
        while self._heap and self._heap[0][0] <= now:
            end, sandbox_id = heapq.heappop(self._heap)
            if self._entries.get(sandbox_id) != end:
                continue
            del self._entries[sandbox_id]
            sandbox = self._sandboxes.get(sandbox_id)
            if sandbox is None or math.isinf(later := _end(sandbox)):
                continue
            if later > now:
                self._put(later, sandbox_id)
            else:
                yield sandbox_id

    def _put(self, end: float, sandbox_id: str) -> None:
        self._entries[sandbox_id] = end
        heapq.heappush(self._heap, (end, sandbox_id))

    def _rebuild(self) -> None:
        ends = ((name, _end(one)) for name, one in self._sandboxes.items())
        self._entries = {name: end for name, end in ends if not math.isinf(end)}
        self._heap = [(end, name) for name, end in self._entries.items()]
        heapq.heapify(self._heap)


def _end(sandbox: Sandbox) -> float:
    """Before it neither the lease nor the suspension of the sandbox can be over."""
    if sandbox.state in ASLEEP:
        return math.inf if sandbox.suspended_until is None else sandbox.suspended_until
    if sandbox.lease_expires is None or not sandbox.bound or sandbox.state not in {State.CLAIMED, State.RECOVERING}:
        return math.inf
    return sandbox.lease_expires
