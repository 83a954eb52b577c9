"""One executor under test, seen from outside. `local` and `pod` look at the machine: the tests only call this.

The same tests run against an executor on this machine and against one in a gVisor pod (`--executor pod`).
"""

import asyncio
import ssl
import time
from dataclasses import dataclass, field, fields

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from google.protobuf.duration_pb2 import Duration
from sandfleet._wire.convert import common as convert
from sandfleet._wire.link import Link, open_channel
from sandfleet.errors import SandboxEnded, UnavailableError
from sandfleet.sandbox import AsyncSandbox
from sandfleet_api.executor.v1 import common_pb2, session_pb2, session_pb2_grpc
from sandfleet_api.fleet.v1 import fleet_pb2

SCOPES = "interpreter process filesystem session ports tools admin review snapshot"
PATIENCE = 60.0


async def until(condition, *, seconds=PATIENCE):
    """Polls until the condition (plain or async) is true; its value."""
    async with asyncio.timeout(seconds):
        while True:
            value = condition()
            if asyncio.iscoroutine(value):
                value = await value
            if value:
                return value
            await asyncio.sleep(0.05)


def seconds(value):
    return None if value is None else Duration(seconds=int(value), nanos=round(value % 1 * 1e9))


async def presented(executor):
    """The certificate that a port shows now, PEM."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    hostname, port = executor.config["listen"].split(":")
    _, writer = await asyncio.open_connection(hostname, int(port), ssl=context)
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return x509.load_der_x509_certificate(der).public_bytes(serialization.Encoding.PEM)


@dataclass(frozen=True)
class Exit:
    code: int | None
    signal: str | None


@dataclass(frozen=True)
class Rig:
    """How a test sets up its executor."""

    # None leaves the executor warm.
    session: str | None = "session"
    lease: float | None = None
    idle_timeout: float | None = None
    isolation: str = "namespace"
    # On this machine: listen on TCP instead of a unix socket. A pod always does.
    port: bool = False
    # Whether the host's CA signs the certificate of the port.
    signed: bool = True
    # Whether the executor starts again in place when it has ended.
    restarts: bool = False
    # Whether a pod's workspace outlives it. On this machine each workspace is a folder that stays.
    keeps_workspace: bool = False
    # The executor's own configuration.
    config: dict = field(default_factory=dict)

    @classmethod
    def of(cls, options):
        """A test's options: those of the rig, and the others for the executor's configuration."""
        own = {each.name for each in fields(cls)} - {"config"}
        config = {name: value for name, value in options.items() if name not in own}
        return cls(**{name: value for name, value in options.items() if name in own}, config=config)

    async def ready(self, executor, *, signed):
        """Signs the executor's certificate, opens its session and gives it a client."""
        if signed:
            await executor.host.authority.sign(executor)
        if self.session is not None:
            await executor.open(self.session, lease=self.lease, idle_timeout=self.idle_timeout)
        executor.sandbox = executor.client()
        return executor


@dataclass
class ExecutorUnderTest:
    """One executor. Its `sandbox` is a client's; it is also the fleet that this client knows."""

    host: object
    config: dict
    clients: list = field(default_factory=list)
    # What the server's certificate has to be signed by; None for a unix socket.
    ca: bytes = b""
    # The session that it serves; empty before it serves any. Tokens of callers are for it.
    served: str = ""

    # As a client sees it

    @property
    def address(self):
        return f"unix:{self.config['socket']}" if self.config.get("socket") else self.config["listen"]

    def client(self, *, token=None, address=None, autosave=False):
        """A sandbox object with its own connection; `token` and `address` never change then."""
        fleet = _Fleet(self, token, address)
        link = Link(fleet, *fleet.bound(), rpc_timeout=PATIENCE)
        made = AsyncSandbox(link, lease=300, bound=None, keep_alive=None, autosave=autosave)
        self.clients.append(made)
        return made

    @property
    def kept(self):
        """What another executor is started with to come after this one on its volume."""
        return {name: self.config[name] for name in ("workspace", "state_dir", "user_id") if name in self.config}

    def channel(self):
        """A bare channel, for what the client would never send."""
        return self.channel_for(self.ca)

    def channel_for(self, ca):
        """A bare channel that trusts only `ca`."""
        return open_channel(self.address, ca=ca, name=self.config["sandbox_uid"])

    def token(self, key=None, **claims):
        """A token; claims replace the good ones, None leaves one out."""
        now = int(time.time())
        good = {
            "iss": "sandfleet",
            "aud": self.config["sandbox_uid"],
            "sub": "uid:0",
            "sid": self.served or self.config["sandbox_id"],
            "scope": SCOPES,
            "contract": self.config.get("contract", "autonomous"),
            "iat": now,
            "nbf": now,
            "exp": now + 3600,
        }
        said = {name: value for name, value in (good | claims).items() if value is not None}
        return jwt.encode(said, key or self.host.key, algorithm="EdDSA", headers={"kid": "k"})

    async def open(self, session, *, lease=None, idle_timeout=None, envs=None, limits=None, mounts=None):
        """SessionService.Open, which the fleet calls at the claim and to renew. Raises AioRpcError."""
        request = session_pb2.OpenRequest(
            session_id=session,
            lease=seconds(lease),
            idle_timeout=seconds(idle_timeout),
            envs=envs or {},
            limits=common_pb2.Limits(**(limits or {})),
            mounts=mounts or {},
        )
        answer = await self._admin("Open", request)
        self.served = session
        return answer.description

    async def close_session(self):
        await self._admin("Close", session_pb2.CloseRequest())

    async def suspend(self, *, force=False):
        """SessionService.Suspend, before the fleet ends the executor. Raises AioRpcError."""
        return (await self._admin("Suspend", session_pb2.SuspendRequest(force=force))).suspension

    async def resumed(self):
        """SessionService.Resume: what has come back, or None where nothing was kept."""
        answer = await self._admin("Resume", session_pb2.ResumeRequest())
        return answer.resumption if answer.HasField("resumption") else None

    async def describe(self):
        """SessionService.Describe."""
        return await self._admin("Describe", session_pb2.DescribeRequest())

    async def _admin(self, method, request):
        async with self.channel() as channel:
            call = getattr(session_pb2_grpc.SessionServiceStub(channel), method)
            metadata = (("authorization", f"Bearer {self.token()}"),)
            return await call(request, metadata=metadata, timeout=PATIENCE, wait_for_ready=True)


class _Fleet:
    """What the client's link needs of a fleet, for one executor."""

    def __init__(self, executor, token, address):
        self._executor = executor
        self._address = address
        self._token = token

    def bound(self):
        config = self._executor.config
        sandbox = fleet_pb2.Sandbox(sandbox_id=config["sandbox_id"], sandbox_uid=config["sandbox_uid"])
        token = self._executor.token() if self._token is None else self._token
        return sandbox, fleet_pb2.Access(
            address=self._address or self._executor.address,
            token=token,
            ca_pem=self._executor.ca,
        )

    async def access(self, _sandbox_id, *, wait):
        del wait
        # The fleet hears of the end from the host, a moment after a client does.
        await asyncio.sleep(0.2)
        if self._executor.ended:
            raise SandboxEnded("cannot open it: its executor has ended")
        return self.bound()

    async def get(self, _sandbox_id):
        """As the fleet knows it, which is told of no restart in place."""
        if self._executor.ended:
            raise SandboxEnded("cannot look at it: its executor has ended")
        return convert.sandbox(self.bound()[0])

    async def renew(self, _sandbox_id, _lease):
        """Nothing ends it."""
        return self.bound()

    async def review_call(self, _request):
        raise UnavailableError("cannot ask reviewers: there is no fleet")

    def relay(self, _sandbox_id, _access):
        """Its address can be used."""
