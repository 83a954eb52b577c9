"""Cells and contexts."""

from __future__ import annotations

import asyncio
import inspect
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sandfleet import _api as api
from sandfleet import _convert as convert
from sandfleet import _convert_states as convert_states
from sandfleet import telemetry
from sandfleet.collect import Collector, Piece
from sandfleet.errors import AlreadyExistsError, InvalidArgument, NotFoundError, SandfleetError
from sandfleet.follow import CELLS, EVERYTHING, Follower
from sandfleet.rollback import OnFailure
from sandfleet.state_values import Autosave, StateRestored, brought_back
from sandfleet.transport import Link
from sandfleet.values import CommandOutput, Context, Execution, Logs, OnResult, OnText, Outcome, Stream

DEFAULT_CONTEXT = "default"
_INTERRUPT_GRACE = 2.0
_ON_FAILURE = {
    OnFailure.KEEP: api.interpreter.ON_FAILURE_KEEP,
    OnFailure.ROLLBACK: api.interpreter.ON_FAILURE_ROLLBACK,
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell to run."""

    code: str
    language: str | None
    context: str | Context | None
    timeout: float | None
    envs: Mapping[str, str]
    output_limit: int | None
    execution_id: str
    on_failure: OnFailure = OnFailure.KEEP

    @property
    def context_id(self) -> str:
        """Where to run it: each language has a default context of its own."""
        if self.context is not None:
            return context_name(self.context)
        return DEFAULT_CONTEXT if self.language in (None, "", "python") else f"{DEFAULT_CONTEXT}-{self.language}"


@dataclass(frozen=True, slots=True)
class Listeners:
    """Who hears of output and results as they come."""

    on_stdout: OnText | None = None
    on_stderr: OnText | None = None
    on_result: OnResult | None = None

    async def tell(self, piece: Piece) -> None:
        """Pass a piece on, and wait where the listener answers with an awaitable."""
        answer: object = None
        if isinstance(piece, CommandOutput):
            listener = self.on_stdout if piece.stream is Stream.STDOUT else self.on_stderr
            if listener is not None and piece.text:
                answer = listener(piece.text)
        elif self.on_result is not None:
            answer = self.on_result(piece)
        if inspect.isawaitable(answer):
            await answer


@dataclass(frozen=True, slots=True)
class _Made:
    """A context that this client made, to be made again where its executor was replaced."""

    request: api.interpreter.CreateContextRequest
    uid: str


class Interpreter:
    """The contexts of one sandbox."""

    def __init__(self, link: Link, autosave: bool | Autosave = False) -> None:
        self._link = link
        # Of each Python context that is made without another wish.
        self.autosave = Autosave.of(autosave)
        self._made: dict[str, _Made] = {}
        # In which incarnation of the executor each context was used last, to say what a new one has lost.
        self._used: dict[str, str] = {}
        # The last cell of each that is known.
        self._cells: dict[str, int] = {}

    async def run(self, cell: Cell, listeners: Listeners) -> Execution:
        """Run one cell."""
        name, attributes = telemetry.tool("run_code", cell.execution_id, self._link.sandbox_id, self._link.uid)
        with telemetry.call(name, attributes) as span:
            follower = await self._open(cell)
            try:
                async for piece in follower.pieces():
                    await listeners.tell(piece)
            finally:
                if follower.running:
                    self._give_up(cell)
            brought = await self._brought_back(cell.context_id, follower)
            execution = self._conclude(cell.context_id, follower, brought)
            span.conclude(execution.outcome, execution.reason, follower.collector.spans)
            return execution

    async def attach(self, execution_id: str, listeners: Listeners) -> Execution:
        """Follow a cell that somebody began."""
        name, attributes = telemetry.tool("attach", execution_id, self._link.sandbox_id, self._link.uid)
        with telemetry.call(name, attributes) as span:
            follower = Follower(self._link, Collector(execution_id), None, CELLS)
            await follower.attach()
            async for piece in follower.pieces():
                await listeners.tell(piece)
            started = follower.collector.started
            execution = self._conclude(started.context_id if started else "", follower, None)
            span.conclude(execution.outcome, execution.reason, follower.collector.spans)
            return execution

    async def _open(self, cell: Cell) -> Follower:
        if cell.context is None and cell.context_id not in (DEFAULT_CONTEXT, *self._made):
            await self._ensure(api.interpreter.CreateContextRequest(context_id=cell.context_id, language=cell.language))
        autosave = convert_states.autosave(self.autosave) if cell.context_id == DEFAULT_CONTEXT else None
        request = api.interpreter.ExecuteRequest(
            execution_id=cell.execution_id,
            context_id=cell.context_id,
            code=cell.code,
            timeout=convert.seconds(cell.timeout),
            output_limit_bytes=cell.output_limit or 0,
            envs=cell.envs,
            on_failure=_ON_FAILURE[cell.on_failure],
            autosave=autosave,
        )
        collector = Collector(cell.execution_id, output_limit=cell.output_limit)
        follower = Follower(self._link, collector, cell.timeout, CELLS)
        try:
            await follower.open(request)
        except asyncio.CancelledError:
            # It may be waiting for its turn.
            self._give_up(cell)
            raise
        except NotFoundError:
            made = self._made.get(cell.context_id)
            if made is None or made.uid == self._link.uid:
                raise
            # The executor was replaced since; a context with its name, cwd and environment is what the caller means.
            await self._ensure(made.request)
            await follower.open(request)
        return follower

    def _give_up(self, cell: Cell) -> None:
        """By its id: it may have ended meanwhile, and the next one is not meant."""
        self._link.spawn(self.interrupt(cell.context_id, grace=_INTERRUPT_GRACE, execution_id=cell.execution_id))

    async def _ensure(
        self, request: api.interpreter.CreateContextRequest
    ) -> api.interpreter.CreateContextResponse | None:
        answer = None
        with suppress(AlreadyExistsError):
            answer = await self._link.unary(lambda c: c.interpreter.CreateContext, request, idempotent=True)
        self._made[request.context_id] = _Made(_again(request), self._link.uid)
        return answer

    async def resume(self, context_id: str) -> StateRestored | None:
        """Make a context again after a replacement, with what its newest automatic save has."""
        made = self._made.get(context_id)
        if made is not None:
            request = made.request
        elif self.autosave and context_id == DEFAULT_CONTEXT:
            request = api.interpreter.CreateContextRequest(
                context_id=context_id, autosave=convert_states.autosave(self.autosave), resume=True
            )
        else:
            return None
        answer = await self._ensure(request)
        return convert_states.restored(answer.resumed) if answer and answer.HasField("resumed") else None

    async def _brought_back(self, context_id: str, follower: Follower) -> StateRestored | None:
        """What is there again of the variables of an execution that was lost with its executor."""
        ending = follower.collector.ending
        if ending is None or ending.outcome is not Outcome.LOST or follower.uid == self._link.uid:
            return None
        with suppress(SandfleetError):
            return await self.resume(context_id)
        return None

    def _conclude(self, context_id: str, follower: Follower, brought: StateRestored | None) -> Execution:
        collector = follower.collector
        ending, started = collector.ending, collector.started or api.common.ExecutionStarted()
        assert ending is not None
        used_before = self._used.get(context_id, follower.uid)
        replaced: tuple[str, ...] = EVERYTHING if used_before != follower.uid else ()
        last, lost_at_end, restored = self._cells.get(context_id, 0), ending.lost, ""
        if started.HasField("resumed"):
            replaced = _but_variables(replaced, started.resumed.cell_number, last) if replaced else ()
            restored = brought_back(started.resumed.variables, started.resumed.cell_number)
        if brought is not None:
            lost_at_end = (*_but_variables(lost_at_end, brought.state.cell_number, last), *brought.lost)
            restored = brought.words
        self._cells[context_id] = started.cell_number or last
        # What a lost execution says about the new executor needs not be said again.
        self._used[context_id] = self._link.uid
        said = ending.message
        return Execution(
            execution_id=collector.execution_id,
            outcome=ending.outcome,
            blame=convert.blame(said.blame, ending.outcome),
            reason=said.reason,
            message=said.message,
            results=tuple(collector.results),
            logs=Logs(collector.outputs[Stream.STDOUT].text, collector.outputs[Stream.STDERR].text, collector.gaps),
            error=collector.error,
            usage=convert.usage(said.usage),
            files=convert.changes(said.files),
            lost=convert.lost(replaced, started.lost, lost_at_end),
            restored=restored,
            context=context_id,
            cell_number=started.cell_number,
            exit_code=said.exit_code,
            signal=said.signal,
            leftover_processes_killed=said.leftover_processes_killed,
            rollback=convert.rollback(said),
            not_stored=said.not_stored,
            notices=convert.notices(started),
        )

    async def create(
        self,
        context_id: str | None,
        *,
        language: str,
        cwd: str,
        envs: Mapping[str, str] | None,
        autosave: bool | Autosave | None,
    ) -> Context:
        """Start a context."""
        wish = self.autosave if autosave is None else Autosave.of(autosave)
        request = api.interpreter.CreateContextRequest(
            context_id=context_id or f"c-{uuid.uuid4().hex[:12]}",
            language=language,
            cwd=cwd,
            envs=dict(envs or {}),
            autosave=convert_states.autosave(wish),
        )
        answer = await self._link.unary(lambda c: c.interpreter.CreateContext, request)
        self._made[request.context_id] = _Made(_again(request), self._link.uid)
        return convert.context(answer.context)

    async def fork(self, context: str | Context, count: int, context_ids: Sequence[str] | None) -> tuple[Context, ...]:
        """Copy a context."""
        ids = list(context_ids) if context_ids is not None else [f"f-{uuid.uuid4().hex[:12]}" for _ in range(count)]
        if len(ids) != count:
            raise InvalidArgument(f"cannot fork {count} contexts: {len(ids)} ids are given", reason="InvalidArgument")
        request = api.interpreter.ForkContextRequest(context_id=context_name(context), new_context_ids=ids)
        answer = await self._link.unary(lambda c: c.interpreter.ForkContext, request)
        return tuple(convert.context(message) for message in answer.contexts[:count])

    async def contexts(self) -> tuple[Context, ...]:
        """List the contexts."""
        request = api.interpreter.ListContextsRequest()
        answer = await self._link.unary(lambda c: c.interpreter.ListContexts, request, idempotent=True)
        return tuple(convert.context(message) for message in answer.contexts)

    async def restart(self, context: str | Context) -> Context:
        """Start a context afresh."""
        request = api.interpreter.RestartContextRequest(context_id=context_name(context))
        answer = await self._link.unary(lambda c: c.interpreter.RestartContext, request)
        return convert.context(answer.context)

    async def delete(self, context: str | Context) -> None:
        """End a context."""
        context_id = context_name(context)
        self._made.pop(context_id, None)
        self._used.pop(context_id, None)
        request = api.interpreter.DeleteContextRequest(context_id=context_id)
        await self._link.unary(lambda c: c.interpreter.DeleteContext, request, idempotent=True)

    async def interrupt(self, context: str | Context, *, grace: float, execution_id: str = "") -> bool:
        """Interrupt what runs in a context, or only the one execution."""
        request = api.interpreter.InterruptRequest(
            context_id=context_name(context), grace=convert.seconds(grace), execution_id=execution_id
        )
        answer = await self._link.unary(
            lambda c: c.interpreter.Interrupt, request, timeout=self._link.rpc_timeout + grace
        )
        return answer.interrupted


def _again(request: api.interpreter.CreateContextRequest) -> api.interpreter.CreateContextRequest:
    """Return the request that makes the same context on another executor."""
    again = api.interpreter.CreateContextRequest()
    again.CopyFrom(request)
    again.resume = request.HasField("autosave")
    return again


def _but_variables(lost: tuple[str, ...], saved_at: int, last_cell: int) -> tuple[str, ...]:
    """Return what is lost although the variables of a cell are there again."""
    since = (f"variables since cell {saved_at}",) if saved_at < last_cell else ()
    return (*since, *(word for word in lost if word != "variables"))


def context_name(context: str | Context) -> str:
    """Return the id of a context."""
    return context.context_id if isinstance(context, Context) else context
