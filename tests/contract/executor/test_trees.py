"""Trees out of a sandbox, and both ways by the client."""

# Names are the kernel's bytes, which pathlib does not take.
# ruff: noqa: PTH102, PTH123, PTH208

import os
import tempfile
from pathlib import Path

import pytest
import zstandard
from contract.executor.archive_calls import archive
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sandfleet_api.executor.v1 import filesystem_pb2 as pb
from support import archives

pytestmark = pytest.mark.asyncio(loop_scope="session")

ZSTD = pb.COMPRESSION_ZSTD


async def test_an_archive_is_read_by_tar_itself(executor, sandbox):
    await sandbox.commands.run(
        r"""mkdir -p out/d && cd out && echo hi > d/f && chmod 751 d/f && ln -s d/f l && mkfifo p && touch "$(printf 'odd\377\nx')" """
    )
    for compression in (0, ZSTD):
        data, end = await archive(executor, b"out", compression)
        if compression:
            data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
        members = archives.names_of(data)
        assert sorted(members) == ["d", "d/f", "l", "odd\udcff\nx"]
        assert (members["d/f"].mode, members["l"].linkname) == (0o751, "d/f")
        assert ([entry.path for entry in end.skipped], end.entries, end.bytes) == ([b"p"], 4, 3)
    assert sorted(archives.names_of((await archive(executor, b"out/d/f"))[0])) == ["f"]


async def test_a_tree_that_changes_while_it_is_read_gives_a_whole_archive(executor, sandbox):
    await sandbox.commands.run(
        "mkdir -p moving && cd moving && for i in $(seq 40); do head -c 300000 /dev/zero > f$i; done"
    )
    writer = await sandbox.commands.run(
        "cd moving; while :; do for i in $(seq 40); do : > f$i; head -c 500000 /dev/zero > f$i; rm f$i; done; done",
        background=True,
    )
    told = 0
    for _ in range(10):
        data, end = await archive(executor, b"moving")
        assert sum(member.size for member in archives.names_of(data).values()) == end.bytes
        assert len(data) % 512 == 0
        told += end.skipped_count
    await writer.kill()


# The client's side


async def test_a_tree_goes_up_and_comes_down_as_it_was(sandbox, tmp_path):
    top = tmp_path / "tree"
    (top / "a/b").mkdir(parents=True)
    (top / "a/b/exec").write_bytes(b"#!")
    (top / "a/b/exec").chmod(0o755)
    (top / "link").symlink_to("a/b")
    (top / ("n" * 255)).write_bytes(b"long")
    odd = os.fsencode(top) + b"/-odd \xff\n"
    Path(os.fsdecode(odd)).write_bytes(b"odd")
    told = []
    up = await sandbox.files.upload(top, "roundtrip", on_progress=told.append)
    assert (up.files, up.links, up.complete, up.bytes) == (3, 1, True, 9)
    assert (told[-1].files, told[-1].bytes) == (3, 9)
    down = await sandbox.files.download("roundtrip", tmp_path / "back", on_progress=told.append)
    assert (down.files, down.links, down.directories, down.complete) == (3, 1, 2, True)
    assert _everything(tmp_path / "back") == _everything(top)


def _everything(top):
    return {
        str(path.relative_to(top)): path.readlink() if path.is_symlink() else path.is_dir() or (path.read_bytes(), path.stat().st_mode)
        for path in top.rglob("*")
    }  # fmt: skip


NAMES = st.binary(min_size=1, max_size=255).filter(lambda name: not {0, 47} & set(name) and name not in (b".", b".."))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names=st.sets(NAMES.filter(lambda name: not name.startswith(b".sandfleet-partial-")), min_size=1, max_size=8))
async def test_every_name_that_the_kernel_allows_goes_both_ways(sandbox, names):
    with tempfile.TemporaryDirectory() as folder:
        there = os.fsencode(folder) + b"/t/"
        os.mkdir(there)
        for name in names:
            with open(there + name, "wb") as file:
                file.write(name)
        assert (await sandbox.files.upload(there, "any")).files == len(names)
        for name in names:
            assert await sandbox.files.read(b"any/" + name, format="bytes") == name
        assert (await sandbox.files.download("any", folder + "/back")).complete
        assert set(os.listdir(os.fsencode(folder) + b"/back")) == names
        await sandbox.files.remove("any", recursive=True)
