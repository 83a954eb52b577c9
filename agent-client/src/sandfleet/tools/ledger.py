"""What a host knows of the calls that it was sent, as a state machine (pure).

A call runs at most once. Its answer is kept until the executor says that it has arrived, since the stream may break.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from sandfleet.tools.values import Wire

if TYPE_CHECKING:
    from sandfleet.values.tools import Tool

# Executions whose calls are counted; those that called longest ago are forgotten first.
MAX_EXECUTIONS = 10_000
# Calls that are known, and functions that run, at a time: an executor sends fewer.
MAX_CALLS = 4096
# Bytes of arguments and answers that are known at a time.
MAX_HELD = 1 << 30


class Kind(StrEnum):
    """Why a call has no result."""

    ERROR = "error"
    DENIED = "denied"
    TIMEOUT = "timeout"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class Failure:
    """What the code gets as an exception."""

    kind: Kind
    reason: str
    message: str
    may_have_run: bool = False

    @property
    def size(self) -> int:
        """Bytes, about."""
        return len(self.message)


Answer = Wire | Failure
# How many calls of a tool have run, and what they have cost.
Used = tuple[int, float]


@dataclass(frozen=True, slots=True)
class _Running:
    tool: str
    # Bytes of its arguments.
    size: int


@dataclass(frozen=True, slots=True)
class Received:
    """A call as the executor sent it. `again`: an earlier host may have run it."""

    id: str
    tool: str
    arguments: Wire
    execution_id: str = ""
    context_id: str = ""
    service: str = ""
    again: bool = False

    @property
    def caller(self) -> str:
        """The execution or service whose calls are counted together."""
        return f"service {self.service}" if self.service else self.execution_id


@dataclass(frozen=True, slots=True)
class Run:
    """The call is to be run."""

    call: Received
    tool: Tool


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer is to be sent."""

    call_id: str
    answer: Answer


@dataclass(frozen=True, slots=True)
class Stop:
    """The call that runs is to be cancelled."""

    call_id: str


Action = Run | Reply | Stop


class Ledger:
    """The calls of one session."""

    def __init__(
        self,
        tools: Mapping[str, Tool],
        calls: Mapping[str, Answer | None] | None = None,
        used: Mapping[str, Used] | None = None,
        callers: Mapping[str, Mapping[str, int]] | None = None,
    ) -> None:
        """`calls`, `used`, `callers`: what a killed process of this host has left. None: a call that may have run."""
        self._tools = tools
        # Calls that an earlier process of this host may have run.
        self._interrupted = {call_id for call_id, answer in (calls or {}).items() if answer is None}
        # Call id → its tool while it runs, and then its answer.
        self._known: dict[str, _Running | Answer] = {}
        # Bytes of all that is known.
        self._held = 0
        # Tool → how many of its functions run. They may outlive their call: a thread cannot be ended.
        self._running: Counter[str] = Counter()
        self._ran: Counter[str] = Counter()
        # Tool → what its calls have cost.
        self._spent: dict[str, float] = defaultdict(float)
        self._by_caller: OrderedDict[str, Counter[str]] = OrderedDict()
        for call_id, answer in (calls or {}).items():
            if answer is not None:
                self._keep(call_id, answer)
        for name, (ran, spent) in (used or {}).items():
            self._ran[name], self._spent[name] = ran, spent
        for caller, counted in (callers or {}).items():
            self._count(caller).update(counted)

    def used(self, tool: str) -> Used:
        """What is kept of a tool's use."""
        return self._ran[tool], self._spent[tool]

    def of_caller(self, call: Received) -> int:
        """How many calls of its tool the caller of this one has made."""
        return self._by_caller.get(call.caller, Counter[str]())[call.tool]

    def offer(self, tools: Mapping[str, Tool]) -> None:
        """Offer these from now on; calls that run go on."""
        self._tools = tools

    @property
    def ran(self) -> Mapping[str, int]:
        """How many calls of each tool have run or are running."""
        return dict(self._ran)

    @property
    def running(self) -> tuple[str, ...]:
        """Ids of calls that run."""
        return tuple(call_id for call_id, state in self._known.items() if isinstance(state, _Running))

    def receive(self, call: Received) -> Run | Reply | None:
        """Take a call; None where it runs already."""
        known = self._known.get(call.id)
        if isinstance(known, _Running):
            return None
        if known is not None:
            return Reply(call.id, known)
        tool = self._tools.get(call.tool)
        if tool is None:
            return self._refused(call.id, not_offered(call.tool))
        if (failure := self._refusal(call, tool)) is not None:
            return self._refused(call.id, failure)
        self._keep(call.id, _Running(tool.name, call.arguments.size))
        self.begun(tool.name)
        self._ran[tool.name] += 1
        self._count(call.caller)[tool.name] += 1
        return Run(call, tool)

    def charge(self, tool: Tool, cost: float) -> Failure | None:
        """Charge the tool's budget with the cost of a call. The refusal where too little is left; None: it is paid."""
        if not 0 <= cost < math.inf:
            return denied(tool.name, "Budget", f"its cost is no number of at least 0: {cost}")
        if (budget := tool.limits.budget) is not None and self._spent[tool.name] + cost > budget:
            left = max(0.0, budget - self._spent[tool.name])
            return denied(tool.name, "Budget", f"it costs {cost:g}, and {left:g} of the budget of {budget:g} are left")
        self._spent[tool.name] += cost
        return None

    def spend(self, tool: str, amount: float) -> None:
        """Correct what the tool's calls have cost, once more is known of one. Its budget may be overdrawn then."""
        self._spent[tool] += amount

    def finish(self, call_id: str, answer: Answer) -> Reply | None:
        """Take the answer of a call that ran; None where it is not wanted any more."""
        known = self._known.get(call_id)
        if not isinstance(known, _Running):
            return None
        self._forget(call_id)
        if self._held + answer.size > MAX_HELD:
            why = f"{known.tool} has run, but {self._held} bytes of other results wait for the sandbox to take them"
            answer = Failure(Kind.DENIED, "TooManyBytes", why)
        self._keep(call_id, answer)
        return Reply(call_id, answer)

    def begun(self, tool: str) -> None:
        """Count one more of its functions that run. `ended` has to follow, whatever becomes of the call."""
        self._running[tool] += 1

    def ended(self, tool: str) -> None:
        """Count one of its functions less."""
        self._running[tool] -= 1

    def cancel(self, call_id: str) -> Stop | None:
        """Forget a call; to be stopped where it runs."""
        known = self._forget(call_id)
        return Stop(call_id) if isinstance(known, _Running) else None

    def acknowledge(self, call_id: str) -> None:
        """Forget an answer that has arrived."""
        if not isinstance(self._known.get(call_id), _Running):
            self._forget(call_id)

    def resume(self, outstanding: Collection[str]) -> list[Stop]:
        """Forget all other calls: a new stream names those that wait for an answer, and sends them."""
        self._interrupted &= set(outstanding)
        gone = [call_id for call_id in self._known if call_id not in outstanding]
        return [stop for call_id in gone if (stop := self.cancel(call_id)) is not None]

    def _refused(self, call_id: str, failure: Failure) -> Reply:
        # One that is not kept is found again where the call comes again: nothing has run.
        if len(self._known) < MAX_CALLS:
            self._keep(call_id, failure)
        return Reply(call_id, failure)

    def _keep(self, call_id: str, state: _Running | Answer) -> None:
        self._known[call_id] = state
        self._held += state.size

    def _forget(self, call_id: str) -> _Running | Answer | None:
        known = self._known.pop(call_id, None)
        self._held -= 0 if known is None else known.size
        return known

    def _count(self, caller: str) -> Counter[str]:
        counted = self._by_caller.setdefault(caller, Counter())
        self._by_caller.move_to_end(caller)
        if len(self._by_caller) > MAX_EXECUTIONS:
            self._by_caller.popitem(last=False)
        return counted

    def _refusal(self, call: Received, tool: Tool) -> Failure | None:
        """Why the call does not run; None: it does."""
        if (call.again or call.id in self._interrupted) and not tool.idempotent:
            why = "the host that had the call is gone, and nothing says whether it ran"
            return Failure(Kind.UNAVAILABLE, "HostLost", f"cannot call {tool.name}: {why}", may_have_run=True)
        if len(self._known) >= MAX_CALLS or self._running.total() >= MAX_CALLS:
            return denied(tool.name, "TooManyCalls", f"{MAX_CALLS} calls are known at once")
        if self._held + call.arguments.size > MAX_HELD:
            return denied(tool.name, "TooManyBytes", f"{self._held} bytes of other calls are known")
        limits = tool.limits
        for used, most, reason, what in (
            (call.arguments.size, limits.argument_bytes, "ArgumentsTooLarge", "bytes of arguments"),
            (self._ran[tool.name] + 1, limits.calls_per_session, "CallsPerSession", "calls in a session"),
            (self.of_caller(call) + 1, limits.calls_per_execution, "CallsPerExecution", "calls in an execution"),
            (self._running[tool.name] + 1, limits.concurrency, "Concurrency", "calls at once"),
        ):
            if most is not None and used > most:
                return denied(tool.name, reason, f"the most is {most} {what}")
        return None


def denied(tool: str, reason: str, why: str) -> Failure:
    """A refusal of the host."""
    return Failure(Kind.DENIED, reason, f"cannot call {tool}: {why}")


def not_offered(tool: str) -> Failure:
    """The answer to a call of a tool that there is not."""
    return Failure(Kind.UNAVAILABLE, "NoSuchTool", f"cannot call {tool[:80]}: the host does not offer it")
