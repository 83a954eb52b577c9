"""Connections to ports inside the session: made by the spawner where its network is, carried here."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

from sandfleet_executor.core.errors import RpcError
from sandfleet_executor.effects.namespace.namespace import Namespace

MOST_TUNNELS = 100
# What is read at once. A tunnel holds one such piece each way and no more: the rest waits in the kernels of both ends.
PIECE_BYTES = 256 << 10
# After so long without any byte, in seconds, a connection is taken for forgotten.
IDLE_SECONDS = 3600.0
RESET_AT_CLOSE = struct.pack("ii", 1, 0)
TCP = (socket.AF_INET, socket.AF_INET6)


class TunnelError(RpcError):
    """A connection cannot begin, or go on. `why` is for its caller."""

    why = ""


class OwnPortError(TunnelError, code="PERMISSION_DENIED", reason="OwnPort"):
    why = "it is the executor's own"


class ConnectionRefused(TunnelError, code="FAILED_PRECONDITION", reason="ConnectionRefused", retryable=True):
    why = "no process listens on that port of the sandbox's loopback"


class ConnectTimeout(TunnelError, code="DEADLINE_EXCEEDED", reason="ConnectTimeout", retryable=True):
    why = "the process that listens there does not accept the connection"


class TooManyTunnelsError(TunnelError, code="RESOURCE_EXHAUSTED", reason="TooMany", retryable=True):
    why = f"{MOST_TUNNELS} connections are open"


class ConnectionIdle(TunnelError, code="DEADLINE_EXCEEDED", reason="ConnectionIdle"):
    why = f"no byte came or went for {IDLE_SECONDS:g} s"


class ResetByPeer(TunnelError, code="ABORTED", reason="ConnectionReset"):
    why = "the other end reset the connection"


class Tunnel:
    """One connection. Its two directions are independent: one task reads, one writes."""

    def __init__(self, sock: socket.socket, used: Callable[[], None], idle: float) -> None:
        """`used` is called when bytes have gone through; after `idle` seconds without any, reading raises
        ConnectionIdle.
        """
        sock.setblocking(False)
        self._sock = sock
        self._used = used
        self._loop = asyncio.get_running_loop()
        self._idle = idle
        self._moved = self._loop.time()
        self._ends = 0

    @property
    def over(self) -> bool:
        """Whether both sides have said all."""
        return self._ends == 2

    async def read(self) -> AsyncIterator[bytes]:
        """What comes, until the other end says that it sends no more. Raises ResetByPeer."""
        while data := await self._guarded(self._loop.sock_recv(self._sock, PIECE_BYTES)):
            self._count()
            yield data
        self._ends += 1

    async def write(self, data: bytes) -> None:
        """Returns when the kernel has all of it. Raises ResetByPeer."""
        await self._guarded(self._loop.sock_sendall(self._sock, data))
        self._count()

    def end(self) -> None:
        """Says that no more is sent. Raises ResetByPeer."""
        with telling_reset():
            self._sock.shutdown(socket.SHUT_WR)
        self._ends += 1

    async def until_idle(self) -> None:
        """Raises ConnectionIdle when it is time."""
        while (left := self._moved + self._idle - self._loop.time()) > 0:  # noqa: ASYNC110 - not polled: each sleep is as long as it can be
            await asyncio.sleep(left)
        raise ConnectionIdle

    def close(self) -> None:
        """The other end sees a reset, unless both have said all."""
        if not self.over:
            with contextlib.suppress(OSError):
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
        self._sock.close()

    def _count(self) -> None:
        self._moved = self._loop.time()
        self._used()

    @staticmethod
    async def _guarded(work: Awaitable[bytes | None]) -> bytes:
        with telling_reset():
            return await work or b""


@contextlib.contextmanager
def telling_reset() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ResetByPeer(error.strerror) from error


class Tunnels:
    """All of a sandbox."""

    def __init__(
        self,
        namespace: Callable[[], Awaitable[Namespace]],
        own_port: int | None,
        used: Callable[[], None],
        *,
        idle: float = IDLE_SECONDS,
    ) -> None:
        """`own_port` is the executor's, where user code shares its network."""
        self._namespace = namespace
        self._own_port = own_port
        self._used = used
        self._idle = idle
        self._open = 0

    @property
    def count(self) -> int:
        """How many are open."""
        return self._open

    @contextlib.asynccontextmanager
    async def open(self, port: int) -> AsyncIterator[Tunnel]:
        """A tunnel to the port. Raises NamespaceError and those above."""
        if port == self._own_port:
            raise OwnPortError
        if self._open >= MOST_TUNNELS:
            raise TooManyTunnelsError
        self._open += 1
        try:
            tunnel = Tunnel(await self._connect(port), self._used, self._idle)
            try:
                yield tunnel
            finally:
                tunnel.close()
        finally:
            self._open -= 1

    async def _connect(self, port: int) -> socket.socket:
        made = await (await self._namespace()).connect(port)
        if isinstance(made, socket.socket):
            if made.family in TCP and made.type == socket.SOCK_STREAM:
                # Under gVisor it is not set by default, and typed characters would wait for an acknowledgement.
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return made
            made.close()
            raise ConnectionRefused
        raise {"timeout": ConnectTimeout, "many": TooManyTunnelsError}.get(made.get("reason", ""), ConnectionRefused)
