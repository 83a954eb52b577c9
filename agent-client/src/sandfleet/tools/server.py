"""Serves tools of this process to the code in a sandbox."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from sandfleet_rules.tool_values import READS_TABLES

from sandfleet._wire import api
from sandfleet._wire.link import receive
from sandfleet._wire.retry import Backoff
from sandfleet._wire.status import to_error
from sandfleet.errors import ProtocolError, SandfleetError
from sandfleet.observe import tracing
from sandfleet.tools import convert
from sandfleet.tools.approval import Approval
from sandfleet.tools.budget import charged
from sandfleet.tools.calls_file import Kept, NoFile
from sandfleet.tools.flow import Flow
from sandfleet.tools.ledger import MAX_CALLS, Answer, Failure, Kind, Ledger, Received, Reply, Run, Stop, denied
from sandfleet.tools.outbox import Outbox
from sandfleet.tools.sources import CallFailed
from sandfleet.tools.threads import ToolThreads
from sandfleet.tools.values import MAX_VALUE, decode, encode

if TYPE_CHECKING:
    from sandfleet._wire.link import Connection, Link
    from sandfleet.tools.sources import OpenTools
    from sandfleet.values.tools import Decision, Tool, ToolPolicy

# Tools that are no coroutines run in threads; more of them wait.
MOST_THREADS = 64
_BACKOFF = Backoff(0.05, 5.0, chance=None)
# How long the end of the stream may take at `close`, in seconds.
_END = 2.0
_log = logging.getLogger("sandfleet")


class AsyncToolServer:
    """Tools of this process that code in one sandbox calls, until `close`.

    The stream to the sandbox is opened again when it breaks: no call is lost or runs twice then. A server that is
    opened later, by any process, takes the place of this one.
    """

    def __init__(
        self,
        link: Link,
        offered: OpenTools,
        policy: ToolPolicy | None,
        on_ask: ToolPolicy | None,
        keeping: tuple[NoFile, Kept],
    ) -> None:
        """Use `sandbox.serve_tools`."""
        self._file, kept = keeping
        self._link = link
        self._offered = offered
        self._ledger = Ledger({tool.name: tool for tool in offered.tools}, kept.calls, kept.used, kept.callers)
        self._flow = Flow(lambda marks: link.fleet.note_received(link.sandbox_id, marks), offered.tools)
        self._threads = ToolThreads(MOST_THREADS)
        self._approval = Approval(link.sandbox_id, (policy, on_ask), self._flow, self._reviewed, self._threads)
        # Ids of calls about which a person decides.
        self._reviewing: set[str] = set()
        self._host_id = kept.host_id
        self._working: dict[str, asyncio.Task[None]] = {}
        self._outbox = Outbox()
        self._stream: Any = None
        self._problem: SandfleetError | None = None
        self._closing = False
        self._serving: asyncio.Task[None] | None = None

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that are offered."""
        return self._offered.tools

    @property
    def calls(self) -> dict[str, int]:
        """How many calls of each tool have run or are running."""
        return dict(self._ledger.ran)

    @property
    def received(self) -> frozenset[str]:
        """What this host knows that the session has received: "untrusted", "secret"."""
        return self._flow.received

    @property
    def serving(self) -> bool:
        """Whether calls are answered, or will be when the stream is open again."""
        return self._serving is not None and not self._serving.done()

    @property
    def problem(self) -> SandfleetError | None:
        """Why it has stopped serving; None while it serves, and after `close`. Another server: reason Replaced."""
        return self._problem

    async def begin(self) -> None:
        """Offer the tools; the code can call them when this returns. Raises PreconditionFailed, SandboxEnded, …"""
        try:
            await self._flow.begin()
            await self._open()
        except BaseException:  # A cancellation too: no MCP server outlives it.
            await self.close()
            raise
        with tracing.apart():
            self._serving = asyncio.ensure_future(self._serve())
        self._offered.changed = self._offer_anew

    def _offer_anew(self) -> None:
        """The tools have changed: a new stream brings the new offer. Calls that run go on."""
        self._ledger.offer({tool.name: tool for tool in self.tools})
        if self._stream is not None:
            self._stream.cancel()

    async def close(self) -> None:
        """Stop serving: running calls are cancelled, and the code gets ToolUnavailable. Closing twice is no error."""
        self._closing = True
        if self._serving is not None:
            await self._end(self._serving)
            self._serving.cancel()
            await asyncio.gather(self._serving, return_exceptions=True)
        left = list(self._working.values())
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self._outbox.close()
        self._threads.close()
        await self._file.close()
        await self._offered.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # The stream

    async def _open(self) -> None:
        """Open a stream, in the place of one that broke. Raises SandfleetError."""
        offer = api.tools.ServeRequest(offer=convert.offer(self._offered.tools, self._host_id))

        async def attempt(connection: Connection) -> tuple[Any, Any]:
            # The stubs expect the requests here; they are written to the call instead.
            stream: Any = connection.tools.Serve(None, metadata=connection.metadata())
            try:
                async with asyncio.timeout(self._link.rpc_timeout):
                    await stream.write(offer)
                    return stream, await receive(stream)
            except BaseException:  # Also a cancellation: no other code can cancel the stream.
                stream.cancel()
                raise

        stream, first = await self._link.run(attempt, resend=True)
        if first is None or first.WhichOneof("message") != "ready":
            stream.cancel()
            raise ProtocolError("cannot serve tools: the executor does not say that it is ready", reason="NotReady")
        self._stream = stream
        self._outbox.use(stream, takes_many=first.ready.takes_many)
        outstanding = set(first.ready.outstanding)
        self._file.forget_others(outstanding)
        self._stop(self._ledger.resume(outstanding))
        for call_id in self._reviewing:
            self._outbox.tell(convert.review(call_id, over=False))

    async def _serve(self) -> None:
        """Until the sandbox ends, or another server takes the place of this one."""
        failures = 0
        while True:
            try:
                if self._stream is None:
                    await self._open()
                    failures = 0
                await self._carry()
            except SandfleetError as error:
                if not error.retryable:
                    self._problem = error
                    self._stop([Stop(call_id) for call_id in list(self._working)])
            if self._stream is not None:
                self._stream.cancel()
                self._stream = None
                self._outbox.use(None, takes_many=False)
            if self._closing or self._problem is not None:
                return
            await asyncio.sleep(_BACKOFF.after(failures))
            failures += 1

    async def _carry(self) -> None:
        """Take what comes on the stream. Raises SandfleetError; returns where the connection broke."""
        try:
            while (message := await receive(self._stream)) is not None:
                self._take(message)
                # An executor that reads no answers gets no further with its calls.
                if len(self._outbox.waiting) > MAX_CALLS:
                    await self._outbox.written()
        except asyncio.CancelledError:
            # A read of a stream that `_offer_anew` has cancelled; this task goes on.
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
        except api.aio.AioRpcError as error:
            if error.code().name in {"UNAVAILABLE", "CANCELLED", "UNAUTHENTICATED", "INTERNAL", "UNKNOWN"}:
                return
            raise to_error(error, "serve tools") from error

    def _take(self, message: api.tools.ServeResponse) -> None:
        match message.WhichOneof("message"):
            case "call":
                for call in (message.call, *convert.checked(message.more_calls)):
                    self._act(self._ledger.receive(convert.received(call)))
            case "cancel":
                self._file.forget(message.cancel.call_id, unless_running=False)
                self._act(self._ledger.cancel(message.cancel.call_id))
            case "acknowledged":
                for call_id in message.acknowledged.call_ids:
                    self._file.forget(call_id, unless_running=True)
                    self._ledger.acknowledge(call_id)

    def _act(self, action: Run | Reply | Stop | None) -> None:
        match action:
            case Run(call, tool):
                task = self._working[call.id] = asyncio.ensure_future(self._run(call, tool))
                task.add_done_callback(lambda task: self._ended(call.id, tool, task))
            case Reply(call_id, answer):
                self._outbox.tell(api.tools.ServeRequest(answer=convert.answer(call_id, answer)))
            case Stop():
                self._stop([action])

    def _ended(self, call_id: str, tool: Tool, task: asyncio.Task[None]) -> None:
        self._ledger.ended(tool.name)
        # A call that was cancelled may have come again in the meantime.
        if self._working.get(call_id) is task:
            del self._working[call_id]

    def _stop(self, stops: Sequence[Stop]) -> None:
        for each in stops:
            if (task := self._working.get(each.call_id)) is not None:
                task.cancel()

    async def _end(self, serving: asyncio.Task[None]) -> None:
        """Tell the executor that no host is to be waited for, and wait until it has ended the stream."""
        stream = self._stream
        if stream is None or serving.done():
            return
        with suppress(api.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError):
            async with asyncio.timeout(_END):
                self._outbox.tell(api.tools.ServeRequest(end=api.tools.ServeEnd()))
                await self._outbox.written()
                # A read that was cancelled would cancel the stream, and with it what was written.
                await asyncio.wait((serving,))

    # One call

    async def _run(self, call: Received, tool: Tool) -> None:
        with tracing.host_tool(tool.name, call.execution_id) as span:
            answer = await self._answer(call, tool)
            if isinstance(answer, Failure):
                span.fail(answer.reason)
        await self._file.finished(call.id, answer)
        self._act(self._ledger.finish(call.id, answer))

    async def _answer(self, call: Received, tool: Tool) -> Answer:
        """Run the tool. Nothing that the tool or the policy raises comes out of this."""
        try:
            arguments = decode(call.arguments)
            if not isinstance(arguments, dict):
                raise TypeError("the arguments are no object")  # noqa: TRY301  the code's mistake, as all others here
            reads_tables = arguments.pop(READS_TABLES, False) is True
            bound = dict(tool.bind(arguments))
        except Exception as error:  # noqa: BLE001  a check of arguments may raise anything
            return denied(tool.name, "InvalidArguments", str(error))
        refusal = await self._approval.refusal(call, tool, arguments, self._ledger.ran) or charged(
            self._ledger, tool, bound
        )
        if refusal is not None:
            return refusal
        try:
            await self._file.begun(call, self._ledger.used(tool.name), self._ledger.of_caller(call))
        except OSError as error:
            return Failure(Kind.UNAVAILABLE, "NotKept", f"cannot call {tool.name}: the host {error}")
        return await self._flow.given(tool, await self._result(tool, bound, as_tables=reads_tables))

    async def _result(self, tool: Tool, arguments: dict[str, Any], *, as_tables: bool) -> Answer:
        try:
            async with asyncio.timeout(tool.limits.timeout):
                result = await self._called(tool, arguments)
        except CallFailed as error:
            return error.failure
        except TimeoutError as error:
            return _timed_out(tool, error)
        except Exception as error:  # noqa: BLE001  what a tool raises is the answer
            # The code in the sandbox gets the message; where it was raised is for its developer.
            _log.info("tool %s has failed in sandbox %s", tool.name, self._link.sandbox_id, exc_info=True)
            return Failure(Kind.ERROR, type(error).__name__, f"{tool.name} has failed: {error}")
        return _encoded(tool, result, as_tables=as_tables)

    async def _reviewed(self, call: Received, shown: bytes, why: str) -> Decision:
        """Ask the session's reviewers; meanwhile the deadline of the code that calls stands still."""
        about = api.fleet.ReviewCallRequest(
            sandbox_id=self._link.sandbox_id,
            tool=call.tool,
            arguments=shown,
            execution_id=call.execution_id,
            context_id=call.context_id,
            service=call.service,
            why=why,
            call_id=call.id,
        )
        self._reviewing.add(call.id)
        try:
            self._outbox.tell(convert.review(call.id, over=False))
            return await self._link.fleet.review_call(about)
        finally:
            self._reviewing.discard(call.id)
            self._outbox.tell(convert.review(call.id, over=True))

    async def _called(self, tool: Tool, arguments: dict[str, Any]) -> Any:
        if inspect.iscoroutinefunction(tool.function):
            return await tool.function(**arguments)
        # A function that blocks must hold up neither the stream nor other tools.
        counted = (partial(self._ledger.begun, tool.name), partial(self._ledger.ended, tool.name))
        result = await self._threads.run(partial(tool.function, **arguments), *counted)
        return await result if inspect.isawaitable(result) else result


def _timed_out(tool: Tool, error: TimeoutError) -> Failure:
    """The time was over, or the tool raised the same exception itself."""
    if error.args:
        return Failure(Kind.ERROR, "TimeoutError", f"{tool.name} has failed: {error}")
    return Failure(Kind.TIMEOUT, "Timeout", f"{tool.name} has not ended within {tool.limits.timeout:g} s")


def _encoded(tool: Tool, result: Any, *, as_tables: bool) -> Answer:
    try:
        wire = encode(result, as_tables=as_tables)
    except (TypeError, ValueError, RecursionError) as error:
        return Failure(Kind.ERROR, "BadResult", f"{tool.name} has failed: {error}")
    if wire.size > (most := min(tool.limits.result_bytes, MAX_VALUE)):
        why = f"its result has {wire.size} bytes, and the most is {most}"
        return Failure(Kind.DENIED, "ResultTooLarge", f"{tool.name} has run, but {why}")
    return wire
