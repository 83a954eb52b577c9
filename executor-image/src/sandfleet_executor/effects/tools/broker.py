"""The broker: it has the calls of the session's code, and the stream of the host that answers them."""

import asyncio
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sandfleet_executor.core.errors import RpcError
from sandfleet_executor.core.journal import bodies
from sandfleet_executor.core.tools.calls import Acknowledged, Answered, Calls, Cancelled, Sent
from sandfleet_executor.core.tools.values import Answer, Call, Caller, Failure, Kind, Tool, Value
from sandfleet_executor.core.tools.waits import Waits
from sandfleet_executor.effects.tools.lines import MAX_UNREAD, Lines

# Name of the socket and key of the caller, for worker/tools/line.py: "NAME:KEY".
VARIABLE = "SANDFLEET_TOOLS"
KEY_BYTES = 16
# How long the host's answers wait for code that reads none, in seconds.
UNREAD_SECONDS = 30.0
# A larger result is recorded at once, in bytes: until then it is held twice.
MOST_HELD_FOR_RECORD = 64 << 10
# Acknowledgements wait for others so long, in seconds, or until there are so many.
ACKNOWLEDGE_SECONDS, MOST_ACKNOWLEDGED = 0.02, 32
# Calls that wait already are sent together: so many, or until their arguments have so many bytes.
MOST_TOGETHER, MOST_BYTES_TOGETHER = 64, 256 << 10


class NotBrokeredError(RpcError, RuntimeError, code="FAILED_PRECONDITION", reason="ContractNotBrokered"):
    """The sandbox has another contract."""


class ReplacedError(RpcError, RuntimeError, code="ABORTED", reason="Replaced"):
    """Another host serves the tools now."""


@dataclass(frozen=True, slots=True)
class Acknowledgements:
    """To be sent: the answers to these calls have arrived, or are not wanted."""

    call_ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class SentTogether:
    """To be sent: calls, one at least."""

    calls: Sequence[Sent]


ToHost = SentTogether | Cancelled | Acknowledgements


@dataclass(frozen=True, slots=True)
class _Ended:
    """For the journal. `key`: of a secret tool."""

    call: Call
    answer: Answer | None
    seconds: float
    key: bytes | None


class HostStream:
    """One host's stream: what is to be sent on it."""

    def __init__(self, number: int, calls: Calls, most_together: int = 1) -> None:
        self.number = number
        self.news = asyncio.Event()
        self._calls = calls
        # Calls in one message.
        self._most = most_together
        # No caller waits for an acknowledgement: they are sent together.
        self._acknowledged: list[str] = []
        self._is_due = self._is_over = False

    def stop(self) -> None:
        """The host stops serving: acknowledgements are all that it is still sent."""
        self._is_over = True
        self.news.set()

    async def next(self) -> ToHost | None:
        """Waits for the next message to the host; None: it has stopped. Raises ReplacedError."""
        while True:
            if self._calls.stream != self.number:
                raise ReplacedError("cannot go on with serving tools: another client serves them now")
            message = self._calls.take(self.number)
            if isinstance(message, Acknowledged):
                self._acknowledge(message.call_id)
            elif message is not None and not self._is_over:
                return self._together(message) if isinstance(message, Sent) else message
            is_last = message is None and self._is_over
            if self._acknowledged and (self._is_due or is_last or len(self._acknowledged) >= MOST_ACKNOWLEDGED):
                together, self._acknowledged, self._is_due = self._acknowledged, [], False
                return Acknowledgements(together)
            if is_last:
                return None
            if message is None:
                self.news.clear()
                await self.news.wait()

    def _together(self, first: Sent) -> SentTogether:
        found, size = [first], first.call.arguments.size
        while len(found) < self._most and size < MOST_BYTES_TOGETHER:
            another = self._calls.take_call(self.number)
            if another is None:
                break
            found.append(another)
            size += another.call.arguments.size
        return SentTogether(found)

    def _acknowledge(self, call_id: str) -> None:
        if not self._acknowledged:
            asyncio.get_running_loop().call_later(ACKNOWLEDGE_SECONDS, self._end_waiting)
        self._acknowledged.append(call_id)

    def _end_waiting(self) -> None:
        self._is_due = bool(self._acknowledged)
        self.news.set()


class ToolBroker:
    """Of one sandbox. Without the contract `brokered` it has no callers."""

    def __init__(
        self,
        *,
        brokered: bool,
        clock: Callable[[], float] = time.monotonic,
        put: bodies.Put = bodies.unrecorded,
        count: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`put` writes a record of the journal, `count` takes the end of each call in a word."""
        self.brokered, self._put, self._count = brokered, put, count
        self._clock = clock
        self._calls = Calls()
        # For a person who decides: the deadline of an execution does not count it.
        self._waits = Waits()
        # Key → who calls with it. A key is as good as the sandbox's own memory: its code may share it.
        self._callers: dict[str, Caller] = {}
        self._keys: dict[Caller, str] = {}
        # Those that have called: the end of any other has nothing to end, and costs next to nothing.
        self._have_called: set[Caller] = set()
        self._waiting: dict[str, asyncio.Future[Answer]] = {}
        self._streams = 0
        self._host: HostStream | None = None
        self._lines: Lines | None = None
        self._socket_name = ""
        self._timer: asyncio.TimerHandle | None = None
        # Of secret values the journal has digests with it. It is known to this process alone.
        self._journal_key = secrets.token_bytes(KEY_BYTES)
        # Calls that have ended: the code has its answer first, then the journal its record.
        self._unrecorded: list[_Ended] = []
        # The session's code has read no answers for too long.
        self._is_stuck = False

    # The session's side

    def listen(self, listener: socket.socket) -> None:
        """Takes the calls of a new session namespace, in the place of an earlier one. Owns the socket."""
        self.close()
        self._socket_name = listener.getsockname()[1:].decode()
        self._lines = Lines(listener, self)

    def environment(self, caller: Caller) -> Mapping[str, str]:
        """The variables by which the caller's code finds the broker."""
        if not self.brokered:
            return {}
        key = self._keys.get(caller)
        if key is None:
            key = self._keys[caller] = secrets.token_hex(KEY_BYTES)
            self._callers[key] = caller
        return {VARIABLE: f"{self._socket_name}:{key}"}

    def end(self, caller: Caller) -> None:
        """The caller has ended: its key is good for nothing any more, and its calls are cancelled."""
        key = self._keys.pop(caller, None)
        if key is not None:
            del self._callers[key]
        if caller in self._have_called:
            self._have_called.discard(caller)
            self.record()
            self._answered(self._calls.end(caller))
            self._waits.forget(caller)
            self._tell()

    def waited(self, caller: Caller) -> float:
        """Seconds that the caller's calls have waited for a person, so far."""
        return self._waits.of(caller, self._clock())

    def tools(self) -> Mapping[str, Tool]:
        """Those that can be called now."""
        return self._calls.tools

    async def call(self, key: str, tool: str, arguments: Value) -> Answer:
        """Calls a tool of the host. A cancellation cancels the call there."""
        caller = self._callers.get(key)
        if caller is None:
            message = f"cannot call {tool[:80]}: no execution that is running calls it"
            return Failure(Kind.UNAVAILABLE, "ExecutionEnded", message)
        self._have_called.add(caller)
        call, began = Call(secrets.token_hex(16), tool, arguments, caller), self._clock()
        offered = self._calls.tools.get(tool)
        key_of_secret = self._journal_key if offered is None or offered.secret else None
        answer: Answer | None = None
        try:
            answer = await self._answer_to(call)
        finally:
            self._count(_end_of(answer))
            self._unrecorded.append(_Ended(call, answer, self._clock() - began, key_of_secret))
            if isinstance(answer, Value) and answer.size > MOST_HELD_FOR_RECORD:
                self.record()
        return answer

    def record(self) -> None:
        """Writes the records of the calls that have ended."""
        while self._unrecorded:
            ended = self._unrecorded.pop(0)
            self._put("tool_call", bodies.tool_call(ended.call, ended.answer, ended.seconds, ended.key))

    async def _answer_to(self, call: Call) -> Answer:
        if (failure := self._calls.ask(call)) is not None:
            return failure
        waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[call.id] = waiting
        self._tell()
        try:
            return await waiting
        finally:
            self._waits.end(call.id, self._clock())
            # Where the answer has come, this does nothing.
            del self._waiting[call.id]
            self._calls.withdraw(call.id)
            self._tell()

    # The host's side

    def connect(
        self, host: str, tools: Mapping[str, Tool], *, takes_many: bool = False
    ) -> tuple[HostStream, tuple[str, ...]]:
        """A host's stream begins; also the calls that it is to answer. Raises NotBrokeredError.

        `takes_many`: calls in one message.
        """
        if not self.brokered:
            why = "the sandbox has not the contract brokered; create it with tools=…, or with contract='brokered'"
            raise NotBrokeredError(f"cannot serve tools: {why}")
        self._streams += 1
        before, self._host = self._host, HostStream(self._streams, self._calls, MOST_TOGETHER if takes_many else 1)
        self._answered(self._calls.connect(self._streams, host, tools))
        if before:
            before.news.set()
        self._set_timer()
        return self._host, self._calls.outstanding

    def disconnect(self, stream: HostStream, *, broken: bool) -> None:
        """It has ended. `broken`: not as its host wanted."""
        self._answered(self._calls.disconnect(stream.number, self._clock(), broken=broken))
        self._set_timer()

    def review(self, stream: HostStream, call_id: str, *, over: bool) -> None:
        """A person decides about a call, or has decided."""
        caller = self._calls.caller_of(stream.number, call_id)
        if over:
            self._waits.end(call_id, self._clock())
        elif caller is not None:
            self._waits.begin(call_id, caller, self._clock())

    async def answer(self, stream: HostStream, call_id: str, answer: Answer) -> None:
        """The host's answer to a call. Waits while the session's code reads too little of earlier ones."""
        if isinstance(answer, Value) and not await self._has_room():
            why = f"the code has not read {MAX_UNREAD} bytes of other results for {UNREAD_SECONDS:g} s"
            answer = Failure(Kind.DENIED, "TooManyBytes", f"cannot take the result: {why}")
        found = self._calls.answer(stream.number, call_id, answer)
        self._answered([found] if found else [])
        self._tell()

    async def _has_room(self) -> bool:
        if self._lines is None or not self._lines.unread.is_full:
            self._is_stuck = False
            return True
        if self._is_stuck:
            return False
        try:
            async with asyncio.timeout(UNREAD_SECONDS):
                await self._lines.unread.some()
        except TimeoutError:
            self._is_stuck = True
        return not self._is_stuck

    def close(self) -> None:
        """Takes no calls any more."""
        if self._lines:
            self._lines.close()
            self._lines = None

    def _tell(self) -> None:
        if self._host:
            self._host.news.set()

    def _answered(self, answers: list[Answered]) -> None:
        for call_id, answer in answers:
            waiting = self._waiting.get(call_id)
            if waiting and not waiting.done():
                waiting.set_result(answer)

    def _set_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if (due := self._calls.due) is not None:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, due - self._clock()), self._expire)

    def _expire(self) -> None:
        self._answered(self._calls.expire(self._clock()))
        self._set_timer()


def _end_of(answer: Answer | None) -> str:
    if answer is None:
        return "cancelled"
    return answer.kind.value if isinstance(answer, Failure) else "ok"
