"""A fleet with scripted sandboxes in this process, to test how a program reacts to answers, lies and failures.

    async with FakeFleet() as fake:
        fake.answer("1 + 1", output("two"), finished())
        sandbox = await AsyncSandbox.create(fleet=await AsyncFleet.connect(fake.address))
        assert (await sandbox.run_code("1 + 1")).logs.stdout == "two"

It runs no code: the test scripts what the code does. `Fails`, `Breaks` and `Hangs` in a script are failures.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from time import time
from types import TracebackType
from typing import Any, Self

import grpc
from google.protobuf.message_factory import GetMessageClass
from sandfleet_api.executor.v1 import common_pb2, filesystem_pb2, interpreter_pb2, process_pb2, service_pb2, session_pb2
from sandfleet_api.fleet.v1 import fleet_pb2

Event = common_pb2.ExecutionEvent


@dataclass(frozen=True)
class Fails:
    """The call fails; with a reason, it has the detail of the error contract.

    `retry_after`: it may be made again after so many seconds.
    """

    code: grpc.StatusCode
    reason: str = ""
    message: str = ""
    retry_after: float | None = None


@dataclass(frozen=True)
class Breaks:
    """The executor is gone, as if killed. If `replaced`, the fleet has a new one ready. It says `reason` of its end."""

    replaced: bool = True
    reason: str = ""


@dataclass(frozen=True)
class Hangs:
    """No more events come."""


@dataclass(frozen=True)
class Call:
    """One received call."""

    method: str
    request: Any
    metadata: dict[str, str | bytes]


# Bytes are sent as they are, in place of a message.
Step = Event | Fails | Breaks | Hangs | bytes


def started(**fields: Any) -> Event:
    """Make the first event; the fake fills in a missing id."""
    return Event(started=common_pb2.ExecutionStarted(**fields))


def output(data: str | bytes, *, stderr: bool = False) -> Event:
    """Make an event of output."""
    stream = common_pb2.STREAM_STDERR if stderr else common_pb2.STREAM_STDOUT
    return Event(output=common_pb2.OutputChunk(stream=stream, data=data.encode() if isinstance(data, str) else data))


def gap(dropped_bytes: int, *, events: int = 0) -> Event:
    """Make an event that says how much standard output is missing."""
    missing = common_pb2.OutputGap(stream=common_pb2.STREAM_STDOUT, dropped_bytes=dropped_bytes, dropped_events=events)
    return Event(gap=missing)


def result(mime_type: str, data: bytes, *, main: bool = True, display_id: str = "", update: bool = False) -> Event:
    """Make an event of a result; `update` replaces those of its display id."""
    part = common_pb2.MimePart(mime_type=mime_type, data=data)
    return Event(result=common_pb2.Result(parts=[part], is_main_result=main, display_id=display_id, is_update=update))


def cleared(*, wait: bool = False) -> Event:
    """Make an event of cleared output."""
    return Event(cleared=common_pb2.OutputCleared(wait=wait))


def finished(outcome: Any = common_pb2.OUTCOME_OK, **fields: Any) -> Event:
    """Make the last event."""
    return Event(finished=common_pb2.ExecutionFinished(outcome=outcome, **fields))


def queued(position: int, reason: str = "", eta: int | None = None, **fields: Any) -> fleet_pb2.ClaimResponse:
    """Make an event of a queued claim; `eta` in seconds."""
    news = fleet_pb2.Queued(position=position, reason=reason, **fields)
    if eta is not None:
        news.eta.FromSeconds(eta)
    return fleet_pb2.ClaimResponse(queued=news)


class FakeFleet:
    """A fleet with one sandbox, whose executors answer as scripted. `calls` has the received calls.

    With `credentials` it serves by TLS on a port of this machine, as the fleet of a cluster does; its executors do not.
    """

    def __init__(self, credentials: grpc.ServerCredentials | None = None, *, sandbox_id: str = "s-1") -> None:
        self.sandbox_id = sandbox_id
        self._credentials = credentials
        self._fleet_server: grpc.aio.Server | None = None
        self._answers: dict[str, list[tuple[Any, ...]]] = {}
        self.calls: list[Call] = []
        # Methods whose caller went away before they had ended.
        self.left: list[str] = []
        self.files: dict[bytes, bytes] = {}
        # What the executors were asked to run: id → incarnation, text.
        self.begun: dict[str, tuple[int, str]] = {}
        self.uid = 1
        # Why each executor before the present one has ended.
        self.ends: list[str] = []
        self.ended = False
        self.token_life = 3600.0
        # Where the fleet serves.
        self.address = ""
        self._scripts: dict[str, tuple[Step, ...]] = {}
        self._failures: dict[str, list[Fails | Hangs]] = {}
        self._dir = tempfile.TemporaryDirectory(prefix="sf-")
        self._servers: list[grpc.aio.Server] = []
        self._stopping: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self.address = f"unix:{self._dir.name}/fleet.sock"
        await self._serve_fleet()
        await self._serve_executor()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in [*self._servers, self._fleet_server]:
            if server is not None:
                await server.stop(None)
        await asyncio.gather(*self._stopping)
        self._dir.cleanup()

    @property
    def executor_address(self) -> str:
        """Where the present executor serves."""
        return f"unix:{self._dir.name}/{self.uid}.sock"

    def answer(self, code: str, *steps: Step) -> None:
        """Script the events after `started` of a cell or command with this text; they are numbered."""
        self._scripts[code] = (started(), *steps)

    def answer_exactly(self, code: str, *steps: Step) -> None:
        """Script all events of a cell or command, `started` and numbers included."""
        self._scripts[code] = steps

    def fail(self, method: str, *failures: Fails | Hangs) -> None:
        """Let the next calls of a method ("Execute", "Get") fail or hang, one after the other."""
        self._failures.setdefault(method, []).extend(failures)

    def answer_call(self, method: str, *steps: Any) -> None:
        """Script the next answer of a method of the fleet or of services: messages, and failures between them."""
        self._answers.setdefault(method, []).append(steps)

    def next_answer(self, method: str) -> tuple[Any, ...] | None:
        """Return the scripted answer of this call, if there is one."""
        waiting = self._answers.get(method)
        return waiting.pop(0) if waiting else None

    def bound(self, **fields: Any) -> fleet_pb2.ClaimResponse:
        """Make the end of a claim."""
        return fleet_pb2.ClaimResponse(bound=fleet_pb2.Bound(**self.open(), **fields))

    def open(self) -> dict[str, Any]:
        """Describe the sandbox, with access to it."""
        sandbox = fleet_pb2.Sandbox(
            sandbox_id=self.sandbox_id,
            sandbox_uid=f"u-{self.uid}",
            isolation=session_pb2.ISOLATION_NAMESPACE,
            restarts=len(self.ends),
            last_restart_reason=self.ends[-1] if self.ends else "",
        )
        access = fleet_pb2.Access(address=self.executor_address, token=f"token-{len(self.calls)}")
        access.token_expires.FromSeconds(int(time() + self.token_life))
        return {"sandbox": sandbox, "access": access}

    async def move(self) -> None:
        """Simulate the end of the fleet's process, and serve from another port."""
        await self.leave()
        await self._serve_fleet()

    async def leave(self) -> None:
        """Simulate the end of the fleet's process."""
        if self._fleet_server is not None:
            await self._fleet_server.stop(None)

    def called(self, method: str) -> list[Call]:
        """Return the calls of one method."""
        return [call for call in self.calls if call.method == method]

    async def break_executor(self, *, replaced: bool = True, reason: str = "") -> None:
        """Kill the executor. The fleet names the next one, which is there only if `replaced`, and says the reason."""
        self.uid += 1
        self.ends.append(reason)
        broken = self._servers.pop()
        task = asyncio.ensure_future(broken.stop(None))
        self._stopping.add(task)
        if replaced:
            await self._serve_executor()

    def script(self, execution_id: str, code: str) -> list[Step]:
        """Return what happens when `code` runs."""
        numbers = itertools.count(1)
        steps = self._scripts.get(code, (started(), finished()))
        return [_completed(step, execution_id, next(numbers)) if isinstance(step, Event) else step for step in steps]

    def next_failures(self, method: str) -> list[Fails | Hangs]:
        """Return how this call fails, if it does."""
        waiting = self._failures.get(method)
        return [waiting.pop(0)] if waiting else []

    async def _serve_fleet(self) -> None:
        self._fleet_server = server = self._server(fleet_pb2, FakeFleetService(self))
        if self._credentials:
            self.address = f"127.0.0.1:{server.add_secure_port('127.0.0.1:0', self._credentials)}"
        else:
            server.add_insecure_port(self.address)
        await server.start()

    async def _serve_executor(self) -> None:
        modules = (interpreter_pb2, process_pb2, filesystem_pb2, session_pb2)
        server = self._server(modules, FakeExecutor(self))
        # Its calls have names of others; they answer what `answer_call` says.
        self._add(server, service_pb2, None)
        server.add_insecure_port(self.executor_address)
        await server.start()
        self._servers.append(server)

    def _server(self, modules: Any, service: object) -> grpc.aio.Server:
        server = grpc.aio.server()
        for module in modules if isinstance(modules, tuple) else (modules,):
            self._add(server, module, service)
        return server

    def _add(self, server: grpc.aio.Server, module: Any, service: object) -> None:
        for described in module.DESCRIPTOR.services_by_name.values():
            handlers = {method.name: _handler(self, method, service) for method in described.methods}
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(described.full_name, handlers),))


class FakeFleetService:
    """The calls of a fleet: async generators of answers and steps. A missing call is answered with an empty message."""

    def __init__(self, fake: FakeFleet) -> None:
        self._fake = fake

    async def Claim(self, _: Any) -> AsyncIterator[Any]:  # noqa: N802  as in the API
        """Wait a little, then bind."""
        yield queued(1)
        yield self._fake.bound()

    async def Get(self, _: Any) -> AsyncIterator[Any]:  # noqa: N802  as in the API
        """Describe the sandbox while it is there."""
        yield self._ended() or fleet_pb2.GetResponse(**self._fake.open())

    async def Renew(self, _: Any) -> AsyncIterator[Any]:  # noqa: N802  as in the API
        """Give a new token."""
        yield self._ended() or fleet_pb2.RenewResponse(**self._fake.open())

    async def Resume(self, _: Any) -> AsyncIterator[Any]:  # noqa: N802  as in the API
        """Bind at once while it is there: a sandbox of this fleet never sleeps."""
        yield self._ended() or fleet_pb2.ResumeResponse(bound=self._fake.bound().bound)

    async def Release(self, _: Any) -> AsyncIterator[Any]:  # noqa: N802  as in the API
        """End the sandbox."""
        self._fake.ended, was_there = True, not self._fake.ended
        yield fleet_pb2.ReleaseResponse(released=was_there)

    def _ended(self) -> Fails | None:
        fails = Fails(grpc.StatusCode.NOT_FOUND, "SandboxEnded", "cannot open the sandbox: it has ended")
        return fails if self._fake.ended else None


class FakeExecutor:
    """The calls of an executor."""

    def __init__(self, fake: FakeFleet) -> None:
        self._fake = fake

    async def Execute(self, request: Any) -> AsyncIterator[Any]:  # noqa: N802  as in the API
        """Play the script of the cell."""
        self._fake.begun[request.execution_id] = (self._fake.uid, request.code)
        for step in self._fake.script(request.execution_id, request.code):
            yield interpreter_pb2.ExecuteResponse(events=[step]) if isinstance(step, Event) else step

    async def Start(self, request: Any) -> AsyncIterator[Any]:  # noqa: N802  as in the API
        """Play the script of the command."""
        line = os.fsdecode(request.shell or b" ".join(request.argv))
        self._fake.begun[request.execution_id] = (self._fake.uid, line)
        for step in self._fake.script(request.execution_id, line):
            yield process_pb2.StartResponse(events=[step]) if isinstance(step, Event) else step

    async def Attach(self, request: Any) -> AsyncIterator[Any]:  # noqa: N802  as in the API
        """Play on what this executor began."""
        uid, code = self._fake.begun.get(request.execution_id, (-1, ""))
        if uid != self._fake.uid:
            yield Fails(grpc.StatusCode.NOT_FOUND, "ExecutionNotFound", "cannot attach: none of that id was started")
            return
        for step in self._fake.script(request.execution_id, code):
            if not isinstance(step, Event):
                continue
            if step.sequence > request.after_sequence:
                yield interpreter_pb2.InterpreterServiceAttachResponse(events=[step])

    async def Health(self, _: Any) -> AsyncIterator[Any]:  # noqa: N802  as in the API
        """Be ready."""
        yield session_pb2.HealthResponse(ready=True)

    async def Read(self, request: Any) -> AsyncIterator[Any]:  # noqa: N802  as in the API
        """Read what was written."""
        if (data := self._fake.files.get(request.path)) is None:
            yield Fails(grpc.StatusCode.NOT_FOUND, "FileNotFound", "cannot read it: nothing is there")
            return
        yield filesystem_pb2.ReadResponse(info=filesystem_pb2.FileInfo(path=request.path, size=len(data)))
        yield filesystem_pb2.ReadResponse(data=data)

    async def Write(self, parts: Any) -> AsyncIterator[Any]:  # noqa: N802  as in the API
        """Keep what is written."""
        received = [part async for part in parts]
        path, data = received[0].header.path, b"".join(part.data for part in received[1:])
        self._fake.files[path] = data
        yield filesystem_pb2.WriteResponse(info=filesystem_pb2.FileInfo(path=path, size=len(data)))


def _completed(step: Event, execution_id: str, number: int) -> Event:
    event = Event()
    event.CopyFrom(step)
    event.sequence = event.sequence or number
    if event.WhichOneof("event") == "started":
        event.started.execution_id = event.started.execution_id or execution_id
    return event


def _handler(fake: FakeFleet, method: Any, service: object) -> grpc.RpcMethodHandler[Any, Any]:
    behave: Callable[[Any], AsyncIterator[Any]] | None = getattr(service, method.name, None)
    answer_class = GetMessageClass(method.output_type)

    async def play(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
        fake.calls.append(Call(method.name, request, dict(context.invocation_metadata() or ())))
        behaved = behave(request) if behave else _each([answer_class()])
        said = fake.next_answer(method.name)
        steps = behaved if said is None else _each(said)
        try:
            async for step in _chain(_each(fake.next_failures(method.name)), steps):
                if isinstance(step, Fails | Breaks | Hangs):
                    await _go_wrong(fake, context, step)
                else:
                    yield step
        except asyncio.CancelledError:
            fake.left.append(method.name)
            raise

    async def first(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        return await anext(play(request, context))

    streams = ["stream" if flag else "unary" for flag in (method.client_streaming, method.server_streaming)]
    make: Any = getattr(grpc, f"{'_'.join(streams)}_rpc_method_handler")
    made: grpc.RpcMethodHandler[Any, Any] = make(
        play if method.server_streaming else first,
        request_deserializer=GetMessageClass(method.input_type).FromString,
        response_serializer=lambda answer: answer if isinstance(answer, bytes) else answer.SerializeToString(),
    )
    return made


async def _each(answers: Iterable[Any]) -> AsyncIterator[Any]:
    for answer in answers:
        yield answer


async def _chain(*parts: AsyncIterator[Any]) -> AsyncIterator[Any]:
    for part in parts:
        async for step in part:
            yield step


async def _go_wrong(fake: FakeFleet, context: grpc.aio.ServicerContext[Any, Any], step: Fails | Breaks | Hangs) -> None:
    if isinstance(step, Fails):
        await _abort(context, step)
    if isinstance(step, Breaks):
        await fake.break_executor(replaced=step.replaced, reason=step.reason)
    await asyncio.Event().wait()


async def _abort(context: grpc.aio.ServicerContext[Any, Any], fails: Fails) -> None:
    detail = common_pb2.ErrorDetail(reason=fails.reason, message=fails.message)
    if fails.retry_after is not None:
        detail.retryable = True
        detail.retry_after.FromNanoseconds(round(fails.retry_after * 1e9))
    trailing = (("sandfleet-error-bin", detail.SerializeToString()),) if fails.reason else ()
    await context.abort(fails.code, fails.message, trailing)
