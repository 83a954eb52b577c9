"""ProcessService."""

import asyncio
import signal
from collections.abc import AsyncIterator
from typing import Any

import grpc
from sandfleet_api.executor.v1 import process_pb2 as pb
from sandfleet_api.executor.v1 import process_pb2_grpc

from sandfleet_executor.core import requests
from sandfleet_executor.core.errors import BadRequest
from sandfleet_executor.core.executions.outcomes import Cause
from sandfleet_executor.core.executions.records import COMMAND
from sandfleet_executor.effects.commands.command import CommandRequest, InputClosedError, NoTerminalError
from sandfleet_executor.effects.executions.execution import Execution
from sandfleet_executor.effects.session.session import Session
from sandfleet_executor.servicers.convert import common as convert
from sandfleet_executor.servicers.convert import journal, subjects
from sandfleet_executor.servicers.errors import ApiError

START = "ProcessService/Start"
MAX_INPUT_BYTES = 1 << 20
SHOWN_ARGV_BYTES = 4096


class ProcessService(process_pb2_grpc.ProcessServiceServicer):
    def __init__(self, session: Session) -> None:
        self._session = session

    async def Start(self, request: pb.StartRequest, context: Any) -> AsyncIterator[pb.StartResponse]:
        requests.check_id("execution id", request.execution_id)
        mark = convert.fingerprint(request)
        stream = self._session.executions.repeated(COMMAND, request.execution_id, mark)
        stream = stream or self._begin(request, mark, context)
        async for events in convert.streamed(stream):
            yield pb.StartResponse(events=events)

    def _begin(self, request: pb.StartRequest, fingerprint: bytes, context: Any) -> Execution:
        session, limits = self._session, self._session.limits
        terminal, envs = convert_terminal(request)
        command = CommandRequest(
            payload=requests.command_payload(request.argv, request.shell),
            shell=bool(request.shell),
            cwd=requests.check_cwd(request.cwd, session.workdir),
            envs=session.environment(envs | requests.check_envs(request.envs)),
            open_stdin=request.open_stdin,
            merge_output=request.merge_output,
            timeout=requests.check_timeout(convert.seconds(request, "timeout"), limits),
            traceparent=convert.traceparent(context),
            memory_limit=limits.memory_bytes,
            disk_limit=limits.disk_bytes,
            terminal=terminal,
            subject=subjects.of_execution(START, request, context) if session.reviews.required else None,
        )
        output_limit = (
            requests.NO_OUTPUT_LIMIT if terminal else requests.check_output_limit(request.output_limit_bytes, limits)
        )
        execution = session.register(COMMAND, request.execution_id, fingerprint, output_limit)
        execution.recording.note(**journal.command_asked(request, command.cwd, command.timeout))
        session.start_command(execution, command)
        return execution

    async def Attach(
        self, request: pb.ProcessServiceAttachRequest, context: Any
    ) -> AsyncIterator[pb.ProcessServiceAttachResponse]:
        stream = self._session.executions.find(COMMAND, request.execution_id)
        async for events in convert.streamed(stream, request.after_sequence, request.seen_bytes):
            yield pb.ProcessServiceAttachResponse(events=events)

    async def SendInput(self, request: pb.SendInputRequest, context: Any) -> pb.SendInputResponse:
        if len(request.data) > MAX_INPUT_BYTES:
            raise BadRequest(f"cannot send {len(request.data)} bytes of input at once: the most is {MAX_INPUT_BYTES}")
        command = self._session.command(request.execution_id)
        try:
            await command.send_input(request.data)
            command.execution.recording.sent(request.data)
        except InputClosedError as error:
            message = f"cannot send input to {request.execution_id}: its standard input is closed"
            raise ApiError(grpc.StatusCode.FAILED_PRECONDITION, "InputClosed", message) from error
        return pb.SendInputResponse()

    async def CloseInput(self, request: pb.CloseInputRequest, context: Any) -> pb.CloseInputResponse:
        command = self._session.command(request.execution_id)
        if command.request.terminal:
            message = (
                f"cannot close the input of {request.execution_id}: a terminal's has no end, send the byte 4 (Ctrl-D)"
            )
            raise ApiError(grpc.StatusCode.FAILED_PRECONDITION, "IsTerminal", message)
        command.close_input()
        return pb.CloseInputResponse()

    async def Signal(self, request: pb.SignalRequest, context: Any) -> pb.SignalResponse:
        if request.signal not in signal.valid_signals():
            raise BadRequest(f"cannot send signal {request.signal}: there is no such signal")
        command = self._session.command(request.execution_id)
        command.execution.recording.signalled(request.signal)
        if request.signal == signal.SIGKILL:
            command.execution.stop(Cause.INTERRUPT, 0)
        else:
            command.signal(request.signal)
        return pb.SignalResponse()

    async def Resize(self, request: pb.ResizeRequest, context: Any) -> pb.ResizeResponse:
        size = requests.check_size(request.rows, request.cols)
        command = self._session.command(request.execution_id)
        try:
            await command.resize(*size)
        except NoTerminalError as error:
            message = f"cannot resize {request.execution_id}: it has no terminal"
            raise ApiError(grpc.StatusCode.FAILED_PRECONDITION, "NoTerminal", message) from error
        return pb.ResizeResponse()

    async def List(self, request: pb.ListRequest, context: Any) -> pb.ListResponse:
        commands = self._session.commands()
        # A program that is starting is waited for a moment: for all of them at once.
        pids = await asyncio.gather(*(command.pid() for command in commands))
        listed = [
            pb.RunningCommand(
                execution_id=command.execution.id,
                argv=shown_argv(command.request),
                started=convert.timestamp(int(command.request.started * 1e9)),
                pid=pid,
            )
            for command, pid in zip(commands, pids, strict=True)
        ]
        return pb.ListResponse(commands=listed)


def convert_terminal(request: pb.StartRequest) -> tuple[tuple[int, int] | None, dict[str, str]]:
    """(size of the terminal or None, variables for it). Raises BadRequest."""
    if not request.HasField("pty"):
        return None, {}
    if request.output_limit_bytes:
        raise BadRequest("cannot limit the output of a terminal: what is followed as it comes has no limit")
    rows, cols = requests.DEFAULT_TERMINAL
    size = requests.check_size(request.pty.rows or rows, request.pty.cols or cols)
    return size, {"TERM": requests.check_term(request.pty.term)}


def shown_argv(request: CommandRequest) -> list[bytes]:
    """The program and its arguments, cut."""
    shown = request.payload[:SHOWN_ARGV_BYTES]
    return [b"/bin/bash", b"-c", shown] if request.shell else shown.split(b"\0")
