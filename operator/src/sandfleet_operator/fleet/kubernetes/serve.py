"""The fleet's process on Kubernetes, from its start to a signal."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import grpc
from cryptography import x509
from sandfleet_api.fleet.v1.egress_pb2_grpc import (
    add_EgressProcessServiceServicer_to_server,
    add_EgressServiceServicer_to_server,
)
from sandfleet_api.fleet.v1.fleet_pb2_grpc import add_FleetServiceServicer_to_server
from sandfleet_api.fleet.v1.gateway_pb2_grpc import add_GatewayIdentityServiceServicer_to_server
from sandfleet_api.fleet.v1.snapshot_pb2_grpc import add_SnapshotServiceServicer_to_server
from sandfleet_api.fleet.v1.snapshotter_pb2_grpc import add_SnapshotterServiceServicer_to_server

from sandfleet_operator.api.kube import LEASE, KubeError, Ref
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.api.values import State
from sandfleet_operator.cluster.clock import SteadyClock, wall_clock
from sandfleet_operator.cluster.kube import connect
from sandfleet_operator.cluster.kube_api import KubeApi
from sandfleet_operator.cluster.lease import LeadershipLostError, Lease
from sandfleet_operator.cluster.reviews import REVIEW_KINDS, Reviews
from sandfleet_operator.cluster.store import Store
from sandfleet_operator.cluster.tasks import collect_in_time, shorten_collections
from sandfleet_operator.executors.contact import Contacts, Credentials
from sandfleet_operator.executors.pod_client import PodExecutors
from sandfleet_operator.executors.signing import ROTATE_EVERY, Signing, SigningError
from sandfleet_operator.fleet import shown_certificate
from sandfleet_operator.fleet.audit.calls import AuditInterceptor, Write, noting
from sandfleet_operator.fleet.egress.servicer import EgressServicer
from sandfleet_operator.fleet.gateway_signer import GatewaySigner
from sandfleet_operator.fleet.journals.witness import Witness, records_between
from sandfleet_operator.fleet.kubernetes.api import KubernetesFleetApi
from sandfleet_operator.fleet.kubernetes.backend import has_address
from sandfleet_operator.fleet.kubernetes.egress import ProbingExecutors
from sandfleet_operator.fleet.kubernetes.egress_desk import EgressDesk
from sandfleet_operator.fleet.kubernetes.fleet import KubernetesFleet
from sandfleet_operator.fleet.kubernetes.reviews.desk import ReviewDesk
from sandfleet_operator.fleet.kubernetes.service_place import ServicePlace
from sandfleet_operator.fleet.kubernetes.sessions.journals import PodMemory
from sandfleet_operator.fleet.kubernetes.snapshots.api import KubernetesSnapshots
from sandfleet_operator.fleet.kubernetes.snapshots.link import SnapshotterLink
from sandfleet_operator.fleet.kubernetes.snapshots.parking import ClusterParking
from sandfleet_operator.fleet.kubernetes.snapshots.parties import Parties
from sandfleet_operator.fleet.kubernetes.snapshots.places import Places
from sandfleet_operator.fleet.kubernetes.snapshots.preparation import PoolPreparation
from sandfleet_operator.fleet.kubernetes.snapshots.rounds import SnapshotRounds
from sandfleet_operator.fleet.kubernetes.snapshots.warm import WarmPods
from sandfleet_operator.fleet.reviews.board import ReviewBoard
from sandfleet_operator.fleet.reviews.webhook import WebhookError, webhook
from sandfleet_operator.fleet.servicer import FleetServicer
from sandfleet_operator.fleet.snapshots.servicer import SnapshotServicer
from sandfleet_operator.fleet.snapshots.unattended import Unattended
from sandfleet_operator.fleet.usage.meter import UsageMeter
from sandfleet_operator.plan.audit import Writer
from sandfleet_operator.plan.sandbox.observed import Pod
from sandfleet_operator.telemetry.audit import AuditLog, audit_log
from sandfleet_operator.telemetry.control_plane import process_families
from sandfleet_operator.telemetry.export import Export
from sandfleet_operator.telemetry.fleet_metrics import FleetMetrics
from sandfleet_operator.telemetry.loop_times import LoopTimes
from sandfleet_operator.telemetry.metrics import exposition, together
from sandfleet_operator.telemetry.probes import Probes, Standing

SERVICE = "sandfleet-fleet"
PORT = 8443
MANAGER = "sandfleet-fleet"
LEASE_NAME = "sandfleet-fleet"
# Seconds that the port's certificate is valid; it is made anew when half of them are over.
CERTIFICATE_SECONDS = 30 * 86400.0
# Seconds that calls in progress have to end.
STOP_GRACE = 1.0
SERVER_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", 1 << 20),
    ("grpc.max_metadata_size", 16 << 10),
    ("grpc.max_concurrent_streams", 5000),
    # Connections that say nothing end, which each pod of the cluster can open.
    ("grpc.server_handshake_timeout_ms", 10_000),
    # Bursts of claims wait for their turn instead of being cut off.
    ("grpc.server.max_pending_requests", 20_000),
    ("grpc.server.max_pending_requests_hard_limit", 40_000),
    # Clients that wait ask now and then whether anybody is there.
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
)

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`kubeconfig` empty: the pod's service account. `pod_ip` empty: only the Service's name reaches the port.

    `pod` empty: no Service leads here.
    """

    namespace: str
    pod_ip: str = ""
    pod: str = ""
    settings: Settings
    identity: str
    host: str = "0.0.0.0"  # noqa: S104 - in a pod, behind a NetworkPolicy
    port: int = PORT
    kubeconfig: str = ""
    # Of the probes; 0: none, as outside a pod.
    health_port: int = 0


class PortCertificate:
    """What the port shows: made from the authority of the moment, kept for a while. The key lives in memory only."""

    def __init__(self, credentials: Credentials, options: Options, clock: Callable[[], float]) -> None:
        self._credentials = credentials
        self._clock = clock
        names = [
            SERVICE,
            f"{SERVICE}.{options.namespace}",
            f"{SERVICE}.{options.namespace}.svc",
            "localhost",
            "127.0.0.1",
        ]
        self._names = [*names, options.pod_ip] if options.pod_ip else names
        self._certificate: x509.Certificate | None = None
        self._renewal = 0.0
        self._shown: grpc.ServerCertificateConfiguration | None = None

    def server_credentials(self) -> grpc.ServerCredentials:
        return shown_certificate.server_credentials(self.configuration)

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        """The certificate of the present authority, valid for a while."""
        authority, now = self._credentials.authority, self._clock()
        if self._shown is None or authority.certificate != self._certificate or now >= self._renewal:
            pair = authority.server(self._names, now, CERTIFICATE_SECONDS)
            self._shown = grpc.ssl_server_certificate_configuration([pair])
            self._certificate, self._renewal = authority.certificate, now + CERTIFICATE_SECONDS / 2
        return self._shown


Assemble = Callable[[KubeApi, Signing, Settings, Lease], KubernetesFleet]


def serve(options: Options, assemble: Assemble | None = None, times: LoopTimes | None = None) -> int:
    """Serves until SIGTERM or SIGINT; returns an exit code.

    `assemble` makes a fleet for pods that only pretend, and `times` measures the event loop by another clock.
    """
    code, times = 0, times or LoopTimes()
    shorten_collections()
    try:
        audit = audit_log(Writer(component="fleet", instance=options.identity), wall_clock, os.environ)
        export = Export.begun("fleet", os.environ)
        with closing(audit), closing(export), asyncio.Runner(loop_factory=times.new_loop) as runner:
            runner.run(_serve(options, assemble or assembled, times, audit, export))
    except* (KubeError, SigningError, WebhookError, OSError, RuntimeError, LeadershipLostError) as group:
        _LOG.error("cannot serve: %s", "; ".join(map(str, group.exceptions)))
        code = 1
    return code


async def _serve(options: Options, assemble: Assemble, times: LoopTimes, audit: AuditLog, export: Export) -> None:
    ended = _ended_by_signal()
    kube = await connect(MANAGER, options.kubeconfig, kinds=REVIEW_KINDS)
    try:
        signing = Signing(kube, options.namespace, wall_clock)
        await signing.load()
        await signing.publish()
        lease = Lease(kube, Ref(LEASE, options.namespace, LEASE_NAME), options.identity)
        kubernetes = assemble(kube, signing, options.settings, lease)
        desk = desk_of(kube, kubernetes, signing, lease, audit)
        measured = FleetMetrics(kubernetes.fleet, lambda: desk.board.waiting_for_people)
        own = process_families(times, lambda: lease.fencing)
        families = together(own, audit.families, kube.metrics.families, measured.families)
        server, port = await listen(
            kube, signing, options, kubernetes, board=desk.board, write=audit.write, measured=measured
        )
        _LOG.info("listening on port %d", port)
        probes = Probes(lambda: True, lambda: standing(kubernetes, lease), lambda: exposition(families()))
        work = (
            probes.serve(options.health_port),
            signing.run(rotate_every=ROTATE_EVERY),
            kubernetes.follow(),
            lead(kubernetes, lease, desk.run()),
            export.run(families),
            collect_in_time(),
            ended.wait(),
        )
        # An unforeseen failure ends the process: otherwise keys would grow stale unseen, and claims wait in vain.
        done, tasks = await asyncio.wait(map(asyncio.create_task, work), return_when=asyncio.FIRST_COMPLETED)
        await server.stop(STOP_GRACE)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await kubernetes.close()
        await lease.release()
        for task in done:
            task.result()
    finally:
        await kube.close()


def _ended_by_signal() -> asyncio.Event:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    return ended


def desk_of(kube: KubeApi, kubernetes: KubernetesFleet, signing: Signing, lease: Lease, audit: AuditLog) -> ReviewDesk:
    """Raises WebhookError."""
    hook = webhook(os.environ, wall_clock)
    return ReviewDesk(kube, kubernetes, signing, lambda: lease.fencing, audit=audit.write, hook=hook)


def standing(kubernetes: KubernetesFleet, lease: Lease) -> Standing:
    """A standby is ready as soon as it knows what exists: it could take over. It serves only when it leads."""
    return Standing(ready=kubernetes.synced, leads=kubernetes.serving, leader=lease.holder, fencing=lease.fencing)


def assembled(
    kube: KubeApi,
    signing: Signing,
    settings: Settings,
    lease: Lease,
    *,
    executors: Callable[[Store], ProbingExecutors] | None = None,
    listens: Callable[[Pod], bool] = has_address,
) -> KubernetesFleet:
    """`executors` and `listens` stand in for pods that only pretend."""

    def real(store: Store) -> ProbingExecutors:
        return PodExecutors(Contacts(signing, wall_clock), signing, store, settings.executor_port)

    return KubernetesFleet(
        kube,
        settings,
        executors or real,
        lease=lease.ref,
        leading=lambda: lease.fencing,
        clock=SteadyClock(),
        wall_clock=wall_clock,
        listens=listens,
        authority=lambda: signing.authority.public_text,
    )


async def lead(kubernetes: KubernetesFleet, lease: Lease, *beside: Coroutine[Any, Any, None]) -> None:
    """Ends with leadership. `beside` runs as long as it leads."""
    # A Lease that was deleted, as by an uninstall, counts on above the claims that are still there.
    number = await lease.acquire(await kubernetes.numbers_seen())
    _LOG.info("leading, with fencing number %d", number)
    async with asyncio.TaskGroup() as group:
        working = [group.create_task(work) for work in (kubernetes.lead(number), *beside)]
        await lease.hold(lambda: None)
        for task in working:
            task.cancel()
    raise LeadershipLostError("cannot lead any more: the Lease was not renewed in time, or another one has it")


def _witness(kubernetes: KubernetesFleet, credentials: Credentials, write: Write) -> Witness:
    return Witness(
        kubernetes.executors.journal_head,
        kubernetes.known_as,
        lambda: credentials.signer,
        write,
        wall_clock,
        vouch=lambda said: credentials.authority.sign(said),  # noqa: PLW0108 - by the authority of that moment
        memory=PodMemory(kubernetes),
        records=records_between(os.environ),
    )


async def listen(
    kube: KubeApi,
    credentials: Credentials,
    options: Options,
    kubernetes: KubernetesFleet,
    *,
    board: ReviewBoard,
    write: Write = lambda _: None,
    measured: FleetMetrics | None = None,
) -> tuple[grpc.aio.Server, int]:
    """A started server and its port (a new one where the options say 0). Raises RuntimeError where it is taken.

    `write` writes audit records; `measured` counts claims and sandboxes.
    """
    kubernetes.fleet.noted = noting(write)
    measured = measured or FleetMetrics(kubernetes.fleet, lambda: board.waiting_for_people)
    measured.begin()
    server = grpc.aio.server(options=SERVER_OPTIONS, interceptors=[AuditInterceptor(write)])
    reviews = Reviews(kube, wall_clock)
    witness = _witness(kubernetes, credentials, write)
    usage = _metered(kubernetes, measured, witness)
    api = KubernetesFleetApi(kube, reviews, credentials, kubernetes, board, witness=witness, usage=usage)
    _add_egress(server, kubernetes, api, reviews, credentials, options=options, write=write, measured=measured)
    board.answered = measured.reviews.answered
    add_FleetServiceServicer_to_server(FleetServicer(api, measured.claims), server)
    link = SnapshotterLink(reviews, options.namespace, api.check_serving, Places(kube))
    parties = Parties(kubernetes, credentials, api)
    api.parking = _keep_in_snapshots(kube, kubernetes, link, parties, settings=options.settings, write=write)
    _add_snapshots(server, link, KubernetesSnapshots(kubernetes, reviews, link, parties, api), measured)
    if options.pod:
        place = ServicePlace(kube, options.namespace, options.pod, lambda: kubernetes.serving)
        kubernetes.beside.append(place.hold)
    shown = PortCertificate(credentials, options, wall_clock).server_credentials()
    port = server.add_secure_port(f"{options.host}:{options.port}", shown)
    await server.start()
    return server, port


def _add_egress(
    server: grpc.aio.Server,
    kubernetes: KubernetesFleet,
    api: KubernetesFleetApi,
    reviews: Reviews,
    credentials: Credentials,
    *,
    options: Options,
    write: Write,
    measured: FleetMetrics,
) -> None:
    """Egress by name, and the signer of certificates, which the gateway needs as well."""
    signer = GatewaySigner(reviews, credentials, options.namespace, wall_clock)
    add_GatewayIdentityServiceServicer_to_server(signer, server)
    add_EgressServiceServicer_to_server(EgressServicer(api), server)
    if options.settings.egress.service:
        find = kubernetes.scheduler.inventory.of_incarnation
        desk = api.egress = EgressDesk(
            kubernetes.store, options.settings, credentials, find, write=write, clock=wall_clock
        )
        desk.measure = measured.egress.heard
        desk.serve(reviews, options.namespace, api.check_serving)
        add_EgressProcessServiceServicer_to_server(desk, server)


def _metered(kubernetes: KubernetesFleet, measured: FleetMetrics, witness: Witness) -> UsageMeter:
    """What reads the usage of sessions, which like the witness looks at them from time to time."""
    usage = UsageMeter(kubernetes.executors.usage, measured.sessions.read, kubernetes.fleet.now)
    for reader in (witness, usage):
        reader.watch(lambda: kubernetes.scheduler.inventory.in_state(State.CLAIMED), kubernetes.clock)
        kubernetes.at_end.append(reader.close)
    return usage


def _keep_in_snapshots(
    kube: KubeApi,
    kubernetes: KubernetesFleet,
    link: SnapshotterLink,
    parties: Parties,
    *,
    settings: Settings,
    write: Write,
) -> ClusterParking:
    """Sessions that sleep in snapshots, pools that start from one, and SandboxSnapshots."""
    parking = ClusterParking(kubernetes, link, parties, wall_clock, write)
    if settings.snapshotter:
        kubernetes.suspender.keeper = parking
    kubernetes.park_with(parking, WarmPods(kubernetes, settings.copied_labels, wall_clock).give)
    kubernetes.prepare_with(PoolPreparation(kubernetes, link, parties, write))
    reachable = lambda: settings.snapshotter or link.connected > 0  # noqa: E731 - of this moment
    rounds = SnapshotRounds(kube, kubernetes, link, parties, wall_clock, reachable=reachable)
    kubernetes.on_snapshots = rounds.look_soon
    kubernetes.at_end.append(parking.close)
    kubernetes.beside += [Unattended(kubernetes.fleet, kubernetes.suspender, parking).run, rounds.run]
    return parking


def _add_snapshots(
    server: grpc.aio.Server, link: SnapshotterLink, snapshots: KubernetesSnapshots, measured: FleetMetrics
) -> None:
    link.ended = measured.snapshots.ended
    add_SnapshotterServiceServicer_to_server(link, server)
    add_SnapshotServiceServicer_to_server(SnapshotServicer(snapshots), server)
