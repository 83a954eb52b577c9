"""FilesystemService over a real gRPC server on a unix socket, on real directories."""

# Methods have the API's names, and what is looked at are names as the kernel gives them.
# ruff: noqa: PTH208

import asyncio
import os
import sys
from pathlib import Path

import grpc
import grpc.aio
import pytest
from sandfleet_api.executor.v1 import filesystem_pb2 as pb
from sandfleet_executor.servicers.filesystem.files import READ_CHUNK_BYTES
from support.executor.filesystem_server import MIB, failure, until, world_fixture

# pytest finds a fixture by its name in the module.
world = world_fixture


@pytest.mark.smoke
async def test_what_is_written_is_read_back_in_bounded_chunks(world):
    data = os.urandom(3 * READ_CHUNK_BYTES + 17)
    info = await world.write(b"a/b.bin", [data[:10], data[10:]])
    assert (info.path, info.size, info.mode, info.type) == (b"/workspace/a/b.bin", len(data), 0o644, pb.FILE_TYPE_FILE)
    found, chunks = await world.read(b"/workspace/a/b.bin")
    assert (b"".join(chunks), found) == (data, info)
    assert max(map(len, chunks)) == READ_CHUNK_BYTES
    _, part = await world.read(b"a/b.bin", offset=5, length=10)
    assert part == [data[5:15]]
    assert (await world.read(b"a/b.bin", offset=2**63))[1] == []


@pytest.mark.smoke
async def test_a_hundred_mebibytes_go_up_and_down_in_flat_memory(world):
    chunk = os.urandom(MIB)
    before = peak_kib()
    info = await world.write(b"big", [chunk] * 100)
    size = 0
    async for part in world.files.Read(pb.ReadRequest(path=b"big"), metadata=world.metadata()):
        size += len(part.data)
    assert (info.size, size) == (100 * MIB, 100 * MIB)
    # Of the client and the server together.
    assert peak_kib() - before < 60 * 1024


def peak_kib():
    text = Path("/proc/self/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0])


@pytest.mark.smoke
async def test_an_empty_file_is_written_and_read(world):
    assert (await world.write(b"empty", [])).size == 0
    assert (await world.read(b"empty"))[1] == []


@pytest.mark.parametrize(
    ("method", "request_", "code", "reason"),
    [
        ("Stat", pb.StatRequest(path=b"absent"), "NOT_FOUND", "FileNotFound"),
        ("Stat", pb.StatRequest(path=b"../secret"), "INVALID_ARGUMENT", "InvalidPath"),
        ("Stat", pb.StatRequest(path=b"/etc/passwd"), "INVALID_ARGUMENT", "InvalidPath"),
        ("Stat", pb.StatRequest(path=b"out/x"), "INVALID_ARGUMENT", "InvalidPath"),
        ("Stat", pb.StatRequest(path=b"a\0b"), "INVALID_ARGUMENT", "InvalidPath"),
        ("Stat", pb.StatRequest(path=b"x" * 5000), "INVALID_ARGUMENT", "InvalidPath"),
        ("Stat", pb.StatRequest(path=b"\xff/" * 2000), "NOT_FOUND", "FileNotFound"),
        ("Stat", pb.StatRequest(), "INVALID_ARGUMENT", "InvalidPath"),
        ("Stat", pb.StatRequest(path=b"f/x"), "FAILED_PRECONDITION", "NotADirectory"),
        ("Stat", pb.StatRequest(path=b"loop/x"), "FAILED_PRECONDITION", "TooManyLinks"),
        ("ListDirectory", pb.ListDirectoryRequest(path=b"f"), "FAILED_PRECONDITION", "NotADirectory"),
        ("ListDirectory", pb.ListDirectoryRequest(path=b".", depth=33), "INVALID_ARGUMENT", "InvalidDepth"),
        (
            "ListDirectory",
            pb.ListDirectoryRequest(path=b".", page_token=b"x" * 20_000),
            "INVALID_ARGUMENT",
            "InvalidPageToken",
        ),
        ("MakeDir", pb.MakeDirRequest(path=b"f"), "ALREADY_EXISTS", "FileExists"),
        ("Move", pb.MoveRequest(source=b"f", target=b"d"), "ALREADY_EXISTS", "FileExists"),
        ("Move", pb.MoveRequest(source=b"f", target=b"d", overwrite=True), "FAILED_PRECONDITION", "IsADirectory"),
        ("Move", pb.MoveRequest(source=b"absent", target=b"new/x"), "NOT_FOUND", "FileNotFound"),
        ("Remove", pb.RemoveRequest(path=b"d"), "FAILED_PRECONDITION", "DirectoryNotEmpty"),
        ("Remove", pb.RemoveRequest(path=b"."), "PERMISSION_DENIED", "FilePermission"),
    ],
)
async def test_each_failure_has_its_status_and_reason_and_changes_nothing(world, method, request_, code, reason):
    (world.workspace / "f").write_text("x")
    (world.workspace / "d/e").mkdir(parents=True)
    (world.workspace / "out").symlink_to("..")
    (world.workspace / "loop").symlink_to("loop")
    status, detail = await failure(world.call(method, request_))
    assert (status.name, detail.reason, detail.retryable) == (code, reason, False)
    assert detail.message.startswith("cannot ")
    assert sorted(os.listdir(world.workspace)) == ["d", "f", "loop", "out"]


@pytest.mark.smoke
async def test_reading_fails_with_its_reason(world):
    os.mkfifo(world.workspace / "pipe")
    for path, reason in ((b"pipe", "NotARegularFile"), (b".", "IsADirectory"), (b"no\xff", "FileNotFound")):
        _, detail = await failure(world.read(path))
        assert (detail.reason, detail.subject) == (reason, path)


@pytest.mark.smoke
async def test_writing_fails_with_its_reason(world):
    (world.workspace / "d").mkdir()
    for path, reason in ((b"d", "IsADirectory"), (b"../x", "InvalidPath"), (b"d/" + b"x" * 300, "InvalidPath")):
        assert (await failure(world.write(path)))[1].reason == reason
    assert (await failure(world.write(b"f", mode=0o10000)))[1].reason == "InvalidMode"
    assert not (world.base / "x").exists()


@pytest.mark.parametrize("scope", ["filesystem", "session"])
async def test_an_upload_that_is_refused_early_says_why_each_time(world, scope):
    async def requests():
        yield pb.WriteRequest(header=pb.WriteHeader(path=b"."))
        for _ in range(20):
            yield pb.WriteRequest(data=bytes(READ_CHUNK_BYTES))

    reasons = {
        (await failure(world.files.Write(requests(), metadata=world.metadata(scope))))[1].reason for _ in range(60)
    }
    assert reasons == {"IsADirectory" if scope == "filesystem" else "ScopeMissing"}


@pytest.mark.smoke
@pytest.mark.parametrize("scope", ["filesystem", "session"])
async def test_an_upload_without_end_that_is_refused_ends(world, scope):
    async def requests():
        yield pb.WriteRequest(header=pb.WriteHeader(path=b"."))
        await asyncio.Event().wait()

    call = world.files.Write(requests(), metadata=world.metadata(scope))
    assert (await failure(call))[0] is not grpc.StatusCode.OK


@pytest.mark.smoke
@pytest.mark.skipif(not os.access("/dev/full", os.W_OK), reason="needs /dev/full")
async def test_a_full_disk_is_no_space_and_to_be_retried(world, monkeypatch):
    full = os.open("/dev/full", os.O_WRONLY)
    write = os.write
    monkeypatch.setattr("sandfleet_executor.effects.files.files.os.write", lambda _fd, data: write(full, data))
    status, detail = await failure(world.write(b"f"))
    os.close(full)
    assert (status, detail.reason, detail.retryable) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "NoSpace", True)
    assert os.listdir(world.workspace) == []


@pytest.mark.parametrize(
    "requests",
    [
        [],
        [pb.WriteRequest(data=b"x")],
        [pb.WriteRequest()],
        [pb.WriteRequest(header=pb.WriteHeader(path=b"f"))] * 2,
        [pb.WriteRequest(header=pb.WriteHeader(path=b"f")), pb.WriteRequest()],
        [pb.WriteRequest(header=pb.WriteHeader(path=b"f")), pb.WriteRequest(end=pb.WriteEnd(size=1))],
    ],
)
async def test_a_stream_that_is_no_upload_is_refused_and_changes_nothing(world, requests):
    status, detail = await failure(world.files.Write(iter(requests), metadata=world.metadata()))
    assert (status, detail.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "InvalidStream")
    assert os.listdir(world.workspace) == []


@pytest.mark.smoke
async def test_a_stream_that_stops_without_its_end_changes_nothing(world):
    begun = [pb.WriteRequest(header=pb.WriteHeader(path=b"f")), pb.WriteRequest(data=b"x")]
    _, detail = await failure(world.files.Write(iter(begun), metadata=world.metadata()))
    assert detail.reason == "StreamBroken"
    assert os.listdir(world.workspace) == []


CLIENT = """
import os, sys, time
import grpc
from sandfleet_api.executor.v1 import filesystem_pb2 as pb, filesystem_pb2_grpc
channel = grpc.insecure_channel(sys.argv[1])
stub = filesystem_pb2_grpc.FilesystemServiceStub(channel)
def requests(number):
    yield pb.WriteRequest(header=pb.WriteHeader(path=b"f%d" % number))
    while True:
        yield pb.WriteRequest(data=b"x" * 1000)
        time.sleep(0.005)
calls = [stub.Write.future(requests(n), metadata=(("authorization", sys.argv[2]),)) for n in range(30)]
sys.stdin.readline()
{end}
"""
ENDS = {
    "killed": "os.kill(os.getpid(), 9)",
    "cancels": "[call.cancel() for call in calls]; time.sleep(0.3); os._exit(0)",
    "closes": "channel.close(); time.sleep(0.3); os._exit(0)",
}


@pytest.mark.smoke
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
async def test_an_upload_that_breaks_changes_nothing_and_leaves_nothing(world, end):
    (world.workspace / "f0").write_text("old")
    client = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        CLIENT.format(end=end),
        world.socket,
        f"Bearer {world.token()}",
        stdin=asyncio.subprocess.PIPE,
    )
    await until(lambda: len(os.listdir(world.workspace)) == 31)
    client.stdin.write(b"\n")
    await client.wait()
    # A file that was taken for whole would be there for good.
    await until(lambda: not any(name.startswith(".sandfleet") for name in os.listdir(world.workspace)))
    assert os.listdir(world.workspace) == ["f0"]
    assert (world.workspace / "f0").read_text() == "old"


async def test_a_reader_that_goes_away_leaves_no_descriptor_open(world):
    await world.write(b"big", [bytes(MIB)] * 8)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        call = world.files.Read(pb.ReadRequest(path=b"big"), metadata=world.metadata())
        await call.read()
        call.cancel()
    await until(lambda: len(os.listdir("/proc/self/fd")) <= before)


async def test_a_directory_is_listed_in_pages(world):
    for number in range(7):
        await world.write(b"d/%d" % number)
    (world.workspace / "d/link").symlink_to("/etc/passwd")
    seen, token = [], b""
    while True:
        page = await world.call("ListDirectory", pb.ListDirectoryRequest(path=b"d", page_size=3, page_token=token))
        seen += page.entries
        token = page.next_page_token
        if not token:
            break
    assert [entry.path for entry in seen] == [b"/workspace/d/%d" % number for number in range(7)] + [
        b"/workspace/d/link"
    ]
    assert (seen[-1].type, seen[-1].symlink_target) == (pb.FILE_TYPE_SYMLINK, b"/etc/passwd")


@pytest.mark.smoke
async def test_directories_are_made_moved_and_removed(world):
    assert (await world.call("MakeDir", pb.MakeDirRequest(path=b"a/b"))).created
    assert not (await world.call("MakeDir", pb.MakeDirRequest(path=b"a/b"))).created
    moved = await world.call("Move", pb.MoveRequest(source=b"a", target=b"/tmp/c/d"))
    assert (moved.info.path, moved.info.type) == (b"/tmp/c/d", pb.FILE_TYPE_DIRECTORY)
    await world.call("Remove", pb.RemoveRequest(path=b"/tmp/c", recursive=True))
    assert (os.listdir(world.workspace), os.listdir(world.tmp)) == ([], [])


@pytest.mark.smoke
async def test_tmp_is_unavailable_while_there_is_none_and_the_workspace_goes_on(world):
    world.has_tmp = False
    status, detail = await failure(world.call("Stat", pb.StatRequest(path=b"/tmp")))
    assert (status, detail.retryable) == (grpc.StatusCode.UNAVAILABLE, True)
    assert (await world.call("Stat", pb.StatRequest(path=b"."))).info.path == b"/workspace"
    world.has_tmp = True
    assert (await world.call("Stat", pb.StatRequest(path=b"/tmp"))).info.path == b"/tmp"


@pytest.mark.smoke
async def test_a_time_that_no_timestamp_can_say_is_the_nearest(world):
    (world.workspace / "f").touch()
    os.utime(world.workspace / "f", ns=(0, -1))
    info = (await world.call("Stat", pb.StatRequest(path=b"f"))).info
    assert (info.modified.seconds, info.modified.nanos) == (-1, 999_999_999)
