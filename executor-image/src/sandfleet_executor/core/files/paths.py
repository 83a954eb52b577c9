"""Paths as an agent writes them: the kernel's bytes, in /workspace, /tmp, mounts, and what can only be read.

A path is parsed into steps; the walk (effects.files.walk) takes them one by one and asks `follow` what a symlink on the
way means. So a path's meaning is decided here, and the kernel is only ever given single names.
"""

import enum
from dataclasses import dataclass
from typing import TypeAlias

from sandfleet_executor.core.files.mounts import Mount

MAX_PATH_BYTES = 4096
MAX_NAME_BYTES = 255
MAX_LINKS = 40

# Files that are being written (uploads, copies) have such a name, with a random rest that user code cannot guess.
PARTIAL_PREFIX = b".sandfleet-partial-"

UP = b".."


# What the kernel makes up: reading it may wait for ever or show other processes.
KERNELS = frozenset({b"dev", b"proc", b"sys"})


class InvalidPath(ValueError):
    """A path that is malformed or leads out of the trees. The message is the "why" of "cannot X: why"."""


class Root(enum.Enum):
    """The trees; the value is the name below /. Everything else there belongs to SYSTEM, which can only be read."""

    WORKSPACE = b"workspace"
    TMP = b"tmp"
    SYSTEM = b""


Tree: TypeAlias = Root | Mount


@dataclass(frozen=True, slots=True)
class Steps:
    """Names to go through one after the other, from / or (of a symlink's text) from where the link is."""

    names: tuple[bytes, ...]
    absolute: bool
    # The text ended in a slash or a dot: the entry has to be a directory.
    directory: bool


def parse(path: bytes) -> Steps:
    """The steps of a caller's path from /; a relative one starts at /workspace. Raises InvalidPath."""
    steps = _split(path)
    if steps.absolute:
        return steps
    return Steps((Root.WORKSPACE.value, *steps.names), absolute=True, directory=steps.directory)


def follow(target: bytes) -> Steps:
    """The steps that a symlink's text stands for. Raises InvalidPath."""
    return _split(target)


def _split(path: bytes) -> Steps:
    if not path:
        raise InvalidPath("the path is empty")
    if len(path) > MAX_PATH_BYTES:
        raise InvalidPath(f"the path has over {MAX_PATH_BYTES} bytes")
    if b"\0" in path:
        raise InvalidPath("the path contains a NUL byte")
    parts = path.split(b"/")
    # As the kernel has it, empty names and dots in between mean nothing.
    names = tuple(part for part in parts if part not in (b"", b"."))
    if any(len(name) > MAX_NAME_BYTES for name in names):
        raise InvalidPath(f"a name in the path has over {MAX_NAME_BYTES} bytes")
    return Steps(names, absolute=path.startswith(b"/"), directory=parts[-1] in (b"", b"."))


def root_of(name: bytes) -> Root:
    """The tree that a name directly below / stands for. Raises InvalidPath."""
    if name in KERNELS:
        raise InvalidPath(f"it leads outside of files, to the kernel's /{name.decode()}")
    return Root(name) if name in {Root.WORKSPACE.value, Root.TMP.value} else Root.SYSTEM


def join(tree: Tree, names: tuple[bytes, ...]) -> bytes:
    """The absolute path of a place, as in the sandbox."""
    above = tree.path if isinstance(tree, Mount) else () if tree is Root.SYSTEM else (tree.value,)
    return b"/" + b"/".join((*above, *names))


def in_workspace(tree: Tree, names: tuple[bytes, ...]) -> tuple[bytes, ...] | None:
    """The place below the workspace; None for a place elsewhere."""
    if isinstance(tree, Mount):
        return (*tree.folder, *names)
    return names if tree is Root.WORKSPACE else None


# A page's token is the place of its last entry below the directory that is listed.
Cursor = tuple[bytes, ...]


def encode_cursor(cursor: Cursor) -> bytes:
    return b"/".join(cursor)


def decode_cursor(token: bytes) -> Cursor:
    """Raises InvalidPath. It is only compared with existing names, so that a forged cursor leads nowhere."""
    if not token:
        return ()
    if len(token) > 64 * MAX_NAME_BYTES:
        raise InvalidPath("the page token is none that was given out")
    return tuple(token.split(b"/"))
