"""InterpreterService."""

from collections.abc import AsyncIterator
from typing import Any

from sandfleet_api.executor.v1 import interpreter_pb2 as pb
from sandfleet_api.executor.v1 import interpreter_pb2_grpc

from sandfleet_executor.core import requests
from sandfleet_executor.core.outcomes import Cause
from sandfleet_executor.core.requests import DEFAULT_CONTEXT
from sandfleet_executor.effects.contexts import CellRequest, Context
from sandfleet_executor.effects.session import Session
from sandfleet_executor.servicers import convert
from sandfleet_executor.servicers.convert import typed_failures
from sandfleet_executor.worker.languages import LANGUAGES

INTERRUPT_GRACE = 2.0


class InterpreterService(interpreter_pb2_grpc.InterpreterServiceServicer):
    def __init__(self, session: Session) -> None:
        self._session = session

    async def CreateContext(self, request: pb.CreateContextRequest, context: Any) -> pb.CreateContextResponse:
        with typed_failures(request.context_id):
            requests.check_id("context id", request.context_id)
            language = requests.check_language(request.language, LANGUAGES)
            cwd = requests.check_cwd(request.cwd.encode(), self._session.workdir).decode()
            made = await self._session.create_context(
                request.context_id, cwd, requests.check_envs(request.envs), language
            )
        return pb.CreateContextResponse(context=describe(made))

    async def ListContexts(self, request: pb.ListContextsRequest, context: Any) -> pb.ListContextsResponse:
        return pb.ListContextsResponse(contexts=map(describe, self._session.contexts()))

    async def Execute(self, request: pb.ExecuteRequest, context: Any) -> AsyncIterator[pb.ExecuteResponse]:
        session, limits = self._session, self._session.limits
        with typed_failures(request.execution_id):
            execution_id = requests.check_id("execution id", request.execution_id)
            cell = CellRequest(
                code=requests.check_code(request.code),
                timeout=requests.check_timeout(convert.seconds(request, "timeout"), limits),
                envs=requests.check_envs(request.envs),
                traceparent=convert.traceparent(context),
                memory_limit=limits.memory_bytes,
            )
            output_limit = requests.check_output_limit(request.output_limit_bytes, limits)
            context_id = request.context_id or DEFAULT_CONTEXT
            execution = session.execute(context_id, lambda: session.register(execution_id, output_limit), cell)
        async for batch in execution.batches():
            yield pb.ExecuteResponse(events=[convert.event(number, event) for number, event in batch])

    async def Interrupt(self, request: pb.InterruptRequest, context: Any) -> pb.InterruptResponse:
        grace = convert.seconds(request, "grace")
        with typed_failures(request.context_id):
            found = self._session.context(request.context_id or DEFAULT_CONTEXT)
        grace = INTERRUPT_GRACE if grace is None else grace
        return pb.InterruptResponse(interrupted=found.stop(Cause.INTERRUPT, grace, request.execution_id))

    async def RestartContext(self, request: pb.RestartContextRequest, context: Any) -> pb.RestartContextResponse:
        with typed_failures(request.context_id):
            found = await self._session.restart_context(request.context_id or DEFAULT_CONTEXT)
        return pb.RestartContextResponse(context=describe(found))

    async def DeleteContext(self, request: pb.DeleteContextRequest, context: Any) -> pb.DeleteContextResponse:
        await self._session.delete_context(request.context_id or DEFAULT_CONTEXT)
        return pb.DeleteContextResponse()


def describe(context: Context) -> pb.Context:
    state = pb.CONTEXT_STATE_IDLE
    if not context.alive:
        state = pb.CONTEXT_STATE_ENDED
    if context.busy:
        state = pb.CONTEXT_STATE_BUSY
    return pb.Context(
        context_id=context.id,
        language=context.language,
        state=state,
        generation=context.generation,
        executions=context.executions,
    )
