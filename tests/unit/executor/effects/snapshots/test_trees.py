"""Generated trees, through the walk and the writer: what comes out is what went in."""

# Names are bytes here, which pathlib has not.
# ruff: noqa: PTH102, PTH118, PTH208

import errno
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from sandfleet_executor.core.snapshots.assembly import Assembly
from sandfleet_executor.core.snapshots.entries import Entry, InvalidEntry, Kind, Tree, whole
from sandfleet_executor.effects.snapshots import swap
from sandfleet_executor.effects.snapshots.fill import Filler
from sandfleet_executor.effects.snapshots.scan import Scan
from sandfleet_executor.effects.snapshots.spool import Pieces, Spool, unnamed_file
from sandfleet_executor.effects.snapshots.swap import Mark, MarkFile
from support.examples import examples
from support.executor.snapshot_trees import GIB, build, restored, saved, seen, trees


@settings(deadline=None, max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow])
@given(trees())
def test_a_tree_comes_back_byte_for_byte(tree):
    with tempfile.TemporaryDirectory() as folder:
        source, target = os.path.join(os.fsencode(folder), b"source"), os.path.join(os.fsencode(folder), b"target")
        os.mkdir(source)
        os.mkdir(target)
        build(source, tree, [])
        entries, data, unsaved = saved(source, Path(folder))
        assert unsaved.count == 0
        assert restored(target, entries, data).count == 0
        assert seen(target) == seen(source)


def test_what_no_file_system_moves_is_named_and_left_out(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"x")
    entries, _, unsaved = saved(tmp_path, tmp_path)
    assert unsaved.listed == [(b"pipe", "Pipe")]
    assert [one.path for one in entries] == [b"", b"file"]


def test_a_file_that_changes_behind_the_walk_is_named_and_keeps_its_length(tmp_path):
    big = tmp_path / "big"
    big.write_bytes(b"a" * 300_000)
    (tmp_path / "gone").write_bytes(b"b" * 100_000)
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    spool = Spool(unnamed_file(tmp_path))
    scan = Scan(spool.put, lambda: False)
    scan.run(os.dup(fd))
    big.write_bytes(b"c" * 1000)
    (tmp_path / "gone").unlink()
    pieces = Pieces(spool, fd, scan.unsaved)
    data = b"".join(piece[1] for piece in iter(pieces.next, None))
    pieces.close()
    assert data == b"c" * 1000 + bytes(299_000) + bytes(100_000)
    assert scan.unsaved.listed == [(b"big", "Changed"), (b"gone", "Vanished")]


TOP = Entry(Tree.WORKSPACE, b"", Kind.DIRECTORY, 0o755)


def test_nothing_is_left_of_a_restore_that_fails(tmp_path):
    (tmp_path / "mine").write_bytes(b"here")
    entries = [TOP, Entry(Tree.WORKSPACE, b"a", Kind.FILE, size=100_000, extents=whole(100_000))]
    with pytest.raises(OSError, match="limit") as caught:
        restored(tmp_path, entries, b"x" * 100_000, most=50_000)
    assert caught.value.errno == errno.EDQUOT
    wrong = Entry(Tree.WORKSPACE, b"b", Kind.HARD_LINK, target=b"a")
    link = Entry(Tree.WORKSPACE, b"a", Kind.SYMLINK, target=b"/etc/passwd")
    with pytest.raises(InvalidEntry, match="no file"):
        restored(tmp_path, [TOP, link, wrong], b"")
    assert os.listdir(tmp_path) == ["mine"]


def test_a_restore_follows_no_link_that_code_puts_in_its_way(tmp_path):
    """Control: the same steps, by paths instead of open folders, would write outside."""
    outside, workspace = tmp_path / "outside", tmp_path / "workspace"
    outside.mkdir()
    workspace.mkdir()
    fd = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY)
    filler, assembly = Filler(fd, GIB), Assembly()
    filler.take(assembly.feed([TOP, Entry(Tree.WORKSPACE, b"a", Kind.DIRECTORY, 0o755)], b""))
    (staging,) = workspace.iterdir()
    (staging / "a").rename(tmp_path / "moved")
    (staging / "a").symlink_to(outside)
    new = Entry(Tree.WORKSPACE, b"a/b", Kind.FILE)
    with pytest.raises(InvalidEntry):
        filler.take(assembly.feed([new], b""))
    (staging / "a" / "b").write_text("followed")
    assert (outside / "b").read_text() == "followed"
    filler.close()
    os.close(fd)
    assert os.listdir(workspace) == []


@pytest.mark.parametrize("step", range(4))
def test_whenever_it_dies_the_next_executor_finishes_or_forgets_it(tmp_path, step):
    workspace, state = tmp_path / "workspace", tmp_path / "state"
    workspace.mkdir()
    state.mkdir()
    (workspace / "old").write_text("old")
    fd = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY)
    filler, assembly, marks = Filler(fd, GIB), Assembly(), MarkFile(state)
    filler.take(assembly.feed([TOP, Entry(Tree.WORKSPACE, b"new", Kind.FILE)], b""))
    filled = filler.finish()
    mark = Mark(filled.name.hex(), b".sandfleet-partial-old".hex(), record="{}")
    # What had been done when it died.
    done = [
        lambda: marks.write(mark),
        lambda: swap.empty(fd, mark),
        lambda: marks.write(replace(mark, emptied=True)),
        lambda: swap.fill(fd, replace(mark, emptied=True)),
    ]
    for one in done[:step]:
        one()
    found = marks.read()
    if found is None:
        assert step == 0
        assert (workspace / "old").read_text() == "old"
    else:
        if not found.emptied:
            swap.empty(fd, found)
        swap.fill(fd, found)
        swap.remove_forced(fd, bytes.fromhex(found.old))
        assert os.listdir(workspace) == ["new"]
    os.close(fd)


def test_an_exchange_that_fails_can_be_undone(tmp_path):
    (tmp_path / "old").write_text("old")
    (tmp_path / "both").write_text("old")
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    mark = Mark(b".sandfleet-partial-new".hex(), b".sandfleet-partial-old".hex())
    new = tmp_path / ".sandfleet-partial-new"
    new.mkdir()
    (new / "both").write_text("new")
    swap.empty(fd, mark)
    (new / "both").rename(tmp_path / "both")
    swap.undo(fd, mark)
    os.close(fd)
    assert {one.name: one.read_text() for one in tmp_path.iterdir()} == {"old": "old", "both": "old"}
