"""Connections to executors through the gateway: who gets one, where it leads, and when it ends."""

import asyncio
import contextlib
import random
import socket
import sys
import time

import grpc
import pytest
from sandfleet_api.fleet.v1 import gateway_pb2 as pb
from sandfleet_operator.api.kube import CODE_SANDBOX, Ref
from sandfleet_operator.cluster import reviews
from sandfleet_operator.fleet.gateway.routes import Route
from support.fleet.gateway import CONNECT, gateway_bed
from support.ports import free_port

ONE = Ref(CODE_SANDBOX, "team", "one")
# Seconds in which a check has certainly been made.
CHECKED = 1.0


@pytest.fixture(autouse=True)
def no_memory_of_rights(monkeypatch):
    monkeypatch.setattr(reviews, "ALLOWED", 0.05)
    monkeypatch.setattr(reviews, "REMEMBERED", 0.05)


@pytest.fixture
async def bed(tmp_path):
    async with gateway_bed(tmp_path) as made:
        made.allow()
        yield made


async def until(check, seconds=5.0):
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def held_up(executor):
    """Until all that it floods with waits for a reader."""
    sent = 0
    while sent != executor.sent or not sent:
        sent = executor.sent
        await asyncio.sleep(0.3)


# What goes through.


@pytest.mark.smoke
async def test_bytes_go_both_ways_and_both_ends_end_by_themselves(bed):
    await bed.executor()
    tunnel = await bed.tunnel()
    assert tunnel.uid == "uid-of-one"
    assert await tunnel.echoes(b"x" * 200_000 + b"\n")
    await tunnel.end()
    assert (await tunnel.read()).WhichOneof("message") == "end"
    assert await tunnel.read() is None
    assert await tunnel.call.code() is grpc.StatusCode.OK


@pytest.mark.smoke
async def test_a_client_that_goes_away_resets_the_executors_connection(bed):
    executor = await bed.executor()
    tunnel = await bed.tunnel()
    assert await tunnel.echoes()
    tunnel.call.cancel()
    await until(lambda: executor.resets == 1)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({"open": pb.TunnelOpen(sandbox_id="team/two")}, "INVALID_ARGUMENT"),
        ({"data": bytes((256 << 10) + 1)}, "INVALID_ARGUMENT"),
        ({"data": bytes(2 << 20)}, "RESOURCE_EXHAUSTED"),
    ],
)
async def test_messages_out_of_order_and_too_large_ones_end_it(bed, message, code):
    await bed.executor()
    tunnel = await bed.tunnel()
    await tunnel.say(**message)
    assert (await tunnel.refused())[0] == code


@pytest.mark.smoke
async def test_a_first_message_that_names_no_sandbox_opens_nothing(bed):
    executor = await bed.executor()
    tunnel = bed.begin()
    await tunnel.say(data=b"hello\n")
    assert await tunnel.refused() == ("INVALID_ARGUMENT", "InvalidTunnel")
    assert executor.connections == 0


@pytest.mark.smoke
async def test_an_executor_that_does_not_listen_is_named(bed):
    executor = await bed.executor()
    await executor.stop()
    assert await bed.attempt() == ("UNAVAILABLE", "ExecutorUnreachable")


# Who gets one, and where it leads.


@pytest.mark.smoke
async def test_a_caller_without_the_right_to_connect_reaches_no_executor(bed):
    """Control: the same call with the right leads there."""
    theirs = await bed.executor("two")
    # Rights to look at it, and to connect to another one, are not enough.
    bed.world.kube.allowed |= {("alice", "get", "team", "two"), ("alice", "list", "team", "")}
    assert await bed.attempt("team/two") == ("PERMISSION_DENIED", "Forbidden")
    assert theirs.connections == 0
    bed.allow(name="two")
    assert await (await bed.tunnel("team/two")).echoes()
    assert theirs.connections == 1


@pytest.mark.smoke
@pytest.mark.parametrize("who", ["", "mallory"])
async def test_a_caller_that_is_not_known_reaches_no_executor(bed, who):
    executor = await bed.executor()
    assert (await bed.attempt(who=who))[0] == "UNAUTHENTICATED"
    assert executor.connections == 0


@pytest.mark.smoke
async def test_the_destination_is_what_the_store_says_and_never_what_the_caller_says(bed, tmp_path):
    """Control: a gateway that takes the caller's word leads anywhere."""
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        elsewhere.setblocking(False)
        address = "{}:{}".format(*elsewhere.getsockname())
        for sandbox in (address, f"team/{address}", f"team/one@{address}", f"../{address}", "team/one/x"):
            bed.world.kube.allowed.add(("alice", CONNECT, *sandbox.split("/")[:2]))
            assert (await bed.attempt(sandbox))[0] in {"INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED"}
        with pytest.raises(BlockingIOError):
            elsewhere.accept()

        class Gullible:
            async def find(self, sandbox_id, token):
                return Route(sandbox_id, "uid", token)

        (tmp_path / "gullible").mkdir()
        async with gateway_bed(tmp_path / "gullible", routes=Gullible()) as other:
            assert (await other.tunnel(address)).uid == "uid"
            elsewhere.accept()[0].close()


@pytest.mark.smoke
async def test_a_sandbox_that_has_ended_or_is_not_ready_is_refused_in_the_fleets_words(bed):
    await bed.executor()
    await bed.world.say(conditions=(("Ready", "False", "PodStarting", "soon"),))
    assert await bed.attempt() == ("FAILED_PRECONDITION", "PodStarting")
    await bed.world.kube.delete(ONE)
    assert await bed.attempt() == ("NOT_FOUND", "SandboxNotFound")


# When it ends.


@pytest.mark.parametrize("checked", [True, False])
async def test_a_tunnel_ends_with_the_right_to_connect(tmp_path, checked):
    """Control: without the checks it goes on."""
    async with gateway_bed(tmp_path, check_every=0.1 if checked else 1e6) as bed:
        bed.allow()
        executor = await bed.executor()
        tunnel = await bed.tunnel()
        await asyncio.sleep(CHECKED)
        assert await tunnel.echoes()
        bed.forbid()
        await asyncio.sleep(CHECKED)
        if not checked:
            assert await tunnel.echoes()
            return
        assert await tunnel.refused() == ("PERMISSION_DENIED", "Forbidden")
        await until(lambda: executor.resets == 1)


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize(
    ("what", "status"),
    [("deleted", ("NOT_FOUND", "SandboxNotFound")), ("replaced", ("UNAVAILABLE", "SandboxReplaced"))],
)
async def test_a_tunnel_ends_with_the_binding_though_its_executor_lives(tmp_path, what, status, checked):
    """Control: without the checks it goes on."""
    async with gateway_bed(tmp_path, check_every=0.1 if checked else 1e6) as bed:
        bed.allow()
        executor = await bed.executor()
        tunnel = await bed.tunnel()
        assert await tunnel.echoes()
        if what == "deleted":
            await bed.world.kube.delete(ONE)
        else:
            await bed.world.say(address=executor.address, podUID="another")
        await asyncio.sleep(CHECKED)
        if not checked:
            assert await tunnel.echoes()
            return
        assert await tunnel.refused() == status
        await until(lambda: executor.resets == 1)


async def test_a_tunnel_ends_with_its_token_and_a_newer_one_of_the_caller_keeps_it(bed):
    await bed.executor()
    short, kept = await bed.tunnel(), await bed.tunnel()
    bed.world.kube.knows("alice-2", "alice")
    await kept.say(token="alice-2")
    await asyncio.sleep(CHECKED)
    del bed.world.kube.tokens["alice"]
    assert (await short.refused())[0] == "UNAUTHENTICATED"
    await asyncio.sleep(CHECKED)
    assert await kept.echoes()


@pytest.mark.smoke
async def test_a_newer_token_of_another_caller_ends_it(bed):
    await bed.executor()
    bed.allow("bob")
    tunnel = await bed.tunnel()
    await tunnel.say(token="bob")
    assert await tunnel.refused() == ("INVALID_ARGUMENT", "InvalidTunnel")


async def test_a_tunnel_outlives_the_fleet_for_a_while_and_no_longer(bed):
    await bed.executor()
    tunnel = await bed.tunnel()
    await bed.world.server.stop(0)
    await asyncio.sleep(0.5)
    assert await tunnel.echoes()
    assert await tunnel.refused() == ("UNAVAILABLE", "RouteUnknown")
    assert await bed.attempt() == ("UNAVAILABLE", "RouteUnknown")


# How many.


async def test_one_caller_cannot_have_all_and_what_has_ended_makes_room(tmp_path):
    async with gateway_bed(tmp_path, total=5, per_caller=3) as bed:
        executor = await bed.executor()
        for who in ("alice", "bob", "carol"):
            bed.allow(who)
        stub = bed.stub()
        mine = [await bed.tunnel(stub=stub) for _ in range(3)]
        assert await bed.attempt(stub=stub) == ("RESOURCE_EXHAUSTED", "TooManyTunnels")
        for _ in range(2):
            await bed.tunnel(who="bob", stub=stub)
        assert await bed.attempt(who="carol", stub=stub) == ("RESOURCE_EXHAUSTED", "TooManyTunnels")
        mine[0].call.cancel()
        await until(lambda: executor.resets == 1)
        assert await (await bed.tunnel(who="carol", stub=stub)).echoes()


async def test_callers_that_name_no_sandbox_do_not_use_up_the_room(bed):
    executor = await bed.executor()
    stub = bed.stub()
    waiting = [bed.begin("", stub) for _ in range(600)]
    assert await (await bed.tunnel(stub=stub)).echoes()
    assert executor.connections == 1
    for one in waiting:
        one.call.cancel()


async def test_a_thousand_tunnels_carry_at_once_and_leave_nothing(tmp_path):
    async with gateway_bed(tmp_path, total=1000, per_caller=1000, check_every=10.0) as bed:
        bed.allow()
        executor = await bed.executor()
        stub = bed.stub()
        tunnels = []
        for _ in range(10):
            tunnels += await asyncio.gather(*(bed.tunnel(stub=stub) for _ in range(100)))
        assert all(await asyncio.gather(*(one.echoes() for one in tunnels)))
        assert await bed.attempt(stub=stub) == ("RESOURCE_EXHAUSTED", "TooManyTunnels")
        for one in tunnels:
            one.call.cancel()
        await until(lambda: executor.resets == len(tunnels), seconds=20)
        assert await (await bed.tunnel(stub=stub)).echoes()


# A client that does not read.


async def test_bytes_of_tunnels_that_carry_at_once_do_not_mix(bed):
    await bed.executor()
    tunnels = [await bed.tunnel() for _ in range(8)]
    lines = [random.Random(number).randbytes(100_000).hex().encode() + b"\n" for number in range(8)]

    async def echoed(tunnel, line):
        return [await tunnel.echoes(line) for _ in range(10)]

    assert await asyncio.gather(*map(echoed, tunnels, lines)) == [[True] * 10] * 8


@pytest.mark.smoke
async def test_a_slow_reader_holds_up_its_own_executor_and_no_other_tunnel(bed):
    executor = await bed.executor()
    stub = bed.stub()
    slow = await bed.tunnel(stub=stub)
    await slow.say(data=b"flood\n")
    await held_up(executor)
    # What the kernels and gRPC's windows hold.
    assert executor.sent < 32 << 20
    assert await (await bed.tunnel(stub=stub)).echoes()
    with contextlib.suppress(grpc.aio.AioRpcError):
        assert (await slow.read()).data


@pytest.mark.smoke
async def test_a_client_that_does_not_read_loses_the_connection_with_its_right_as_others_do(bed):
    executor = await bed.executor()
    slow = await bed.tunnel()
    await slow.say(data=b"flood\n")
    await held_up(executor)
    bed.forbid()
    await until(lambda: executor.resets == 1)


@pytest.mark.smoke
async def test_a_client_that_sends_more_than_its_executor_reads_is_held_up(bed):
    with socket.socket() as silent:
        # So that the kernels hold little.
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        await bed.world.add("one", status=False)
        await bed.world.say("one", address="{}:{}".format(*silent.getsockname()), podUID="uid-of-one")
        tunnel, sent = await bed.tunnel(), 0
        with contextlib.suppress(TimeoutError):
            while sent < 64 << 20:
                async with asyncio.timeout(3):
                    await tunnel.say(data=bytes(256 << 10))
                sent += 256 << 10
    # What gRPC's windows hold.
    assert sent < 5 << 20


async def test_ended_tunnels_that_their_client_does_not_read_count_until_it_does(tmp_path):
    async with gateway_bed(tmp_path, per_caller=2) as bed:
        bed.allow()
        executor = await bed.executor()
        stub = bed.stub()
        unread = [await bed.tunnel(stub=stub) for _ in range(2)]
        for one in unread:
            await one.say(data=b"flood\n")
        await held_up(executor)
        for one in unread:
            await one.say(open=pb.TunnelOpen(sandbox_id="team/one"))
        await until(lambda: executor.resets == 2)
        assert await bed.attempt(stub=stub) == ("RESOURCE_EXHAUSTED", "TooManyTunnels")
        assert await unread[0].refused() == ("INVALID_ARGUMENT", "InvalidTunnel")
        assert await (await bed.tunnel(stub=stub)).echoes()


# Its process.


async def test_the_process_serves_beside_a_fleet_and_ends_its_tunnels_at_sigterm(bed):
    executor = await bed.executor()
    bed.port = free_port()
    command = ["-m", "sandfleet_operator", "gateway", "--credentials", str(bed.folder), "--port", str(bed.port)]
    command += ["--fleet", f"localhost:{bed.world.port}"]
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stderr=asyncio.subprocess.PIPE)
    try:
        tunnel = bed.begin(wait=True)
        await tunnel.say(open=pb.TunnelOpen(sandbox_id="team/one"))
        assert (await tunnel.read()).opened.sandbox_uid == "uid-of-one"
        assert await tunnel.echoes()
        process.terminate()
        assert await tunnel.refused() == ("UNAVAILABLE", "NotServing")
        assert await asyncio.wait_for(process.wait(), 60) == 0
        await until(lambda: executor.resets == 1)
        assert (await process.stderr.read()).decode().splitlines() == [
            f"sandfleet gateway: listening on port {bed.port}"
        ]
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
