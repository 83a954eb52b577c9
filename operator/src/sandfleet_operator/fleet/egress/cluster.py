"""The egress process on Kubernetes: executors connect with certificates, and the fleet says what they may reach."""

import asyncio
import contextlib
import logging
import os
import signal
import ssl
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandfleet_operator.api.networks import network
from sandfleet_operator.api.settings import Settings
from sandfleet_operator.cluster.kube import connect
from sandfleet_operator.fleet.egress.framed import FramedPeer
from sandfleet_operator.fleet.egress.lists import Lists, Secrets
from sandfleet_operator.fleet.egress.outside import RESOLVER, Outside, Ways, looked_up_as_it_is
from sandfleet_operator.fleet.egress.peer import Peer, SocketPeer
from sandfleet_operator.fleet.egress.serve import BACKLOG, Egress
from sandfleet_operator.fleet.egress.sessions import Bounds, Session, Sessions
from sandfleet_operator.fleet.egress.tls import TlsPeer, load
from sandfleet_operator.fleet.gateway.identity import Identity
from sandfleet_operator.fleet.links.fleet_link import FleetLink
from sandfleet_operator.plan.pods import egress as networks
from sandfleet_operator.telemetry.probes import Probes, Standing

COMPONENT = MANAGER = "egress"
HANDSHAKE_SECONDS = 10.0
# Handshakes at a time, in all, and from one address: a pod whose program opens all that its executor carries at once.
MOST_SHAKING, MOST_OF_ADDRESS = 1024, 160

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`fleet` is its HOST:PORT. `credentials` is a folder with `ca.crt`, and with `token` of the own account."""

    fleet: str
    credentials: Path
    settings: Settings
    host: str = "0.0.0.0"  # noqa: S104 - in a pod, behind a NetworkPolicy
    # Of the probes; 0: none, as outside a pod.
    health_port: int = 0
    kubeconfig: str = ""


class ClusterEgress(Egress):
    """Knows each session by the certificate of its executor: nothing else that comes over a connection counts."""

    def __init__(self, sessions: Sessions, outside: Outside, lists: Lists) -> None:
        super().__init__(sessions, outside)
        self._lists = lists

    async def _find(self, said: dict[str, Any], peer: Peer) -> Session | None:
        assert isinstance(peer, FramedPeer)
        assert isinstance(peer.below, TlsPeer)
        uid = proved_uid(peer.below.certificate)
        async with asyncio.timeout(self._sessions.bounds.opening):
            return await self._lists.find(uid, str(said.get("pod", ""))) if uid else None


def proved_uid(shown: dict[str, Any]) -> str:
    """The only name in the certificate of the other end, which the authority has signed; empty where it has none."""
    names = [value for kind, value in shown.get("subjectAltName", ()) if kind == "DNS"]
    return names[0] if len(names) == 1 else ""


def server_context(authority: bytes, pair: tuple[bytes, bytes]) -> ssl.SSLContext:
    """Only who has a certificate of the authority gets through the handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=authority.decode("ascii"))
    load(context, b"".join(pair))
    return context


class Port:
    """Takes connections of executors, with the certificate of the moment.

    Any sandbox reaches it, also one without a list, so a connection that has not proved itself is bounded and small:
    asyncio's own TLS takes a quarter of a megabyte for each, from its first moment on.
    """

    def __init__(self, egress: Egress, host: str, port: int) -> None:
        self._egress, self._host, self._port = egress, host, port
        self._server: asyncio.Server | None = None
        self._context: ssl.SSLContext | None = None
        # Handshakes that are not over, by the address of the other end.
        self._shaking: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, authority: bytes, pair: tuple[bytes, bytes]) -> int:
        """Connections that are there go on. Returns the port. Raises OSError."""
        self.close()
        self._context = server_context(authority, pair)
        self._server = await asyncio.get_running_loop().create_server(
            lambda: SocketPeer(self._connected), self._host, self._port, backlog=BACKLOG
        )
        self._port = int(self._server.sockets[0].getsockname()[1])
        return self._port

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    def _connected(self, peer: SocketPeer) -> None:
        self._tasks.add(task := asyncio.ensure_future(self._serve(peer)))
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, peer: SocketPeer) -> None:
        context = self._context
        address = str((peer.transport.get_extra_info("peername") or ("",))[0])
        if self._shaking[address] >= MOST_OF_ADDRESS or self._shaking.total() >= MOST_SHAKING or context is None:
            peer.abort()
            return
        secure = TlsPeer(peer, context)
        self._shaking[address] += 1
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                await secure.shake_hands()
        except OSError:
            peer.close()
            return
        finally:
            self._shaking[address] -= 1
            self._shaking += Counter()
        await self._egress.serve(FramedPeer(secure))


def ways(settings: Settings) -> Ways:
    """Where names may lead: neither to private addresses nor to what the installation blocks."""
    return Ways(
        allowed=[network(one) for one in settings.egress.networks], blocked=networks.blocked(settings.blocked_cidrs)
    )


def serve(options: Options) -> int:
    """Serves until SIGTERM or SIGINT; returns an exit code."""
    os.environ.update(RESOLVER)
    code = 0
    try:
        asyncio.run(_serve(options))
    except* (OSError, RuntimeError) as group:
        _LOG.error("cannot serve: %s", "; ".join(map(str, group.exceptions)))
        code = 1
    return code


async def _serve(options: Options) -> None:
    ended, listening = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    fleet = FleetLink(options.fleet, options.credentials / "ca.crt")
    kube = await connect(MANAGER, options.kubeconfig, kinds=())
    sessions = Sessions(Bounds())
    lists = Lists(fleet, options.credentials, sessions, Secrets(kube, time.monotonic), time.monotonic)
    egress = ClusterEgress(sessions, Outside(ways(options.settings), looked_up_as_it_is), lists)
    ready = lambda: Standing(ready=listening.is_set() and lists.connected.is_set(), leads=False)  # noqa: E731
    probes = Probes(lambda: True, ready)
    port = Port(egress, options.host, options.settings.egress.port)
    work = (probes.serve(options.health_port), _listen(fleet, options, port, listening), lists.run(), ended.wait())
    tasks = [asyncio.create_task(one) for one in work]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    port.close()
    with contextlib.suppress(OSError):
        await kube.close()
    await fleet.close()
    for task in done:
        task.result()


async def _listen(fleet: FleetLink, options: Options, port: Port, listening: asyncio.Event) -> None:
    """Serves until it is cancelled."""
    identity, renewed = Identity(fleet, options.credentials, COMPONENT), asyncio.Event()
    await identity.obtain()
    identity.renewed = renewed.set
    async with asyncio.TaskGroup() as group:
        group.create_task(identity.run())
        while True:
            number = await port.open(identity.authority, identity.pair)
            _LOG.info("listening on port %d", number)
            listening.set()
            await renewed.wait()
            renewed.clear()
