"""The token that each RPC needs, and how an RPC fails, over a real gRPC server."""

# Methods have the API's names, and what is looked at are names as the kernel gives them.
# ruff: noqa: PTH208

import asyncio
import os
import time

import grpc
import grpc.aio
import pytest
from sandfleet_api.executor.v1 import filesystem_pb2 as pb
from sandfleet_api.executor.v1 import interpreter_pb2
from sandfleet_api.executor.v1 import session_pb2 as session
from support.executor.filesystem_server import ECHO, MIB, drained, failure, world_fixture

# pytest finds a fixture by its name in the module.
world = world_fixture


EMPTY_FILE = [pb.WriteRequest(header=pb.WriteHeader(path=b"f")), pb.WriteRequest(end=pb.WriteEnd())]


def of_each_kind(world, metadata):
    return {
        "unary": world.files.Stat(pb.StatRequest(path=b"."), metadata=metadata),
        "answers": drained(world.files.Read(pb.ReadRequest(path=b"f"), metadata=metadata)),
        # Nothing is sent: a client of grpc.aio that is still sending may not see the status of a stream of both ways.
        "both": world.channel.stream_stream(ECHO)(metadata=metadata).read(),
        "requests": world.files.Write(iter(EMPTY_FILE), metadata=metadata),
    }


@pytest.mark.smoke
async def test_without_a_good_token_nothing_is_done(world):
    good = world.token()
    cases = {
        "TokenMissing": (),
        "TokenInvalid": (("authorization", "Bearer x.y.z"),),
        "TokenExpired": world.metadata(exp=time.time() - 60),
        "TokenForeign": world.metadata(aud="uid-2"),
        "ScopeMissing": world.metadata(scope="interpreter session admin"),
    }
    more = [(("authorization", text),) for text in ("", "Bearer", f"Basic {good}", good)]
    more.append((("authorization", f"Bearer {good}"), ("authorization", f"Bearer {good}")))
    for reason, metadata in [*cases.items(), *(("TokenInvalid", metadata) for metadata in more)]:
        for call in of_each_kind(world, metadata).values():
            status, detail = await failure(call)
            assert detail.reason == reason
            assert status.name == ("PERMISSION_DENIED" if reason == "ScopeMissing" else "UNAUTHENTICATED")
    assert os.listdir(world.workspace) == []
    # The control: a good one opens them all.
    (world.workspace / "f").touch()
    for kind, call in of_each_kind(world, world.metadata("filesystem process")).items():
        if kind == "both":
            # Allowed, it waits for what is sent.
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(call, 0.1)
        else:
            await call
    assert os.listdir(world.workspace) == ["f"]


@pytest.mark.smoke
async def test_closing_needs_the_admin_scope_and_reading_the_session_scope(world):
    assert (await failure(world.sessions.Close(session.CloseRequest(), metadata=world.metadata("session"))))[
        1
    ].reason == "ScopeMissing"
    assert (await failure(world.sessions.Health(session.HealthRequest(), metadata=world.metadata("admin"))))[
        1
    ].reason == "ScopeMissing"
    await world.sessions.Close(session.CloseRequest(), metadata=world.metadata("admin"))
    await world.sessions.Health(session.HealthRequest(), metadata=world.metadata("session"))


@pytest.mark.smoke
async def test_a_method_that_is_in_no_scope_is_denied(world):
    everything = world.metadata("interpreter process filesystem session admin")
    for method in ("/grpc.health.v1.Health/Check", "/sandfleet_api.executor.v1.NewService/Do", "/", "/x"):
        status, detail = await failure(world.channel.unary_unary(method)(b"", metadata=everything))
        assert (status, detail.reason) == (grpc.StatusCode.PERMISSION_DENIED, "ScopeMissing")


@pytest.mark.smoke
async def test_a_stream_goes_on_after_its_token_has_expired(world):
    await world.write(b"big", [bytes(MIB)] * 8)
    metadata = world.metadata()
    call = world.files.Read(pb.ReadRequest(path=b"big"), metadata=metadata)
    size = len((await call.read()).data)
    world.ahead = 90
    _, detail = await failure(world.files.Stat(pb.StatRequest(path=b"."), metadata=metadata))
    assert detail.reason == "TokenExpired"
    while (part := await call.read()) is not grpc.aio.EOF:
        size += len(part.data)
    assert size == 8 * MIB


@pytest.mark.smoke
async def test_a_fault_is_an_internal_error_without_its_details_and_is_logged(world, caplog):
    status, detail = await failure(
        world.interpreter.ListContexts(interpreter_pb2.ListContextsRequest(), metadata=world.metadata("interpreter"))
    )
    assert (status, detail.reason) == (grpc.StatusCode.INTERNAL, "InternalError")
    assert "secret details" not in detail.message
    assert "secret details" in caplog.text


@pytest.mark.smoke
async def test_an_error_of_any_length_arrives_cut(world):
    _, detail = await failure(
        world.interpreter.Interrupt(interpreter_pb2.InterruptRequest(), metadata=world.metadata("interpreter"))
    )
    assert (detail.reason, detail.retryable, detail.subject) == ("ContextNotFound", True, b"\xff" * 2048)
    assert detail.message.endswith("é…")


@pytest.mark.smoke
async def test_a_stream_may_fail_in_its_middle(world):
    call = world.interpreter.Execute(interpreter_pb2.ExecuteRequest(), metadata=world.metadata("interpreter"))
    await call.read()
    _, detail = await failure(call.read())
    assert detail.reason == "TooMany"


@pytest.mark.smoke
async def test_a_stream_of_both_ways_may_fail_in_its_middle(world):
    call = world.channel.stream_stream(ECHO)(iter([b"x", b"fail", b"y"]), metadata=world.metadata("process"))
    assert await call.read() == b"x"
    assert (await failure(call.read()))[1].reason == "Asked"


@pytest.mark.smoke
async def test_a_method_that_is_not_there_is_unimplemented(world):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await world.channel.unary_unary("/sandfleet_api.executor.v1.FilesystemService/Nothing")(
            b"", metadata=world.metadata()
        )
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
