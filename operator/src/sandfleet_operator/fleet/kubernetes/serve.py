"""The fleet's process on Kubernetes, from its start to a signal."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable
from dataclasses import dataclass

import grpc
from cryptography import x509
from sandfleet_api.fleet.v1.fleet_pb2_grpc import add_FleetServiceServicer_to_server

from sandfleet_operator.api.kube import KubeError
from sandfleet_operator.effects.clock import wall_clock
from sandfleet_operator.effects.contact import Credentials
from sandfleet_operator.effects.kube import connect
from sandfleet_operator.effects.kubeapi import KubeApi
from sandfleet_operator.effects.reviews import REVIEW_KINDS, Reviews
from sandfleet_operator.effects.signing import ROTATE_EVERY, Signing, SigningError
from sandfleet_operator.fleet.kubernetes.service import KubernetesFleetServicer

SERVICE = "sandfleet-fleet"
PORT = 8443
MANAGER = "sandfleet-fleet"
# Seconds that the port's certificate is valid; it is made anew when half of them are over.
CERTIFICATE_SECONDS = 30 * 86400.0
# Seconds that calls in progress have to end.
STOP_GRACE = 5.0
SERVER_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", 1 << 20),
    ("grpc.max_metadata_size", 16 << 10),
    ("grpc.max_concurrent_streams", 1000),
)

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`kubeconfig` empty: the pod's service account. `pod_ip` empty: the port is reached by its Service's name alone."""

    namespace: str
    pod_ip: str = ""
    host: str = "0.0.0.0"  # noqa: S104 - in a pod, behind a NetworkPolicy
    port: int = PORT
    kubeconfig: str = ""


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
        return grpc.dynamic_ssl_server_credentials(
            self.configuration(), self.configuration, require_client_authentication=False
        )

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        """What gRPC asks for at each handshake."""
        authority, now = self._credentials.authority, self._clock()
        if self._shown is None or authority.certificate != self._certificate or now >= self._renewal:
            pair = authority.server(self._names, now, CERTIFICATE_SECONDS)
            self._shown = grpc.ssl_server_certificate_configuration([pair])
            self._certificate, self._renewal = authority.certificate, now + CERTIFICATE_SECONDS / 2
        return self._shown


def serve(options: Options) -> int:
    """Serves until SIGTERM or SIGINT; returns an exit code."""
    try:
        asyncio.run(_serve(options))
    except (KubeError, SigningError, OSError, RuntimeError) as error:
        _LOG.error("cannot serve: %s", error)
        return 1
    return 0


async def _serve(options: Options) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    kube = await connect(MANAGER, options.kubeconfig, kinds=REVIEW_KINDS)
    try:
        signing = Signing(kube, options.namespace, wall_clock)
        await signing.load()
        await signing.publish()
        server, port = await listen(kube, signing, options)
        _LOG.info("serving on port %d", port)
        keeping = asyncio.create_task(signing.run(rotate_every=ROTATE_EVERY))
        waiting = asyncio.create_task(ended.wait())
        # A keeper that fails unforeseen ends the process: its keys would grow stale unseen.
        await asyncio.wait([keeping, waiting], return_when=asyncio.FIRST_COMPLETED)
        await server.stop(STOP_GRACE)
        waiting.cancel()
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping
    finally:
        await kube.close()


async def listen(kube: KubeApi, credentials: Credentials, options: Options) -> tuple[grpc.aio.Server, int]:
    """A started server and its port (a new one where the options say 0). Raises RuntimeError where it is taken."""
    server = grpc.aio.server(options=SERVER_OPTIONS)
    add_FleetServiceServicer_to_server(KubernetesFleetServicer(kube, Reviews(kube, wall_clock), credentials), server)
    shown = PortCertificate(credentials, options, wall_clock).server_credentials()
    port = server.add_secure_port(f"{options.host}:{options.port}", shown)
    await server.start()
    return server, port
