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
from contract.executor.tunnels import (
    ECHO,
    GREETS,
    MIB,
    RESETS,
    SINK,
    SIX,
    SOURCE,
    UPPER_AT_END,
    Bare,
    connected,
    refused,
    serving,
)
from sandfleet.errors import AccessDenied, InvalidArgument, PreconditionFailed
from sandfleet_api.executor.v1 import port_pb2 as pb

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def servers(sandbox):
    async with serving(sandbox):
        yield


@pytest.mark.smoke
async def test_what_is_sent_comes_back(sandbox, servers):
    async with connected(sandbox, ECHO) as (reader, writer):
        for word in (b"one", b"two", b"\x00\xff" * 100):
            writer.write(word)
            assert await reader.readexactly(len(word)) == word


@pytest.mark.smoke
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


@pytest.mark.smoke
async def test_what_listens_on_ipv6_alone_is_found(sandbox, servers):
    async with connected(sandbox, SIX) as (reader, writer):
        writer.write(b"six")
        assert await reader.readexactly(3) == b"six"


@pytest.mark.smoke
async def test_a_client_that_has_said_all_still_gets_the_answer(sandbox, servers):
    async with connected(sandbox, UPPER_AT_END) as (reader, writer):
        writer.write(b"question")
        writer.write_eof()
        assert await reader.read() == b"QUESTION"


@pytest.mark.smoke
async def test_a_server_that_has_said_all_still_hears(sandbox, servers):
    async with connected(sandbox, GREETS) as (reader, writer):
        assert await reader.read() == b"hello"
        writer.write(b"and goodbye" * MIB)
        writer.write_eof()
        # Gone at once, and all of it still arrives.
        writer.close()
        await until(lambda: heard(sandbox, b"and goodbye" * MIB))


async def heard(sandbox, what):
    return await sandbox.files.exists("heard") and await sandbox.files.read("heard", format="bytes") == what


@pytest.mark.smoke
async def test_64_mib_go_up_and_down_unharmed(sandbox, servers):
    data = hashlib.sha256(b"seed").digest() * (64 * MIB // 32)
    async with connected(sandbox, SINK) as (reader, writer):
        writer.write(data)
        writer.write_eof()
        assert (await reader.read()).decode() == f"{len(data)} {hashlib.sha256(data).hexdigest()}"
    async with connected(sandbox, SOURCE) as (reader, writer):
        writer.write(f"{64 * MIB}\n".encode())
        assert await reader.read() == b"s" * (64 * MIB)


@pytest.mark.smoke
async def test_a_port_without_a_listener_is_refused_with_a_reason(executor, sandbox):
    async with executor.channel() as channel:
        code, detail = await refused(executor, channel, 9999)
    assert (code, detail.reason, detail.retryable) == ("FAILED_PRECONDITION", "ConnectionRefused", True)
    assert detail.message == "cannot go on with port 9999: no process listens on that port of the sandbox's loopback"
    told = []
    async with await sandbox.forward(9999, on_error=told.append) as forward:
        reader, _ = await asyncio.open_connection("127.0.0.1", forward.local_port)
        with pytest.raises(ConnectionResetError):
            await reader.read()
        await until(lambda: told)
    assert isinstance(told[0], PreconditionFailed)
    assert (told[0].reason, told[0].retryable) == ("ConnectionRefused", True)


@pytest.mark.smoke
async def test_udp_is_no_port_here(executor, sandbox):
    code = "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('127.0.0.1', 7053)); print(s.recv(9))"
    handle = await sandbox.commands.run(["python3", "-u", "-c", code], background=True)
    async with executor.channel() as channel:
        assert (await refused(executor, channel, 7053))[1].reason == "ConnectionRefused"
    await handle.kill()


@pytest.mark.smoke
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
        "c.sendall(c.recv(1))\n"
        "try: print(repr(c.recv(1)))\n"
        "except ConnectionResetError: print('reset')\n"
    )
    handle = await sandbox.commands.run(["python3", "-c", code], background=True)
    await anext(handle)
    async with await sandbox.forward(7101) as forward:
        here = socket.create_connection(("127.0.0.1", forward.local_port))
        here.sendall(b"x")
        # There and back: from now on nothing is under way.
        assert await asyncio.to_thread(here.recv, 1) == b"x"
        here.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        here.close()
        assert (await handle.wait()).stdout.endswith("reset\n")


@pytest.mark.smoke
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
async def test_an_invalid_tunnel_request_is_refused(executor, servers, messages):
    async with executor.channel() as channel:
        bare = Bare(executor, channel)
        for message in messages:
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await bare.call.write(message)
        code, detail = await bare.failure()
    assert (code, detail.reason) == ("INVALID_ARGUMENT", "InvalidArgument")


@pytest.mark.smoke
async def test_ports_have_a_scope_of_their_own(executor, servers):
    async with executor.channel() as channel:
        others = executor.token(scope="interpreter process filesystem session admin")
        code, detail = await refused(executor, channel, ECHO, others)
        assert (code, detail.reason) == ("PERMISSION_DENIED", "ScopeMissing")
        # Control: with it, and with it alone, the port opens.
        await Bare(executor, channel, executor.token(scope="ports")).open(ECHO)


@pytest.mark.smoke
async def test_bad_ports_are_refused_before_anything_is_sent(sandbox):
    for port, local_port in ((0, 0), (65536, 0), (-1, 0), (80, -1), (80, 65536)):
        with pytest.raises(InvalidArgument):
            await sandbox.forward(port, local_port=local_port)


@pytest.mark.attack("reaches the executor's port through a tunnel", "refused", control="in it")
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


OPENED = """
import select, socket, time
held = []
for number in range(600):
    one = socket.socket()
    one.setblocking(False)
    try: one.connect(('127.0.0.1', {port}))
    except BlockingIOError: pass
    held.append(one)
def ask():
    # What gVisor's side of a server has dropped while its queue was full is told at the next byte. This one begins TLS.
    for one in held:
        try: one.send(b'\\x16')
        except OSError: pass
def are_open():
    time.sleep(0.5)
    ended, connected, _ = select.select(held, held, [], 0)
    return len(set(connected) - set(ended))
"""


@pytest.mark.needs("network of the pod")
@pytest.mark.attack("opens connections to the executor's port without an end", "they are ended", control="in it")
async def test_clients_connect_beside_connections_from_inside(starting, executor):
    async with starting() as made:
        sandbox = made.sandbox
        # Control: a port of the code's own has all of them.
        server = "import socket; server = socket.create_server(('127.0.0.1', 7123), backlog=1000)"
        assert (await sandbox.run_code(f"{server}\n{OPENED.format(port=7123)}\nask(); are_open()")).text == "600"
        assert (await sandbox.run_code(f"{OPENED.format(port=50051)}\nlen(held)")).text == "600"
        for _ in range(5):
            async with made.channel() as channel:
                await asyncio.wait_for(channel.channel_ready(), 60)
                assert (await made.client(token=made.token()).run_code("1 + 1")).text == "2"

        await sandbox.run_code("ask()")

        async def few_are_left():
            return int((await sandbox.run_code("are_open()")).text) <= 16

        await until(few_are_left)


@pytest.mark.needs("own network")
@pytest.mark.attack("reaches the machine through a tunnel", "refused", control="in it")
async def test_a_tunnel_does_not_lead_to_the_machine(host, executor, unprotected):
    async with executor.channel() as channel:
        assert (await refused(executor, channel, host.tcp_port))[1].reason == "ConnectionRefused"
    # Control: without a network of its own the same tunnel gets there.
    async with unprotected.channel() as channel:
        bare = await Bare(unprotected, channel).open(host.tcp_port)
        assert (await bare.rest())[0].decode() == host.secret
