"""Archives unpacked into a tree that another thread changes all the while."""

import ctypes
import os
import threading

import pytest
from sandfleet_executor.core.files.unpacking import Bounds
from sandfleet_executor.effects.files.pack import Packer
from sandfleet_executor.effects.files.unpack import Unpacker
from sandfleet_executor.effects.files.walk import Roots
from support.archives import Member, directory, hard_link, tar

RENAME_EXCHANGE = 2
ROUNDS = 300


class World:
    """`ws/d` is now a directory, now a link to `outside`."""

    def __init__(self, base):
        self.workspace, self.outside = base / "ws", base / "outside"
        self.outside.mkdir()
        (self.workspace / "d").mkdir(parents=True)
        (self.workspace / "l").symlink_to(self.outside)
        self.fd = os.open(self.workspace, os.O_PATH | os.O_DIRECTORY)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._exchange)
        self._thread.start()

    def _exchange(self):
        libc = ctypes.CDLL(None, use_errno=True)
        while not self._over.is_set():
            libc.renameat2(self.fd, b"d", self.fd, b"l", RENAME_EXCHANGE)

    def roots(self):
        return Roots(self.fd, lambda: None).pin()

    def close(self):
        self._over.set()
        self._thread.join()
        os.close(self.fd)


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    made.close()


def unpack(world, data, **options):
    roots = world.roots()
    unpacker = Unpacker(roots, b".", **options)
    try:
        unpacker.feed(data)
        unpacker.finish()
    finally:
        unpacker.close()
        roots.close()
    return unpacker


@pytest.mark.slow
def test_a_directory_that_becomes_a_link_in_between_leads_nowhere(world):
    data = tar(directory(b"d"), Member(b"d/f", b"x"), hard_link(b"d/h", b"d/f"), Member(b"d/new/deep", b"x"))
    taken = [unpack(world, data) for _ in range(ROUNDS)]
    assert list(world.outside.iterdir()) == []
    # Both happened: it was a directory sometimes, and sometimes a link.
    assert any(unpacker.files for unpacker in taken)
    assert any(unpacker.skips.count for unpacker in taken)


def test_by_its_path_it_does_lead_outside(world):
    """The negative control."""
    while not (world.outside / "f").exists():
        (world.workspace / "d" / "f").write_text("x")


def test_an_archive_never_has_what_a_link_leads_to(world):
    (world.outside / "secret").write_text("secret")
    for _ in range(ROUNDS):
        roots = world.roots()
        packer = Packer(roots, b".", compressed=False)
        data = b"".join(iter(packer.read, b""))
        packer.close()
        roots.close()
        assert b"secret" not in data


def test_the_limits_of_an_archive_are_kept(tmp_path):
    (tmp_path / "ws").mkdir()
    fd = os.open(tmp_path / "ws", os.O_PATH | os.O_DIRECTORY)
    roots = Roots(fd, lambda: None).pin()
    unpacker = Unpacker(roots, b".", bounds=Bounds(entries=2))
    assert not unpacker.feed(tar(*(Member(b"%d" % number, b"x") for number in range(4))))
    unpacker.close()
    assert (unpacker.stopped.reason, unpacker.files) == ("TOO_MANY_ENTRIES", 2)
    assert not unpacker.feed(b"more")
    unpacker = Unpacker(roots, b".", bounds=Bounds(size=5000))
    assert not unpacker.feed(tar(Member(b"large", bytes(6000))))
    unpacker.close()
    assert (unpacker.stopped.reason, sorted(path.name for path in (tmp_path / "ws").iterdir())) == (
        "TOO_LARGE",
        ["0", "1"],
    )
    roots.close()
    os.close(fd)
