"""A gateway beside a real fleet, over TLS; executors are plain TCP servers."""

import asyncio
import contextlib
from dataclasses import replace

import grpc
from sandfleet_api.executor.v1.common_pb2 import ErrorDetail
from sandfleet_api.executor.v1.port_pb2 import TunnelEnd
from sandfleet_api.fleet.v1 import gateway_pb2 as pb
from sandfleet_api.fleet.v1.gateway_pb2_grpc import GatewayServiceStub
from sandfleet_operator.fleet.gateway import serve
from sandfleet_operator.fleet.gateway.identity import NAME, Identity
from sandfleet_operator.fleet.gateway.routes import FleetRoutes
from sandfleet_operator.fleet.gateway.tunnels import Bounds, Tunnels
from sandfleet_operator.fleet.kubernetes.reviews.desk import ReviewDesk
from sandfleet_operator.fleet.kubernetes.serve import Options, listen
from sandfleet_operator.fleet.links.fleet_link import FleetLink
from support.fleet.on_kubernetes import SYSTEM, Kube, World, new_signing
from support.kubernetes import world as kubernetes_world

QUICK = Bounds(check_every=0.1, unchecked=1.0, connect=2.0)
CONNECT = "create/connect"


class Executor:
    """Listens on this machine; answers each line with itself, "flood" with bytes without end."""

    def __init__(self):
        self.connections, self.sent, self.resets, self.server = 0, 0, 0, None

    async def start(self):
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 20, backlog=1024)
        return self

    @property
    def address(self):
        host, port = self.server.sockets[0].getsockname()
        return f"{host}:{port}"

    async def _serve(self, reader, writer):
        self.connections += 1
        try:
            while line := await reader.readline():
                while line == b"flood\n":
                    writer.write(bytes(1 << 16))
                    await writer.drain()
                    self.sent += 1 << 16
                writer.write(line)
                await writer.drain()
        except ConnectionError:
            self.resets += 1
        finally:
            writer.close()

    async def stop(self):
        self.server.close()


class Tunnel:
    """The client's end of one."""

    def __init__(self, call):
        self.call = call
        self.uid = ""

    async def say(self, **message):
        await self.call.write(pb.TunnelRequest(**message))

    async def read(self):
        message = await self.call.read()
        return None if message is grpc.aio.EOF else message

    async def echoes(self, text=b"hello\n"):
        await self.say(data=text)
        got = b""
        while len(got) < len(text) and (message := await self.read()) is not None:
            got += message.data
        return got == text

    async def end(self):
        await self.say(end=TunnelEnd())

    async def refused(self):
        """The status and the reason that it ends with."""
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            while await self.read() is not None:
                pass
        return await refusal(self.call)


async def refusal(call):
    """Status and reason of a call that has failed."""
    code = await call.code()
    said = dict(await call.trailing_metadata() or ()).get("sandfleet-error-bin", b"")
    return code.name, ErrorDetail.FromString(said).reason


class GatewayBed:
    def __init__(self, world, identity, folder):
        self.world, self.identity, self.folder = world, identity, folder
        self.executors, self.channels = [], []

    async def listen(self, routes, bounds):
        """Another gateway than before, on another port."""
        self.tunnels = Tunnels(routes, bounds)
        options = serve.Options(fleet="", credentials=self.folder, port=0)
        self.server, self.port = await serve.listen(self.tunnels, self.identity.server_credentials(), options)

    async def restart(self, **changes):
        await self.server.stop(0)
        await self.listen(self.tunnels.routes, replace(self.tunnels.bounds, **changes))

    async def executor(self, name="one", namespace="team", uid=""):
        """A sandbox, and what listens at its address."""
        made = await Executor().start()
        self.executors.append(made)
        await self.world.add(name, namespace, status=False)
        await self.world.say(name, namespace, address=made.address, podUID=uid or f"uid-of-{name}")
        return made

    def allow(self, who="alice", name="one", namespace="team"):
        self.world.kube.knows(who, who)
        self.world.kube.allowed.add((who, CONNECT, namespace, name))

    def forbid(self, who="alice", name="one", namespace="team"):
        self.world.kube.allowed.discard((who, CONNECT, namespace, name))

    def stub(self):
        credentials = grpc.ssl_channel_credentials(self.world.signing.authority.pem)
        options = (("grpc.ssl_target_name_override", NAME), ("grpc.use_local_subchannel_pool", 1))
        channel = grpc.aio.secure_channel(f"127.0.0.1:{self.port}", credentials, options=options)
        self.channels.append(channel)
        return GatewayServiceStub(channel)

    def begin(self, who="alice", stub=None, *, wait=False):
        """With `wait`, for a server that may still be starting."""
        metadata = (("authorization", f"Bearer {who}"),) if who else ()
        return Tunnel((stub or self.stub()).Tunnel(metadata=metadata, timeout=110, wait_for_ready=wait))

    async def tunnel(self, sandbox="team/one", who="alice", stub=None):
        """One that is open."""
        made = self.begin(who, stub)
        await made.say(open=pb.TunnelOpen(sandbox_id=sandbox))
        made.uid = (await made.read()).opened.sandbox_uid
        return made

    async def attempt(self, sandbox="team/one", who="alice", stub=None):
        """Status and reason of a refused one."""
        made = self.begin(who, stub)
        await made.say(open=pb.TunnelOpen(sandbox_id=sandbox))
        return await made.refused()


@contextlib.asynccontextmanager
async def fleet_world(signing=None):
    """The fleet's port, and who may do what; `signing` has the authority and the key of tokens."""
    kube = Kube()
    await kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    async with kubernetes_world.World(cluster=kube.cluster) as cluster:
        signing = signing or await new_signing(kube)
        options = Options(
            namespace=SYSTEM,
            settings=kubernetes_world.SETTINGS,
            identity="fleet-0",
            host="127.0.0.1",
            port=0,
            pod_ip="10.9.9.9",
        )
        running = await cluster.fleet()
        desk = ReviewDesk(kube, running, signing, lambda: 1)
        server, port = await listen(kube, signing, options, running, board=desk.board)
        made = World(kube, signing, port)
        made.cluster, made.server = cluster, server
        try:
            yield made
        finally:
            for fleet in made.fleets:
                await fleet.close()
            for channel in made.channels:
                await channel.close()
            await server.stop(0)


def as_the_gateway(world, folder):
    """The folder, with what the gateway's pod has in it; its account may ask for a certificate."""
    (folder / "ca.crt").write_bytes(world.signing.authority.pem)
    (folder / "token").write_text("gateway-token\n")
    world.kube.knows("gateway-token", "gateway")
    world.kube.allowed.add(("gateway", "create/gateway", SYSTEM, ""))
    return folder


@contextlib.asynccontextmanager
async def gateway_bed(folder, bounds=QUICK, routes=None, signing=None, **changes):
    """`routes` stands in for the fleet."""
    async with fleet_world(signing) as world:
        fleet = FleetLink(f"localhost:{world.port}", folder / "ca.crt")
        identity = Identity(fleet, as_the_gateway(world, folder))
        await identity.obtain()
        made = GatewayBed(world, identity, folder)
        made.fleet = fleet
        await made.listen(routes or FleetRoutes(fleet), replace(bounds, **changes))
        try:
            yield made
        finally:
            for channel in made.channels:
                await channel.close(None)
            await made.server.stop(0)
            for executor in made.executors:
                await executor.stop()
            await fleet.close()
