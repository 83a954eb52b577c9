"""Connections to executors that the gateway carries: how many there may be, and when each has to end."""

import asyncio
import contextlib
import random
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.reasons import ClaimReason, GatewayReason
from sandfleet_operator.cluster.tasks import readable
from sandfleet_operator.fleet.gateway.routes import Route, Routes

# What is read at once. A tunnel holds one such piece each way and no more: the rest waits in the kernels of both ends.
# Large pieces cost less for each byte. Many tunnels share what few may hold.
LARGEST_PIECE, SMALLEST_PIECE, ALL_PIECES = 512 << 10, 64 << 10, 64 << 20
RESET_AT_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Numbers of tunnels; the rest in seconds."""

    # Those that are being opened count too.
    total: int = 1000
    per_caller: int = 250
    connect: float = 10.0
    # Between two questions whether the caller may still be connected to this pod.
    check_every: float = 15.0
    # How long a tunnel goes on while the fleet gives no answer to that question.
    unchecked: float = 120.0


class Tunnel:
    """One connection to an executor. Its two directions are independent: one task reads, one writes."""

    def __init__(
        self, sock: socket.socket, sandbox_id: str, route: Route, token: str, room: Callable[[], memoryview]
    ) -> None:
        """`room` is where the next piece is put; all tunnels may share it."""
        self._sock = sock
        self._room = room
        self._loop = asyncio.get_running_loop()
        self._ends = 0
        self.sandbox_id = sandbox_id
        self.route = route
        # Of the caller; a newer one may replace it.
        self.token = token

    @property
    def over(self) -> bool:
        """Whether both sides have said all."""
        return self._ends == 2

    async def read(self) -> AsyncIterator[memoryview]:
        """What comes, until the executor says that it sends no more. Each piece is only valid until the caller awaits:
        it is copied once, into its message. Raises FleetError where the connection breaks.
        """
        while True:
            with self._telling():
                piece = self._take()
            if piece is None:
                await readable(self._sock)
            elif piece:
                yield piece
            else:
                break
        self._ends += 1

    def _take(self) -> memoryview | None:
        """What is there now, empty at the end; None if nothing has come yet."""
        room = self._room()
        try:
            return room[: self._sock.recv_into(room)]
        except BlockingIOError:
            return None

    async def write(self, data: bytes) -> None:
        """Returns when the kernel has all of it. Raises FleetError where the connection breaks."""
        with self._telling():
            await self._loop.sock_sendall(self._sock, data)

    def end(self) -> None:
        """Says that no more is sent."""
        with self._telling():
            self._sock.shutdown(socket.SHUT_WR)
        self._ends += 1

    def close(self) -> None:
        """The executor sees a reset, unless both sides have said all."""
        if not self.over:
            with contextlib.suppress(OSError):
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
        self._sock.close()

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise unreachable(self.sandbox_id, f"the connection broke: {error.strerror}") from error


class Tunnels:
    """All of a gateway. `chance` draws from 0 to 1, so that not all are checked at once."""

    def __init__(self, routes: Routes, bounds: Bounds, chance: Callable[[], float] = random.random) -> None:
        self.routes = routes
        self.bounds = bounds
        self._chance = chance
        self._open = 0
        self._stopping = asyncio.Event()
        self._of_caller: Counter[str] = Counter()
        self._room = memoryview(bytearray(LARGEST_PIECE))

    def __len__(self) -> int:
        return self._open

    @contextlib.asynccontextmanager
    async def open(self, sandbox_id: str, token: str) -> AsyncIterator[Tunnel]:
        """A connection to the sandbox's executor, for a caller who may run code in it. Raises FleetError."""
        self._check_not_stopping()
        if self._open >= self.bounds.total:
            raise _too_many(f"all callers together have {self._open}")
        self._open += 1
        try:
            route = await self.routes.find(sandbox_id, token)
            with self._counted(route.caller):
                tunnel = Tunnel(await self._connect(sandbox_id, route), sandbox_id, route, token, self._piece)
                try:
                    yield tunnel
                finally:
                    tunnel.close()
        finally:
            self._open -= 1

    def _piece(self) -> memoryview:
        return self._room[: piece_bytes(self._open)]

    @contextlib.contextmanager
    def _counted(self, caller: str) -> Iterator[None]:
        if self._of_caller[caller] >= self.bounds.per_caller:
            raise _too_many(f"{caller} has {self._of_caller[caller]}")
        self._of_caller[caller] += 1
        try:
            yield
        finally:
            self._of_caller[caller] -= 1
            if not self._of_caller[caller]:
                del self._of_caller[caller]

    async def _connect(self, sandbox_id: str, route: Route) -> socket.socket:
        host, _, port = route.address.rpartition(":")
        sock = None
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            sock = socket.socket(family, socket.SOCK_STREAM)
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(self.bounds.connect):
                await asyncio.get_running_loop().sock_connect(sock, (host.strip("[]"), int(port)))
        except BaseException as error:  # Also a cancellation: no other code would close it.
            if sock is not None:
                sock.close()
            if not isinstance(error, OSError | ValueError):
                raise
            raise unreachable(sandbox_id, f"it cannot be connected to: {error or 'no answer'}") from error
        return sock

    async def until_refused(self, tunnel: Tunnel) -> None:
        """Raises FleetError when the caller may not be connected to this pod any longer."""
        clock = asyncio.get_running_loop().time
        allowed = clock()
        while True:
            await self._pause(self.bounds.check_every * (0.5 + 0.5 * self._chance()))
            try:
                route = await self.routes.find(tunnel.sandbox_id, tunnel.token)
            except FleetError as error:
                # The fleet may be away for a moment, or the sandbox not ready.
                if not error.problem.retryable or clock() - allowed > self.bounds.unchecked:
                    raise
                continue
            check_same(tunnel, route)
            allowed = clock()

    async def _pause(self, seconds: float) -> None:
        """Raises FleetError when all tunnels end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        self._check_not_stopping()

    def _check_not_stopping(self) -> None:
        if self._stopping.is_set():
            raise ClaimReason.NOT_SERVING.error("cannot carry the connection: the gateway stops")

    def stop(self) -> None:
        """Ends all tunnels, and opens no more."""
        self._stopping.set()


def piece_bytes(tunnels: int) -> int:
    """The most that one of so many open tunnels reads at once."""
    return max(SMALLEST_PIECE, min(LARGEST_PIECE, ALL_PIECES // max(1, tunnels)))


def check_same(tunnel: Tunnel, route: Route) -> None:
    """Raises FleetError where the answer is about another pod or another caller than the tunnel's."""
    if route.caller != tunnel.route.caller:
        why = f"the newer token is {route.caller}'s, and the tunnel {tunnel.route.caller}'s"
        raise GatewayReason.INVALID_TUNNEL.error(f"cannot go on with the connection: {why}", tunnel.sandbox_id)
    if route.sandbox_uid != tunnel.route.sandbox_uid:
        why = f"another pod serves sandbox {tunnel.sandbox_id} now"
        raise GatewayReason.SANDBOX_REPLACED.error(f"cannot go on with the connection: {why}", tunnel.sandbox_id)


def unreachable(sandbox_id: str, why: str) -> FleetError:
    message = f"cannot reach the executor of sandbox {sandbox_id}: {why}"
    return ClaimReason.EXECUTOR_UNREACHABLE.error(message, sandbox_id)


def _too_many(why: str) -> FleetError:
    return GatewayReason.TOO_MANY_TUNNELS.error(f"cannot open a tunnel: {why} open, which is the most")
