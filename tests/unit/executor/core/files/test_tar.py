"""Reading tar streams, and deciding what of them is written."""

import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_executor.core.files.tar import MAX_EXTENSION_BYTES, ArchiveError, Entry, EntryEnd, Kind, Reader
from sandfleet_executor.core.files.unpacking import Bounds, Budget, Refused, Skips, Stopped, check_symlink, names_of
from support import archives
from support.archives import Member, symlink, tar


def read(data, chunk=100):
    """Name → content of each entry, in order."""
    reader = Reader()
    entries = []
    for start in range(0, len(data), chunk):
        for event in reader.feed(data[start : start + chunk]):
            if isinstance(event, Entry):
                entries.append([event, b"", False])
            elif isinstance(event, EntryEnd):
                entries[-1][2] = True
            else:
                entries[-1][1] += event
    return entries, reader


NAMES = st.text(st.characters(exclude_characters="\0/", exclude_categories=("Cs",)), min_size=1, max_size=140).filter(
    lambda name: name.strip("./") == name
)


@given(
    files=st.lists(st.tuples(NAMES, st.binary(max_size=1100)), max_size=5),
    format_=st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]),
    chunk=st.integers(1, 3000),
)
def test_what_tarfile_writes_is_read_as_it_was(files, format_, chunk):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=format_) as writer:
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            writer.addfile(member, io.BytesIO(content))
    entries, reader = read(made.getvalue(), chunk)
    assert [(entry.path.decode(), content, ended) for entry, content, ended in entries] == [
        (name, content, True) for name, content in files
    ]
    assert reader.ended


@given(data=st.binary(max_size=3000), chunk=st.integers(1, 600))
def test_garbage_is_an_error_or_nothing_and_never_more(data, chunk):
    try:
        entries, _ = read(data, chunk)
    except ArchiveError:
        return
    assert entries == []


@given(
    cuts=st.lists(st.integers(0, 4000), max_size=3),
    flips=st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), max_size=4),
)
def test_a_damaged_archive_gives_no_more_data_than_it_has(cuts, flips):
    data = bytearray(
        tar(Member(b"a" * 150, b"x" * 700, pax={b"mtime": b"1.5"}), symlink(b"l", b"t"), Member(b"b", b"y" * 600))
    )
    for place, value in flips:
        data[place % len(data)] = value
    for cut in cuts:
        del data[cut % len(data) :]
        data = data or bytearray(1)
    try:
        entries, _ = read(bytes(data))
    except ArchiveError:
        return
    assert sum(len(content) for _, content, _ in entries) <= len(data)
    assert all(len(content) == entry.size for entry, content, ended in entries if ended)


def test_an_extended_header_is_the_most_that_is_kept():
    reader = Reader()
    list(reader.feed(archives.header(b"x", b"x", MAX_EXTENSION_BYTES)))
    list(reader.feed(bytes(MAX_EXTENSION_BYTES - 1)))
    assert len(reader._extension[1]) == MAX_EXTENSION_BYTES - 1
    with pytest.raises(ArchiveError):
        list(Reader().feed(archives.header(b"x", b"x", MAX_EXTENSION_BYTES + 1)))


def test_old_letters_prefixes_and_numbers_are_understood():
    old_directory = archives.header(b"dir/", b"\0", magic=bytes(8))
    large = archives.header(b"large", size_field=b"\x80" + (9 << 30).to_bytes(11, "big"))
    ((entry, _, _),) = read(old_directory)[0]
    assert entry.kind is Kind.DIRECTORY
    assert read(large)[0][0][0].size == 9 << 30
    assert read(tar(Member(b"f", pax={b"mtime": b"-1.5"})))[0][0][0].modified == -1


@pytest.mark.parametrize(
    "path",
    [b"", b"/a", b"..", b"a/../b", b"a/..", b"\0", b"n" * 256, b"a/" * 257 + b"b", b"a" * 200 + b"/" + b"b/" * 2000],
)
def test_names_that_lead_elsewhere_are_refused(path):
    with pytest.raises(Refused):
        names_of(path)


def test_names_are_what_is_between_slashes():
    assert names_of(b"./a//b/./c/") == (b"a", b"b", b"c")
    assert names_of(b"./") == names_of(b".") == ()


@pytest.mark.parametrize(
    ("target", "depth", "inside"),
    [
        (b"a", 0, True),
        (b"./a/b/", 0, True),
        (b"../a", 1, True),
        (b"../../a", 2, True),
        (b"..", 1, True),
        (b"..", 0, False),
        (b"../a", 0, False),
        (b"../../a", 1, False),
        (b"a/../b", 5, False),
        (b"../a/..", 5, False),
        (b"/a", 5, False),
        (b"", 5, False),
        (b"a\0", 5, False),
        (b"a" * 5000, 5, False),
    ],
)
def test_a_link_stays_inside_or_is_refused(target, depth, inside):
    try:
        check_symlink(target, depth)
    except Refused:
        assert not inside
    else:
        assert inside


def test_bounds_of_an_archive_stop_it_with_their_reason():
    bounds = Bounds(entries=2, size=1000, ratio=10, free_bytes=100)
    budget = Budget(bounds)
    budget.add_entry(600)
    with pytest.raises(Stopped) as stopped:
        Budget(bounds, size=600).add_entry(401)
    assert stopped.value.reason == "TOO_LARGE"
    budget.add_entry(0)
    with pytest.raises(Stopped) as stopped:
        budget.add_entry(0)
    assert stopped.value.reason == "TOO_MANY_ENTRIES"
    received = Budget(bounds, received=20)
    received.add_bytes(200)
    with pytest.raises(Stopped) as stopped:
        received.add_bytes(1)
    assert stopped.value.reason == "COMPRESSION_RATIO"
    Budget(bounds).add_bytes(100)


def test_so_many_skips_are_listed_and_all_are_counted():
    skips = Skips()
    for _ in range(1500):
        skips.add(b"p" * 9000, "why")
    assert (skips.count, len(skips.listed), len(skips.listed[0][0])) == (1500, 1000, 4096)
