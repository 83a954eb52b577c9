"""The way to executors through the fleet's pod, for a client that cannot reach the addresses of pods.

A gRPC channel needs an address. So each executor gets a socket of this machine, and each connection to it becomes a
tunnel of the gateway. TLS with the executor goes through unread, and the name in its certificate is checked as ever.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sandfleet._fleets.cluster import GATEWAY
from sandfleet._wire import api
from sandfleet._wire.channel import open_channel
from sandfleet._wire.pipe import Listener, Pipe, connect
from sandfleet._wire.status import detail, to_fleet_error
from sandfleet.errors import InvalidArgument, SandfleetError, UnavailableError

if TYPE_CHECKING:
    from sandfleet._fleets.connection import FleetConnection
    from sandfleet._wire.link import Metadata

# Seconds that an executor may take to accept a connection, and for which one that did not is not asked again.
_DIRECT_TIMEOUT, _DIRECT_PAUSE = 1.0, 30.0
_OPEN_TIMEOUT = 20.0
# Between two looks whether there is a newer token, in seconds; a token lives longer.
_TOKEN_EVERY = 20.0
# gRPC needs one connection, and a second one while it replaces it.
_MOST_CONNECTIONS = 4


class Relays:
    """All of one connection to a fleet."""

    def __init__(self, connection: FleetConnection) -> None:
        self._connection = connection
        self._needed_until = 0.0
        self._folder: _Folder | None = None
        self._made = 0
        self._channel: api.aio.Channel | None = None
        self._opening = asyncio.Lock()

    async def look(self, access: api.fleet.Access) -> None:
        """Find out whether the executor's own address answers, if there is another way."""
        place = self._connection.place
        clock = asyncio.get_running_loop().time
        if place is None or place.gateway is None or place.forwarded or clock() < self._needed_until:
            return
        if not await _answers(access.address):
            self._needed_until = clock() + _DIRECT_PAUSE

    def to(self, sandbox_id: str, access: api.fleet.Access) -> Relay | None:
        """Return the way around the executor's address; None if that can be used."""
        place = self._connection.place
        if place is None or place.gateway is None or not access.ca_pem:
            return None
        if not place.forwarded and asyncio.get_running_loop().time() >= self._needed_until:
            return None
        if self._folder is None:
            self._folder = _Folder()
        self._made += 1
        return Relay(self, sandbox_id, f"{self._folder.path}/{self._made}")

    async def open(self, sandbox_id: str) -> tuple[Pipe, str]:
        """Open a tunnel to a sandbox's executor; return it with the token that it began with. Raises SandfleetError."""
        metadata = await self._connection.metadata()
        channel = await self._reach()
        # The stubs expect the requests here; they are written to the call instead.
        call = api.gateway_grpc.GatewayServiceStub(channel).Tunnel(None, metadata=metadata)
        try:
            first = api.gateway.TunnelOpen(sandbox_id=sandbox_id)
            return await Pipe.open(call, api.gateway.TunnelRequest, first, _OPEN_TIMEOUT), _token(metadata)
        except api.aio.AioRpcError as error:
            if error.code().name == "UNAVAILABLE" and detail(error) is None:
                await self._forget(channel)
            raise to_fleet_error(error) from error
        except TimeoutError as error:
            await self._forget(channel)
            raise UnavailableError(
                f"cannot reach the executor of sandbox {sandbox_id}: the gateway gave no answer for {_OPEN_TIMEOUT:g} s",
                reason="GatewaySilent",
                retryable=True,
            ) from error

    async def check(self) -> None:
        """Raise SandfleetError unless the gateway answers, and the fleet behind it."""
        with suppress(InvalidArgument):
            # No sandbox has this id: the fleet refuses it, which is an answer.
            await self.open("-")

    async def token(self) -> str:
        """Return the caller's token of now. Raises UnavailableError."""
        return _token(await self._connection.metadata())

    async def _reach(self) -> api.aio.Channel:
        """Return the channel to the gateway. Raises UnavailableError."""
        async with self._opening:
            place = self._connection.place
            assert place is not None
            assert place.gateway is not None
            if self._channel is None:
                try:
                    address = await asyncio.to_thread(place.gateway)
                except UnavailableError:
                    # Its pod may be gone.
                    await self._connection.look_again(self._connection.stub)
                    raise
                self._channel = open_channel(address, ca=place.ca, name=GATEWAY)
            return self._channel

    async def _forget(self, broken: api.aio.Channel) -> None:
        """The gateway is gone: it may be somewhere else now."""
        if self._channel is broken:
            self._channel = None
            await self._connection.look_again(self._connection.stub)
            await broken.close(None)

    async def close(self) -> None:
        """Close all."""
        old, self._channel = self._channel, None
        if old is not None:
            await old.close(None)
        if self._folder is not None:
            self._folder.remove()
            self._folder = None


class Relay:
    """A socket of this machine that leads to one executor."""

    def __init__(self, relays: Relays, sandbox_id: str, path: str) -> None:
        self._relays = relays
        self._sandbox_id = sandbox_id
        self._path = path
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(path)
        listener.listen(_MOST_CONNECTIONS)
        self._listener = Listener(listener, self._serve, _MOST_CONNECTIONS)
        # Why the last connection was not made.
        self.refusal: SandfleetError | None = None

    @property
    def address(self) -> str:
        """The address to connect to: "unix:/path"."""
        return f"unix:{self._path}"

    def retire(self) -> None:
        """Make no more connections; those that are open go on."""
        self._listener.stop()
        Path(self._path).unlink(missing_ok=True)

    async def close(self) -> None:
        """End all connections."""
        self.retire()
        await self._listener.close()

    async def _serve(self, sock: socket.socket) -> None:
        tokens: asyncio.Task[None] | None = None

        async def opened() -> Pipe:
            nonlocal tokens
            pipe, token = await self._relays.open(self._sandbox_id)
            self.refusal = None
            tokens = asyncio.ensure_future(self._keep(pipe, token))
            return pipe

        try:
            await connect(sock, opened)
        except SandfleetError as error:
            # gRPC sees that the connection ended; what speaks through it asks why.
            self.refusal = error
        except OSError:
            pass
        finally:
            if tokens is not None:
                tokens.cancel()

    async def _keep(self, pipe: Pipe, token: str) -> None:
        """Send each newer token, so that the tunnel outlives the one that it began with."""
        while True:
            await asyncio.sleep(_TOKEN_EVERY)
            with suppress(SandfleetError, api.aio.AioRpcError):
                if (newer := await self._relays.token()) != token:
                    await pipe.send(token=newer)
                    token = newer


def _token(metadata: Metadata) -> str:
    return dict(metadata).get("authorization", "").removeprefix("Bearer ")


async def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(_DIRECT_TIMEOUT):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except (OSError, ValueError):
        return False
    writer.close()
    return True


class _Folder:
    """A folder of this user alone, removed at the latest when this process ends."""

    def __init__(self) -> None:
        self.path = tempfile.mkdtemp(prefix="sandfleet-")
        self.remove = weakref.finalize(self, _remove, self.path, os.getpid())


def _remove(path: str, process: int) -> None:
    # A forked child leaves the parent's sockets alone.
    if os.getpid() == process:
        shutil.rmtree(path, ignore_errors=True)
