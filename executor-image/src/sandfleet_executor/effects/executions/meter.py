"""What cells and commands share: the session's services for them, their measurements and their end."""

import asyncio
import math
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from sandfleet_executor.core.egress.contacts import Contacts, denied
from sandfleet_executor.core.executions.events import STDERR, STDOUT, Files, Finished, Notice, Rollback, Usage
from sandfleet_executor.core.executions.outcomes import Cause, Facts, Verdict
from sandfleet_executor.core.executions.tracing import TraceParent
from sandfleet_executor.core.executions.usage import End, Tallies, Totals
from sandfleet_executor.core.files.changes import Mark
from sandfleet_executor.core.review.desk import Decision
from sandfleet_executor.core.review.subject import Subject
from sandfleet_executor.core.tools.values import Caller
from sandfleet_executor.effects.executions.execution import Execution
from sandfleet_executor.effects.executions.spans import Trace
from sandfleet_executor.effects.namespace.namespace import Namespace

# How long code may take to react to the interrupt at its deadline before it is killed, in seconds.
DEADLINE_GRACE = 1.0
# Between two looks at the deadline of an execution that waits for a person, at least, in seconds.
DEADLINE_LOOKS = 0.05
# The attribute of a cell's span with the language of its context; commands have none.
LANGUAGE = "sandfleet.context.language"


@dataclass
class Ledger:
    """The executions that run or wait, and the usage of all that ended."""

    # Whether the kernel says what processes write to the workspace.
    counts_writes: bool = False
    running: "dict[str, ExecutionMeter]" = field(default_factory=dict)
    ended: Totals = field(default_factory=Totals)
    tallies: Tallies = field(default_factory=Tallies)

    def totals(self) -> Totals:
        """Since the start, up to now."""
        found = self.ended
        for meter in self.running.values():
            found = found.with_running(meter.usage())
        together = sum(meter.processes for meter in self.running.values())
        return replace(found, peak_processes=max(found.peak_processes, together))

    def written(self) -> int | None:
        """Bytes, as `totals`, at less cost; None where the kernel does not say."""
        if not self.counts_writes:
            return None
        return self.ended.written_bytes + sum(meter.written_bytes for meter in self.running.values())

    def note(self) -> None:
        """A sample has come: several that run at once may be the most that ever ran."""
        together = sum(meter.processes for meter in self.running.values())
        if together > self.ended.peak_processes:
            self.ended = replace(self.ended, peak_processes=together)

    def close(self, meter: "ExecutionMeter", usage: Usage, verdict: Verdict) -> None:
        if self.running.pop(meter.execution.id, None):
            self.ended = self.ended.plus(usage)
            self.tallies.ended(End(meter.span, verdict.outcome, verdict.blame), usage.wall_seconds)
            if language := meter.attributes.get(LANGUAGE):
                self.tallies.spoke(language, usage)


async def at_once(_execution: Execution | None) -> bool:
    """Nothing is to be waited for."""
    return False


class Reviewer(Protocol):
    """Decides whether an execution may run."""

    @property
    def required(self) -> bool: ...
    async def of_execution(self, execution: Execution, subject: Subject | None) -> Decision:
        """Waits for the answer."""


class NoReviewer:
    """Of a session whose code runs without review."""

    required = False

    async def of_execution(self, _execution: Execution, _subject: Subject | None) -> Decision:
        """At once."""
        return Decision(allowed=True)


class ToolKeys(Protocol):
    """Lets code call the tools of the host, as long as it runs."""

    @property
    def brokered(self) -> bool: ...
    def environment(self, caller: Caller) -> Mapping[str, str]: ...
    def end(self, caller: Caller) -> None: ...
    def waited(self, caller: Caller) -> float:
        """Seconds that the caller's calls have waited for a person, which its deadline does not count."""
        ...


class NoTools:
    """Of a session whose code calls none."""

    brokered = False

    def environment(self, caller: Caller) -> Mapping[str, str]:  # noqa: ARG002 - of any caller
        return {}

    def end(self, caller: Caller) -> None:
        """It had none."""

    def waited(self, caller: Caller) -> float:  # noqa: ARG002 - of any caller
        return 0.0


@dataclass(frozen=True)
class SessionServices:
    """What every execution needs of its session."""

    # The living namespace; a new one where the old one has ended. Raises NamespaceError.
    namespace: Callable[[], Awaitable[Namespace]]
    # A mark on the workspace, and what changed since a mark.
    begin_changes: Callable[[], Mark]
    changes_since: Callable[[Mark], Files]
    ledger: Ledger = field(default_factory=Ledger)
    # Waits until code may run, or the execution is stopped; whether it had to wait.
    settled: Callable[[Execution | None], Awaitable[bool]] = at_once
    # Notices for the first execution of a context, or for the first command ("" for its context).
    notices: Callable[[str], tuple[Notice, ...]] = lambda _: ()
    reviews: Reviewer = field(default_factory=NoReviewer)
    tools: ToolKeys = field(default_factory=NoTools)
    # With hosts, of all programs of the session.
    contacts: Contacts = field(default_factory=Contacts)


@dataclass
class ExecutionMeter:
    """Measures one execution from now on and ends it with the result. Memory in bytes, CPU in seconds."""

    execution: Execution
    session: SessionServices
    span: str
    traceparent: TraceParent | None
    attributes: dict[str, str]
    peak_memory: int = 0
    peak_processes: int = 1
    cpu_seconds: float = 0.0
    written_bytes: int = 0
    # As of the last sample.
    memory: int = 0
    processes: int = 1
    _started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.trace = Trace(self.traceparent)
        self._mark = self.session.begin_changes()
        self._contacts_before = self.session.contacts.count
        self.session.ledger.running[self.execution.id] = self

    @property
    def _caller(self) -> Caller:
        return Caller(self.execution.id, self.attributes.get("sandfleet.context.id", ""))

    def environment(self) -> dict[str, str]:
        """The variables by which the code continues the trace, and calls tools."""
        return {**self.trace.environment(), **self.session.tools.environment(self._caller)}

    def waited(self) -> float:
        """Seconds that it has waited for a person who decides about calls of tools; they do not count either."""
        return self.session.tools.waited(self._caller)

    def restart_clock(self) -> None:
        """After waiting, which does not count."""
        self._started = time.monotonic()
        self._mark = self.session.begin_changes()

    def usage(self) -> Usage:
        """So far."""
        return Usage(
            wall_seconds=time.monotonic() - self._started,
            cpu_seconds=self.cpu_seconds,
            peak_memory_bytes=self.peak_memory,
            peak_processes=self.peak_processes,
            stdout_bytes=self.execution.written(STDOUT),
            stderr_bytes=self.execution.written(STDERR),
            written_bytes=self.written_bytes if self.session.ledger.counts_writes else None,
        )

    def sample(self, memory: int, processes: int) -> None:
        self.memory, self.processes = memory, processes
        self.session.ledger.note()
        self.peak_memory = max(self.peak_memory, memory)
        self.peak_processes = max(self.peak_processes, processes)

    def close(
        self,
        verdict: Verdict,
        facts: Facts | None = None,
        *,
        lost: tuple[str, ...] = (),
        leftover: int = 0,
        rollback: Rollback | None = None,
    ) -> None:
        """Emits the end."""
        self.session.tools.end(self._caller)
        self.execution.flush_tails()
        usage = self.usage()
        self.session.ledger.close(self, usage, verdict)
        self.session.contacts.catch_up()
        contacts = self.session.contacts.since(self._contacts_before)
        end = Finished(
            outcome=verdict.outcome,
            blame=verdict.blame,
            reason=verdict.reason,
            message=verdict.message,
            exit_code=facts.exit_code if facts else 0,
            signal=facts.signal if facts else "",
            usage=usage,
            files=self.session.changes_since(self._mark),
            lost=lost,
            leftover_processes_killed=leftover,
            spans=self.trace.finish(self.span, verdict, self.attributes, self.execution.first_output, contacts),
            rollback=rollback,
            denied_hosts=denied(contacts),
        )
        self.execution.emit(end)


class _Deadline:
    """Stops an execution at its deadline: `timeout` seconds from now, without those that `waited` gives."""

    def __init__(self, execution: Execution, timeout: float, waited: Callable[[], float]) -> None:
        self._execution, self._waited = execution, waited
        self._loop = asyncio.get_running_loop()
        self._at = self._loop.time() + timeout
        self._timer = self._loop.call_later(timeout, self._look)

    def _look(self) -> None:
        left = self._at + self._waited() - self._loop.time()
        if left <= 0:
            self._execution.stop(Cause.DEADLINE, DEADLINE_GRACE)
        else:
            self._timer = self._loop.call_later(max(left, DEADLINE_LOOKS), self._look)

    def cancel(self) -> None:
        self._timer.cancel()


async def end_or_stop(
    meter: ExecutionMeter, end: "asyncio.Future[Any]", timeout: float, ask: Callable[[], None]
) -> None:
    """Waits for `end`. At the deadline (seconds, or infinite), or when the execution is stopped, asks and waits."""
    execution = meter.execution
    timer = _Deadline(execution, timeout, meter.waited) if timeout < math.inf else None
    try:
        await asyncio.wait((end, execution.stopped), return_when=asyncio.FIRST_COMPLETED)
        grace = 0.0 if end.done() else execution.stopped.result()
        # Twice: the first may come before the code has begun, and have no effect.
        for _ in range(2):
            if not end.done() and grace > 0:
                ask()
                await asyncio.wait((end,), timeout=grace / 2)
    finally:
        if timer is not None:
            timer.cancel()


def signal_name(number: int) -> str:
    """The signal's name, as "SIGKILL"; empty for 0."""
    if not number:
        return ""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"
