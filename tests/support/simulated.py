"""A fleet whose executors run no code: `python -m support.simulated FOLDER`, for loads of thousands of sessions.

Fleet and executors speak the real protocol: the fleet by TLS on a port, as on a cluster, each executor over a socket of
its own in FOLDER, where the files `ca` and `token` are too. A cell prints one text, and takes SANDFLEET_CELL seconds.
Executions are stored by their ids, as an executor does: the same id
runs once. SIGUSR1 kills the executor of one sandbox, which gets another one that has nothing; SIGUSR2 restarts the
fleet. At the end of its input it prints what it has seen, as JSON.
"""

import ast
import asyncio
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from sandfleet_api.executor.v1 import common_pb2, interpreter_pb2, interpreter_pb2_grpc, session_pb2, session_pb2_grpc
from sandfleet_api.fleet.v1 import fleet_pb2, fleet_pb2_grpc
from sandfleet_operator.executors.authority import Authority

OPTIONS = [("grpc.server.max_pending_requests", 100_000), ("grpc.server.max_pending_requests_hard_limit", 100_000)]
CELL_SECONDS = float(os.environ.get("SANDFLEET_CELL", "0.02"))
# How long the fleet is away when it restarts, in seconds.
AWAY = 1.0


@dataclass
class Sandbox:
    """One sandbox: its present executor, and the executions that this one knows."""

    sandbox_id: str
    socket: Path
    incarnation: int = 1
    server: grpc.aio.Server | None = None
    executions: dict[str, list[common_pb2.ExecutionEvent]] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"unix:{self.socket}-{self.incarnation}"


@dataclass
class Seen:
    """What happened, for the end."""

    claims: int = 0
    released: int = 0
    killed: int = 0
    restarts: int = 0
    most: int = 0
    # How often each text ran in one executor under different ids would be the agent's choice; under one id it is a lie.
    runs: Counter[str] = field(default_factory=Counter)


class Fleet(fleet_pb2_grpc.FleetServiceServicer):
    """The calls of a fleet that a driver makes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sandboxes: dict[str, Sandbox] = {}
        self.seen = Seen()

    async def Claim(  # noqa: N802  as in the API
        self, request: fleet_pb2.ClaimRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[fleet_pb2.ClaimResponse]:
        """Bind at once. A known request id gives its sandbox again."""
        sandbox_id = f"s-{request.request_id}"
        sandbox = self.sandboxes.get(sandbox_id)
        if sandbox is None:
            self.seen.claims += 1
            sandbox = Sandbox(sandbox_id, self.folder / f"{self.seen.claims}")
            self.sandboxes[sandbox_id] = sandbox
            self.seen.most = max(self.seen.most, len(self.sandboxes))
            await self.serve(sandbox)
        yield fleet_pb2.ClaimResponse(sequence=1, bound=fleet_pb2.Bound(**_open(sandbox)))

    async def Get(  # noqa: N802  as in the API
        self, request: fleet_pb2.GetRequest, context: grpc.aio.ServicerContext
    ) -> fleet_pb2.GetResponse:
        """Describe a sandbox, with access to its present executor."""
        return fleet_pb2.GetResponse(**_open(await self.living(request.sandbox_id, context)))

    async def Renew(  # noqa: N802  as in the API
        self, request: fleet_pb2.RenewRequest, context: grpc.aio.ServicerContext
    ) -> fleet_pb2.RenewResponse:
        """The same, for the heartbeat of a session."""
        return fleet_pb2.RenewResponse(**_open(await self.living(request.sandbox_id, context)))

    async def Release(  # noqa: N802  as in the API
        self, request: fleet_pb2.ReleaseRequest, context: grpc.aio.ServicerContext
    ) -> fleet_pb2.ReleaseResponse:
        """End a sandbox."""
        sandbox = self.sandboxes.pop(request.sandbox_id, None)
        if sandbox is not None and sandbox.server is not None:
            self.seen.released += 1
            await sandbox.server.stop(None)
        return fleet_pb2.ReleaseResponse(released=sandbox is not None)

    async def living(self, sandbox_id: str, context: grpc.aio.ServicerContext) -> Sandbox:
        """Return the sandbox, or end the call."""
        if (sandbox := self.sandboxes.get(sandbox_id)) is None:
            await _refuse(context, "SandboxEnded", "cannot open the sandbox: it has ended")
            raise AssertionError
        return sandbox

    async def serve(self, sandbox: Sandbox) -> None:
        """Start the executor of a sandbox."""
        server = grpc.aio.server(options=OPTIONS)
        executor = Executor(sandbox, self.seen)
        interpreter_pb2_grpc.add_InterpreterServiceServicer_to_server(executor, server)
        session_pb2_grpc.add_SessionServiceServicer_to_server(executor, server)
        server.add_insecure_port(sandbox.address)
        await server.start()
        sandbox.server = server

    async def kill_one(self) -> None:
        """Kill an executor, and start the one that takes its place."""
        if not self.sandboxes:
            return
        sandbox = random.choice(list(self.sandboxes.values()))
        broken, sandbox.executions = sandbox.server, {}
        sandbox.incarnation += 1
        self.seen.killed += 1
        await self.serve(sandbox)
        if broken is not None:
            await broken.stop(None)


class Executor(interpreter_pb2_grpc.InterpreterServiceServicer, session_pb2_grpc.SessionServiceServicer):
    """The calls of an executor that an agent loop makes."""

    def __init__(self, sandbox: Sandbox, seen: Seen) -> None:
        self.sandbox = sandbox
        self.seen = seen

    async def Execute(  # noqa: N802  as in the API
        self, request: interpreter_pb2.ExecuteRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[interpreter_pb2.ExecuteResponse]:
        """Print the text of the cell, unless the id is known: then say the same again."""
        known = self.sandbox.executions.get(request.execution_id)
        if known is None:
            self.seen.runs[f"{self.sandbox.address} {request.execution_id}"] += 1
            started, output = _event(1), _event(2)
            started.started.execution_id = request.execution_id
            output.output.CopyFrom(
                common_pb2.OutputChunk(
                    stream=common_pb2.STREAM_STDOUT, data=ast.literal_eval(request.code[6:-1]).encode()
                )
            )
            end = _event(3)
            end.finished.outcome = common_pb2.OUTCOME_OK
            known = self.sandbox.executions[request.execution_id] = [started, output, end]
            yield interpreter_pb2.ExecuteResponse(events=[started])
            await asyncio.sleep(CELL_SECONDS)
            yield interpreter_pb2.ExecuteResponse(events=[output, end])
            return
        yield interpreter_pb2.ExecuteResponse(events=known)

    async def Attach(  # noqa: N802  as in the API
        self, request: interpreter_pb2.InterpreterServiceAttachRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[interpreter_pb2.InterpreterServiceAttachResponse]:
        """Say the rest of a known execution."""
        known = self.sandbox.executions.get(request.execution_id)
        if known is None:
            await _refuse(context, "ExecutionNotFound", "cannot attach: none of that id was started")
            return
        rest = [event for event in known if event.sequence > request.after_sequence]
        yield interpreter_pb2.InterpreterServiceAttachResponse(events=rest)

    async def Describe(  # noqa: N802  as in the API
        self, request: session_pb2.DescribeRequest, context: grpc.aio.ServicerContext
    ) -> session_pb2.DescribeResponse:
        """Name the sandbox."""
        return session_pb2.DescribeResponse(sandbox_id=self.sandbox.sandbox_id)

    async def Health(  # noqa: N802  as in the API
        self, request: session_pb2.HealthRequest, context: grpc.aio.ServicerContext
    ) -> session_pb2.HealthResponse:
        """Be ready."""
        return session_pb2.HealthResponse(ready=True)

    async def Usage(  # noqa: N802  as in the API
        self, request: session_pb2.UsageRequest, context: grpc.aio.ServicerContext
    ) -> session_pb2.UsageResponse:
        """Use nothing."""
        return session_pb2.UsageResponse()


def _event(number: int) -> common_pb2.ExecutionEvent:
    return common_pb2.ExecutionEvent(sequence=number)


def _open(sandbox: Sandbox) -> dict[str, object]:
    described = fleet_pb2.Sandbox(
        sandbox_id=sandbox.sandbox_id,
        sandbox_uid=f"u-{sandbox.incarnation}",
        isolation=session_pb2.ISOLATION_NAMESPACE,
    )
    access = fleet_pb2.Access(address=sandbox.address, token=f"token-{sandbox.incarnation}")
    access.token_expires.FromSeconds(int(time.time() + 3600))
    return {"sandbox": described, "access": access}


async def _refuse(context: grpc.aio.ServicerContext, reason: str, message: str) -> None:
    detail = common_pb2.ErrorDetail(reason=reason, message=message)
    trailing = (("sandfleet-error-bin", detail.SerializeToString()),)
    await context.abort(grpc.StatusCode.NOT_FOUND, message, trailing)


class Service:
    """The fleet's server, which can be restarted."""

    def __init__(self, folder: Path) -> None:
        self.fleet = Fleet(folder)
        self.port = 0
        self._server: grpc.aio.Server | None = None
        authority = Authority.new(time.time())
        pair = authority.server(["sandfleet-fleet", "127.0.0.1"], time.time(), 86_400.0)
        self._credentials = grpc.ssl_server_credentials([pair])
        (folder / "ca").write_bytes(authority.pem)
        (folder / "token").write_text("token")

    async def start(self) -> None:
        """Serve."""
        self._server = grpc.aio.server(options=OPTIONS)
        fleet_pb2_grpc.add_FleetServiceServicer_to_server(self.fleet, self._server)
        self.port = self._server.add_secure_port(f"127.0.0.1:{self.port}", self._credentials)
        await self._server.start()

    async def stop(self) -> None:
        """Serve no more, the executors neither."""
        if self._server is not None:
            await self._server.stop(None)
        for sandbox in self.fleet.sandboxes.values():
            if sandbox.server is not None:
                await sandbox.server.stop(None)

    async def restart(self) -> None:
        """Break all calls, be away for a moment, and serve again."""
        assert self._server is not None
        self.fleet.seen.restarts += 1
        await self._server.stop(None)
        await asyncio.sleep(AWAY)
        await self.start()


async def main(folder: Path) -> None:
    service, loop = Service(folder), asyncio.get_running_loop()
    await service.start()
    going: set[asyncio.Task[None]] = set()
    for number, work in ((signal.SIGUSR1, service.fleet.kill_one), (signal.SIGUSR2, service.restart)):
        loop.add_signal_handler(number, lambda work=work: going.add(loop.create_task(work())))
    print(f"127.0.0.1:{service.port}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await service.stop()
    seen = service.fleet.seen
    doubled = sum(count > 1 for count in seen.runs.values())
    said = {"left": len(service.fleet.sandboxes), "doubled": doubled, "executions": sum(seen.runs.values())}
    said |= {name: getattr(seen, name) for name in ("claims", "released", "killed", "restarts", "most")}
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
