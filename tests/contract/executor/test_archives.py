"""Archives in and out: what honest ones bring, and what hostile ones cannot do."""

# Names are the kernel's bytes, which pathlib does not take.

import io
import os
import tarfile

import grpc
import pytest
import zstandard
from contract.executor.archive_calls import extract, skipped, stop, tree
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sandfleet.errors import ProtocolError, TransferIncomplete
from sandfleet_api.executor.v1 import filesystem_pb2 as pb
from support import archives
from support.archives import Member, directory, hard_link, symlink, tar

pytestmark = pytest.mark.asyncio(loop_scope="session")

MIB = 1 << 20
ZSTD = pb.COMPRESSION_ZSTD


@pytest.mark.smoke
async def test_an_honest_archive_is_unpacked_with_modes_times_and_links(executor, sandbox):
    data = tar(
        directory(b"d", 0o750),
        Member(b"d/f", b"content", mode=0o640),
        symlink(b"d/l", b"f"),
        symlink(b"up", b"d/f"),
        hard_link(b"same", b"d/f"),
        Member(b"implied/parents/f", b"x"),
    )
    answer = await extract(executor, data, b"honest")
    assert (answer.files, answer.directories, answer.links, answer.bytes) == (2, 3, 3, 8)
    assert (answer.skipped_count, stop(answer)) == (0, "UNSPECIFIED")
    found = await tree(sandbox, "honest")
    assert (found[b"d"].mode, found[b"d/f"].mode, found[b"d/f"].modified.year) == (0o750, 0o640, 2001)
    assert (found[b"d/l"].symlink_target, await sandbox.files.read("honest/same")) == ("f", "content")


@pytest.mark.parametrize("chunk", [1, 511, 513, 1 << 20])
async def test_how_the_stream_is_cut_makes_no_difference(executor, sandbox, chunk):
    data = tar(*(Member(b"n%d/" % number * 40 + b"f", os.urandom(number * 150)) for number in range(4)))
    answer = await extract(executor, data, b"cut", chunk=chunk)
    assert (answer.files, answer.bytes, answer.skipped_count) == (4, 900, 0)


@pytest.mark.parametrize("format_", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
@pytest.mark.parametrize("compressed", [False, True])
async def test_archives_of_each_format_are_read(executor, sandbox, format_, compressed):
    made = io.BytesIO()
    name = "/".join(["directory"] * 11) + "/file"
    with tarfile.open(fileobj=made, mode="w", format=format_) as writer:
        for path in ("short", name):
            member = tarfile.TarInfo(path)
            member.size, member.mtime = 5, 1_000_000_000
            writer.addfile(member, io.BytesIO(b"hello"))
    data = zstandard.compress(made.getvalue()) if compressed else made.getvalue()
    answer = await extract(executor, data, b"formats", compression=ZSTD if compressed else 0)
    assert (answer.files, answer.skipped_count, stop(answer)) == (2, 0, "UNSPECIFIED")
    assert await sandbox.files.read(f"formats/{name}") == "hello"


ESCAPES = {
    "an absolute name": [Member(b"/tmp/{mark}", b"x")],
    "a name with ..": [Member(b"../../../{mark}", b"x")],
    "a name with .. behind another": [directory(b"a"), Member(b"a/../../../../{mark}", b"x")],
    "a pax name with ..": [Member(b"innocent", b"x", pax={b"path": b"../../{mark}"})],
    "a symlink and a file through it": [symlink(b"out", b"{outside}"), Member(b"out/{mark}", b"x")],
    "a symlink upwards and a file through it": [symlink(b"up", b"../.."), Member(b"up/{mark}", b"x")],
    "a chain of links": [
        directory(b"a/b"),
        symlink(b"a/b/up", b"../.."),
        symlink(b"over", b"a/b/up/../.."),
        Member(b"over/{mark}", b"x"),
    ],
    "a file that becomes a symlink": [
        Member(b"f", b"x"),
        symlink(b"f", b"{outside}"),
        Member(b"f/{mark}", b"x"),
    ],
    "a hard link to a link": [symlink(b"s", b"{outside}"), hard_link(b"h", b"s"), Member(b"h/{mark}", b"x")],
}


def filled(members, outside, mark):
    def fill(raw):
        return raw.replace(b"{outside}", outside).replace(b"{mark}", mark)

    return tar(
        *(
            Member(
                fill(member.name),
                member.data,
                member.kind,
                fill(member.link),
                pax={key: fill(value) for key, value in member.pax.items()},
            )
            for member in members
        )
    )


@pytest.mark.parametrize("case", ESCAPES)
@pytest.mark.attack("writes outside by an archive", "refused")
async def test_no_archive_writes_outside_of_its_directory(executor, sandbox, case):
    mark = f"escaped-{list(ESCAPES).index(case)}".encode()
    base = f"escape-{list(ESCAPES).index(case)}"
    answer = await extract(executor, filled(ESCAPES[case], b"/tmp", mark), f"{base}/to/here".encode())
    assert answer.skipped_count >= 1
    assert all(entry.reason for entry in answer.skipped)
    found = await sandbox.commands.run(["find", "/tmp", "/workspace", "-name", mark.decode()])
    places = found.stdout.split()
    assert all(place.startswith(f"/workspace/{base}/to/here/") for place in places), places


@pytest.mark.parametrize("case", ["an absolute name", "a name with ..", "a symlink and a file through it"])
@pytest.mark.control("writes outside by an archive", "writes on the client's disk as an executor")
async def test_without_the_defence_the_same_archive_does_escape(case, tmp_path):
    """The negative control: Python's tarfile without its filter."""
    outside, inside = tmp_path / "outside", tmp_path / "a" / "to" / "here"
    outside.mkdir()
    inside.mkdir(parents=True)
    members = [
        Member(member.name.replace(b"/tmp", os.fsencode(outside)), member.data, member.kind, member.link)
        for member in ESCAPES[case]
    ]
    data = filled(members, os.fsencode(outside), b"mark")
    with tarfile.open(fileobj=io.BytesIO(data)) as reader:
        reader.extractall(inside, filter="fully_trusted")
    assert [path for path in tmp_path.rglob("mark") if inside not in path.resolve().parents]


@pytest.mark.control("brings links, devices and set-id bits in an archive")
async def test_control_without_a_filter_an_archive_brings_them(tmp_path):
    data = tar(
        symlink(b"outside", b"../../../etc/passwd"),
        Member(b"pipe", kind=tarfile.FIFOTYPE),
        Member(b"f", b"x", mode=0o6777),
    )
    with tarfile.open(fileobj=io.BytesIO(data)) as reader:
        reader.extractall(tmp_path, filter="fully_trusted")
    assert (tmp_path / "outside").is_symlink()
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "f").stat().st_mode & 0o7777 == 0o6777


@pytest.mark.attack("brings links, devices and set-id bits in an archive", "left out")
async def test_links_outside_devices_pipes_and_set_id_bits_are_left_out(executor, sandbox):
    data = tar(
        symlink(b"absolute", b"/workspace/f"),
        symlink(b"outside", b"../../../etc/passwd"),
        symlink(b"inside", b"../special/f"),
        hard_link(b"h1", b"/etc/passwd"),
        hard_link(b"h2", b"../../etc/passwd"),
        hard_link(b"h3", b"missing"),
        Member(b"char", kind=tarfile.CHRTYPE),
        Member(b"block", kind=tarfile.BLKTYPE),
        Member(b"pipe", kind=tarfile.FIFOTYPE),
        Member(b"f", b"x", mode=0o6777),
        directory(b"sticky", 0o7777),
    )
    answer = await extract(executor, data, b"special")
    assert set(skipped(answer)) == {b"absolute", b"outside", b"h1", b"h2", b"h3", b"char", b"block", b"pipe"}
    found = await tree(sandbox, "special")
    assert {name: info.mode for name, info in found.items()} == {b"inside": 0o777, b"f": 0o777, b"sticky": 0o777}


@pytest.mark.smoke
async def test_what_is_there_is_replaced_or_kept_and_never_written_through(executor, sandbox):
    await sandbox.commands.run(
        "mkdir -p old/dir && echo precious > precious && ln -s ../precious old/link && echo 1 > old/f"
    )
    data = tar(Member(b"link", b"new"), Member(b"f", b"2"), Member(b"dir", b"no file"), directory(b"f/x"))
    kept = await extract(executor, data, b"old", keep=True)
    assert (kept.files, set(skipped(kept))) == (0, {b"link", b"f", b"dir", b"f/x"})
    replaced = await extract(executor, data, b"old")
    assert (replaced.files, set(skipped(replaced))) == (2, {b"dir", b"f/x"})
    assert await sandbox.files.read("old/link") == "new"
    assert await sandbox.files.read("precious") == "precious\n"


@pytest.mark.attack("puts a link where an archive is unpacked", "not followed", control="in it")
async def test_a_link_that_user_code_put_there_is_not_gone_through(executor, sandbox):
    await sandbox.commands.run("mkdir -p trap /tmp/elsewhere && ln -s /tmp/elsewhere trap/d")
    answer = await extract(executor, tar(Member(b"d/f", b"x")), b"trap")
    assert set(skipped(answer)) == {b"d/f"}
    assert await sandbox.files.list("/tmp/elsewhere") == ()
    # Control: a program that writes by the same path goes through it.
    await sandbox.commands.run("echo x > trap/d/f", check=True)
    assert [info.name for info in await sandbox.files.list("/tmp/elsewhere")] == ["f"]


BROKEN = {
    "no tar at all": (b"x" * 5000, "INVALID_ARCHIVE"),
    "nothing": (b"", "TRUNCATED"),
    "half a header": (tar(Member(b"f", b"x"))[:300], "TRUNCATED"),
    "half a file": (tar(Member(b"half", bytes(5000)))[:2000], "TRUNCATED"),
    "no end": (Member(b"f", b"x").blocks(), "TRUNCATED"),
    "a wrong checksum": (b"y" + tar(Member(b"f", b"x"))[1:], "INVALID_ARCHIVE"),
    "a negative size": (archives.header(b"f", size_field=b"\xff" * 12) + bytes(2048), "INVALID_ARCHIVE"),
    "a size beyond all": (archives.header(b"f", size_field=b"\x80" + b"\xff" * 11) + bytes(2048), "INVALID_ARCHIVE"),
    "an impossible size": (archives.header(b"f", size=0o77777777777) * 10 + bytes(2048), "TRUNCATED"),
    "sixteen files of 8 GiB": (tar(*[Member(b"f", size=None)] * 3)[:-1024] + tar(Member(b"f", pax={b"size": b"99999999999999"})), "TOO_LARGE"),
    "a negative pax size": (tar(Member(b"f", pax={b"size": b"-1"})), "INVALID_ARCHIVE"),
    "a pax size of many digits": (tar(Member(b"f", pax={b"size": b"9" * 5000})), "INVALID_ARCHIVE"),
    "a pax header of 2 MiB": (tar(Member(b"f", pax={b"comment": bytes(2 * MIB)})), "INVALID_ARCHIVE"),
    "a pax record that lies": (archives.header(b"x", b"x", 20) + b"999 path=x\n".ljust(512, b"\0"), "INVALID_ARCHIVE"),
    "extended headers without end": (archives.pax_header({b"a": b"b"}) * 100, "INVALID_ARCHIVE"),
    "a sparse file of GNU": (tar(Member(b"f", kind=tarfile.GNUTYPE_SPARSE)), "INVALID_ARCHIVE"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
async def test_a_broken_archive_is_an_answer_that_says_why_and_nothing_is_left_half_written(executor, sandbox, case):
    data, reason = BROKEN[case]
    answer = await extract(executor, data, b"broken")
    assert (stop(answer), bool(answer.message)) == (reason, True)
    left = await sandbox.commands.run(
        ["find", "/workspace/broken", "-name", ".sandfleet-partial-*", "-o", "-name", "half"]
    )
    assert left.stdout == ""


@pytest.mark.smoke
async def test_a_broken_compression_is_an_answer_too(executor):
    answer = await extract(
        executor, zstandard.compress(tar(Member(b"f", bytes(100_000))))[:-20], b"z", compression=ZSTD
    )
    assert stop(answer) == "TRUNCATED"
    assert stop(await extract(executor, b"no zstd", b"z", compression=ZSTD)) == "INVALID_ARCHIVE"


@pytest.mark.attack("sends a compressed bomb", "stopped, memory bounded", control="in it")
async def test_a_compressed_bomb_is_stopped_and_costs_no_memory(executor, sandbox):
    data = archives.zeros_zstd(1 << 30)
    assert len(data) < MIB
    executor.restart_peak()
    before = executor.memory()
    answer = await extract(executor, data, b"bomb", compression=ZSTD)
    assert stop(answer) == "COMPRESSION_RATIO"
    assert executor.peak_memory() - before < 64 * MIB
    assert await sandbox.files.list("bomb") == ()
    # Control: who unpacks it whole has all of it.
    assert sum(map(len, zstandard.ZstdDecompressor().read_to_iter(data))) >= 1 << 30


@pytest.mark.attack("asks for a window of two gibibytes", "refused", control="in it")
async def test_a_window_of_two_gibibytes_is_refused(executor):
    parameters = zstandard.ZstdCompressionParameters(window_log=27, enable_ldm=True)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    data = compressor.compress(tar(Member(b"f", os.urandom(MIB)))) + compressor.flush()
    assert stop(await extract(executor, data, b"window", compression=ZSTD)) == "INVALID_ARCHIVE"
    # Control: it is the window alone.
    tarball = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj().decompress(data)
    assert stop(await extract(executor, tarball, b"window")) == "UNSPECIFIED"


@pytest.mark.smoke
async def test_files_with_holes_are_skipped_in_the_pax_format(executor):
    pax = {b"GNU.sparse.major": b"1", b"GNU.sparse.realsize": b"1000000000000"}
    answer = await extract(executor, tar(Member(b"hole", b"x" * 600, pax=pax), Member(b"after", b"x")), b"holes")
    assert (set(skipped(answer)), answer.files) == ({b"hole"}, 1)


@pytest.mark.smoke
async def test_names_too_long_too_deep_or_of_our_own_are_skipped(executor):
    names = [b"n" * 256, b"d/" * 300 + b"f", b"x/" * 2100, b".sandfleet-partial-1", b"a\0b"]
    data = tar(*(Member(b"f", b"x", pax={b"path": name}) for name in names))
    answer = await extract(executor, data, b"names")
    assert (answer.skipped_count, answer.files) == (len(names), 0)


@pytest.mark.smoke
async def test_a_stream_that_breaks_leaves_nothing_half_written(executor, sandbox):
    data = tar(Member(b"whole", b"x"), Member(b"half", bytes(MIB)))[: MIB // 2]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await extract(executor, data, b"cutoff", size=17)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert [info.name for info in await sandbox.files.list("cutoff")] == ["whole"]


@pytest.mark.smoke
async def test_a_full_disk_stops_it_and_says_what_was_written(starting, tmp_path):
    async with starting(limits={"tmp_bytes": 8 * MIB}) as made:
        members = [Member(b"small", b"x"), *(Member(b"big%d" % number, os.urandom(3 * MIB)) for number in range(4))]
        answer = await extract(made, tar(*members), b"/tmp/full")
        assert (stop(answer), answer.files in (2, 3)) == ("NO_SPACE", True)
        names = {info.name for info in await made.sandbox.files.list("/tmp/full")}
        assert names == {"small", "big0", "big1"} if answer.files == 3 else {"small", "big0"}
        (tmp_path / "t").mkdir()
        (tmp_path / "t/f").write_bytes(os.urandom(9 * MIB))
        with pytest.raises(TransferIncomplete, match="no space") as caught:
            await made.sandbox.files.upload(tmp_path / "t", "/tmp/more")
        assert (caught.value.reason, caught.value.transfer.files) == ("NoSpace", 0)


PARTS = st.sampled_from([b"a", b"b", b"..", b".", b"", b"/", b"/tmp", b"s", b"x" * 300, b"\xff", b"../.."])
PATHS = st.lists(PARTS, min_size=1, max_size=5).map(b"/".join)
MEMBERS = st.builds(
    Member,
    PATHS,
    st.binary(max_size=700),
    st.sampled_from([bytes([letter]) for letter in b"0123456789xgLKSDXZ\0"]),
    PATHS.map(lambda link: link[:100]),
    st.integers(0, 0o7777),
    st.dictionaries(st.sampled_from([b"path", b"linkpath", b"mtime"]), PATHS, max_size=2),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(members=st.lists(MEMBERS, max_size=8), garbage=st.binary(max_size=600))
async def test_no_archive_makes_an_entry_outside(executor, sandbox, members, garbage):
    # Where the interpreter stands below this machine's /tmp, its folders are in the session's, and stay.
    tmp = await sandbox.commands.run(
        "rm -rf /workspace/fuzz; mkdir -p /workspace/fuzz/to; find /tmp -xdev -mindepth 1 -delete 2> /dev/null; find /tmp -xdev"
    )
    answer = await extract(executor, tar(*members)[:-1024] + garbage + archives.END, b"fuzz/to/here")
    assert answer.files + answer.links + answer.skipped_count <= len(members) + 2
    outside = await sandbox.commands.run(
        "find /tmp -xdev; ls -A /workspace/fuzz | grep -v ^to$; ls -A /workspace/fuzz/to | grep -v ^here$; find /workspace/fuzz/to/here -name '.sandfleet-partial*' -o -perm /7000 ! -type l"
    )
    assert outside.stdout == tmp.stdout


@pytest.mark.smoke
@pytest.mark.attack("writes on the client's disk as an executor", "refused")
async def test_a_client_writes_nothing_outside_whatever_an_executor_sends(tmp_path):
    from sandfleet.resources.files.tar_unpack import Unpacker

    for case, members in ESCAPES.items():
        outside, inside = tmp_path / case / "o", tmp_path / case / "x/y"
        outside.mkdir(parents=True)
        unpacker = Unpacker(os.fsencode(inside), 1 << 20)
        try:
            unpacker.feed(filled(members, os.fsencode(outside), b"mark"))
        except ProtocolError:
            assert "hard link" in case
        finally:
            unpacker.close()
        found = [path for path in (tmp_path / case).rglob("mark") if inside not in path.parents]
        assert found == [], case
        assert list(outside.iterdir()) == []
