"""Uploads without room: refused while they come, at the limit of the workspace and of the disk itself."""

import os

import pytest
import zstandard
from contract.executor.archive_calls import extract, stop
from contract.executor.harness import until
from sandfleet.errors import NoSpace, TransferIncomplete
from sandfleet_api.executor.v1 import filesystem_pb2 as pb
from support.archives import Member, directory, tar

pytestmark = pytest.mark.asyncio(loop_scope="session")

MIB = 1 << 20
LARGE = 512 * MIB


@pytest.fixture
def large(tmp_path):
    """A folder with one file that has no data, and takes long to be sent."""
    (tmp_path / "t").mkdir()
    with (tmp_path / "t/large").open("wb") as file:
        file.truncate(LARGE)
    return tmp_path / "t"


@pytest.fixture(scope="module")
def small(starting):
    return lambda: starting(limits={"tmp_bytes": 8 * MIB, "disk_bytes": 16 * MIB})


async def once_there_is_place(send):
    """What an upload that was refused had taken is known to be free a moment later."""

    async def sent():
        try:
            return await send()
        except (NoSpace, TransferIncomplete):
            return None

    return await until(sent)


@pytest.mark.parametrize("path", ["/tmp/there", "/workspace/there"])
async def test_a_tree_that_does_not_fit_is_not_sent_to_its_end(small, large, path):
    sent = []
    async with small() as made:
        with pytest.raises(TransferIncomplete) as caught:
            await made.sandbox.files.upload(large, path, on_progress=lambda progress: sent.append(progress.bytes))
        assert caught.value.reason == "NoSpace"
        assert max(sent) < LARGE // 2
        # Control: what fits is sent to its end, and its end is an answer without a word in between.
        os.truncate(large / "large", MIB)
        transfer = await once_there_is_place(lambda: made.sandbox.files.upload(large, path))
        assert transfer.bytes == MIB


@pytest.mark.parametrize("path", ["/tmp/there", "/workspace/there"])
async def test_a_file_that_does_not_fit_is_not_sent_to_its_end(small, path):
    sent = 0

    async def chunks(count):
        nonlocal sent
        for _ in range(count):
            sent += MIB
            yield bytes(MIB)

    async with small() as made:
        for _ in range(5):
            sent = 0
            with pytest.raises(NoSpace):
                await made.sandbox.files.write(path, chunks(LARGE // MIB))
            assert sent < LARGE // 2
        assert not await made.sandbox.files.exists(path)
        info = await once_there_is_place(lambda: made.sandbox.files.write(path, chunks(2)))
        assert info.size == 2 * MIB


@pytest.mark.parametrize(
    "archive",
    {
        "one large file": lambda: tar(Member(b"large", bytes(40 * MIB))),
        "many files": lambda: tar(*(Member(b"f%d" % number, bytes(MIB)) for number in range(40))),
        "many empty files": lambda: tar(*(Member(b"f%d" % number) for number in range(10_000))),
        "many folders": lambda: tar(*(directory(b"d%d" % number) for number in range(10_000))),
    }.items(),
    ids=lambda pair: pair[0],
)
@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.attack("unpacks more than the disk limit", "refused", control="in it")
async def test_an_archive_takes_no_more_than_the_workspace_may_have(small, archive, compressed):
    data = archive[1]()
    async with small() as made:
        sent = zstandard.compress(data) if compressed else data
        answer = await extract(made, sent, b"there", compression=pb.COMPRESSION_ZSTD if compressed else 0)
        assert (stop(answer), "limit" in answer.message) == ("NO_SPACE", True)

        async def holds():
            # Folders grow with their entries, by an amount that is not known before.
            return (await made.sandbox.usage()).disk_bytes <= 17 * MIB

        # What came while the workspace was walked counts twice until the next walk.
        await until(holds)
        # What was there may go, and then there is place again.
        await made.sandbox.files.remove("there", recursive=True)

        async def fits():
            answer = await extract(made, tar(Member(b"large", bytes(8 * MIB))), b"there")
            return (stop(answer), answer.files) == ("UNSPECIFIED", 1)

        await until(fits)


FILLED = "mkdir -p {top}/a/b && head -c 12M /dev/zero > {top}/a/b/large && chmod {inner} {top}/a/b && chmod {outer} {top}/a {top}"


@pytest.mark.parametrize(("inner", "outer"), [("0100", "0100"), ("0300", "0300"), ("0", "0"), ("0555", "0555")])
@pytest.mark.attack("closes the folders below which it has filled the disk", "its owner can make room", control="in it")
async def test_what_fills_a_workspace_can_be_removed_though_its_folders_are_closed(small, inner, outer):
    async with small() as made:
        await made.sandbox.commands.run(FILLED.format(top="full", inner=inner, outer=outer), check=True)
        # Control: a program has to open them first.
        assert not (await made.sandbox.commands.run("rm -r full")).ok
        await made.sandbox.files.remove("full", recursive=True)
        assert not await made.sandbox.files.exists("full")
        await once_there_is_place(lambda: made.sandbox.files.write("after", bytes(8 * MIB)))


@pytest.mark.attack("closes the workspace", "the next execution opens it again", control="in it")
async def test_a_workspace_that_is_closed_is_opened_again(small):
    async with small() as made:
        closed = await made.sandbox.commands.run("chmod 0 /workspace; ls /workspace; touch inside")
        # Control: it is closed indeed.
        assert "Permission denied" in closed.stderr
        assert (await made.sandbox.run_code("import os; os.listdir('/workspace')")).text == "[]"
        await made.sandbox.commands.run("chmod 0 /workspace")
        assert (await made.sandbox.commands.run("pwd")).stdout == "/workspace\n"
        await made.sandbox.commands.run("chmod 0 /workspace")
        await made.sandbox.files.write("new", "text")
        assert [info.name for info in await made.sandbox.files.list("/workspace")] == ["new"]


# A folder that fills up and has another name each time that it is looked for.
RENAMED = """
import os, time
for name in ('a', 'b', 'a/x'): os.mkdir(name)
place = os.open('a/x', os.O_PATH)
if os.fork() == 0:
    names = 'a/x', 'b/x'
    while MOVES:
        os.rename(*names)
        names = names[1], names[0]
for number in range(20):
    with open(os.open(f'f{number}', os.O_CREAT | os.O_WRONLY, dir_fd=place), 'wb') as file:
        for _ in range(8): file.write(b'x' * (4 << 20))
    time.sleep(0.2)
print('all of it')
"""


@pytest.mark.attack("renames a folder back and forth while it fills the disk", "the writer ends, reason DiskLimit")
async def test_a_folder_that_moves_is_found(starting):
    async with starting(limits={"disk_bytes": 64 * MIB}) as made:
        result = await made.sandbox.commands.run(["python3", "-c", RENAMED.replace("MOVES", "True")], timeout=100)
        assert (result.outcome, result.reason, result.stdout) == ("killed", "DiskLimit", ""), result
        assert not made.ended


@pytest.mark.control("renames a folder back and forth while it fills the disk")
async def test_control_with_room_the_same_folder_is_filled(starting):
    async with starting(limits={"disk_bytes": 1024 * MIB}) as made:
        code = RENAMED.replace("MOVES", "True").replace("print(", "os.write(1, b'all of it'); os.killpg(0, 9); print(")
        result = await made.sandbox.commands.run(["python3", "-c", code], timeout=100)
        assert result.stdout == "all of it", result
