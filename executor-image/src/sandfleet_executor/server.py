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
    journal_pb2_grpc,
    port_pb2_grpc,
    process_pb2_grpc,
    review_pb2_grpc,
    service_pb2_grpc,
    session_pb2_grpc,
    snapshot_pb2_grpc,
    tools_pb2_grpc,
)

from sandfleet_executor.core.config import ANY_KEY, ExecutorConfig
from sandfleet_executor.core.errors import BadRequest, ConfigError
from sandfleet_executor.core.executions.outcomes import Cause
from sandfleet_executor.core.rpcs import Use
from sandfleet_executor.core.session.expiry import Expiry
from sandfleet_executor.effects.access.identity import Identity
from sandfleet_executor.effects.access.tokens import TokenVerifier, read_authority
from sandfleet_executor.effects.contexts.reviewed_states import StoredStates
from sandfleet_executor.effects.egress.dial import TlsWay
from sandfleet_executor.effects.executions.registry import Executions
from sandfleet_executor.effects.executions.store.log import Store
from sandfleet_executor.effects.files import files
from sandfleet_executor.effects.files.inotify import WorkspaceWatcher
from sandfleet_executor.effects.files.threads import FileThreads
from sandfleet_executor.effects.files.walk import Roots
from sandfleet_executor.effects.files.watch import Watches
from sandfleet_executor.effects.journal.journal import open_journal
from sandfleet_executor.effects.journal.recording import FileDigests, Recorder
from sandfleet_executor.effects.namespace import cgroup
from sandfleet_executor.effects.namespace.children import NamespaceError
from sandfleet_executor.effects.namespace.launch import under_gvisor
from sandfleet_executor.effects.network import port_check
from sandfleet_executor.effects.network.connections import Connections
from sandfleet_executor.effects.network.tunnels import Tunnels
from sandfleet_executor.effects.review.places import Places
from sandfleet_executor.effects.review.reviews import Reviews
from sandfleet_executor.effects.services.logs import LogFiles
from sandfleet_executor.effects.session import watchdog
from sandfleet_executor.effects.session.sandbox_meter import SandboxMeter
from sandfleet_executor.effects.session.session import Session
from sandfleet_executor.effects.snapshots.restorer import Restorer
from sandfleet_executor.effects.snapshots.saver import Saver
from sandfleet_executor.effects.suspension.suspender import Suspender
from sandfleet_executor.servicers.convert import common as convert
from sandfleet_executor.servicers.convert import journal as convert_journal
from sandfleet_executor.servicers.edge import Edge
from sandfleet_executor.servicers.filesystem.files import FilesystemServicer
from sandfleet_executor.servicers.gate import ReviewGate
from sandfleet_executor.servicers.identity import IdentityService
from sandfleet_executor.servicers.interpreter import InterpreterService
from sandfleet_executor.servicers.journal import JournalService
from sandfleet_executor.servicers.port import PortService
from sandfleet_executor.servicers.process import ProcessService
from sandfleet_executor.servicers.recording import CallRecorder
from sandfleet_executor.servicers.review import ReviewService
from sandfleet_executor.servicers.service import ServiceManagerService, codec
from sandfleet_executor.servicers.session import SessionService
from sandfleet_executor.servicers.snapshot import SnapshotService
from sandfleet_executor.servicers.tools import ToolBrokerService

EXIT_CLOSED = 0
EXIT_LEASE = 40
EXIT_IDLE = 41
EXIT_NO_ISOLATION = 43
EXIT_BAD_CONFIG = 44
EXIT_STUCK = 45
EXITS = {Expiry.LEASE: EXIT_LEASE, Expiry.IDLE: EXIT_IDLE}

MESSAGE_BYTES = 32 << 20
# Bursts of more streams than gRPC's default would end in bare CANCELLED.
PENDING_REQUESTS = 100_000
SERVER_OPTIONS = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.server.max_pending_requests", PENDING_REQUESTS),
    ("grpc.server.max_pending_requests_hard_limit", PENDING_REQUESTS),
    ("grpc.so_reuseport", 0),
    # Clients of silent executions ask now and then whether anybody is there.
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
]
CHECK_SECONDS = 0.25
# Where nothing runs.
IDLE_CHECK_SECONDS = 1.0
STOP_SECONDS = 0.5

_log = logging.getLogger(__name__)


def run(config: ExecutorConfig, on_ready: Callable[[], None]) -> int:
    """Serves until the sandbox ends; the exit code. `on_ready` is called when it can run code."""
    os.umask(0o022)
    groups = cgroup.make(config.sandbox_uid, config.limits) if config.cgroup else cgroup.Groups()
    try:
        return asyncio.run(serve(config, groups, on_ready))
    except NamespaceError as error:
        print(error, file=sys.stderr)
        return EXIT_NO_ISOLATION
    except BadRequest as error:
        print(f"cannot start: {error}", file=sys.stderr)
        return EXIT_BAD_CONFIG
    finally:
        groups.remove()


def verifier_of(config: ExecutorConfig) -> TokenVerifier:
    """Raises ConfigError."""
    named = config.keys_authority
    authority = read_authority(named) if named and named != ANY_KEY else None
    return TokenVerifier(Path(config.keys_file), config.sandbox_uid, time.time, config.contract, authority)


async def serve(config: ExecutorConfig, group: cgroup.Groups, on_ready: Callable[[], None]) -> int:
    workspace_fd = open_workspace(config)
    watcher = WorkspaceWatcher(workspace_fd)
    executions, recorder = await asyncio.to_thread(kept, config)
    journal, threads = recorder.journal, FileThreads(config.user_id)
    verifier = verifier_of(config)
    reviews = Reviews(config.sandbox_uid, verifier.statement, required=config.reviewed, put=journal.put)
    session = Session(
        config, group, watcher, executions, workspace_fd=workspace_fd, threads=threads, reviews=reviews, journal=journal
    )
    verifier.session = lambda: session.session_id
    meter = SandboxMeter(session)
    journal.begin(lambda: convert_journal.opened(session))
    roots = Roots(workspace_fd, session.namespaces.tmp_fd, session.namespaces.system_fd, session.mounts.folders)
    recorder.look = FileDigests(roots, threads).of
    edge = edge_of(verifier, session, Places(roots, threads))
    server = grpc.aio.server(interceptors=[edge], options=SERVER_OPTIONS)
    session.services.keep_logs(LogFiles(roots, threads))
    identity = identity_of(session)
    await add_snapshots(server, session, add_session_services(server, session, meter), workspace_fd, threads)
    filesystem = FilesystemServicer(roots, threads, Watches(watcher), session.disk)
    filesystem_pb2_grpc.add_FilesystemServiceServicer_to_server(filesystem, server)
    identity_pb2_grpc.add_IdentityServiceServicer_to_server(IdentityService(identity), server)
    await asyncio.gather(
        session.namespaces.get(), asyncio.to_thread(watcher.scan), asyncio.to_thread(session.states.open)
    )
    await session.preload.settle(session.namespaces.get, session.namespaces.close)
    await _remove_leftovers(watcher, roots, threads)
    # Bound before any user code exists, and only now: a port that is open says that the sandbox is ready.
    bind(server, config, identity)
    await server.start()
    watchdog.start(asyncio.get_running_loop(), lambda: os._exit(EXIT_STUCK))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, session.closed.set)
    on_ready()
    guarding = asyncio.create_task(meter.guard_disk())
    code = await until_over(session, watcher)
    guarding.cancel()
    await session.close(Cause.LEASE if code == EXIT_LEASE else Cause.CLOSE)
    await server.stop(STOP_SECONDS)
    return code


async def _remove_leftovers(watcher: WorkspaceWatcher, roots: Roots, threads: FileThreads) -> None:
    if leftovers := watcher.leftovers():
        pins = roots.pin()
        await threads.run_then(pins.close, lambda: files.remove_leftovers(pins, leftovers))


def identity_of(session: Session) -> Identity | None:
    """What the executor shows on a network, also to the egress process, to which the session's connections go.

    Raises ConfigError.
    """
    config = session.config
    if not config.listen:
        return None
    identity = Identity(Path(config.private_dir) / "identity", config.sandbox_uid, utc_now)
    if not config.egress_address:
        return identity
    if not config.keys_authority or config.keys_authority == ANY_KEY:
        raise ConfigError("cannot take egress_address: keys_authority does not say who signs its certificate")
    authority = read_authority(config.keys_authority)
    session.egress.lead(TlsWay(config.egress_address, config.egress_pod, identity, authority, utc_now))
    return identity


def edge_of(verifier: TokenVerifier, session: Session, places: Places) -> Edge:
    gate = ReviewGate(session.reviews, places, StoredStates(session.states))

    def touch(use: Use) -> None:
        if use is not Use.LOOKING:
            session.touch(works=use is Use.WORK)

    return Edge(verifier, touch, (CallRecorder(session.journal).recorded, gate.gated))


def add_session_services(server: grpc.aio.Server, session: Session, meter: SandboxMeter) -> Suspender:
    """The services that need nothing but the session."""
    interpreter_pb2_grpc.add_InterpreterServiceServicer_to_server(InterpreterService(session), server)
    process_pb2_grpc.add_ProcessServiceServicer_to_server(ProcessService(session), server)
    service_pb2_grpc.add_ServiceManagerServiceServicer_to_server(ServiceManagerService(session), server)
    tunnels = Tunnels(session.namespaces.get, own_port(session.config), session.touch)
    suspender = Suspender(session, state_folder(session.config), lambda: tunnels.count, codec(session.workdir))
    session_pb2_grpc.add_SessionServiceServicer_to_server(SessionService(session, meter, suspender), server)
    port_pb2_grpc.add_PortServiceServicer_to_server(PortService(tunnels), server)
    review_pb2_grpc.add_ReviewServiceServicer_to_server(ReviewService(session.reviews), server)
    lasting = JournalService(session.journal, lasting=session.config.state_dir is not None)
    journal_pb2_grpc.add_JournalServiceServicer_to_server(lasting, server)
    tools_pb2_grpc.add_ToolBrokerServiceServicer_to_server(ToolBrokerService(session.tools), server)
    return suspender


async def add_snapshots(
    server: grpc.aio.Server, session: Session, suspender: Suspender, workspace_fd: int, threads: FileThreads
) -> None:
    """Finishes a restore that an earlier executor has begun to put in place, first."""
    config = session.config
    restorer = Restorer(session, suspender, workspace_fd, threads, state_folder(config))
    await restorer.recover()
    saver = Saver(session, suspender, workspace_fd, threads, Path(config.state_dir or config.private_dir))
    snapshot_pb2_grpc.add_SnapshotServiceServicer_to_server(SnapshotService(saver, restorer), server)


def state_folder(config: ExecutorConfig) -> Path | None:
    """What outlives the executor; None where nothing does."""
    return Path(config.state_dir) if config.state_dir else None


def open_workspace(config: ExecutorConfig) -> int:
    """A descriptor of it; made where the volume is new."""
    Path(config.workspace).mkdir(parents=True, exist_ok=True)
    if config.user_id is not None and os.geteuid() == 0:
        os.chown(config.workspace, config.user_id, config.user_id)
    return os.open(config.workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def kept(config: ExecutorConfig) -> tuple[Executions, Recorder]:
    """What an earlier executor has left of executions, and the journal, which goes on."""
    journal = open_journal(journal_folder(config), config.sandbox_uid, time.time)
    recorder = Recorder(journal, time.time)
    return Executions(open_store(config.state_dir), convert.stored, recorder), recorder


def open_store(path: str | None) -> Store | None:
    """What is stored of executions; None where there is no place for it, which each of them says at its end."""
    if path is None:
        return None
    try:
        return Store(path)
    except OSError as error:
        _log.warning("cannot store executions: %s", error)
        return None


def journal_folder(config: ExecutorConfig) -> str:
    """Where user code cannot reach it; on the volume where there is a place."""
    return f"{config.state_dir or config.private_dir}/journal"


def bind(server: grpc.aio.Server, config: ExecutorConfig, identity: Identity | None) -> None:
    if identity is None:
        server.add_insecure_port(f"unix:{config.socket}")
        return
    listen = str(config.listen)
    # Elsewhere the kernel does what is wanted, and clients come from the same address as user code.
    connections = Connections(int(listen.rpartition(":")[2])) if under_gvisor() else None

    def take(address: str) -> None:
        server.add_secure_port(address, identity.credentials(connections.noticed if connections else lambda: None))

    take(listen)
    # Only beside a taken port shows what the kernel still gives away.
    for address in port_check.left_open(listen):
        take(address)


def own_port(config: ExecutorConfig) -> int | None:
    """The executor's port as user code could reach it; None where that has a network of its own."""
    apart = config.isolation == "namespace" and config.network == "none"
    return None if apart or config.listen is None else int(config.listen.rpartition(":")[2])


def utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


async def until_over(session: Session, watcher: WorkspaceWatcher) -> int:
    """Waits for the end of the sandbox; the exit code that says which."""
    while True:
        # So that the kernel's queue of events does not fill up while a cell is busy, or between cells.
        watcher.drain()
        session.namespaces.wake()
        try:
            async with asyncio.timeout(CHECK_SECONDS if session.executions.running else IDLE_CHECK_SECONDS):
                await session.closed.wait()
        except TimeoutError:
            pass
        else:
            return EXIT_CLOSED
        if expiry := session.expired():
            return EXITS[expiry]
