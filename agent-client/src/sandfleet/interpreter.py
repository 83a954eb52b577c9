"""Cells and contexts."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sandfleet import _api as api
from sandfleet import _convert as convert
from sandfleet import telemetry
from sandfleet.collect import Collector, Piece
from sandfleet.errors import AlreadyExistsError, InvalidArgument, NotFoundError
from sandfleet.follow import CELLS, EVERYTHING, Follower
from sandfleet.rollback import OnFailure
from sandfleet.transport import Link
from sandfleet.values import CommandOutput, Context, Execution, Logs, OnResult, OnText, Stream

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

    def __init__(self, link: Link) -> None:
        self._link = link
        self._made: dict[str, _Made] = {}
        # In which incarnation of the executor each context was used last, to say what a new one has lost.
        self._used: dict[str, str] = {}

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
                    # By its id: it may have ended meanwhile, and the next one is not meant.
                    meant = self.interrupt(cell.context_id, grace=_INTERRUPT_GRACE, execution_id=cell.execution_id)
                    self._link.spawn(meant)
            execution = self._conclude(cell.context_id, follower)
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
            execution = self._conclude(started.context_id if started else "", follower)
            span.conclude(execution.outcome, execution.reason, follower.collector.spans)
            return execution

    async def _open(self, cell: Cell) -> Follower:
        if cell.context is None and cell.context_id not in (DEFAULT_CONTEXT, *self._made):
            await self._ensure(api.interpreter.CreateContextRequest(context_id=cell.context_id, language=cell.language))
        request = api.interpreter.ExecuteRequest(
            execution_id=cell.execution_id,
            context_id=cell.context_id,
            code=cell.code,
            timeout=convert.seconds(cell.timeout),
            output_limit_bytes=cell.output_limit or 0,
            envs=cell.envs,
            on_failure=_ON_FAILURE[cell.on_failure],
        )
        collector = Collector(cell.execution_id, output_limit=cell.output_limit)
        follower = Follower(self._link, collector, cell.timeout, CELLS)
        try:
            await follower.open(request)
        except NotFoundError:
            made = self._made.get(cell.context_id)
            if made is None or made.uid == self._link.uid:
                raise
            # The executor was replaced since; a context with its name, cwd and environment is what the caller means.
            await self._ensure(made.request)
            await follower.open(request)
        return follower

    async def _ensure(self, request: api.interpreter.CreateContextRequest) -> None:
        with suppress(AlreadyExistsError):
            await self._link.unary(lambda c: c.interpreter.CreateContext, request, idempotent=True)
        self._made[request.context_id] = _Made(request, self._link.uid)

    def _conclude(self, context_id: str, follower: Follower) -> Execution:
        collector = follower.collector
        ending, started = collector.ending, collector.started or api.common.ExecutionStarted()
        assert ending is not None
        used_before = self._used.get(context_id, follower.uid)
        replaced = EVERYTHING if used_before != follower.uid else ()
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
            lost=convert.lost(replaced, started.lost, ending.lost),
            context=context_id,
            cell_number=started.cell_number,
            exit_code=said.exit_code,
            signal=said.signal,
            leftover_processes_killed=said.leftover_processes_killed,
            rollback=convert.rollback(said),
            not_stored=said.not_stored,
        )

    async def create(
        self, context_id: str | None, *, language: str, cwd: str, envs: Mapping[str, str] | None
    ) -> Context:
        """Start a context."""
        request = api.interpreter.CreateContextRequest(
            context_id=context_id or f"c-{uuid.uuid4().hex[:12]}", language=language, cwd=cwd, envs=dict(envs or {})
        )
        answer = await self._link.unary(lambda c: c.interpreter.CreateContext, request)
        self._made[request.context_id] = _Made(request, self._link.uid)
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


def context_name(context: str | Context) -> str:
    """Return the id of a context."""
    return context.context_id if isinstance(context, Context) else context
