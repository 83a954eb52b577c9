from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_operator.plan.snapshots.entries import (
    Entry,
    Extent,
    Kind,
    Lines,
    RestoreLimits,
    Validator,
    decode,
    encode,
)
from sandfleet_operator.plan.snapshots.errors import Reason, SnapshotError
from support.snapshots import ROOT, trees

FILE = Entry("workspace", b"a", Kind.FILE, 0o644, size=3)
FOLDER = Entry("workspace", b"a", Kind.DIRECTORY, 0o755)
LINKED = replace(FILE, linked=True)


def under(entry: Entry, path: bytes) -> Entry:
    return replace(entry, path=path)


def link(target: bytes, kind: Kind = Kind.SYMLINK) -> Entry:
    return Entry("workspace", b"b", kind, target=target)


HOSTILE = {
    "no root": [FILE],
    "a root that is a file": [under(FILE, b"")],
    "two roots": [ROOT, ROOT],
    "an unknown tree": [replace(ROOT, tree="etc")],
    "trees out of order": [ROOT, replace(ROOT, tree="state")],
    "a tree twice": [replace(ROOT, tree="state"), ROOT, replace(ROOT, tree="state")],
    "an absolute path": [ROOT, under(FILE, b"/etc/passwd")],
    "a path out": [ROOT, under(FILE, b"../a")],
    "a path out of a folder": [ROOT, FOLDER, under(FILE, b"a/../../b")],
    "a path that stays": [ROOT, under(FILE, b".")],
    "an empty name": [ROOT, FOLDER, under(FILE, b"a//b")],
    "a folder's slash": [ROOT, under(FOLDER, b"a/")],
    "a NUL": [ROOT, under(FILE, b"a\0b")],
    "a long name": [ROOT, under(FILE, b"x" * 256)],
    "a long path": [ROOT, under(FILE, b"/".join([b"x" * 200] * 400))],
    "a missing folder": [ROOT, under(FILE, b"b/c")],
    "a file as a folder": [ROOT, FILE, under(FILE, b"a/b")],
    "a symbolic link as a folder": [ROOT, link(b"/etc"), under(FILE, b"b/passwd")],
    "a folder that was left": [ROOT, FOLDER, under(FILE, b"b"), under(FILE, b"a/c")],
    "a name twice": [ROOT, FILE, FILE],
    "a name as file and link": [ROOT, link(b"x"), under(FILE, b"b")],
    "names out of order": [ROOT, under(FILE, b"b"), FILE],
    "a mode with a kind": [ROOT, replace(FILE, mode=0o100644)],
    "a negative size": [ROOT, replace(FILE, size=-1)],
    "a size that is too large": [ROOT, replace(FILE, size=1 << 63)],
    "a time that is too large": [ROOT, replace(FILE, mtime_ns=1 << 63)],
    "ranges beyond the end": [ROOT, replace(FILE, extents=(Extent(1, 3),))],
    "ranges that overlap": [ROOT, replace(FILE, size=9, extents=(Extent(0, 4), Extent(2, 2)))],
    "ranges out of order": [ROOT, replace(FILE, size=9, extents=(Extent(5, 1), Extent(1, 1)))],
    "an empty range": [ROOT, replace(FILE, extents=(Extent(1, 0),))],
    "a negative range": [ROOT, replace(FILE, extents=(Extent(-1, 1),))],
    "too many ranges": [ROOT, replace(FILE, size=1 << 20, extents=tuple(Extent(2 * n, 1) for n in range(16_385)))],
    "a folder with data": [ROOT, replace(FOLDER, size=3)],
    "a link with data": [ROOT, replace(link(b"x"), size=3)],
    "a link to nothing": [ROOT, link(b"")],
    "a link with a NUL": [ROOT, link(b"a\0")],
    "a long link": [ROOT, link(b"x" * 4097)],
    "a folder with a target": [ROOT, replace(FOLDER, target=b"x")],
    "a file with a target": [ROOT, replace(FILE, target=b"x")],
    "a hard link to nothing": [ROOT, link(b"a", Kind.HARD_LINK)],
    "a hard link to a file without further names": [ROOT, FILE, link(b"a", Kind.HARD_LINK)],
    "a hard link out": [ROOT, LINKED, link(b"../etc/passwd", Kind.HARD_LINK)],
    "a hard link into another tree": [replace(ROOT, tree="state"), replace(LINKED, tree="state"), ROOT, link(b"a", Kind.HARD_LINK)],
    "a hard link to a later file": [ROOT, link(b"c", Kind.HARD_LINK)],
    "an attribute of the system": [ROOT, replace(FILE, xattrs=((b"security.capability", b"x"),))],
    "attributes out of order": [ROOT, replace(FILE, xattrs=((b"user.b", b""), (b"user.a", b"")))],
    "too many attributes": [ROOT, replace(FILE, xattrs=((b"user.a", bytes(65_536)),))],
}  # fmt: skip


@pytest.mark.parametrize("entries", HOSTILE.values(), ids=HOSTILE)
def test_entries_that_no_save_writes_are_refused(entries: list[Entry]) -> None:
    validator = Validator()
    *before, last = entries
    for entry in before:
        validator.add(entry)
    with pytest.raises(SnapshotError) as refused:
        validator.add(last)
    assert refused.value.reason is Reason.HOSTILE


@given(trees())
def test_every_tree_in_its_order_is_taken_and_counted(tree: list) -> None:
    validator = Validator()
    for entry, _ in tree:
        validator.add(entry)
    totals = validator.totals
    assert totals.entries == len(tree)
    assert totals.bytes == sum(len(data) for _, data in tree)
    assert totals.files == sum(entry.kind is Kind.FILE for entry, _ in tree)


@given(trees(), st.randoms(use_true_random=False))
def test_entries_are_read_as_they_were_written_in_any_pieces(tree: list, random: object) -> None:
    text = b"".join(encode(entry) for entry, _ in tree)
    lines, found, start = Lines(), [], 0
    while start < len(text):
        end = start + random.randint(1, 200)
        found += lines.feed(text[start:end])
        start = end
    lines.end()
    assert found == [entry for entry, _ in tree]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[]",
        b"[" * 10_000,
        b'["workspace","a","x",0,0,0,null,"",false,[]]',
        b'["workspace","a","f","0",0,0,null,"",false,[]]',
        b'["workspace","a","f",0,0,1.5,null,"",false,[]]',
        b'["workspace","a","f",true,0,0,null,"",false,[]]',
        b'["workspace",1,"f",0,0,0,null,"",false,[]]',
        b'["workspace","\\u0400","f",0,0,0,null,"",false,[]]',
        b'["workspace","a","f",0,0,0,[[1]],"",false,[]]',
        b'["workspace","a","f",0,0,0,[["1",2]],"",false,[]]',
        b'["workspace","a","f",0,0,0,null,"",0,[]]',
        b'["workspace","a","f",0,0,0,null,"",false,[["user.a"]]]',
        b'[["workspace"],"a","f",0,0,0,null,"",false,[]]',
    ],
)
def test_lines_that_are_no_entries_are_refused(line: bytes) -> None:
    with pytest.raises(SnapshotError) as refused:
        decode(line)
    assert refused.value.reason is Reason.HOSTILE


def test_an_entry_without_an_end_is_refused() -> None:
    lines = Lines()
    assert list(lines.feed(encode(ROOT)[:-1])) == []
    with pytest.raises(SnapshotError):
        lines.end()
    with pytest.raises(SnapshotError):
        list(Lines().feed(b"x" * (3 << 20)))


@pytest.mark.parametrize("limits", [RestoreLimits(bytes=2), RestoreLimits(entries=1), RestoreLimits(size=2)])
def test_more_than_the_place_of_a_restore_takes_is_refused(limits: RestoreLimits) -> None:
    validator = Validator(limits)
    validator.add(ROOT)
    with pytest.raises(SnapshotError) as refused:
        validator.add(FILE)
    assert refused.value.reason is Reason.TOO_LARGE


def test_holes_count_where_the_limit_is_of_sizes() -> None:
    validator = Validator(RestoreLimits(bytes=10, size=1 << 40))
    validator.add(ROOT)
    validator.add(replace(FILE, size=1 << 40, extents=(Extent(0, 10),)))
    assert (validator.totals.bytes, validator.totals.size) == (10, 1 << 40)
