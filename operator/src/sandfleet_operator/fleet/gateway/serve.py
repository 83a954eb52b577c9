"""The gateway's process, from its start to a signal."""

import asyncio
import logging
import signal
from dataclasses import dataclass
from pathlib import Path

import grpc

from sandfleet_operator import malloc
from sandfleet_operator.fleet.gateway.identity import Identity
from sandfleet_operator.fleet.gateway.messages import add_to_server
from sandfleet_operator.fleet.gateway.routes import FleetRoutes
from sandfleet_operator.fleet.gateway.servicer import MAX_DATA_BYTES, GatewayServicer
from sandfleet_operator.fleet.gateway.tunnels import Bounds, Tunnels
from sandfleet_operator.fleet.links.fleet_link import FleetLink
from sandfleet_operator.telemetry.probes import Probes, Standing

PORT = 8444
# Only the pod's own network namespace reaches it, as the kubelet's port-forward does.
HOST = "127.0.0.1"
AHEAD_BYTES = 512 << 10
# malloc keeps pieces of up to the first, and so many free bytes in all.
KEPT_PIECE, KEPT_BYTES = 4 << 20, 32 << 20
# Seconds that tunnels have to end.
STOP_GRACE = 5.0
SERVER_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MAX_DATA_BYTES + 1024),
    ("grpc.max_metadata_size", 16 << 10),
    # What a client may send ahead of an executor that does not read, for each tunnel. gRPC would let it grow to 13 MB.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", AHEAD_BYTES),
    # Of one client; the bounds of tunnels are lower.
    ("grpc.max_concurrent_streams", 5000),
    # A client that went away without a word, as a laptop that sleeps, is found out.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
)

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`fleet` is its HOST:PORT. `credentials` is a folder with `ca.crt`, and with `token` of the gateway's account."""

    fleet: str
    credentials: Path
    host: str = HOST
    port: int = PORT
    # Of the probes; 0: none, as outside a pod.
    health_port: int = 0
    bounds: Bounds = Bounds()  # noqa: RUF009 - frozen


def serve(options: Options) -> int:
    """Serves until SIGTERM or SIGINT; returns an exit code."""
    _keep_memory()
    code = 0
    try:
        asyncio.run(_serve(options))
    except* (OSError, RuntimeError) as group:
        _LOG.error("cannot serve: %s", "; ".join(map(str, group.exceptions)))
        code = 1
    return code


def _keep_memory() -> None:
    """Has malloc keep the memory of pieces for the next ones. It would return it to the kernel at each free: thousands
    of page faults for 100 MB, a quarter of the processor time.
    """
    malloc.choose(mmap_threshold=KEPT_PIECE, trim_threshold=KEPT_BYTES)


async def _serve(options: Options) -> None:
    ended, listening = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    fleet = FleetLink(options.fleet, options.credentials / "ca.crt")
    probes = Probes(lambda: True, lambda: Standing(ready=listening.is_set(), leads=False))
    work = (probes.serve(options.health_port), _listen(fleet, options, listening), ended.wait())
    tasks = [asyncio.create_task(one) for one in work]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await fleet.close()
    for task in done:
        task.result()


async def _listen(fleet: FleetLink, options: Options, listening: asyncio.Event) -> None:
    """Serves until it is cancelled."""
    identity = Identity(fleet, options.credentials)
    await identity.obtain()
    tunnels = Tunnels(FleetRoutes(fleet), options.bounds)
    server, port = await listen(tunnels, identity.server_credentials(), options)
    _LOG.info("listening on port %d", port)
    listening.set()
    try:
        await identity.run()
    finally:
        tunnels.stop()
        await server.stop(STOP_GRACE)


async def listen(
    tunnels: Tunnels, credentials: grpc.ServerCredentials, options: Options
) -> tuple[grpc.aio.Server, int]:
    """A started server and its port (a new one where the options say 0). Raises RuntimeError where it is taken."""
    server = grpc.aio.server(options=SERVER_OPTIONS)
    add_to_server(GatewayServicer(tunnels), server)
    port = server.add_secure_port(f"{options.host}:{options.port}", credentials)
    await server.start()
    return server, port
