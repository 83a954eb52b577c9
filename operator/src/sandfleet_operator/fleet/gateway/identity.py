"""What the gateway shows to its clients, and by what it knows the fleet: both come from the fleet, through a folder."""

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
from sandfleet_api.fleet.v1.fleet_pb2_grpc import FleetServiceStub

from sandfleet_operator.fleet.certificates import IDENTITY_FILE, Shown, read_identity

if TYPE_CHECKING:
    # Exists in the stubs only.
    from sandfleet_api.fleet.v1.fleet_pb2_grpc import FleetServiceAsyncStub

# The name in the certificate of the fleet's port.
FLEET = "sandfleet-fleet"
CHANNEL_OPTIONS = (
    ("grpc.ssl_target_name_override", FLEET),
    ("grpc.enable_http_proxy", 0),
    # A restarted fleet is found soon.
    ("grpc.max_reconnect_backoff_ms", 1000),
)
# Seconds between two looks for the fleet's file at the start, and that calls on an old channel have to end.
LOOK_SECONDS, OLD_CALLS = 0.2, 30.0

_LOG = logging.getLogger(__name__)


class Identity:
    """The fleet's file in `folder`, as it is now. `fleet` is HOST:PORT of the fleet."""

    def __init__(self, folder: Path, fleet: str) -> None:
        self._folder = folder
        self._fleet = fleet
        self._modified = 0
        self._shown: Shown | None = None
        self._channel: grpc.aio.Channel | None = None
        self._stub: FleetServiceAsyncStub | None = None
        self._authority = ""
        self._closing: set[asyncio.Task[None]] = set()

    async def wait(self) -> None:
        """Returns when the fleet has written the file."""
        while True:
            try:
                self._read()
            except (OSError, ValueError):
                await asyncio.sleep(LOOK_SECONDS)
            else:
                return

    def server_credentials(self) -> grpc.ServerCredentials:
        return grpc.dynamic_ssl_server_credentials(
            self._configuration(), self._configuration, require_client_authentication=False
        )

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        """What gRPC asks for at each handshake."""
        return self._read().configuration()

    def stub(self) -> "FleetServiceAsyncStub":
        """The fleet's service. The channel lives as long as the authority."""
        authority = self._read().authority
        if self._stub is None or authority != self._authority:
            credentials = grpc.ssl_channel_credentials(authority.encode())
            old, self._authority = self._channel, authority
            self._channel = grpc.aio.secure_channel(self._fleet, credentials, options=CHANNEL_OPTIONS)
            self._stub = FleetServiceStub(self._channel)
            if old is not None:
                task = asyncio.ensure_future(old.close(OLD_CALLS))
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
        return self._stub

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close(None)

    def _read(self) -> Shown:
        """Raises OSError and ValueError where there is no file, and never was one."""
        try:
            modified = (self._folder / IDENTITY_FILE).stat().st_mtime_ns
            if self._shown is None or modified != self._modified:
                self._shown, self._modified = read_identity(self._folder), modified
        except (OSError, ValueError) as error:
            if self._shown is None:
                raise
            _LOG.warning("cannot read the new certificate: %s", error)
        return self._shown
