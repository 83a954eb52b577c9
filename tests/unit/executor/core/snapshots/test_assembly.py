"""What a restore takes of a stream of entries and data, and what it refuses before a file is touched."""

import pytest
from sandfleet_executor.core.snapshots.assembly import Assembly, Begin, Bytes, End, InvalidStream
from sandfleet_executor.core.snapshots.entries import Entry, InvalidEntry, Kind, Totals, Tree, whole

TOP = Entry(Tree.WORKSPACE, b"", Kind.DIRECTORY, 0o755)
VARIABLES = Entry(Tree.VARIABLES, b"", Kind.DIRECTORY, 0o700)


def file(path, size=0, *, tree=Tree.WORKSPACE, **more):
    return Entry(tree, path, Kind.FILE, size=size, **{"extents": whole(size), **more})


def folder(path):
    return Entry(Tree.WORKSPACE, path, Kind.DIRECTORY, 0o755)


def link(path, target):
    return Entry(Tree.WORKSPACE, path, Kind.SYMLINK, target=target)


def again(path, target):
    return Entry(Tree.WORKSPACE, path, Kind.HARD_LINK, target=target)


def fed(*entries, data=b""):
    return list(Assembly().feed(entries, data))


def test_data_go_to_the_extents_of_their_files_however_they_are_cut():
    sparse = file(b"b", 100, extents=((10, 3), (50, 2)))
    assembly = Assembly()
    steps = list(assembly.feed([TOP, file(b"a", 4), sparse, file(b"c")], b"aa"))
    steps += [step for piece in (b"aa1", b"23", b"45") for step in assembly.feed([], piece)]
    assembly.finish(Totals(4, 9))
    said = [(one.offset, bytes(one.data)) for one in steps if isinstance(one, Bytes)]
    assert said == [(0, b"aa"), (2, b"aa"), (10, b"1"), (11, b"23"), (50, b"45")]
    assert [type(one) for one in steps if not isinstance(one, Bytes)] == [Begin, Begin, End, Begin, End, Begin, End]


REFUSED = {
    "an absolute path": [TOP, file(b"/etc/passwd")],
    "a way up": [TOP, folder(b"a"), file(b"a/../../x")],
    "a dot": [TOP, file(b"./x")],
    "an empty name": [TOP, folder(b"a"), file(b"a//x")],
    "a NUL byte": [TOP, file(b"a\0b")],
    "a name that is too long": [TOP, file(b"a" * 256)],
    "a name of Sandfleet's own": [TOP, file(b".sandfleet-partial-1")],
    "a path through a link": [TOP, link(b"a", b"/etc"), file(b"a/passwd")],
    "a path through a file": [TOP, file(b"a"), file(b"a/b")],
    "no folder above": [TOP, file(b"a/b")],
    "a name twice": [TOP, file(b"a"), file(b"a")],
    "names out of order": [TOP, file(b"b"), file(b"a")],
    "a folder that was left": [TOP, folder(b"a"), file(b"b"), file(b"a/c")],
    "no top": [file(b"a")],
    "a top that is a file": [file(b"")],
    "trees out of order": [TOP, VARIABLES],
    "a tree twice": [VARIABLES, TOP, TOP],
    "a hard link forward": [TOP, again(b"a", b"b"), file(b"b")],
    "a hard link to itself": [TOP, again(b"a", b"a")],
    "a hard link outside": [TOP, again(b"b", b"../a")],
    "a link without a text": [TOP, link(b"a", b"")],
    "a link with a NUL byte": [TOP, link(b"a", b"b\0")],
    "a mode beyond twelve bits": [TOP, file(b"a", mode=0o10000)],
    "a time beyond all": [TOP, file(b"a", modified_ns=1 << 63)],
    "a bomb": [TOP, file(b"a", 1 << 62)],
    "extents beyond the end": [TOP, file(b"a", 5, extents=((3, 3),))],
    "extents that overlap": [TOP, file(b"a", 9, extents=((0, 5), (4, 2)))],
    "an empty extent": [TOP, file(b"a", 9, extents=((0, 0),))],
    "too many extents": [TOP, file(b"a", 9999, extents=tuple((at * 2, 1) for at in range(1001)))],
    "an attribute of the system": [TOP, file(b"a", attributes=((b"security.capability", b"1"),))],
    "attributes that are too large": [TOP, file(b"a", attributes=((b"user.a", b"1" * (64 << 10)),))],
    "variables in a folder": [VARIABLES, Entry(Tree.VARIABLES, b"a", Kind.DIRECTORY)],
    "variables below a folder": [VARIABLES, file(b"a/b", tree=Tree.VARIABLES)],
    "variables that are a link": [VARIABLES, Entry(Tree.VARIABLES, b"a", Kind.SYMLINK, target=b"/etc/passwd")],
    "variables with holes": [VARIABLES, file(b"a", 9, tree=Tree.VARIABLES, extents=((0, 1),))],
}


@pytest.mark.parametrize("entries", REFUSED.values(), ids=REFUSED)
def test_entries_that_no_workspace_has_are_refused(entries):
    with pytest.raises(InvalidEntry, match=r"^cannot restore "):
        fed(*entries)


def test_links_may_have_any_text_and_names_any_bytes():
    names = [b" ", b"*", b"..a", b"a\nb", b"z" * 255, b"\xff\xfe"]
    steps = fed(TOP, *[link(name, b"../../etc/passwd") for name in names])
    assert [one.entry.path for one in steps] == [b"", *names]


@pytest.mark.parametrize(
    ("entries", "data", "totals"),
    [
        ([TOP], b"x", Totals(1, 1)),
        ([TOP, file(b"a", 2)], b"x", Totals(2, 1)),
        ([TOP, file(b"a", 1), file(b"b", 1)], b"x", Totals(3, 1)),
        ([TOP, file(b"a", 1)], b"x", Totals(2, 2)),
        ([TOP, file(b"a", 1)], b"x", Totals(3, 1)),
    ],
    ids=["too much", "too little", "a file without data", "other bytes were sent", "other entries were sent"],
)
def test_streams_that_are_not_whole_are_refused(entries, data, totals):
    assembly = Assembly()
    with pytest.raises(InvalidStream, match=r"^cannot restore: "):
        list(assembly.feed(entries, data))
        assembly.finish(totals)
