"""Cells and contexts."""

from __future__ import annotations

import asyncio
import inspect
import os
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from sandfleet._wire import api
from sandfleet._wire.convert import common as convert
from sandfleet._wire.convert import variables as convert_variables
from sandfleet._wire.events import Asked, EventCollector, Piece
from sandfleet._wire.inputs import LATER, Inputs
from sandfleet._wire.link import Link
from sandfleet._wire.stream import CELLS, EVERYTHING, ExecutionStream
from sandfleet.errors import AlreadyExistsError, InvalidArgument, NotFoundError, SandfleetError
from sandfleet.observe import tracing
from sandfleet.observe.intent import intent
from sandfleet.resources import looks
from sandfleet.values.execution import (
    Cleared,
    CommandOutput,
    Completion,
    Context,
    Execution,
    Inspection,
    Logs,
    OnClear,
    OnFailure,
    OnInput,
    OnResult,
    OnText,
    Result,
    Stream,
)
from sandfleet.values.options import CodeOptions, ContextOptions, ListenOptions, LookOptions
from sandfleet.values.variables import Autosave, StateRestored, brought_back

DEFAULT_CONTEXT = "default"
# Listed from the start; those of other languages are there once a cell has used them.
_DEFAULTS = {DEFAULT_CONTEXT: "python", f"{DEFAULT_CONTEXT}-javascript": "javascript"}
_SHORT = {"py": "python", "sh": "bash", "js": "javascript", "ts": "typescript"}
_INTERRUPT_GRACE = 2.0
_ON_FAILURE = {
    OnFailure.KEEP: api.interpreter.ON_FAILURE_KEEP,
    OnFailure.ROLLBACK: api.interpreter.ON_FAILURE_ROLLBACK,
}


def language_of(word: str | None) -> str | None:
    """Return the language that a word means, which may be short for it."""
    return _SHORT.get(word, word) if word else word


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
    takes_input: bool = False
    rows: int = 0

    @classmethod
    def of(cls, code: str, options: CodeOptions) -> Self:
        """Fill in what the options leave out. Raises ValueError for an unknown `on_failure`."""
        language, context = language_of(options.get("language")), options.get("context")
        name = context_name(context) if context is not None else ""
        if language is None and name in _DEFAULTS:
            # A default context is made by its first cell, whether that names it or not.
            language = None if name == DEFAULT_CONTEXT else _DEFAULTS[name]
            context = None
        return cls(
            code,
            language=language,
            context=context,
            timeout=options.get("timeout"),
            envs=dict(options.get("envs") or {}),
            output_limit=options.get("output_limit"),
            execution_id=options.get("execution_id") or os.urandom(16).hex(),
            on_failure=OnFailure(options.get("on_failure", OnFailure.KEEP)),
            takes_input=options.get("on_input") is not None,
            rows=options.get("rows", 0),
        )

    @property
    def context_id(self) -> str:
        """The context to run in: each language has a default context of its own."""
        if self.context is not None:
            return context_name(self.context)
        return DEFAULT_CONTEXT if self.language in (None, "", "python") else f"{DEFAULT_CONTEXT}-{self.language}"


@dataclass(frozen=True, slots=True)
class Listeners:
    """Callbacks for output and results as they come."""

    on_stdout: OnText | None = None
    on_stderr: OnText | None = None
    on_result: OnResult | None = None
    on_clear: OnClear | None = None
    on_input: OnInput | None = None

    @classmethod
    def of(cls, options: ListenOptions) -> Self:
        """Take the callbacks out of the options."""
        return cls(
            options.get("on_stdout"),
            options.get("on_stderr"),
            options.get("on_result"),
            options.get("on_clear"),
            options.get("on_input"),
        )

    async def follow(self, link: Link, stream: ExecutionStream, *, later: bool = False) -> None:
        """Call the listeners until the execution ends; `later`: it may have begun before. Raises what they raise."""
        inputs = Inputs(link, stream.collector.execution_id, self.on_input, LATER if later else 0.0)
        try:
            async for piece in stream.pieces():
                if isinstance(piece, Asked):
                    inputs.take(piece)
                else:
                    await self.tell(piece)
        finally:
            await inputs.close()

    async def tell(self, piece: Piece) -> None:
        """Call the listener of a piece, and await it if it returns an awaitable."""
        answer: object = None
        if isinstance(piece, CommandOutput):
            listener = self.on_stdout if piece.stream is Stream.STDOUT else self.on_stderr
            if listener is not None and piece.text:
                answer = listener(piece.text)
        elif isinstance(piece, Cleared):
            answer = self.on_clear(piece) if self.on_clear is not None else None
        elif isinstance(piece, Result) and self.on_result is not None:
            answer = self.on_result(piece)
        if inspect.isawaitable(answer):
            await answer


@dataclass(frozen=True, slots=True)
class _Made:
    """A context that this client created, to create it again after its executor was replaced."""

    request: api.interpreter.CreateContextRequest
    uid: str


class Interpreter:
    """The contexts of one sandbox."""

    def __init__(self, link: Link, autosave: bool | Autosave = False) -> None:
        self._link = link
        # Of each Python context that is created without an `autosave` of its own.
        self.autosave = Autosave.of(autosave)
        self._made: dict[str, _Made] = {}
        # The executor's incarnation that each context was used with last, to tell what a new one has lost.
        self._used: dict[str, str] = {}
        # The last known cell of each context.
        self._cells: dict[str, int] = {}

    async def run(self, code: str, options: CodeOptions) -> Execution:
        """Run one cell."""
        cell, listeners = Cell.of(code, options), Listeners.of(options)
        name, attributes = tracing.tool("run_code", cell.execution_id, self._link.sandbox_id, self._link.uid)
        with tracing.call(name, attributes) as span:
            with intent(options.get("intent")):
                stream = await self._open(cell)
            try:
                await listeners.follow(self._link, stream)
            finally:
                if stream.running:
                    self._give_up(cell)
            brought = await self._brought_back(cell.context_id, stream)
            execution = self._conclude(cell.context_id, stream, brought)
            span.conclude(code, execution, stream.collector.spans)
            return execution

    async def attach(self, execution_id: str, options: ListenOptions) -> Execution:
        """Follow a cell that this or another client started."""
        listeners = Listeners.of(options)
        name, attributes = tracing.tool("attach", execution_id, self._link.sandbox_id, self._link.uid)
        with tracing.call(name, attributes) as span:
            stream = ExecutionStream(self._link, EventCollector(execution_id), None, CELLS)
            await stream.attach()
            await listeners.follow(self._link, stream, later=True)
            started = stream.collector.started
            execution = self._conclude(started.context_id if started else "", stream, None)
            span.conclude("", execution, stream.collector.spans)
            return execution

    async def _open(self, cell: Cell) -> ExecutionStream:
        # The executor itself makes the default context of Python, in the workspace.
        if cell.context is None and cell.context_id not in ("" if self._link.cwd else DEFAULT_CONTEXT, *self._made):
            await self._ensure(self._default(cell))
        autosave = convert_variables.autosave(self.autosave) if cell.context_id == DEFAULT_CONTEXT else None
        request = api.interpreter.ExecuteRequest(
            execution_id=cell.execution_id,
            context_id=cell.context_id,
            code=cell.code,
            timeout=convert.seconds(cell.timeout),
            output_limit_bytes=cell.output_limit or 0,
            envs=cell.envs,
            on_failure=_ON_FAILURE[cell.on_failure],
            autosave=autosave,
            language=cell.language or "",
            takes_input=cell.takes_input,
            max_rows=cell.rows,
        )
        collector = EventCollector(cell.execution_id, output_limit=cell.output_limit)
        stream = ExecutionStream(self._link, collector, cell.timeout, CELLS)
        try:
            await stream.open(request)
        except asyncio.CancelledError:
            # It may still be queued.
            self._give_up(cell)
            raise
        except NotFoundError:
            made = self._made.get(cell.context_id)
            if made is None or made.uid == self._link.uid:
                raise
            # The executor was replaced: create the context again, with its name, cwd and environment.
            await self._ensure(made.request)
            await stream.open(request)
        return stream

    def _default(self, cell: Cell) -> api.interpreter.CreateContextRequest:
        autosave = convert_variables.autosave(self.autosave) if cell.context_id == DEFAULT_CONTEXT else None
        return api.interpreter.CreateContextRequest(
            context_id=cell.context_id, language=cell.language, cwd=self._link.cwd, autosave=autosave
        )

    def _give_up(self, cell: Cell) -> None:
        """Interrupt the cell by its id: it may have ended meanwhile, and the next cell must not be interrupted."""
        self._link.spawn(self.interrupt(cell.context_id, grace=_INTERRUPT_GRACE, execution_id=cell.execution_id))

    async def _ensure(
        self, request: api.interpreter.CreateContextRequest
    ) -> api.interpreter.CreateContextResponse | None:
        answer = None
        with suppress(AlreadyExistsError):
            answer = await self._link.unary(lambda c: c.interpreter.CreateContext, request, idempotent=True)
        self._made[request.context_id] = _Made(recreate_request(request), self._link.uid)
        return answer

    async def resume(self, context_id: str) -> StateRestored | None:
        """Create a context again after a replacement, with the variables of its newest automatic save."""
        made = self._made.get(context_id)
        if made is not None:
            request = made.request
        elif self.autosave and context_id == DEFAULT_CONTEXT:
            request = api.interpreter.CreateContextRequest(
                context_id=context_id, autosave=convert_variables.autosave(self.autosave), resume=True
            )
        else:
            return None
        answer = await self._ensure(request)
        return convert_variables.restored(answer.resumed) if answer and answer.HasField("resumed") else None

    async def _brought_back(self, context_id: str, stream: ExecutionStream) -> StateRestored | None:
        """Restore the variables after an execution that was lost with its executor."""
        if not stream.lost_executor or stream.uid == self._link.uid:
            return None
        with suppress(SandfleetError):
            return await self.resume(context_id)
        return None

    def _conclude(self, context_id: str, stream: ExecutionStream, brought: StateRestored | None) -> Execution:
        collector = stream.collector
        ending, started = collector.ending, collector.started or api.common.ExecutionStarted()
        assert ending is not None
        used_before = self._used.get(context_id, stream.uid)
        replaced: tuple[str, ...] = EVERYTHING if used_before != stream.uid else ()
        last, lost_at_end, restored = self._cells.get(context_id, 0), ending.lost, ""
        if started.HasField("resumed"):
            replaced = _but_variables(replaced, started.resumed.cell_number, last) if replaced else ()
            restored = brought_back(started.resumed.variables, started.resumed.cell_number)
        if brought is not None:
            lost_at_end = (*_but_variables(lost_at_end, brought.state.cell_number, last), *brought.lost)
            restored = brought.words
        self._cells[context_id] = started.cell_number or last
        # The next execution need not report again that the executor is new.
        self._used[context_id] = self._link.uid
        said = ending.message
        return Execution(
            execution_id=collector.execution_id,
            outcome=ending.outcome,
            blame=convert.blame(said.blame, ending.outcome),
            reason=said.reason,
            message=said.message,
            results=collector.results.shown,
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
            denied_hosts=convert.denied_hosts(said),
        )

    async def create(self, context_id: str | None, options: ContextOptions) -> Context:
        """Start a context."""
        wish = options.get("autosave")
        request = api.interpreter.CreateContextRequest(
            context_id=context_id or f"c-{uuid.uuid4().hex[:12]}",
            language=language_of(options.get("language", "python")),
            cwd=options.get("cwd") or self._link.cwd,
            envs=dict(options.get("envs") or {}),
            autosave=convert_variables.autosave(self.autosave if wish is None else Autosave.of(wish)),
        )
        answer = await self._link.unary(lambda c: c.interpreter.CreateContext, request)
        self._made[request.context_id] = _Made(recreate_request(request), self._link.uid)
        return convert.context(answer.context)

    async def fork(self, context: str | Context, count: int, context_ids: Sequence[str] | None) -> tuple[Context, ...]:
        """Copy a context."""
        ids = list(context_ids) if context_ids is not None else [f"f-{uuid.uuid4().hex[:12]}" for _ in range(count)]
        if len(ids) != count:
            raise InvalidArgument(f"cannot fork {count} contexts: {len(ids)} ids are given", reason="InvalidArgument")
        request = api.interpreter.ForkContextRequest(context_id=context_name(context), new_context_ids=ids)
        answer = await self._link.unary(lambda c: c.interpreter.ForkContext, request)
        return tuple(convert.context(message) for message in answer.contexts[:count])

    async def complete(self, code: str, cursor_pos: int | None, options: LookOptions) -> Completion:
        """Complete code."""
        return await looks.complete(self._link, _of(options), code, cursor_pos, options)

    async def inspect(self, code: str, cursor_pos: int | None, options: LookOptions) -> Inspection:
        """Describe an object."""
        return await looks.inspect(self._link, _of(options), code, cursor_pos, options)

    async def contexts(self) -> tuple[Context, ...]:
        """List the contexts, with those of Python and JavaScript that their first cell makes."""
        request, described = api.interpreter.ListContextsRequest(), api.session.DescribeRequest()
        answer, session = await asyncio.gather(
            self._link.unary(lambda c: c.interpreter.ListContexts, request, idempotent=True),
            self._link.unary(lambda c: c.session.Describe, described, idempotent=True),
        )
        found = {message.context_id: convert.context(message) for message in answer.contexts}
        cwd = self._link.cwd or "/workspace"
        first = {
            context_id: Context(context_id, language, "idle", generation=0, executions=0, cwd=cwd)
            for context_id, language in _DEFAULTS.items()
            if language in ("python", *session.languages)
        }
        return tuple({**first, **found}.values())

    async def restart(self, context: str | Context) -> Context:
        """Start a new interpreter in a context."""
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
        """Interrupt the running cell of a context, or only the given execution."""
        request = api.interpreter.InterruptRequest(
            context_id=context_name(context), grace=convert.seconds(grace), execution_id=execution_id
        )
        answer = await self._link.unary(
            lambda c: c.interpreter.Interrupt, request, timeout=self._link.rpc_timeout + grace
        )
        return answer.interrupted


def recreate_request(request: api.interpreter.CreateContextRequest) -> api.interpreter.CreateContextRequest:
    """Return the request that makes the same context on another executor."""
    again = api.interpreter.CreateContextRequest()
    again.CopyFrom(request)
    again.resume = request.HasField("autosave")
    return again


def _but_variables(lost: tuple[str, ...], saved_at: int, last_cell: int) -> tuple[str, ...]:
    """Return what is lost although the variables of a cell were restored."""
    since = (f"variables since cell {saved_at}",) if saved_at < last_cell else ()
    return (*since, *(word for word in lost if word != "variables"))


def _of(options: LookOptions) -> str:
    return context_name(options.get("context") or DEFAULT_CONTEXT)


def context_name(context: str | Context) -> str:
    """Return the id of a context."""
    return context.context_id if isinstance(context, Context) else context
