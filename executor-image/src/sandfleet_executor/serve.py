"""One executor: its parts put together, and its end."""

import asyncio
import datetime as dt
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import grpc.aio
from sandfleet_api.executor.v1 import (
    filesystem_pb2_grpc,
    identity_pb2_grpc,
    interpreter_pb2_grpc,
    process_pb2_grpc,
    session_pb2_grpc,
)

from sandfleet_executor.core.config import ExecutorConfig
from sandfleet_executor.effects import cgroup, ports, watchdog
from sandfleet_executor.effects.children import NamespaceError
from sandfleet_executor.effects.identity import Identity
from sandfleet_executor.effects.inotify import WorkspaceWatcher
from sandfleet_executor.effects.session import Session
from sandfleet_executor.effects.tokens import TokenVerifier
from sandfleet_executor.effects.userthreads import FileThreads
from sandfleet_executor.effects.walk import Roots
from sandfleet_executor.servicers.auth import AuthInterceptor
from sandfleet_executor.servicers.errors import ErrorInterceptor
from sandfleet_executor.servicers.filesystem import FilesystemServicer
from sandfleet_executor.servicers.identity import IdentityService
from sandfleet_executor.servicers.interpreter import InterpreterService
from sandfleet_executor.servicers.process import ProcessService
from sandfleet_executor.servicers.session import SessionService

EXIT_CLOSED = 0
EXIT_LEASE = 40
EXIT_IDLE = 41
EXIT_OWNER_GONE = 42
EXIT_NO_ISOLATION = 43
EXIT_BAD_CONFIG = 44
EXIT_STUCK = 45

MESSAGE_BYTES = 32 << 20
# Bursts of more streams than gRPC's default would end in bare CANCELLED.
PENDING_REQUESTS = 100_000
SERVER_OPTIONS = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.server.max_pending_requests", PENDING_REQUESTS),
    ("grpc.server.max_pending_requests_hard_limit", PENDING_REQUESTS),
    ("grpc.so_reuseport", 0),
]
CHECK_SECONDS = 0.25
# Where nothing runs.
IDLE_CHECK_SECONDS = 1.0
STOP_SECONDS = 0.5

_log = logging.getLogger(__name__)


class TouchInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Every RPC that got this far counts as use of the sandbox, but for looking at it."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def intercept_service(self, continuation, details):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        if not details.method.endswith(("/Health", "/Describe", "/Usage", "/ProbeEgress")):
            self._session.touch()
        return await continuation(details)


def run(config: ExecutorConfig, on_ready: Callable[[], None]) -> int:
    """Serves until the sandbox ends; the exit code. `on_ready` is called when it can run code."""
    os.umask(0o022)
    group = cgroup.make(config.sandbox_uid, config.limits.processes) if config.cgroup else None
    try:
        return asyncio.run(serve(config, group, on_ready))
    except NamespaceError as error:
        print(error, file=sys.stderr)
        return EXIT_NO_ISOLATION
    finally:
        if group:
            cgroup.remove(group)


async def serve(config: ExecutorConfig, group: str | None, on_ready: Callable[[], None]) -> int:
    if config.user_id is not None and os.geteuid() == 0:
        os.chown(config.workspace, config.user_id, config.user_id)
    workspace_fd = os.open(config.workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    watcher = WorkspaceWatcher(workspace_fd)
    session = Session(config, group, watcher)
    roots = Roots(workspace_fd, session.tmp_fd)
    threads = FileThreads(config.user_id)
    verifier = TokenVerifier(Path(config.keys_file), config.sandbox_uid, time.time)
    server = grpc.aio.server(
        interceptors=[AuthInterceptor(verifier), TouchInterceptor(session), ErrorInterceptor()], options=SERVER_OPTIONS
    )
    interpreter_pb2_grpc.add_InterpreterServiceServicer_to_server(InterpreterService(session), server)
    process_pb2_grpc.add_ProcessServiceServicer_to_server(ProcessService(session), server)
    filesystem_pb2_grpc.add_FilesystemServiceServicer_to_server(FilesystemServicer(roots, threads), server)
    session_pb2_grpc.add_SessionServiceServicer_to_server(SessionService(session), server)
    identity = Identity(Path(config.private_dir) / "identity", config.sandbox_uid, utc_now) if config.listen else None
    identity_pb2_grpc.add_IdentityServiceServicer_to_server(IdentityService(identity), server)
    await asyncio.gather(session.namespace(), asyncio.to_thread(watcher.scan), asyncio.to_thread(session.states.open))
    # Bound before any user code exists, and only now: a port that is open says that the sandbox is ready.
    bind(server, config, identity)
    await server.start()
    watchdog.start(asyncio.get_running_loop(), lambda: os._exit(EXIT_STUCK))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, session.closed.set)
    on_ready()
    code = await until_over(session, watcher)
    await session.close()
    await server.stop(STOP_SECONDS)
    return code


def bind(server: grpc.aio.Server, config: ExecutorConfig, identity: Identity | None) -> None:
    if identity is None:
        server.add_insecure_port(f"unix:{config.socket}")
        return
    number = int(str(config.listen).rpartition(":")[2])
    for address in (str(config.listen), *ports.left_open(str(config.listen))):
        server.add_secure_port(address, identity.credentials(lambda: ports.send_at_once(number)))


def utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


async def until_over(session: Session, watcher: WorkspaceWatcher) -> int:
    """Waits for the end of the sandbox; the exit code that says which."""
    while True:
        # So that the kernel's queue of events does not fill up while a cell is busy, or between cells.
        watcher.drain()
        session.wake()
        try:
            async with asyncio.timeout(CHECK_SECONDS if session.running_executions else IDLE_CHECK_SECONDS):
                await session.closed.wait()
        except TimeoutError:
            pass
        else:
            return EXIT_CLOSED
        over = session.over()
        if over:
            return EXIT_LEASE if over == "lease" else EXIT_IDLE
