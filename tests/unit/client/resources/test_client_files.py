"""Files against a scripted executor."""

import asyncio
import io
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest
from sandfleet._fleets.fleet import AsyncFleet
from sandfleet.errors import FileError, FileNotFound, InvalidArgument, LimitReached, RpcTimeout
from sandfleet.resources.files import files
from sandfleet.sandbox import AsyncSandbox
from sandfleet.testing import Fails, FakeFleet, Hangs


@pytest.fixture
async def fake() -> AsyncIterator[FakeFleet]:
    async with FakeFleet() as fleet:
        yield fleet


@pytest.fixture
async def sandbox(fake: FakeFleet) -> AsyncIterator[AsyncSandbox]:
    async with await AsyncFleet.connect(fake.address) as fleet:
        opened = await AsyncSandbox.create(fleet=fleet, rpc_timeout=5.0)
        yield opened
        await opened.close()


def pieces() -> Iterator[bytes]:
    yield b"a" * 3
    yield b"b" * 3


async def stream() -> AsyncIterator[bytes]:
    for piece in pieces():
        yield piece


@pytest.mark.parametrize(
    ("data", "written"),
    [
        ("é", b"\xc3\xa9"),
        (b"x", b"x"),
        (bytearray(b"x"), b"x"),
        (memoryview(b"xyz")[::1], b"xyz"),
        (b"", b""),
        (b"z" * 2_500_000, b"z" * 2_500_000),
        ([b"a", b"b"], b"ab"),
        (["ä", b"b"], "äb".encode()),
        (io.BytesIO(b"1\n2\n"), b"1\n2\n"),
        (io.StringIO("ä\nb"), "ä\nb".encode()),
        (io.BytesIO(b"z" * 2_500_000), b"z" * 2_500_000),
        ((b"12345678\n" for _ in range(100_000)), b"12345678\n" * 100_000),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_text_bytes_and_iterables_are_written(
    fake: FakeFleet, sandbox: AsyncSandbox, data: files.Data, written: bytes
) -> None:
    info = await sandbox.files.write("f", data)
    assert fake.files[b"f"] == written
    assert info.size == len(written)
    assert await sandbox.files.read("f", format="bytes") == written


async def test_generators_are_written_as_they_come(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    await sandbox.files.write("f", pieces())
    await sandbox.files.write("g", stream())
    assert fake.files == {b"f": b"aaabbb", b"g": b"aaabbb"}


class AsyncFile:
    """As aiofiles gives them."""

    def __init__(self, text: str) -> None:
        self._file = io.StringIO(text)

    async def read(self, size: int) -> str:
        return self._file.read(size)


async def test_open_files_are_sent_in_blocks_with_progress(
    fake: FakeFleet, sandbox: AsyncSandbox, tmp_path: Path
) -> None:
    local = tmp_path / "lines"
    local.write_text("1234567ä\n" * 100_000)
    seen: list[int] = []
    with local.open() as as_text, local.open("rb") as as_bytes, local.open("rb", buffering=0) as raw:
        for file in (as_text, as_bytes, raw, AsyncFile(local.read_text())):
            seen.clear()
            await sandbox.files.write("f", file, on_progress=lambda progress: seen.append(progress.bytes))
            assert fake.files[b"f"] == local.read_bytes()
            assert seen == sorted(seen)
            assert (seen[-1], len(seen) <= 4) == (1_000_000, True)


@pytest.mark.parametrize(
    "data", [[1], [None], iter([b"a", 3]), ["\ud800"], io.StringIO("\ud800")], ids=lambda data: type(data).__name__
)
async def test_pieces_that_are_neither_text_nor_bytes_are_refused(
    fake: FakeFleet, sandbox: AsyncSandbox, data: files.Data
) -> None:
    with pytest.raises(InvalidArgument, match="cannot write a piece of data: it h"):
        await sandbox.files.write("f", data)
    assert fake.files == {}


async def test_a_generator_that_raises_writes_nothing(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    def broken() -> Iterator[bytes]:
        yield b"half"
        raise ValueError("disk on fire")

    with pytest.raises(ValueError, match="disk on fire"):
        await sandbox.files.write("f", broken())
    assert fake.files == {}


async def test_non_utf8_names_are_passed_through(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    info = await sandbox.files.write(b"\xff", b"x")
    assert info.path == "\udcff"
    assert await sandbox.files.read(info.path) == "x"


async def test_reading_a_binary_file_as_text_is_refused(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    fake.files[b"f"] = b"ab\xff"
    with pytest.raises(FileError, match="no UTF-8 at byte 2; use format='bytes'") as caught:
        await sandbox.files.read("f")
    assert caught.value.reason == "NotText"


async def test_reading_more_than_the_limit_is_refused_and_a_stream_takes_it(
    fake: FakeFleet, sandbox: AsyncSandbox
) -> None:
    fake.files[b"f"] = b"x" * 100
    with pytest.raises(LimitReached, match="more than 10 bytes"):
        await sandbox.files.read("f", limit=10)
    assert b"".join([chunk async for chunk in await sandbox.files.read("f", format="stream")]) == b"x" * 100


@pytest.mark.parametrize("wrong", [{"format": "xml"}, {"offset": -1}, {"length": 0}])
async def test_senseless_reads_are_refused(sandbox: AsyncSandbox, wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument):
        await sandbox.files.read("f", **wrong)  # type: ignore[call-overload]


async def test_a_missing_file_raises_before_the_first_chunk(sandbox: AsyncSandbox) -> None:
    for format_ in ("text", "bytes", "stream"):
        with pytest.raises(FileNotFound):
            await sandbox.files.read("f", format=format_)


async def test_a_file_exists_unless_it_is_not_found(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    fake.fail("Stat", Fails(grpc.StatusCode.NOT_FOUND, "FileNotFound", "cannot stat it: nothing is there"))
    assert not await sandbox.files.exists("f")
    assert await sandbox.files.exists("f")


async def test_upload_and_download_copy_files_whole(fake: FakeFleet, sandbox: AsyncSandbox, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"q" * 3_000_000)
    await sandbox.files.upload(tmp_path / "a", "f")
    assert (await sandbox.files.download("f", tmp_path / "b")).bytes == 3_000_000
    assert (tmp_path / "b").read_bytes() == b"q" * 3_000_000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


async def test_a_download_that_fails_leaves_the_old_file(sandbox: AsyncSandbox, tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"old")
    with pytest.raises(FileNotFound):
        await sandbox.files.download("f", tmp_path / "b")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


async def test_only_safe_calls_are_sent_again(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    broken = Fails(grpc.StatusCode.UNAVAILABLE)
    fake.fail("Stat", broken)
    fake.fail("Move", broken)
    assert await sandbox.files.exists("f")
    with pytest.raises(Exception, match="cannot call the executor"):
        await sandbox.files.rename("f", "g")
    assert (len(fake.called("Stat")), len(fake.called("Move"))) == (2, 1)


async def test_an_executor_that_stops_in_the_middle_of_a_file_is_a_timeout_of_the_call(fake: FakeFleet) -> None:
    async with await AsyncFleet.connect(fake.address) as fleet:
        sandbox = await AsyncSandbox.create(fleet=fleet, rpc_timeout=1.0)

        async def slow() -> AsyncIterator[bytes]:
            yield b"x"
            await asyncio.sleep(1.5)

        # The call may take as long as its data; only the executor's own silence is limited.
        await sandbox.files.write("f", slow())
        fake.fail("Read", Hangs())
        with pytest.raises(RpcTimeout, match=r"no answer for 1 s"):
            await sandbox.files.read("f")
        await sandbox.close()
