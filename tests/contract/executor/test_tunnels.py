"""Ports of a sandbox, through the client and over the bare RPC."""

import asyncio
import contextlib
import hashlib
import socket
import struct

import grpc
import pytest
import pytest_asyncio
from contract.executor.harness import until
from sandfleet.errors import AccessDenied, InvalidArgument, LimitReached, PreconditionFailed, SandboxError
from sandfleet_api.executor.v1 import common_pb2
from sandfleet_api.executor.v1 import port_pb2 as pb
from sandfleet_api.executor.v1.port_pb2_grpc import PortServiceStub

pytestmark = pytest.mark.asyncio(loop_scope="session")

MIB = 1 << 20
ECHO, UPPER_AT_END, SINK, SOURCE, RESETS, SILENT, GREETS, SIX = 7001, 7002, 7003, 7004, 7005, 7006, 7007, 7008
# What listens in the sandbox; each port does one thing with whoever connects.
SERVERS = f"""
import asyncio, hashlib, socket, struct

async def echo(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()

async def upper_at_end(reader, writer):
    writer.write((await reader.read()).upper())
    writer.close()

async def sink(reader, writer):
    seen, size = hashlib.sha256(), 0
    while data := await reader.read(65536):
        seen.update(data)
        size += len(data)
    writer.write(f"{{size}} {{seen.hexdigest()}}".encode())
    writer.close()

async def source(reader, writer):
    size = int(await reader.readline())
    for _ in range(size >> 16):
        writer.write(b"s" * 65536)
        await writer.drain()
    writer.close()

async def resets(reader, writer):
    await reader.readline()
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()

async def silent(reader, writer):
    await asyncio.sleep(1e6)

async def greets(reader, writer):
    # Says all that it has to say at once, and goes on listening.
    writer.write(b"hello")
    writer.write_eof()
    heard = await reader.read()
    open("/workspace/heard", "wb").write(heard)
    writer.close()

async def main():
    handlers = [echo, upper_at_end, sink, source, resets, silent, greets]
    servers = [await asyncio.start_server(each, "127.0.0.1", 7001 + n, backlog=256) for n, each in enumerate(handlers)]
    servers.append(await asyncio.start_server(echo, "::1", {SIX}))
    print("ready", flush=True)
    await asyncio.sleep(1e6)

asyncio.run(main())
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def servers(sandbox):
    await sandbox.files.write("servers.py", SERVERS)
    handle = await sandbox.commands.run(["python3", "servers.py"], background=True, timeout=3000)
    assert (await anext(handle)).text == "ready\n"
    yield
    await handle.kill()


@contextlib.asynccontextmanager
async def connected(sandbox, port):
    async with await sandbox.forward(port) as forward:
        reader, writer = await asyncio.open_connection("127.0.0.1", forward.local_port)
        yield reader, writer
        writer.close()


class Bare:
    """The RPC itself."""

    def __init__(self, executor, channel, token=None):
        self.call = PortServiceStub(channel).Tunnel(
            metadata=(("authorization", f"Bearer {token or executor.token()}"),)
        )

    async def open(self, port):
        await self.call.write(pb.TunnelRequest(open=pb.TunnelOpen(port=port)))
        answer = await self.call.read()
        assert answer.WhichOneof("message") == "opened"
        return self

    async def send(self, data):
        await self.call.write(pb.TunnelRequest(data=data))

    async def end(self):
        await self.call.write(pb.TunnelRequest(end=pb.TunnelEnd()))

    async def rest(self):
        """(bytes until the end of the other side, whether it said that it ends)."""
        found = b""
        while (message := await self.call.read()) is not grpc.aio.EOF:
            if message.WhichOneof("message") == "end":
                return found, True
            found += message.data
        return found, False

    async def failure(self):
        """How it failed; what comes before is dropped."""
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            while await self.call.read() is not grpc.aio.EOF:
                pass
            # A stream that ended well raises nothing: then this is the failure.
            assert await self.call.code() is not grpc.StatusCode.OK
        return detail_of(failed.value)


def detail_of(error):
    raw = dict(error.trailing_metadata())["sandfleet-error-bin"]
    return error.code().name, common_pb2.ErrorDetail.FromString(raw)


async def test_what_is_sent_comes_back(sandbox, servers):
    async with connected(sandbox, ECHO) as (reader, writer):
        for word in (b"one", b"two", b"\x00\xff" * 100):
            writer.write(word)
            assert await reader.readexactly(len(word)) == word


async def test_a_browser_s_request_is_answered_at_get_host(sandbox):
    await sandbox.files.write("site/index.html", "<p>hello</p>")
    server = await sandbox.commands.run(
        ["python3", "-u", "-m", "http.server", "8000", "--bind", "127.0.0.1", "--directory", "site"],
        background=True,
        merge_output=True,
    )
    await anext(server)
    host = await sandbox.get_host(8000)
    assert host == await sandbox.get_host(8000)
    reader, writer = await asyncio.open_connection(*host.split(":"))
    writer.write(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    assert (await reader.read()).endswith(b"<p>hello</p>")
    writer.close()
    await server.kill()


async def test_what_listens_on_ipv6_alone_is_found(sandbox, servers):
    async with connected(sandbox, SIX) as (reader, writer):
        writer.write(b"six")
        assert await reader.readexactly(3) == b"six"


async def test_a_client_that_has_said_all_still_gets_the_answer(sandbox, servers):
    async with connected(sandbox, UPPER_AT_END) as (reader, writer):
        writer.write(b"question")
        writer.write_eof()
        assert await reader.read() == b"QUESTION"


async def test_a_server_that_has_said_all_still_hears(sandbox, servers):
    async with connected(sandbox, GREETS) as (reader, writer):
        assert await reader.read() == b"hello"
        writer.write(b"and goodbye")
        writer.write_eof()
        await until(lambda: sandbox.files.exists("heard"))
    await until(lambda: heard(sandbox))


async def heard(sandbox):
    return await sandbox.files.read("heard") == "and goodbye"


async def test_64_mib_go_up_and_down_unharmed(sandbox, servers):
    data = hashlib.sha256(b"seed").digest() * (64 * MIB // 32)
    async with connected(sandbox, SINK) as (reader, writer):
        writer.write(data)
        writer.write_eof()
        assert (await reader.read()).decode() == f"{len(data)} {hashlib.sha256(data).hexdigest()}"
    async with connected(sandbox, SOURCE) as (reader, writer):
        writer.write(f"{64 * MIB}\n".encode())
        assert await reader.read() == b"s" * (64 * MIB)


async def test_a_reader_that_does_not_read_costs_the_executor_nothing_and_holds_nobody_up(executor, sandbox, servers):
    executor.restart_peak()
    before = executor.memory()
    async with await sandbox.forward(SOURCE) as forward:
        stuck = [socket.create_connection(("127.0.0.1", forward.local_port)) for _ in range(10)]
        for one in stuck:
            one.sendall(f"{1024 * MIB}\n".encode())
        # Others go through meanwhile, on the same gRPC connection.
        async with connected(sandbox, ECHO) as (reader, writer):
            for _ in range(200):
                writer.write(b"x" * 10_000)
                await reader.readexactly(10_000)
        for one in stuck:
            one.close()
    # Ten times a piece and gRPC's windows, not ten times a gigabyte.
    assert executor.peak_memory() - before < 128 * MIB


async def test_a_hundred_connections_at_once_and_no_more(executor, sandbox, servers):
    async with executor.channel() as channel:
        tunnels = [await Bare(executor, channel).open(ECHO) for _ in range(100)]
        code, detail = await refused(executor, channel, ECHO)
        assert (code, detail.reason, detail.retryable) == ("RESOURCE_EXHAUSTED", "TooMany", True)

        async def use(number, tunnel):
            await tunnel.send(f"{number}".encode() * 1000)
            await tunnel.end()
            assert await tunnel.rest() == (f"{number}".encode() * 1000, True)
            assert await tunnel.call.code() is grpc.StatusCode.OK

        await asyncio.gather(*(use(number, tunnel) for number, tunnel in enumerate(tunnels)))
        # Each that ended made room.
        await until(lambda: full_round(executor, channel))


async def refused(executor, channel, port, token=None):
    bare = Bare(executor, channel, token)
    # The refusal may come before the request is sent.
    with contextlib.suppress(grpc.aio.AioRpcError):
        await bare.call.write(pb.TunnelRequest(open=pb.TunnelOpen(port=port)))
    return await bare.failure()


async def full_round(executor, channel):
    """Whether a hundred can be opened: no more than that are, nor were any of the last ones forgotten."""
    tunnels = []
    try:
        for _ in range(100):
            tunnels.append(await Bare(executor, channel).open(ECHO))
    except grpc.aio.AioRpcError:
        return False
    finally:
        for tunnel in tunnels:
            tunnel.call.cancel()
    return True


async def test_whoever_vanishes_leaves_nothing_open(executor, sandbox, servers):
    for _ in range(3):
        async with executor.channel() as channel:
            for _ in range(60):
                await (await Bare(executor, channel).open(SILENT)).send(b"x")
        # The channel was closed with sixty open.
    async with executor.channel() as channel:
        await until(lambda: full_round(executor, channel))
    found = "import os; print(sum(1 for line in open('/proc/net/tcp') if line.split()[3] == '01' and ':1B5E ' in line))"

    async def none_left():
        return (await sandbox.commands.run(["python3", "-c", found])).stdout == "0\n"

    await until(none_left)


async def test_the_executor_keeps_no_descriptor_of_a_connection(executor, sandbox, servers):
    async with executor.channel() as channel:
        assert await until(lambda: full_round(executor, channel))
        before = await settled(executor)
        for _ in range(3):
            await until(lambda: full_round(executor, channel))
            for _ in range(20):
                await refused(executor, channel, 9999)
        await until(lambda: few(executor, before))


async def few(executor, before):
    return await asyncio.to_thread(executor.descriptors) <= before + 2


async def settled(executor):
    counts = [0, 1]
    while len(set(counts[-3:])) > 1 or len(counts) < 4:
        await asyncio.sleep(0.2)
        counts.append(await asyncio.to_thread(executor.descriptors))
    return counts[-1]


async def test_a_port_that_nobody_listens_on_is_refused_with_a_reason(executor, sandbox):
    async with executor.channel() as channel:
        code, detail = await refused(executor, channel, 9999)
    assert (code, detail.reason, detail.retryable) == ("FAILED_PRECONDITION", "ConnectionRefused", True)
    assert detail.message == "cannot go on with port 9999: nobody listens there on the sandbox's loopback"
    told = []
    async with await sandbox.forward(9999, on_error=told.append) as forward:
        reader, _ = await asyncio.open_connection("127.0.0.1", forward.local_port)
        with pytest.raises(ConnectionResetError):
            await reader.read()
        await until(lambda: told)
    assert isinstance(told[0], PreconditionFailed)
    assert (told[0].reason, told[0].retryable) == ("ConnectionRefused", True)


async def test_udp_is_no_port_here(executor, sandbox):
    code = "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('127.0.0.1', 7053)); print(s.recv(9))"
    handle = await sandbox.commands.run(["python3", "-u", "-c", code], background=True)
    async with executor.channel() as channel:
        assert (await refused(executor, channel, 7053))[1].reason == "ConnectionRefused"
    await handle.kill()


async def test_a_server_that_resets_is_seen_as_one(executor, sandbox, servers):
    async with executor.channel() as channel:
        bare = await Bare(executor, channel).open(RESETS)
        await bare.send(b"now\n")
        code, detail = await bare.failure()
    assert (code, detail.reason, detail.retryable) == ("ABORTED", "ConnectionReset", False)
    async with connected(sandbox, RESETS) as (reader, writer):
        writer.write(b"now\n")
        with pytest.raises(ConnectionResetError):
            await reader.read()


async def test_a_server_that_dies_ends_its_connections(sandbox):
    code = "import socket, time; s = socket.create_server(('127.0.0.1', 7100)); print('ready', flush=True); c, _ = s.accept(); time.sleep(1e6)"
    handle = await sandbox.commands.run(["python3", "-c", code], background=True)
    await anext(handle)
    async with connected(sandbox, 7100) as (reader, writer):
        writer.write(b"never read")
        await handle.kill()
        with contextlib.suppress(ConnectionResetError):
            # What it had not read makes the kernel say so; else it is a plain end.
            assert await reader.read() == b""


async def test_a_program_here_that_resets_resets_there(sandbox):
    code = (
        "import socket\n"
        "s = socket.create_server(('127.0.0.1', 7101)); print('ready', flush=True); c, _ = s.accept()\n"
        "c.recv(1)\n"
        "try: print(repr(c.recv(1)))\n"
        "except ConnectionResetError: print('reset')\n"
    )
    handle = await sandbox.commands.run(["python3", "-c", code], background=True)
    await anext(handle)
    async with await sandbox.forward(7101) as forward:
        here = socket.create_connection(("127.0.0.1", forward.local_port))
        here.sendall(b"x")
        here.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        here.close()
        assert (await handle.wait()).stdout.endswith("reset\n")


async def test_requests_that_just_stop_reset_the_connection(executor, sandbox, servers):
    async with executor.channel() as channel:
        bare = await Bare(executor, channel).open(ECHO)
        await bare.call.done_writing()
        code, detail = await bare.failure()
    assert (code, detail.reason) == ("ABORTED", "ConnectionReset")


@pytest.mark.parametrize(
    "messages",
    [
        [pb.TunnelRequest(data=b"x")],
        [pb.TunnelRequest()],
        [pb.TunnelRequest(end=pb.TunnelEnd())],
        [pb.TunnelRequest(open=pb.TunnelOpen(port=0))],
        [pb.TunnelRequest(open=pb.TunnelOpen(port=65536))],
        [pb.TunnelRequest(open=pb.TunnelOpen(port=4_000_000_000))],
        [pb.TunnelRequest(open=pb.TunnelOpen(port=ECHO)), pb.TunnelRequest(open=pb.TunnelOpen(port=ECHO))],
        [pb.TunnelRequest(open=pb.TunnelOpen(port=ECHO)), pb.TunnelRequest(data=b"x" * (MIB + 1))],
    ],
    ids=lambda messages: str(messages)[:50],
)
async def test_what_is_no_tunnel_is_refused(executor, servers, messages):
    async with executor.channel() as channel:
        bare = Bare(executor, channel)
        for message in messages:
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await bare.call.write(message)
        code, detail = await bare.failure()
    assert (code, detail.reason) == ("INVALID_ARGUMENT", "InvalidArgument")


async def test_ports_have_a_scope_of_their_own(executor, servers):
    async with executor.channel() as channel:
        others = executor.token(scope="interpreter process filesystem session admin")
        code, detail = await refused(executor, channel, ECHO, others)
        assert (code, detail.reason) == ("PERMISSION_DENIED", "ScopeMissing")
        # Control: with it, and with it alone, the port opens.
        await Bare(executor, channel, executor.token(scope="ports")).open(ECHO)


async def test_bad_ports_are_refused_before_anything_is_sent(sandbox):
    for port, local_port in ((0, 0), (65536, 0), (-1, 0), (80, -1), (80, 65536)):
        with pytest.raises(InvalidArgument):
            await sandbox.forward(port, local_port=local_port)


async def test_the_executor_s_own_port_is_not_to_be_had(starting):
    async with starting(isolation="none", cgroup=False, port=True) as shared:
        port = int(shared.config["listen"].rpartition(":")[2])
        reach = f"import socket; s = socket.create_connection(('127.0.0.1', {port}), 10); print('reached')"
        # Control: it listens where a tunnel would go.
        assert (await shared.sandbox.run_code(reach)).logs.stdout == "reached\n"
        async with shared.channel() as channel:
            code, detail = await refused(shared, channel, port)
        assert (code, detail.reason, detail.retryable) == ("PERMISSION_DENIED", "OwnPort", False)
        told = []
        async with await shared.sandbox.forward(port, on_error=told.append) as forward:
            reader, _ = await asyncio.open_connection("127.0.0.1", forward.local_port)
            with pytest.raises(ConnectionResetError):
                await reader.read()
            await until(lambda: told)
        assert isinstance(told[0], AccessDenied)


@pytest.mark.needs("own network")
async def test_a_tunnel_does_not_lead_to_the_machine(host, executor, unprotected):
    async with executor.channel() as channel:
        assert (await refused(executor, channel, host.tcp_port))[1].reason == "ConnectionRefused"
    # Control: without a network of its own the same tunnel gets there.
    async with unprotected.channel() as channel:
        bare = await Bare(unprotected, channel).open(host.tcp_port)
        assert (await bare.rest())[0].decode() == host.secret


async def test_a_tunnel_is_made_by_a_spawner_that_user_code_keeps_busy(executor, sandbox, servers):
    # Connections that nobody accepts fill the backlog: those attempts wait, and nothing else does.
    code = "import socket, time; s = socket.socket(); s.bind(('127.0.0.1', 7200)); s.listen(0); print('ready', flush=True); time.sleep(1e6)"
    handle = await sandbox.commands.run(["python3", "-c", code], background=True)
    await anext(handle)
    async with executor.channel() as channel:
        waiting = []
        for _ in range(8):
            bare = Bare(executor, channel)
            await bare.call.write(pb.TunnelRequest(open=pb.TunnelOpen(port=7200)))
            waiting.append(bare)
        assert (await sandbox.commands.run("echo on")).stdout == "on\n"
        await Bare(executor, channel).open(ECHO)
        answers = await asyncio.gather(*(bare.call.read() for bare in waiting), return_exceptions=True)
        late = [detail_of(answer) for answer in answers if isinstance(answer, grpc.aio.AioRpcError)]
        assert late
        assert {(code, detail.reason, detail.retryable) for code, detail in late} == {
            ("DEADLINE_EXCEEDED", "ConnectTimeout", True)
        }
    await handle.kill()


async def test_a_sandbox_ends_with_its_tunnels_open(starting):
    async with starting() as ending:
        await ending.sandbox.files.write("servers.py", SERVERS)
        handle = await ending.sandbox.commands.run(["python3", "servers.py"], background=True)
        await anext(handle)
        async with await ending.sandbox.forward(ECHO) as forward:
            reader, writer = await asyncio.open_connection("127.0.0.1", forward.local_port)
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
            await ending.close_session()
            await ending.exit()
            # A reset, or an end where the server ended first: never silence.
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        await until(lambda: not ending.processes())


async def test_only_bytes_keep_a_sandbox_from_being_idle(starting):
    async with starting(idle_timeout=3.0) as idle:
        code = "import subprocess; server = subprocess.Popen(['python3', '-m', 'http.server', '8000'])"
        # Of a context, which runs nothing: a command would be use.
        await idle.sandbox.run_code(code)

        async def opened():
            async with idle.channel() as channel:
                try:
                    return await Bare(idle, channel).open(8000)
                except grpc.aio.AioRpcError:
                    return None

        assert await until(opened)
        async with idle.channel() as channel:
            await Bare(idle, channel).open(8000)
            # It stays open, and nothing goes through.
            assert (await idle.exit()).code == 41


async def test_limits_and_errors_are_the_client_s(executor, sandbox, servers):
    told = []
    async with executor.channel() as channel, await sandbox.forward(ECHO, on_error=told.append) as forward:
        tunnels = [await Bare(executor, channel).open(SILENT) for _ in range(100)]
        reader, _ = await asyncio.open_connection("127.0.0.1", forward.local_port)
        with pytest.raises(ConnectionResetError):
            await reader.read()
        await until(lambda: told)
        assert isinstance(told[0], LimitReached)
        assert isinstance(told[0], SandboxError)
        tunnels.clear()
