"""The executor's own spans. It has no egress: they go back in the stream and the client exports them.

One span for each execution, and below it one for each phase that took long enough to be seen. An execution in which
nothing but the run did has no phases: its own span is that of its run.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from sandfleet_executor.core.egress.contacts import Contact
from sandfleet_executor.core.executions.events import Span
from sandfleet_executor.core.executions.outcomes import Verdict
from sandfleet_executor.core.executions.tracing import TraceParent

# Waits for its turn; for a reviewer; for packages and an interpreter; for a copy of the state before it; runs; goes
# back to that copy. First output: from the start of the run to the first byte of output.
QUEUE, REVIEW, PREPARE, COPY, RUN, ROLL_BACK = "queue", "review", "prepare", "copy", "run", "roll_back"
FIRST_OUTPUT = "first_output"
# Shorter phases, in nanoseconds, are left out: nothing was waited for. Each span costs client and collector more than
# the executor, so a trivial cell has one.
SHORT = 1_000_000
# A cell that is begun again has some phases twice; there are not more than these.
MAX_PHASES = 16
# Connections to hosts by name: of more, the first ones have spans.
EGRESS, MAX_CONTACTS = "egress", 32


class _Phase(NamedTuple):
    name: str
    start: int
    end: int


class Trace:
    """One span below the caller's, from now on, in its first phase. Without a caller's span there is none.

    `clock` gives nanoseconds since the epoch.
    """

    def __init__(self, parent: TraceParent | None, clock: Callable[[], int] = time.time_ns) -> None:
        self._parent = parent
        self._own = TraceParent(parent.trace_id, os.urandom(8), parent.flags) if parent else None
        self._clock = clock
        self._start = self._since = clock()
        self._phase = QUEUE
        self._phases: list[_Phase] = []

    def environment(self) -> dict[str, str]:
        """What tells the code of the span that it runs in."""
        return {"TRACEPARENT": str(self._own)} if self._own else {}

    def enter(self, phase: str) -> None:
        """The phase before has ended, and this one begins."""
        now = self._clock()
        if (now - self._since >= SHORT or self._phase == RUN) and len(self._phases) < MAX_PHASES:
            self._phases.append(_Phase(self._phase, self._since, now))
        self._phase, self._since = phase, now

    def finish(
        self,
        name: str,
        verdict: Verdict,
        attributes: Mapping[str, str],
        first_output: int = 0,
        contacts: Sequence[Contact] = (),
    ) -> tuple[Span, ...]:
        """The execution's span, then those of its phases and contacts. None where the caller's trace is not sampled.

        `first_output`: when the first output came, in nanoseconds since the epoch; 0: there was none.
        """
        if not (self._parent and self._own and self._parent.flags & 1):
            return ()
        self.enter("")
        own = Span(
            name=name,
            trace_id=self._own.trace_id,
            span_id=self._own.span_id,
            parent_span_id=self._parent.span_id,
            start=self._start,
            end=self._since,
            attributes={**attributes, "sandfleet.outcome": verdict.outcome},
            error="" if verdict.outcome == "ok" else verdict.reason,
        )
        phases = (self._below(own, phase) for phase in self._shown(first_output))
        return (own, *phases, *(self._reached(own, each) for each in contacts[:MAX_CONTACTS]))

    def _shown(self, first_output: int) -> list[_Phase]:
        first = [
            _Phase(FIRST_OUTPUT, phase.start, first_output)
            for phase in self._phases
            if phase.name == RUN and phase.start + SHORT <= first_output <= phase.end
        ]
        found = [*self._phases, *first]
        return [] if [phase.name for phase in found] == [RUN] else found

    @staticmethod
    def _reached(own: Span, contact: Contact) -> Span:
        """A connection that goes on has the span up to now."""
        attributes = {
            "sandfleet.egress.host": contact.host,
            "sandfleet.egress.port": str(contact.port),
            "sandfleet.egress.verdict": contact.reason or "Reached",
            "sandfleet.egress.sent_bytes": str(contact.sent),
            "sandfleet.egress.received_bytes": str(contact.received),
        }
        start, end = min(contact.start, own.end), min(contact.end or own.end, own.end)
        return Span(EGRESS, own.trace_id, os.urandom(8), own.span_id, start, end, attributes, contact.reason)

    @staticmethod
    def _below(own: Span, phase: _Phase) -> Span:
        return Span(phase.name, own.trace_id, os.urandom(8), own.span_id, phase.start, phase.end)
