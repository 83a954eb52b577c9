"""A real gRPC server with the real FilesystemService on a unix socket, and servicers that fail."""

# Methods have the API's names, and what is looked at are names as the kernel gives them.
# ruff: noqa: N802

import asyncio
import base64
import json
import os
import tempfile
import time

import grpc
import grpc.aio
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sandfleet_api.executor.v1 import common_pb2, filesystem_pb2_grpc, interpreter_pb2, interpreter_pb2_grpc
from sandfleet_api.executor.v1 import filesystem_pb2 as pb
from sandfleet_api.executor.v1 import session_pb2 as session
from sandfleet_api.executor.v1 import session_pb2_grpc as session_grpc
from sandfleet_executor.effects.access.tokens import TokenVerifier
from sandfleet_executor.effects.files.inotify import WorkspaceWatcher
from sandfleet_executor.effects.files.threads import FileThreads
from sandfleet_executor.effects.files.walk import Roots
from sandfleet_executor.effects.files.watch import Watches
from sandfleet_executor.servicers.edge import Edge
from sandfleet_executor.servicers.errors import ERROR_DETAIL_KEY, ApiError
from sandfleet_executor.servicers.filesystem.files import FilesystemServicer

UID = "uid-1"
MIB = 1 << 20


class Faulty(interpreter_pb2_grpc.InterpreterServiceServicer):
    """Fails in the ways that a servicer can."""

    async def ListContexts(self, request, context):
        raise RuntimeError("a fault with secret details")

    async def Interrupt(self, request, context):
        raise ApiError(grpc.StatusCode.NOT_FOUND, "ContextNotFound", "é" * 5000, retryable=True, subject=b"\xff" * 5000)

    async def Execute(self, request, context):
        yield interpreter_pb2.ExecuteResponse()
        raise ApiError(grpc.StatusCode.RESOURCE_EXHAUSTED, "TooMany", "cannot run: too many")


class Sessions(session_grpc.SessionServiceServicer):
    async def Health(self, request, context):
        return session.HealthResponse()

    async def Close(self, request, context):
        return session.CloseResponse()


ECHO = "/sandfleet_api.executor.v1.ProcessService/Echo"


async def echo(requests, _context):
    """The API has no method yet that streams both ways."""
    async for request in requests:
        if request == b"fail":
            raise ApiError(grpc.StatusCode.ABORTED, "Asked", "cannot go on: it was asked for")
        yield request


class World:
    def __init__(self, base):
        self.base, self.workspace, self.tmp = base, base / "ws", base / "tmp"
        self.workspace.mkdir()
        self.tmp.mkdir()
        (base / "secret").write_text("SECRET")
        self.has_tmp = True
        # By how many seconds the server's clock is ahead.
        self.ahead = 0
        self.key = Ed25519PrivateKey.generate()
        x = base64.urlsafe_b64encode(self.key.public_key().public_bytes_raw()).rstrip(b"=").decode()
        self.keys = base / "keys.json"
        self.keys.write_text(json.dumps({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "k", "x": x}]}))

    def token(self, scope="filesystem", **claims):
        now = time.time()
        whole = {
            "iss": "sandfleet", "aud": UID, "sub": "uid:0", "sid": "sb", "scope": scope, "contract": "autonomous",
            "iat": now, "nbf": now, "exp": now + 60, **claims,
        }  # fmt: skip
        return jwt.encode(whole, self.key, algorithm="EdDSA", headers={"kid": "k"})

    async def start(self, socket_dir):
        self.socket = f"unix:{socket_dir}/x.sock"
        self.fds = [os.open(path, os.O_PATH | os.O_DIRECTORY) for path in (self.workspace, self.tmp)]
        self.threads = FileThreads()
        self.watcher = WorkspaceWatcher(self.fds[0])
        self.watcher.scan()
        roots = Roots(self.fds[0], lambda: self.fds[1] if self.has_tmp else None)
        verifier = TokenVerifier(self.keys, UID, lambda: time.time() + self.ahead)
        limits = [("grpc.max_receive_message_length", 32 * MIB), ("grpc.max_send_message_length", 32 * MIB)]
        self.server = grpc.aio.server(interceptors=[Edge(verifier, lambda _use: None)], options=limits)
        filesystem_pb2_grpc.add_FilesystemServiceServicer_to_server(
            FilesystemServicer(roots, self.threads, Watches(self.watcher)), self.server
        )
        interpreter_pb2_grpc.add_InterpreterServiceServicer_to_server(Faulty(), self.server)
        session_grpc.add_SessionServiceServicer_to_server(Sessions(), self.server)
        methods = {"Echo": grpc.stream_stream_rpc_method_handler(echo)}
        self.server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler("sandfleet_api.executor.v1.ProcessService", methods)]
        )
        self.server.add_insecure_port(self.socket)
        await self.server.start()
        self.channel = grpc.aio.insecure_channel(self.socket, options=limits)
        self.files = filesystem_pb2_grpc.FilesystemServiceStub(self.channel)
        self.interpreter = interpreter_pb2_grpc.InterpreterServiceStub(self.channel)
        self.sessions = session_grpc.SessionServiceStub(self.channel)

    async def stop(self):
        await self.channel.close()
        await self.server.stop(0)
        self.threads.close()
        self.watcher.close()
        for fd in self.fds:
            os.close(fd)

    def metadata(self, scope="filesystem", **claims):
        return (("authorization", f"Bearer {self.token(scope, **claims)}"),)

    async def write(self, path, chunks=(b"new",), mode=0):
        async def requests():
            size = 0
            yield pb.WriteRequest(header=pb.WriteHeader(path=path, mode=mode))
            for chunk in chunks:
                size += len(chunk)
                yield pb.WriteRequest(data=chunk)
            yield pb.WriteRequest(end=pb.WriteEnd(size=size))

        return (await self.files.Write(requests(), metadata=self.metadata())).info

    async def read(self, path, **options):
        parts = [part async for part in self.files.Read(pb.ReadRequest(path=path, **options), metadata=self.metadata())]
        return parts[0].info, [part.data for part in parts[1:]]

    async def call(self, method, request):
        return await getattr(self.files, method)(request, metadata=self.metadata())


@pytest.fixture(name="world")
async def world_fixture(tmp_path):
    world = World(tmp_path)
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        await world.start(short)
        yield world
        await world.stop()


async def failure(awaitable):
    """The status and the detail of an RPC that fails."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await awaitable
    error = caught.value
    detail = common_pb2.ErrorDetail.FromString(dict(error.trailing_metadata())[ERROR_DETAIL_KEY])
    assert detail.message == error.details()
    return error.code(), detail


async def drained(stream):
    return [item async for item in stream]


async def until(condition):
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)
