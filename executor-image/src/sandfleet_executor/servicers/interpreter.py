"""InterpreterService."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from sandfleet_api.executor.v1 import common_pb2, interpreter_pb2_grpc
from sandfleet_api.executor.v1 import interpreter_pb2 as pb

from sandfleet_executor.core import requests
from sandfleet_executor.core.contexts import looks
from sandfleet_executor.core.contexts.states import check_bounds, check_seconds
from sandfleet_executor.core.errors import BadRequest, BusyError
from sandfleet_executor.core.executions.outcomes import Cause
from sandfleet_executor.core.executions.records import CELL
from sandfleet_executor.core.requests import DEFAULT_CONTEXT
from sandfleet_executor.effects.contexts.context import Context
from sandfleet_executor.effects.contexts.interpreter_slot import ContextSpec
from sandfleet_executor.effects.contexts.queue import CellRequest
from sandfleet_executor.effects.contexts.state_store import NAMED
from sandfleet_executor.effects.executions.execution import Execution
from sandfleet_executor.effects.executions.inputs import InputNotAskedError
from sandfleet_executor.effects.session.session import Session
from sandfleet_executor.servicers.convert import common as convert
from sandfleet_executor.servicers.convert import contexts, subjects
from sandfleet_executor.servicers.tables import TableMethods
from sandfleet_executor.worker import languages
from sandfleet_executor.worker.base.frames import Frame

EXECUTE = "InterpreterService/Execute"
INTERRUPT_GRACE = 2.0
# Completions and inspections at once: each is a process for a moment.
MAX_LOOKS = 8


class InterpreterService(TableMethods, interpreter_pb2_grpc.InterpreterServiceServicer):
    def __init__(self, session: Session) -> None:
        self._session = session
        # Completions and inspections under way.
        self._looking = 0

    async def CreateContext(self, request: pb.CreateContextRequest, context: Any) -> pb.CreateContextResponse:
        language = requests.check_language(request.language, languages.find, languages.NAMES)
        requests.check_id("context id", request.context_id)
        cwd = requests.check_cwd(request.cwd.encode(), self._session.workdir).decode()
        envs = self._session.environment(requests.check_envs(request.envs))
        persistence = contexts.persistence(request, resume=request.resume)
        made = await self._session.contexts.create(ContextSpec(request.context_id, cwd, envs, language, persistence))
        answer = contexts.restored("", made.resumed) if made.resumed else None
        return pb.CreateContextResponse(context=describe(made), resumed=answer)

    async def ListContexts(self, request: pb.ListContextsRequest, context: Any) -> pb.ListContextsResponse:
        return pb.ListContextsResponse(contexts=map(describe, self._session.contexts.all()))

    async def Execute(self, request: pb.ExecuteRequest, context: Any) -> AsyncIterator[pb.ExecuteResponse]:
        requests.check_id("execution id", request.execution_id)
        mark = convert.fingerprint(request)
        stream = self._session.executions.repeated(CELL, request.execution_id, mark)
        stream = stream or self._begin(request, mark, context)
        async for events in convert.streamed(stream):
            yield pb.ExecuteResponse(events=events)

    def _begin(self, request: pb.ExecuteRequest, fingerprint: bytes, context: Any) -> Execution:
        session, limits = self._session, self._session.limits
        cell = CellRequest(
            code=requests.check_code(request.code),
            timeout=requests.check_timeout(convert.seconds(request, "timeout"), limits),
            envs=requests.check_envs(request.envs),
            traceparent=convert.traceparent(context),
            memory_limit=limits.memory_bytes,
            disk_limit=limits.disk_bytes,
            takes_input=request.takes_input,
            rows=requests.check_rows(request.max_rows),
            rolls_back=request.on_failure == pb.ON_FAILURE_ROLLBACK,
            persistence=contexts.persistence(request, resume=True),
            subject=subjects.of_execution(EXECUTE, request, context) if session.reviews.required else None,
        )
        output_limit = requests.check_output_limit(request.output_limit_bytes, limits)
        context_id = request.context_id or DEFAULT_CONTEXT
        if request.language:
            wished = requests.check_language(request.language, languages.find, languages.NAMES, doing="run code in")
            requests.check_same_language(wished, context_id, session.contexts.language(context_id))
        return session.execute(
            context_id, lambda: session.register(CELL, request.execution_id, fingerprint, output_limit), cell
        )

    async def Attach(
        self, request: pb.InterpreterServiceAttachRequest, context: Any
    ) -> AsyncIterator[pb.InterpreterServiceAttachResponse]:
        stream = self._session.executions.find(CELL, request.execution_id)
        async for events in convert.streamed(stream, request.after_sequence, request.seen_bytes):
            yield pb.InterpreterServiceAttachResponse(events=events)

    async def Interrupt(self, request: pb.InterruptRequest, context: Any) -> pb.InterruptResponse:
        grace = convert.seconds(request, "grace")
        found = self._session.contexts.find(request.context_id or DEFAULT_CONTEXT)
        grace = INTERRUPT_GRACE if grace is None else grace
        return pb.InterruptResponse(interrupted=found.stop(Cause.INTERRUPT, grace, request.execution_id))

    async def AnswerInput(self, request: pb.AnswerInputRequest, context: Any) -> pb.AnswerInputResponse:
        if request.WhichOneof("answer") is None:
            raise BadRequest("cannot answer: there is neither a text nor a refusal")
        text = requests.check_input(request.text) if request.HasField("text") else None
        cell = self._session.executions.find(CELL, request.execution_id)
        if not isinstance(cell, Execution) or cell.inputs is None:
            raise InputNotAskedError(f"cannot answer: execution {request.execution_id} does not run")
        password = cell.inputs.answer(request.input_id, text)
        if text is not None and not password:
            cell.recording.sent(f"{text}\n".encode())
        return pb.AnswerInputResponse()

    async def ForkContext(self, request: pb.ForkContextRequest, context: Any) -> pb.ForkContextResponse:
        ids = requests.check_new_contexts(request.new_context_ids)
        made = await self._session.contexts.fork(request.context_id or DEFAULT_CONTEXT, ids)
        return pb.ForkContextResponse(contexts=map(describe, made))

    async def RestartContext(self, request: pb.RestartContextRequest, context: Any) -> pb.RestartContextResponse:
        found = await self._session.contexts.restart(request.context_id or DEFAULT_CONTEXT)
        return pb.RestartContextResponse(context=describe(found))

    async def DeleteContext(self, request: pb.DeleteContextRequest, context: Any) -> pb.DeleteContextResponse:
        await self._session.delete_context(request.context_id or DEFAULT_CONTEXT)
        return pb.DeleteContextResponse()

    async def Complete(self, request: pb.CompleteRequest, context: Any) -> pb.CompleteResponse:
        asked = looks.check(looks.COMPLETE, request.code, cursor_of(request), convert.seconds(request, "timeout"))
        found = looks.completion((await self._look(request.context_id, asked)).header, asked)
        return pb.CompleteResponse(
            matches=found.matches, cursor_start=found.start, cursor_end=found.end, omitted=found.omitted
        )

    async def Inspect(self, request: pb.InspectRequest, context: Any) -> pb.InspectResponse:
        seconds = convert.seconds(request, "timeout")
        asked = looks.check(looks.INSPECT, request.code, cursor_of(request), seconds, request.detail_level)
        answer = await self._look(request.context_id, asked)
        found = looks.inspection(answer.header, answer.payload)
        shown = [common_pb2.MimePart(mime_type="text/plain", data=found.text.encode())] if found.found else []
        return pb.InspectResponse(found=found.found, parts=shown)

    async def _look(self, context_id: str, asked: looks.Look) -> Frame:
        if self._looking >= MAX_LOOKS:
            raise BusyError(f"cannot {asked.kind}: {MAX_LOOKS} requests are being answered")
        self._looking += 1
        try:
            self._session.touch()
            return await self._session.contexts.find_or_default(context_id or DEFAULT_CONTEXT).looks.look(asked)
        finally:
            self._looking -= 1

    async def SaveState(self, request: pb.SaveStateRequest, context: Any) -> pb.SaveStateResponse:
        found = self._session.contexts.find(request.context_id or DEFAULT_CONTEXT)
        name = requests.check_id("the name of a state", request.name or found.id)
        bounds = check_bounds(request.max_bytes, request.max_variable_bytes, convert.seconds(request, "timeout"))
        return contexts.saved(name, await found.save(name, bounds))

    async def RestoreState(self, request: pb.RestoreStateRequest, context: Any) -> pb.RestoreStateResponse:
        found = self._session.contexts.find_or_default(request.context_id or DEFAULT_CONTEXT)
        name = requests.check_id("the name of a state", request.name or found.id)
        seconds = check_seconds(convert.seconds(request, "timeout"))
        return contexts.restored(name, await found.restore(name, seconds))

    async def ListStates(self, request: pb.ListStatesRequest, context: Any) -> pb.ListStatesResponse:
        found = await asyncio.to_thread(lambda: list(self._session.states.list()))
        return pb.ListStatesResponse(states=[contexts.state(name, manifest) for name, manifest in found])

    async def DeleteState(self, request: pb.DeleteStateRequest, context: Any) -> pb.DeleteStateResponse:
        name = requests.check_id("the name of a state", request.name)
        await asyncio.to_thread(self._session.states.delete, NAMED, name)
        return pb.DeleteStateResponse()


def cursor_of(request: pb.CompleteRequest | pb.InspectRequest) -> int | None:
    """Characters before the cursor; None is the end of the code."""
    return request.cursor_pos if request.HasField("cursor_pos") else None


def describe(context: Context) -> pb.Context:
    state = pb.CONTEXT_STATE_IDLE
    if not context.alive:
        state = pb.CONTEXT_STATE_ENDED
    if context.busy:
        state = pb.CONTEXT_STATE_BUSY
    return pb.Context(
        context_id=context.id,
        language=context.spec.language,
        state=state,
        generation=context.generation,
        executions=context.executions,
        copied_cell=context.copied_cell,
        autosaved=contexts.automatic(context.variables),
        cwd=context.spec.cwd,
    )
