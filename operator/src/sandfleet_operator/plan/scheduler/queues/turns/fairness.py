"""Start-time fair queueing: whose turn it is among flows of claims that have weights.

Goyal, Vin and Cheng, "Start-time Fair Queueing", SIGCOMM 1996. Each claim has a start tag: the finish tag of the claim
before it in its flow, but not less than the virtual time at its arrival. Its finish tag is the start tag plus its cost
divided by the flow's weight. The claim with the least start tag is served next, and virtual time is that tag. Only the
first claim of a flow needs a tag, as the others follow from it.

The bound (theorem 1 there): while two flows both wait, what they are served, each divided by its weight, differs by at
most c/w of the one plus c/w of the other, where c is the largest cost of a claim and w the weight. For single claims of
cost 1 and equal weights this is two claims, however many wait.
"""

from typing import Generic, TypeVar

K = TypeVar("K")
# Flows that are not waiting are forgotten once there are so many of them.
IDLE_FLOWS = 256


class VirtualTime(Generic[K]):
    """Start tags of flows. A flow that is served and waits no more keeps its finish tag while it is in the future."""

    def __init__(self) -> None:
        self.now = 0.0
        self._starts: dict[K, float] = {}
        self._idle: set[K] = set()

    def start(self, flow: K) -> float:
        """The start tag of the flow's next claim."""
        return max(self._starts.get(flow, 0.0), self.now) if flow in self._idle else self._starts.get(flow, self.now)

    def lead(self, flow: K) -> float:
        """How far its start tag is before virtual time."""
        return max(0.0, self.start(flow) - self.now)

    def begins(self, flow: K, lead: float = 0.0) -> None:
        """The flow has claims to be served from now on; `lead`: the one that it had where virtual time was another."""
        self._starts[flow] = max(self._starts.get(flow, 0.0), self.now + lead)
        self._idle.discard(flow)

    def ends(self, flow: K) -> None:
        """It has none for now."""
        self._idle.add(flow)
        if len(self._idle) > IDLE_FLOWS:
            for one in [one for one in self._idle if self._starts[one] <= self.now]:
                del self._starts[one]
                self._idle.discard(one)

    def serve(self, flow: K, cost: float) -> None:
        """`cost` is that of the claim, divided by the flow's weight."""
        start = self._starts[flow]
        self.now = max(self.now, start)
        self._starts[flow] = start + cost

    def restore(self, flow: K, start: float) -> None:
        """A claim that was served comes back with the start tag that it had."""
        self._starts[flow] = min(self._starts.get(flow, start), start)
