"""What a save leaves out: files whose stamp has not changed, and no file that could have changed without a sign."""

import mmap
import os
import time
from pathlib import Path

import pytest
from sandfleet_executor.effects import linux
from sandfleet_executor.effects.snapshots import ledger as ledgers
from sandfleet_executor.effects.snapshots.ledger import TICK, Earlier, Ledger, tells_changes
from sandfleet_executor.effects.snapshots.scan import Scan
from sandfleet_executor.effects.snapshots.spool import Pieces, Spool, unnamed_file

LARGE, SMALL = 300_000, 1000


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with files that are old enough, on a file system that tells changes."""
    monkeypatch.setattr(ledgers, "YOUNG_NS", 0)
    folder = tmp_path / "workspace"
    (folder / "data.d").mkdir(parents=True)
    fd = os.open(folder, os.O_RDONLY)
    if not tells_changes(fd):
        pytest.skip("this file system does not tell what has changed")
    os.close(fd)
    for name, size in {"data": SMALL, "data.d/large": LARGE, "data.d/small": SMALL, "other": LARGE}.items():
        (folder / name).write_bytes(os.urandom(size))
    time.sleep(TICK)
    return folder


class Save:
    """One save; `reads` says whether small files are read on the walk."""

    def __init__(self, place: Path, before: "Save | None" = None, *, reads: bool = True):
        self.ledger = Ledger(unnamed_file(place.parent))
        spool, fd = Spool(unnamed_file(place.parent)), os.open(place, os.O_RDONLY | os.O_DIRECTORY)
        walked = time.time_ns()
        scan = Scan(spool.put, lambda: reads, Earlier(before.ledger if before else None).has)
        scan.run(os.dup(fd))
        pieces = Pieces(spool, fd, scan.unsaved, self.ledger, walked)
        found = list(iter(pieces.next, None))
        pieces.close()
        self.known = {entry.path.decode() for entries, _ in found for entry in entries if entry.known}
        self.size = sum(len(data) for _, data in found)


ALL = {"data", "data.d/large", "data.d/small", "other"}


@pytest.mark.parametrize("reads", [True, False])
def test_what_has_not_changed_is_not_read_again(place, reads):
    first = Save(place, reads=reads)
    assert (first.known, first.size) == (set(), 2 * LARGE + 2 * SMALL)
    second = Save(place, first, reads=reads)
    assert (second.known, second.size) == (ALL, 0)
    # Nor is it the time after.
    assert Save(place, second, reads=reads).known == ALL


def overwritten(path):
    with path.open("r+b") as file:
        file.write(b"other")


def disguised(path):
    """Other bytes, of the same length, with the old time of modification."""
    times = path.stat()
    path.write_bytes(os.urandom(times.st_size))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def replaced(path):
    times = path.stat()
    new = path.with_name("new")
    new.write_bytes(os.urandom(times.st_size))
    os.utime(new, ns=(times.st_atime_ns, times.st_mtime_ns))
    new.rename(path)


def mapped(path):
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        memory[0] ^= 1


CHANGES = [overwritten, disguised, replaced, mapped, lambda path: path.chmod(0o600), Path.unlink]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["data.d/large", "data.d/small"])
def test_whatever_changes_a_file_it_is_read_again(place, change, name):
    first = Save(place)
    time.sleep(TICK)
    change(place / name)
    assert Save(place, first).known == ALL - {name}


@pytest.mark.parametrize("name", ["other", "data"])
@pytest.mark.parametrize("reads", [True, False])
def test_a_store_through_a_mapping_that_was_there_before_is_seen(place, name, reads, monkeypatch):
    with (place / name).open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        memory[0] ^= 1
        time.sleep(TICK)
        first = Save(place, reads=reads)
        time.sleep(TICK)
        memory[0] ^= 1
        assert Save(place, first).known == ALL - {name}
        # The defence is that its page is clean before it is read: without that the store leaves no sign.
        memory[0] ^= 1
        time.sleep(TICK)
        monkeypatch.setattr(linux, "write_back", lambda _: None)
        second = Save(place, reads=reads)
        time.sleep(TICK)
        memory[0] ^= 1
        assert Save(place, second).known == ALL


def test_a_file_that_changed_just_before_the_walk_may_change_again_in_the_same_tick(place, monkeypatch):
    monkeypatch.undo()
    first = Save(place)
    assert Save(place, first).known == set()


def test_files_that_come_and_go_do_not_lead_to_the_stamps_of_others(place):
    first = Save(place)
    (place / "data.d/large").rename(place / "data.d/a")
    (place / "before").write_bytes(b"new")
    os.link(place / "other", place / "zz")
    second = Save(place, first)
    # A new name of a file changes its stamp, too.
    assert second.known == {"data", "data.d/small"}


def test_a_file_system_that_hides_changes_is_not_believed(place, monkeypatch):
    fd = os.open(place, os.O_RDONLY)
    try:
        before = os.fstat(fd)
        assert tells_changes(fd)
        assert os.fstat(fd).st_mtime_ns == before.st_mtime_ns
        # As on a file system in memory: no page is ever clean.
        monkeypatch.setattr(linux, "write_back", lambda _: None)
        assert not tells_changes(fd)
    finally:
        os.close(fd)
