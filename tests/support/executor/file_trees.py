"""The two trees of a sandbox as real directories, for tests of what is done with files."""

# What is tested works on names and descriptors, and so do the checks.
# ruff: noqa: PTH208

import contextlib
import os
import tempfile
from pathlib import Path

import pytest
from sandfleet_executor.core.files.paths import InvalidPath
from sandfleet_executor.effects.files import files
from sandfleet_executor.effects.files.walk import Roots


class World:
    """The two trees as real directories, side by side with a secret."""

    def __init__(self, base, tmp):
        self.base, self.workspace, self.tmp = base, base / "ws", tmp
        self.workspace.mkdir()
        (base / "secret").write_text("SECRET")
        self.fds = [os.open(path, os.O_PATH | os.O_DIRECTORY) for path in (self.workspace, tmp)]
        self.roots = Roots(self.fds[0], lambda: self.fds[1])
        self.pins = self.roots.pin()

    def close(self):
        self.pins.close()
        for fd in self.fds:
            os.close(fd)

    def read(self, path, offset=0, size=1 << 20):
        download = files.Download(self.pins, path)
        try:
            return download.read(offset, size)
        finally:
            download.close()

    def write(self, path, data=b"new", mode=0):
        upload = files.Upload(self.pins, path, mode)
        try:
            upload.write(data)
            return upload.commit()
        finally:
            upload.discard()

    def list(self, path=b".", depth=1, limit=1000, after=()):
        page = files.list_directory(self.pins, path, depth=depth, limit=limit, after=after)
        return [entry.path for entry in page.entries], page.cursor


@pytest.fixture(name="world")
def world_fixture(tmp_path):
    # Another file system, as in a sandbox, where the machine has one.
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path) as tmp:
        world = World(tmp_path, Path(tmp))
        yield world
        world.close()
        assert open_below(str(tmp_path), tmp) == [], "a descriptor was left open"


def open_below(*folders):
    """What this process has open there; other threads of the test runner open and close what is theirs."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
    return [path for path in found if path.startswith(tuple(f"{folder}/" for folder in folders)) or path in folders]


def error_of(function, *args, **kwargs):
    with pytest.raises(OSError) as caught:
        function(*args, **kwargs)
    return caught.value.errno


def attempt(read, path):
    try:
        return read(path)
    except (OSError, InvalidPath):
        return None
