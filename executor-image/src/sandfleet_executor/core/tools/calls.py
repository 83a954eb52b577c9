"""Calls between code and host, as a state machine (pure). Times are seconds of a monotonic clock.

A call waits, is sent, and is answered once. It leaves with its answer, when its caller gives it up, or when no host
came for too long. A stream may break: calls that have no answer are sent again on the next one.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from sandfleet_executor.core.tools.values import Answer, Call, Caller, Failure, Kind, Tool

# How long a call waits for a host whose stream broke, in seconds.
PATIENCE = 30.0
# Calls without an answer at a time.
MAX_CALLS = 1024
# Notices that wait to be sent. Each call that was sent gives two at most: answers of a hostile host alone pass this.
MAX_NOTICES = 2 * MAX_CALLS

NOT_OFFERED = "the host does not offer it"
NO_HOST = "no host serves tools to this sandbox"
LOST = "the host that serves the tools has gone, and none came in its place"
ENDED = "the execution that called it has ended"
GONE = "the host has stopped serving the tools"


@dataclass(frozen=True, slots=True)
class Sent:
    """To be sent: a call. `again`: another host was sent it before, and may have run it."""

    call: Call
    again: bool


@dataclass(frozen=True, slots=True)
class Cancelled:
    """To be sent: its answer is not wanted any more."""

    call_id: str


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """To be sent: its answer has arrived, or is not wanted."""

    call_id: str


Message = Sent | Cancelled | Acknowledged
Answered = tuple[str, Answer]


@dataclass(slots=True)
class _Open:
    call: Call
    # Ids of the hosts that it was sent to.
    hosts: set[str] = field(default_factory=set)


class Calls:
    """All calls that have no answer, and the host that is to answer them."""

    def __init__(self) -> None:
        self.tools: Mapping[str, Tool] = {}
        # The present stream; 0: none.
        self._stream = 0
        self._host = ""
        # Since when a host that broke off is missed; None: one is there, or none is expected.
        self._missed_since: float | None = None
        self._open: dict[str, _Open] = {}
        # Ids of those that were not sent on the present stream, the oldest first.
        self._unsent: dict[str, None] = {}
        self._notices: deque[Message] = deque()

    @property
    def stream(self) -> int:
        """The number of the host's stream; 0 without one."""
        return self._stream

    @property
    def outstanding(self) -> tuple[str, ...]:
        return tuple(self._open)

    @property
    def due(self) -> float | None:
        """When `expire` has something to do."""
        return None if self._missed_since is None else self._missed_since + PATIENCE

    # The host

    def connect(self, stream: int, host: str, tools: Mapping[str, Tool]) -> list[Answered]:
        """A host has come, in the place of an earlier one. Answers of calls whose tool it does not offer."""
        self.tools, self._stream, self._host, self._missed_since = tools, stream, host, None
        self._notices.clear()
        unknown = [each for each in self._open.values() if each.call.tool not in tools]
        answered = [self._give_up(each, "NoSuchTool", NOT_OFFERED) for each in unknown]
        self._unsent = dict.fromkeys(self._open)
        return answered

    def disconnect(self, stream: int, now: float, *, broken: bool) -> list[Answered]:
        """A stream has ended. Answers of calls that have no host to wait for: it ended as its host wanted."""
        if stream != self._stream:
            return []
        self._stream = 0
        self._notices.clear()
        if broken:
            self._missed_since = now
            return []
        self.tools = {}
        return [self._give_up(each, "HostStopped", GONE) for each in list(self._open.values())]

    def take(self, stream: int) -> Message | None:
        """What is to be sent next on the stream; None: nothing now."""
        if stream != self._stream:
            return None
        return self._notices.popleft() if self._notices else self.take_call(stream)

    def take_call(self, stream: int) -> Sent | None:
        """The call that is to be sent next on the stream; None: none now, or notices come before it."""
        if stream != self._stream or self._notices or not self._unsent:
            return None
        first = next(iter(self._unsent))
        del self._unsent[first]
        found = self._open[first]
        again = bool(found.hosts - {self._host})
        found.hosts.add(self._host)
        return Sent(found.call, again)

    def caller_of(self, stream: int, call_id: str) -> Caller | None:
        """Who waits for the answer to a call that the stream's host was sent; None: no caller does."""
        found = self._open.get(call_id) if stream == self._stream else None
        return found.call.caller if found is not None and self._host in found.hosts else None

    def answer(self, stream: int, call_id: str, answer: Answer) -> Answered | None:
        """The host has answered. None where no caller waits for it."""
        if stream != self._stream:
            return None
        found = self._open.get(call_id)
        is_asked = found is not None and self._host in found.hosts
        if is_asked or len(self._notices) < MAX_NOTICES:
            self._notices.append(Acknowledged(call_id))
        if not is_asked:
            return None
        self._remove(call_id)
        return call_id, answer

    # The code

    def ask(self, call: Call) -> Failure | None:
        """A call. A failure at once, or None: it is answered later."""
        if not self._stream and self._missed_since is None:
            return failure_of(call, "NoHost", NO_HOST)
        if call.tool not in self.tools:
            return failure_of(call, "NoSuchTool", NOT_OFFERED)
        if len(self._open) >= MAX_CALLS:
            why = f"{MAX_CALLS} calls of this sandbox have no answer yet"
            return Failure(Kind.DENIED, "TooManyCalls", f"cannot call {call.tool}: {why}")
        self._open[call.id] = _Open(call)
        self._unsent[call.id] = None
        return None

    def withdraw(self, call_id: str) -> None:
        """Its caller does not wait any more."""
        found = self._open.get(call_id)
        # The same host may have had it on an earlier stream.
        if found is not None and (not self._remove(call_id) or self._host in found.hosts):
            self._notices.append(Cancelled(call_id))

    def end(self, caller: Caller) -> list[Answered]:
        """The caller has ended: nothing that it called may go on."""
        mine = [each for each in self._open.values() if each.call.caller == caller]
        for each in mine:
            self.withdraw(each.call.id)
        return [(each.call.id, failure_of(each.call, "ExecutionEnded", ENDED, each)) for each in mine]

    def expire(self, now: float) -> list[Answered]:
        """Answers of calls that have waited too long for a host."""
        if self.due is None or now < self.due:
            return []
        self._missed_since, self.tools = None, {}
        return [self._give_up(each, "HostLost", LOST) for each in list(self._open.values())]

    def _give_up(self, one: _Open, reason: str, why: str) -> Answered:
        self._remove(one.call.id)
        return one.call.id, failure_of(one.call, reason, why, one)

    def _remove(self, call_id: str) -> bool:
        """Whether it was still to be sent on the present stream."""
        del self._open[call_id]
        return call_id in self._unsent and self._unsent.pop(call_id) is None


def failure_of(call: Call, reason: str, why: str, state: _Open | None = None) -> Failure:
    """The answer to a call that no host answers."""
    sent = state is not None and bool(state.hosts)
    return Failure(Kind.UNAVAILABLE, reason, f"cannot call {call.tool[:80]}: {why}", sent)
