"""Which files changed: the fold of events over an index, and the same on real files against a comparison of before and
after.
"""

import os
import shutil
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from sandfleet_executor.core.files import changes
from sandfleet_executor.core.files.changes import (
    ATTRIB,
    CLOSE_WRITE,
    CREATE,
    DELETE,
    IS_DIRECTORY,
    MODIFY,
    MOVED_FROM,
    MOVED_TO,
    Index,
)
from sandfleet_executor.effects.files.inotify import WorkspaceWatcher
from support.examples import examples


def index_with(*paths):
    """An index that knows these files already."""
    index = Index()
    for path in paths:
        *folders, name = path.split(b"/")
        folder = index.root
        for step in folders:
            folder = folder.folders.get(step) or index.add_folder(folder, step)
        index.add_file(folder, name)
    return index


def lists(index, mark):
    files = index.since(mark)
    return list(files.created), list(files.modified), list(files.deleted)


EVENTS = [
    ("made", [(CREATE, b"n"), (CLOSE_WRITE, b"n")], ([b"n"], [], [])),
    ("made and removed", [(CREATE, b"n"), (MODIFY, b"n"), (DELETE, b"n")], ([], [], [])),
    ("written", [(MODIFY, b"old"), (CLOSE_WRITE, b"old")], ([], [b"old"], [])),
    ("still open", [(MODIFY, b"old")], ([], [b"old"], [])),
    ("its mode changed", [(ATTRIB, b"old")], ([], [b"old"], [])),
    ("removed", [(DELETE, b"old")], ([], [], [b"old"])),
    ("removed and made again", [(DELETE, b"old"), (CREATE, b"old")], ([], [b"old"], [])),
    ("renamed", [(MOVED_FROM, b"old"), (MOVED_TO, b"new")], ([b"new"], [], [b"old"])),
    ("replaced", [(CREATE, b"t"), (MOVED_FROM, b"t"), (MOVED_TO, b"old")], ([], [b"old"], [])),
    ("moved in", [(MOVED_TO, b"n")], ([b"n"], [], [])),
    ("moved out", [(MOVED_FROM, b"old")], ([], [], [b"old"])),
    ("an upload", [(CREATE, b".sandfleet-partial-1"), (MOVED_TO, b"old")], ([], [b"old"], [])),
    ("our own", [(CREATE | IS_DIRECTORY, b".sandfleet"), (CREATE, b".sandfleet-partial-2")], ([], [], [])),
    ("only a directory", [(CREATE | IS_DIRECTORY, b"d")], ([], [], [])),
    ("removed, but never seen", [(DELETE, b"raced")], ([], [], [])),
]


@pytest.mark.parametrize(("events", "expected"), [case[1:] for case in EVENTS], ids=[case[0] for case in EVENTS])
def test_events_are_folded_into_created_modified_and_deleted(events, expected):
    index = index_with(b"old")
    mark = index.mark(complete=True)
    for mask, name in events:
        index.event(index.root, mask, 7, name)
    assert lists(index, mark) == expected
    assert index.since(mark).complete


def test_a_renamed_directory_brings_its_files_under_the_new_name():
    index = index_with(b"a/f", b"a/sub/g")
    mark = index.mark(complete=True)
    moved = index.root.folders[b"a"]
    index.event(index.root, MOVED_FROM | IS_DIRECTORY, 7, b"a")
    index.event(index.root, MOVED_TO | IS_DIRECTORY, 7, b"b")
    assert lists(index, mark) == ([b"b/f", b"b/sub/g"], [], [b"a/f", b"a/sub/g"])
    index.event(moved, CREATE, 0, b"h")
    assert b"b/h" in index.since(mark).created
    assert index.moved_away() == []


def test_a_directory_that_leaves_the_workspace_is_let_go_when_asked_twice():
    index = index_with(b"a/f", b"x")
    mark = index.mark(complete=True)
    gone = index.root.folders[b"a"]
    index.event(index.root, MOVED_FROM | IS_DIRECTORY, 7, b"a")
    index.event(gone, CREATE, 0, b"outside")
    assert index.moved_away() == []
    assert index.moved_away() == [gone]
    assert lists(index, mark) == ([], [], [b"a/f"])
    assert index.size == 1


def test_marks_that_overlap_each_see_what_changed_since_they_were_made():
    index = index_with(b"old")
    first = index.mark(complete=True)
    index.event(index.root, CREATE, 0, b"n")
    second = index.mark(complete=True)
    index.event(index.root, MODIFY, 0, b"n")
    index.event(index.root, DELETE, 0, b"old")
    third = index.mark(complete=True)
    assert lists(index, first) == ([b"n"], [], [b"old"])
    assert lists(index, second) == ([], [b"n"], [b"old"])
    assert lists(index, third) == ([], [], [])


def test_a_mark_without_references_is_forgotten():
    index = index_with()
    for _ in range(changes.MAX_MARKS * 2):
        index.mark(complete=True)
    assert index.mark(complete=True).complete


def test_more_marks_than_allowed_are_not_complete():
    index = index_with()
    marks = [index.mark(complete=True) for _ in range(changes.MAX_MARKS + 1)]
    assert [mark.complete for mark in marks] == [True] * changes.MAX_MARKS + [False]


def test_long_lists_are_cut_and_the_rest_is_counted():
    index = index_with(b"old")
    mark = index.mark(complete=True)
    for number in range(1300):
        index.event(index.root, CREATE, 0, b"%05d" % number)
    files = index.since(mark)
    assert (len(files.created), files.created[-1], files.omitted, files.complete) == (1000, b"00999", 300, True)


def test_a_mark_that_has_seen_too_many_names_is_not_complete(monkeypatch):
    monkeypatch.setattr(changes, "MAX_TOUCHED", 3)
    index = index_with()
    mark = index.mark(complete=True)
    for name in (b"a", b"b", b"c", b"a"):
        index.event(index.root, CREATE, 0, name)
    assert index.since(mark).complete
    index.event(index.root, CREATE, 0, b"d")
    assert not index.since(mark).complete


def test_what_a_new_scan_finds_different_counts_as_changed():
    index = index_with(b"stays", b"a/gone")
    mark = index.mark(complete=True)
    index.lose()
    index.adopt(index_with(b"stays", b"b/come"))
    assert lists(index, mark) == ([b"b/come"], [], [b"a/gone"])
    assert not index.since(mark).complete
    later = index.mark(complete=True)
    index.event(index.root, DELETE, 0, b"stays")
    assert index.since(later).deleted == (b"stays",)
    assert index.size == 2


NAMES = st.sampled_from(["a", "b", "c", "d"])
# Of all files or directories that are there, in order, the one to take.
NUMBERS = st.integers(0, 30)


def snapshot(base):
    """Each file with what tells a change of it from the outside."""
    found = {}
    for path in base.rglob("*"):
        if path.is_symlink() or not path.is_dir():
            status = path.lstat()
            content = path.readlink() if path.is_symlink() else path.read_bytes()
            found[bytes(path.relative_to(base))] = (content, status.st_mode)
    return found


def watcher_of(fd):
    """The kernel has 128 instances for a user, and takes those that were closed back a moment later."""
    for _ in range(1000):
        watcher = WorkspaceWatcher(fd)
        if watcher.fileno() >= 0:
            return watcher
        time.sleep(0.01)
    pytest.fail("this machine has no inotify instance left")


class RealFiles(RuleBasedStateMachine):
    """Operations on a real directory; at any moment the watcher's answer must fit a comparison of before and after."""

    @initialize()
    def start(self):
        self.base = Path(tempfile.mkdtemp())
        self.outside = Path(tempfile.mkdtemp())
        (self.base / "a/b").mkdir(parents=True)
        (self.base / "a/b/c").write_text("first")
        (self.base / "d").write_text("first")
        self.fd = os.open(self.base, os.O_PATH | os.O_DIRECTORY)
        self.watcher = watcher_of(self.fd)
        self.watcher.scan()
        self.serial = 0
        self.open_marks = []
        self.mark()

    def teardown(self):
        try:
            self.compare()
        finally:
            self.watcher.close()
            os.close(self.fd)
            shutil.rmtree(self.base)
            shutil.rmtree(self.outside)

    def fresh_text(self):
        self.serial += 1
        return f"{self.serial}"

    def compare(self):
        now = snapshot(self.base)
        for mark, before in self.open_marks:
            files = self.watcher.since(mark)
            assert files.complete
            assert set(files.created) == now.keys() - before.keys()
            assert set(files.deleted) == before.keys() - now.keys()
            changed = {name for name in before.keys() & now.keys() if before[name] != now[name]}
            assert changed <= set(files.modified) <= before.keys() & now.keys()

    @precondition(lambda self: len(self.open_marks) < 3)
    @rule()
    def mark(self):
        self.open_marks.append((self.watcher.begin(), snapshot(self.base)))

    @rule()
    def look(self):
        self.compare()

    @precondition(lambda self: len(self.open_marks) > 1)
    @rule()
    def forget_a_mark(self):
        self.open_marks.pop(0)

    @rule()
    def nothing_is_said_to_have_changed_when_nothing_did(self):
        files = self.watcher.since(self.watcher.begin())
        assert (files.created, files.modified, files.deleted) == ((), (), ())

    def folder(self, number):
        folders = [self.base, *sorted(path for path in self.base.rglob("*") if path.is_dir() and not path.is_symlink())]
        return folders[number % len(folders)]

    def file(self, number):
        files = sorted(snapshot(self.base)) or [b"none"]
        return self.base / files[number % len(files)].decode()

    @rule(number=NUMBERS, name=NAMES)
    def write(self, number, name):
        self.do(lambda: (self.folder(number) / name).write_text(self.fresh_text()))

    @rule(number=NUMBERS)
    def write_again_or_change_the_mode(self, number):
        path = self.file(number)
        if not path.is_symlink():
            self.do(lambda: path.write_text(self.fresh_text()) if number % 2 else path.chmod(0o600 + number))

    @rule(number=NUMBERS, name=NAMES)
    def replace(self, number, name):
        fresh = self.base / "fresh.tmp"
        fresh.write_text(self.fresh_text())
        self.do(lambda: fresh.replace(self.folder(number) / name))
        fresh.unlink(missing_ok=True)

    @rule(number=NUMBERS)
    def remove(self, number):
        self.do(self.file(number).unlink)

    @rule(number=NUMBERS, name=NAMES)
    def link(self, number, name):
        self.do(lambda: (self.folder(number) / name).symlink_to(f"/nowhere/{self.fresh_text()}"))

    @rule(number=NUMBERS, names=st.lists(NAMES, min_size=1, max_size=3))
    def make_folders_and_a_file_at_once(self, number, names):
        path = self.folder(number).joinpath(*names)
        self.do(lambda: path.mkdir(parents=True))
        self.do(lambda: (path / "f").write_text(self.fresh_text()))

    @rule(number=NUMBERS)
    def remove_a_folder(self, number):
        if self.folder(number) != self.base:
            self.do(lambda: shutil.rmtree(self.folder(number)))

    @rule(number=NUMBERS, to=NUMBERS, name=NAMES)
    def rename_a_file(self, number, to, name):
        self.do(lambda: self.file(number).rename(self.folder(to) / name))

    @rule(number=NUMBERS, to=NUMBERS, name=NAMES)
    def rename_a_folder(self, number, to, name):
        # Below itself it is refused.
        if self.folder(number) != self.base:
            self.do(lambda: self.folder(number).rename(self.folder(to) / name))

    @rule(number=NUMBERS)
    def move_a_folder_out(self, number):
        if self.folder(number) != self.base:
            self.do(lambda: self.folder(number).rename(self.outside / self.fresh_text()))

    @rule(number=NUMBERS, name=NAMES)
    def move_a_folder_in(self, number, name):
        for path in sorted(self.outside.iterdir())[:1]:
            self.do(lambda path=path: path.rename(self.folder(number) / name))

    def do(self, operation):
        try:
            operation()
        except OSError:
            # Not possible as things stand: nothing happened.
            return


TestRealFiles = pytest.mark.slow(RealFiles.TestCase)
TestRealFiles.settings = settings(
    max_examples=examples(50), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
