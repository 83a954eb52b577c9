"""What tunnels may cost, how many there may be, and how they end with what they belong to."""

import asyncio
import contextlib
import socket

import grpc
import pytest
import pytest_asyncio
from contract.executor.harness import until
from contract.executor.tunnels import (
    ECHO,
    MIB,
    SERVERS,
    SILENT,
    SOURCE,
    Bare,
    connected,
    detail_of,
    refused,
    serving,
)
from sandfleet.errors import LimitReached, SandboxError
from sandfleet_api.executor.v1 import port_pb2 as pb

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def servers(sandbox):
    async with serving(sandbox):
        yield


async def test_a_reader_that_does_not_read_costs_the_executor_nothing_and_delays_no_other_reader(
    executor, sandbox, servers
):
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


async def test_a_caller_that_vanishes_leaves_nothing_open(executor, sandbox, servers):
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


async def test_a_tunnel_is_made_by_a_spawner_that_user_code_keeps_busy(executor, sandbox, servers):
    # Connections that are not accepted fill the backlog: only those attempts wait.
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
