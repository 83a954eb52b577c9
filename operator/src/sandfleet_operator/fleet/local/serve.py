"""A fleet over the local backend, from its directory to its end."""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import grpc
from sandfleet_api.fleet.v1.egress_pb2_grpc import add_EgressServiceServicer_to_server
from sandfleet_api.fleet.v1.fleet_pb2_grpc import add_FleetServiceServicer_to_server
from sandfleet_api.fleet.v1.snapshot_pb2_grpc import add_SnapshotServiceServicer_to_server

from sandfleet_operator.api.kinds.queue import QueueSpec
from sandfleet_operator.api.kinds.template import Contract, ReviewRule
from sandfleet_operator.api.limits import TEMPLATE_LIMITS
from sandfleet_operator.api.values import Amount, Isolation, State, Template
from sandfleet_operator.cluster.clock import SteadyClock, new_id, wall_clock
from sandfleet_operator.cluster.reviews import Caller
from sandfleet_operator.executors.client import Executors
from sandfleet_operator.executors.reviews import ReviewClient
from sandfleet_operator.executors.tokens import FileSigner
from sandfleet_operator.fleet.audit.calls import AuditInterceptor, noting
from sandfleet_operator.fleet.driver import FleetDriver
from sandfleet_operator.fleet.egress.servicer import EgressServicer
from sandfleet_operator.fleet.journals.witness import Witness, WitnessError, records_between
from sandfleet_operator.fleet.local.api import LocalFleetApi
from sandfleet_operator.fleet.local.backend import LocalBackend
from sandfleet_operator.fleet.local.egress import EgressError, LocalEgress, arguments
from sandfleet_operator.fleet.local.host import HOST_COMMAND
from sandfleet_operator.fleet.local.parking import Parking
from sandfleet_operator.fleet.local.queues import QueueFileError, read_queues
from sandfleet_operator.fleet.local.reviews import LocalReviewed, ReviewerTokens
from sandfleet_operator.fleet.local.snapshots import LocalSnapshots, Sessions
from sandfleet_operator.fleet.local.snapshotter import Snapshotter
from sandfleet_operator.fleet.local.statedir import (
    MAX_SOCKET_PATH,
    OwnerDir,
    StateDirError,
    base_dir,
    new_owner_dir,
    sweep,
)
from sandfleet_operator.fleet.local.userids import NoUserIdsError, UserIds, take_block
from sandfleet_operator.fleet.preemptor import Preemptor
from sandfleet_operator.fleet.reviews.board import ReviewBoard
from sandfleet_operator.fleet.reviews.webhook import WebhookError, webhook
from sandfleet_operator.fleet.servicer import FleetServicer
from sandfleet_operator.fleet.snapshots.servicer import SnapshotServicer
from sandfleet_operator.fleet.snapshots.unattended import Unattended
from sandfleet_operator.fleet.suspender import Suspender
from sandfleet_operator.fleet.usage.meter import UsageMeter
from sandfleet_operator.plan.audit import Writer
from sandfleet_operator.plan.scheduler.actions import Action, Gone
from sandfleet_operator.plan.scheduler.limits import FleetLimits
from sandfleet_operator.plan.scheduler.refill import Pool
from sandfleet_operator.plan.scheduler.scheduler import Scheduler
from sandfleet_operator.telemetry.audit import AuditLog, audit_log
from sandfleet_operator.telemetry.export import Export
from sandfleet_operator.telemetry.fleet_metrics import FleetMetrics
from sandfleet_operator.telemetry.metrics import Family, exposition, together
from sandfleet_operator.telemetry.probes import Probes, Standing

STARTS_PER_CORE = 2
# Seconds that calls in progress have to end when the fleet ends.
STOP_GRACE = 0.2
# Seconds between two signing keys.
ROTATE_EVERY = 86400.0
SERVER_OPTIONS: Final = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", 32 << 20),
    ("grpc.max_send_message_length", 32 << 20),
)

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    # None: a new one below the user's base.
    state_dir: Path | None = None
    ready_fd: int | None = None
    lifeline_fd: int | None = None
    # Of 127.0.0.1, for `GET /metrics`; 0: none.
    metrics_port: int = 0
    pool_size: int = 2
    max_sandboxes: int = 128
    # Seconds that a session may stay suspended.
    suspend_timeout: float = 3600.0
    isolation: Isolation = Isolation.NAMESPACE
    # Modules that are in the memory of each context from its start.
    preload: tuple[str, ...] = ()
    # Reviewers that are told apart, each with a token of its own; and how many of them approve each request.
    reviewers: tuple[str, ...] = ()
    approvals: int = 1
    # The rules that approve without them.
    review_rules: tuple[ReviewRule, ...] = ()
    # A file of SandboxQueues; None: no queues.
    queues: Path | None = None
    host_command: Sequence[str] = HOST_COMMAND


def serve_local(options: Options) -> int:
    """Serves until a signal or the end of the lifeline; returns an exit code. Reports to the ready fd."""
    try:
        # First, so that a wrong file costs no start.
        queues = read_queues(options.queues) if options.queues else {}
        path = options.state_dir or new_owner_dir(base_dir(os.environ, os.geteuid()))
        path = path.absolute()
        for swept in sweep(path.parent, now=wall_clock()):
            _LOG.info("removed %s, which a dead fleet left", swept)
        with OwnerDir(path) as directory:
            asyncio.run(_serve(directory, options, queues))
    except (StateDirError, NoUserIdsError, QueueFileError, ServeError, WebhookError, EgressError) as error:
        if options.ready_fd is None:
            _LOG.error("%s", error)
        else:
            # Its reader tells it to the user.
            _report(options.ready_fd, f"failed: {error}\n")
        return 1
    return 0


# A fleet of one machine has no rival.
ALONE = Standing(ready=True, leads=True)


class ServeError(Exception):
    """Its message is "cannot X: why"."""


async def _serve(directory: OwnerDir, options: Options, queues: Mapping[str, QueueSpec]) -> None:
    ended = asyncio.Event()
    _watch_for_the_end(ended, options.lifeline_fd)
    with _user_ids(options.isolation) as user_ids:
        templates = _templates(options)
        audit = _audit(directory)
        executors = Executors(signer := FileSigner(directory.keys_file, wall_clock))
        fleet, suspender, board = _assemble(
            directory, options, templates, user_ids, queues, executors=executors, signer=signer, audit=audit
        )
        holder, reviewing = f"uid:{os.geteuid()}", (board, ReviewerTokens(directory.path, options.reviewers))
        witness = _witness(executors, signer, audit)
        egress = _egress(directory, fleet, executors, audit)
        (measured, usage), export = _measured(fleet, executors, board), Export.begun("fleet", os.environ)
        witness.watch(lambda: fleet.scheduler.inventory.in_state(State.CLAIMED), SteadyClock())
        api = LocalFleetApi(fleet, suspender, templates, holder, reviewing, witness=witness, usage=usage, egress=egress)
        kept = _snapshots(Sessions(fleet, suspender, executors, api.received), templates, Caller(holder), measured)
        fleet.incarnations.refill = api.parking = parking = Parking(fleet, kept, templates, api.received, audit.write)
        server = await _listen(directory, FleetServicer(api, measured.claims), kept, EgressServicer(api), audit)
        unlisten = await _serve_metrics(options.metrics_port, families := together(audit.families, measured.families))
        working = asyncio.create_task(fleet.run())
        besides = (_rotate(signer), Preemptor(fleet, suspender).run(), export.run(families))
        beside = [asyncio.create_task(work) for work in (*besides, Unattended(fleet, suspender, parking).run())]
        try:
            # One turn of the loop, so that the reader of `ready` is served.
            await asyncio.sleep(0)
            _report(options.ready_fd, "ready\n")
            waiting = asyncio.create_task(ended.wait())
            await asyncio.wait([working, waiting], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in (board.close, witness.close, usage.close, unlisten):
                end()
            for task in beside:
                task.cancel()
            await asyncio.gather(fleet.close(), server.stop(STOP_GRACE), kept.close(), egress.close())
            working.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await working
            audit.close()
            await asyncio.to_thread(export.close)


def _egress(directory: OwnerDir, fleet: FleetDriver, executors: Executors, audit: AuditLog) -> LocalEgress:
    """Egress by name, which follows the fleet's sessions. Raises EgressError."""
    inventory, note = fleet.scheduler.inventory, noting(audit.write)
    egress = LocalEgress(directory.egress_socket, inventory, audit.write, wall_clock, words=arguments(os.environ))
    executors.egress = egress.admit

    def noted(action: Action) -> None:
        note(action)
        if isinstance(action, Gone):
            egress.end(action.sandbox.sandbox_id)

    fleet.noted = noted
    return egress


def _measured(fleet: FleetDriver, executors: Executors, board: ReviewBoard) -> tuple[FleetMetrics, UsageMeter]:
    """The fleet's metrics, which count from now on, and what reads the usage of its sessions for them."""
    measured = FleetMetrics(fleet, lambda: board.waiting_for_people)
    measured.begin()
    board.answered = measured.reviews.answered
    usage = UsageMeter(executors.usage, measured.sessions.read, fleet.now)
    usage.watch(lambda: fleet.scheduler.inventory.in_state(State.CLAIMED), SteadyClock())
    return measured, usage


def _snapshots(
    sessions: Sessions, templates: Mapping[str, Template], caller: Caller, measured: FleetMetrics
) -> LocalSnapshots:
    snapshotter = Snapshotter()
    snapshotter.ended = measured.snapshots.ended
    return LocalSnapshots(sessions, templates, caller, snapshotter)


async def _serve_metrics(port: int, families: Callable[[], list[Family]]) -> Callable[[], None]:
    """Answers from now on, until what it returns is called; port 0: nothing. Raises ServeError."""
    if not port:
        return lambda: None
    probes = Probes(lambda: True, lambda: ALONE, lambda: exposition(families()))
    try:
        return (await probes.listen(port, "127.0.0.1")).close
    except OSError as error:
        raise ServeError(f"cannot serve metrics on port {port}: {error}") from error


def _audit(directory: OwnerDir) -> AuditLog:
    """Raises ServeError."""
    try:
        return audit_log(Writer(component="fleet", instance=directory.path.name), wall_clock, os.environ)
    except OSError as error:
        raise ServeError(f"cannot write audit records: {error}") from error


def _templates(options: Options) -> dict[str, Template]:
    """By pool. Only the first keeps sandboxes warm: another contract waits for a start, a fraction of a second."""
    template = Template(
        isolation=options.isolation,
        preload=options.preload,
        amount=Amount(sandboxes=1, memory=TEMPLATE_LIMITS.memory_bytes),
    )
    if options.isolation is Isolation.NONE:
        return {template.name: template}
    others = (Contract.BROKERED.value, Contract.REVIEWED.value)
    return {template.name: template} | {f"{template.name}-{one}": replace(template, contract=one) for one in others}


def _assemble(
    directory: OwnerDir,
    options: Options,
    templates: Mapping[str, Template],
    user_ids: UserIds | None,
    queues: Mapping[str, QueueSpec],
    *,
    executors: Executors,
    signer: FileSigner,
    audit: AuditLog,
) -> tuple[FleetDriver, Suspender, ReviewBoard]:
    warm = min(options.pool_size, options.max_sandboxes)
    pools = [
        Pool(name=name, template=template, target_warm=warm if template.contract == Contract.AUTONOMOUS.value else 0)
        for name, template in templates.items()
    ]
    policy = FleetLimits(
        max_sandboxes=options.max_sandboxes,
        max_starting=STARTS_PER_CORE * (os.cpu_count() or 1),
        longest_suspension=options.suspend_timeout,
    )
    backend = LocalBackend(directory, templates, user_ids=user_ids, host_command=options.host_command)
    scheduler = Scheduler(pools, policy, new_id=lambda _: new_id())
    clock = SteadyClock()
    fleet = FleetDriver(scheduler, backend, executors, clock)
    for name, spec in queues.items():
        fleet.do(scheduler.queues.put(name, spec, clock()))
    reviewed = LocalReviewed(scheduler.inventory, executors, options.approvals, options.review_rules)
    hook = webhook(os.environ, wall_clock)
    tell = hook.send if hook is not None else lambda _: None
    board = ReviewBoard(reviewed, ReviewClient(lambda: signer), audit=audit.write, tell=tell)
    return fleet, Suspender(fleet, backend, executors), board


def _witness(executors: Executors, signer: FileSigner, audit: AuditLog) -> Witness:
    """Raises ServeError."""
    try:
        records = records_between(os.environ)
    except WitnessError as error:
        raise ServeError(str(error)) from error
    return Witness(
        executors.journal_head,
        lambda sandbox: (sandbox.sandbox_id, sandbox.sandbox_uid),
        lambda: signer,
        audit.write,
        wall_clock,
        records=records,
    )


@contextlib.contextmanager
def _user_ids(isolation: Isolation) -> Iterator[UserIds | None]:
    ids = take_block() if os.geteuid() == 0 and isolation is not Isolation.NONE else None
    try:
        yield ids
    finally:
        if ids is not None:
            ids.close()


async def _listen(
    directory: OwnerDir,
    servicer: FleetServicer,
    snapshots: LocalSnapshots,
    egress: EgressServicer,
    audit: AuditLog,
) -> grpc.aio.Server:
    # The longest path in the directory, before anything is promised.
    directory.socket(new_id())
    path = directory.fleet_socket
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        raise ServeError(f"cannot serve on {path}: the path is longer than {MAX_SOCKET_PATH} bytes")
    path.unlink(missing_ok=True)
    server = grpc.aio.server(options=SERVER_OPTIONS, interceptors=[AuditInterceptor(audit.write)])
    add_FleetServiceServicer_to_server(servicer, server)
    add_SnapshotServiceServicer_to_server(SnapshotServicer(snapshots), server)
    add_EgressServiceServicer_to_server(egress, server)
    try:
        server.add_insecure_port(f"unix:{path}")
        await server.start()
    except RuntimeError as error:
        raise ServeError(f"cannot serve on {path}: {error}") from error
    return server


def _watch_for_the_end(ended: asyncio.Event, lifeline: int | None) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    if lifeline is None:
        return

    def read() -> None:
        if not os.read(lifeline, 4096):
            loop.remove_reader(lifeline)
            ended.set()

    try:
        loop.add_reader(lifeline, read)
    except (OSError, ValueError) as error:
        raise ServeError(f"cannot watch the lifeline {lifeline}: {error}") from error


async def _rotate(signer: FileSigner) -> None:
    while True:
        await asyncio.sleep(ROTATE_EVERY)
        signer.rotate()


def _report(ready_fd: int | None, text: str) -> None:
    if ready_fd is None:
        print(text, end="", flush=True)
        return
    # An owner that is gone already needs no report.
    with contextlib.suppress(OSError):
        os.write(ready_fd, text.encode())
        os.close(ready_fd)
