"""What a client takes from an executor's archive, and what it refuses."""

import errno
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sandfleet.errors import LimitReached, ProtocolError
from sandfleet.resources.files import tar_unpack
from sandfleet.resources.files.tar_pack import Packer
from sandfleet.resources.files.tar_unpack import Unpacker
from support import archives
from support.archives import Member, directory, hard_link, symlink, tar


def unpack(top, data, *, limit=1 << 20, chunk=333):
    unpacker = Unpacker(os.fsencode(top), limit)
    try:
        for start in range(0, len(data), chunk):
            unpacker.feed(data[start : start + chunk])
        return unpacker.transfer([], 0), unpacker.ended
    finally:
        unpacker.close()


def names(top):
    return sorted(str(path.relative_to(top)) for path in top.rglob("*"))


def test_files_directories_and_links_are_written(tmp_path):
    data = tar(
        directory(b"d"), Member(b"d/f", b"x" * 2000, mode=0o750), symlink(b"d/l", b"../e"), Member(b"e" * 200, b"")
    )
    transfer, ended = unpack(tmp_path / "t", data)
    assert (transfer.files, transfer.directories, transfer.links, transfer.bytes, ended) == (2, 1, 1, 2000, True)
    assert (tmp_path / "t/d/f").read_bytes() == b"x" * 2000
    assert (tmp_path / "t/d/f").stat().st_mode & 0o7777 == 0o750
    assert (tmp_path / "t/d/l").readlink().name == "e"


def test_a_local_link_is_not_gone_through_and_a_local_file_is_replaced(tmp_path):
    outside, top = tmp_path / "outside", tmp_path / "t"
    outside.mkdir()
    top.mkdir()
    (outside / "precious").write_text("precious")
    (top / "dir").symlink_to(outside)
    (top / "file").symlink_to(outside / "precious")
    transfer, _ = unpack(top, tar(Member(b"dir/f", b"x"), Member(b"file", b"new"), directory(b"dir")))
    assert [skipped.path for skipped in transfer.skipped] == ["dir/f", "dir"]
    assert (names(outside), (outside / "precious").read_text(), (top / "file").read_text()) == (
        ["precious"],
        "precious",
        "new",
    )


def test_set_id_bits_and_bits_of_the_umask_are_left_out(tmp_path):
    unpack(tmp_path / "t", tar(Member(b"f", b"x", mode=0o6777), directory(b"d", 0o7000)))
    assert (tmp_path / "t/f").stat().st_mode & 0o7022 == 0
    assert (tmp_path / "t/d").stat().st_mode & 0o7777 == 0o700


@pytest.mark.parametrize(
    "data",
    [
        tar(hard_link(b"h", b"/etc/passwd")),
        tar(Member(b"p", kind=b"6")),
        tar(Member(b"s", kind=b"S")),
        tar(Member(b"g", kind=b"L")),
        b"x" * 512,
        archives.header(b"f", size_field=b"\xff" * 12),
        archives.header(b"x", b"x", 70_000),
        archives.pax_header({b"a": b"b"}) * 2,
        archives.header(b"x", b"x", 20) + b"999 path=x\n".ljust(512, b"\0"),
    ],
)
def test_anything_that_no_executor_sends_breaks_the_protocol(tmp_path, data):
    with pytest.raises(ProtocolError):
        unpack(tmp_path / "t", data)
    assert names(tmp_path / "t") == []


def test_more_bytes_or_entries_than_allowed_are_refused_before_they_come(tmp_path, monkeypatch):
    with pytest.raises(LimitReached):
        unpack(tmp_path / "t", archives.header(b"f", size=2_000_000))
    monkeypatch.setattr(tar_unpack, "MAX_ENTRIES", 3)
    with pytest.raises(LimitReached):
        unpack(tmp_path / "u", tar(*[Member(b"f", b"x")] * 4))
    assert (names(tmp_path / "t"), names(tmp_path / "u")) == ([], ["f"])


def test_half_an_archive_leaves_no_half_file(tmp_path):
    _, ended = unpack(tmp_path / "t", tar(Member(b"whole", b"x"), Member(b"half", b"y" * 5000))[:3000])
    assert (ended, names(tmp_path / "t")) == (False, ["whole"])


def test_bytes_after_the_archives_end_are_not_kept(tmp_path):
    unpacker = Unpacker(os.fsencode(tmp_path / "t"), 1 << 20)
    unpacker.feed(tar())
    unpacker.feed(bytes(1 << 20))
    assert len(unpacker._buffer) == 0
    unpacker.close()


def test_a_special_file_that_cannot_be_sent_is_told(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "f").write_text("x")
    packer = Packer(os.fsencode(tmp_path))
    assert sorted(archives.names_of(b"".join(packer.pieces()))) == ["f"]
    assert [skipped.path for skipped in packer.skipped] == ["pipe"]


PARTS = st.sampled_from([b"a", b"b", b"..", b".", b"", b"/", b"s", b"x" * 300, b"\xff", b"../.."])
PATHS = st.lists(PARTS, min_size=1, max_size=5).map(b"/".join)
MEMBERS = st.builds(
    Member, PATHS, st.binary(max_size=700), st.sampled_from([b"0", b"2", b"5"]), PATHS.map(lambda link: link[:100]),
    st.integers(0, 0o7777), st.dictionaries(st.sampled_from([b"path", b"linkpath"]), PATHS, max_size=2),
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(members=st.lists(MEMBERS, max_size=8))
def test_no_archive_creates_anything_outside(tmp_path_factory, members):
    base = tmp_path_factory.mktemp("fuzz")
    top = base / "to" / "here"
    try:
        unpack(top, tar(*members))
    except (ProtocolError, OSError) as error:
        assert not isinstance(error, OSError) or error.errno
    assert names(base)[:1] == ["to"]
    assert all(name.startswith("to/here") for name in names(base)[1:])
    inside = os.path.realpath(top)
    assert all(is_circle(path) or os.path.realpath(path).startswith(inside) for path in top.rglob("*"))


def is_circle(path):
    """Whether the kernel refuses to follow a link: of such a circle, realpath makes up a place."""
    try:
        path.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False
