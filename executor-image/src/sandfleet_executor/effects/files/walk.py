"""From a path to an open directory and a name in it, without ever leaving the session's trees.

The kernel is given one name at a time, relative to a directory that is open, and never follows a symlink: links are
read and resolved here. So a process that exchanges directories and links during a walk can mislead it, but only to
places inside. There is no openat2 under gVisor (ENOSYS), which would do the same in one call.
"""

import contextlib
import errno
import os
import stat
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

from sandfleet_executor.core.files.mounts import Mount
from sandfleet_executor.core.files.paths import (
    MAX_LINKS,
    UP,
    InvalidPath,
    Root,
    Steps,
    Tree,
    follow,
    join,
    parse,
    root_of,
)

# Directories held open on the way down; a path may have 2,000 levels, and descriptors are few.
WINDOW = 64
LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
DIRECTORY_MODE = 0o755


class RootUnavailable(Exception):
    """The tree is not there at the moment: /tmp goes and comes with the session namespace."""


def open_to_owner(fd: int) -> None:
    """Opens a directory that its owner has closed to itself: there is always a way to make room, and to work.

    Raises OSError for another than the owner. `fd` may be O_PATH; as a descriptor no link can exchange it.
    """
    mode = os.fstat(fd).st_mode
    if mode & stat.S_IRWXU != stat.S_IRWXU:
        os.chmod(f"/proc/self/fd/{fd}", stat.S_IMODE(mode) | stat.S_IRWXU)  # noqa: PTH101 - it has no other name


class Pins:
    """The trees, open for one piece of work; what happens to /tmp meanwhile does not matter.

    Close it after the work.
    """

    def __init__(self, fds: Mapping[Tree, int]) -> None:
        self._fds = dict(fds)
        self._mounts = [tree for tree in fds if isinstance(tree, Mount)]

    def open(self, tree: Tree) -> int:
        """A descriptor of the tree, to be closed by the caller. Raises RootUnavailable."""
        if tree not in self._fds:
            if tree is Root.SYSTEM:
                raise InvalidPath("it leads outside of /workspace and /tmp")
            raise RootUnavailable(f"{join(tree, ()).decode()} is not there at the moment")
        return os.dup(self._fds[tree])

    def mount_of(self, names: tuple[bytes, ...]) -> Mount | None:
        """The mount that a path from / on leads into."""
        return next((mount for mount in self._mounts if names[: len(mount.path)] == mount.path), None)

    @property
    def writable(self) -> str:
        """The trees that can be changed, for people."""
        *first, last = ("/workspace", "/tmp", *(mount.target for mount in self._mounts))  # noqa: S108
        return f"{', '.join(first)} and {last}"

    def close(self) -> None:
        while self._fds:
            os.close(self._fds.popitem()[1])


class Roots:
    """Where the trees are. `tmp_fd` and `system_fd` give None or -1 while there is none; all stay the owner's."""

    def __init__(
        self,
        workspace_fd: int,
        tmp_fd: Callable[[], int | None],
        system_fd: Callable[[], int | None] = lambda: None,
        mounts: Callable[[], Mapping[Mount, int]] = dict,
    ) -> None:
        """`system_fd` is the session's own /: without a session namespace there is none, and only the two trees."""
        self._workspace_fd = workspace_fd
        self._others = {Root.TMP: tmp_fd, Root.SYSTEM: system_fd}
        self._mounts = mounts

    def pin(self) -> Pins:
        """Only for the thread that closes the descriptors: else a closed one's number may already be another file."""
        open_to_owner(self._workspace_fd)
        found: dict[Tree, int | None] = {Root.WORKSPACE: self._workspace_fd}
        found |= {mount: fd for mount, fd in self._mounts().items()}  # noqa: C416 - a dict of wider keys
        found |= {root: find_fd() for root, find_fd in self._others.items()}
        return Pins({tree: os.dup(fd) for tree, fd in found.items() if fd is not None and fd >= 0})


class Trail:
    """The way down from a directory. `fd` is where it stands (O_PATH); only the last few directories are held open."""

    def __init__(self, base_fd: int) -> None:
        """Takes the descriptor over."""
        self._base = base_fd
        self._held: deque[int] = deque()
        self.names: list[bytes] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._drop(len(self._held))
        os.close(self._base)

    @property
    def fd(self) -> int:
        if not self.names:
            return self._base
        if not self._held:
            self._reopen()
        return self._held[-1]

    def enter(self, name: bytes) -> None:
        """Goes into a directory. Raises OSError: ENOTDIR for anything else, a symlink included."""
        self._hold(os.open(name, LOOK | os.O_DIRECTORY, dir_fd=self.fd))
        self.names.append(name)

    def adopt(self, name: bytes, fd: int) -> None:
        """Goes into a directory that the caller opened; the descriptor is taken over."""
        self._hold(fd)
        self.names.append(name)

    def leave(self) -> bytes:
        """Goes up one level and gives the name that it left."""
        if self._held:
            os.close(self._held.pop())
        return self.names.pop()

    def _hold(self, fd: int) -> None:
        self._held.append(fd)
        if len(self._held) > WINDOW:
            os.close(self._held.popleft())

    def _drop(self, count: int) -> None:
        for _ in range(count):
            os.close(self._held.popleft())

    def _reopen(self) -> None:
        """Walks down again after more levels were left than are held open."""
        fd = self._base
        try:
            for name in self.names:
                fd = os.open(name, LOOK | os.O_DIRECTORY, dir_fd=fd)
                self._hold(fd)
        except OSError:
            # What is held must never be another level than its name says.
            self._drop(len(self._held))
            raise
        # Half of the window, so that going down again does not push out what going up needs.
        self._drop(max(0, len(self._held) - WINDOW // 2))


def not_a_directory() -> NotADirectoryError:
    return NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))


@dataclass(frozen=True, slots=True)
class Spot:
    """A name in an open directory, or (name None) the top of a tree. The entry may change at any time."""

    root: Tree
    directory_names: tuple[bytes, ...]
    directory_fd: int
    name: bytes | None
    # The path said that it is a directory (it ended in a slash).
    directory: bool

    @property
    def path(self) -> bytes:
        """Absolute, as in the sandbox."""
        return join(self.root, self.directory_names if self.name is None else (*self.directory_names, self.name))

    def stat(self) -> os.stat_result:
        """The status of the entry, of a symlink itself. Raises OSError."""
        if self.name is None:
            return os.fstat(self.directory_fd)
        status = os.stat(self.name, dir_fd=self.directory_fd, follow_symlinks=False)
        if self.directory and not stat.S_ISDIR(status.st_mode):
            raise not_a_directory()
        return status

    def open(self, flags: int, mode: int = 0) -> int:
        """Opens the entry, never a symlink's target, without waiting. Raises OSError."""
        safe = flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        return os.open(b"." if self.name is None else self.name, safe, mode, dir_fd=self.directory_fd)


@contextlib.contextmanager
def find(
    roots: Pins, path: bytes, *, follow_last: bool, make_parents: bool = False, change: bool = False
) -> Iterator[Spot]:
    """Where a path leads. The last entry need not exist. `change` and `make_parents` refuse what can only be read.

    Raises InvalidPath, RootUnavailable, OSError (ENOENT, ENOTDIR, EACCES, EROFS, ELOOP after 40 links, …).
    """
    walk = _Walk(roots, follow_last=follow_last, make_parents=make_parents, change=change or make_parents)
    try:
        yield walk.run(parse(path))
    finally:
        walk.close()


class _Walk:
    def __init__(self, roots: Pins, *, follow_last: bool, make_parents: bool, change: bool) -> None:
        self._roots = roots
        self._change = change
        self._follow_last = follow_last
        self._make_parents = make_parents
        self._trail: Trail | None = None
        self._root: Tree = Root.WORKSPACE
        self._links = 0
        # Reversed: the next name is the last.
        self._pending: list[bytes] = []
        self._directory = False

    def close(self) -> None:
        if self._trail is not None:
            self._trail.__exit__()
            self._trail = None

    def run(self, steps: Steps) -> Spot:
        self._take(steps)
        while self._pending:
            name = self._pending.pop()
            if name == UP:
                self._up()
            elif self._trail is None:
                self._begin(name)
            elif mount := self._mount_at(self._trail, name):
                # A way up, or a link, has led to the folder that it lies in.
                self._stand_on(mount)
            elif self._pending:
                self._into(self._trail, name)
            elif not self._follow_last or not self._follow_if_link(self._trail, name):
                return self._spot(self._trail, name)
        return self._standing()

    def _begin(self, name: bytes) -> None:
        """Takes the names from / on that say the tree; of what can only be read they are steps in it as well."""
        self._pending.append(name)
        names = tuple(reversed(self._pending))
        mount = self._roots.mount_of(names)
        self._stand_on(mount or root_of(name))
        above = len(mount.path) if mount else 0 if self._root is Root.SYSTEM else 1
        del self._pending[len(self._pending) - above :]

    def _stand_on(self, tree: Tree) -> None:
        self.close()
        self._root = tree
        self._trail = Trail(self._roots.open(tree))

    def _mount_at(self, trail: Trail, name: bytes) -> Mount | None:
        return self._roots.mount_of((*trail.names, name)) if self._root is Root.SYSTEM else None

    def _take(self, steps: Steps) -> None:
        if steps.absolute:
            self.close()
        if not self._pending:
            self._directory |= steps.directory
        self._pending.extend(reversed(steps.names))

    def _up(self) -> None:
        # Above / is /, as in any tree.
        if self._trail is None:
            return
        if not self._trail.names:
            self.close()
            if isinstance(self._root, Mount):
                # From the folder above the mount, which need not be /.
                self._pending.extend(reversed(self._root.path[:-1]))
            return
        self._trail.leave()
        if self._root is Root.SYSTEM and not self._trail.names:
            # From / on, the next name says the tree again.
            self.close()

    def _into(self, trail: Trail, name: bytes) -> None:
        """Goes into a directory, or takes the steps of a link, which is pinned while it is read."""
        try:
            fd = os.open(name, LOOK, dir_fd=trail.fd)
        except FileNotFoundError:
            if not self._make_parents:
                raise
            self._check_change()
            make_directory(name, trail.fd)
            fd = os.open(name, LOOK, dir_fd=trail.fd)
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, fd)
            mode = os.fstat(fd).st_mode
            if stat.S_ISLNK(mode):
                self._take_link(os.readlink(b"", dir_fd=fd))
            elif not stat.S_ISDIR(mode):
                raise not_a_directory()
            else:
                stack.pop_all()
                trail.adopt(name, fd)

    def _follow_if_link(self, trail: Trail, name: bytes) -> bool:
        try:
            target = os.readlink(name, dir_fd=trail.fd)
        except OSError as error:
            # No link, or nothing there: for the caller to find out.
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return False
            raise
        self._take_link(target)
        return True

    def _take_link(self, target: bytes) -> None:
        self._links += 1
        if self._links > MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        self._take(follow(target))

    def _standing(self) -> Spot:
        """The path ended in a directory that was gone into: one of the roots, or after `..` another one."""
        if self._trail is None:
            raise InvalidPath("it leads outside of the sandbox's folders, to / itself")
        self._directory = True
        return self._spot(self._trail, self._trail.leave() if self._trail.names else None)

    def _check_change(self) -> None:
        if self._change and self._root is Root.SYSTEM:
            raise OSError(errno.EROFS, f"only {self._roots.writable} can be written")

    def _spot(self, trail: Trail, name: bytes | None) -> Spot:
        self._check_change()
        return Spot(self._root, tuple(trail.names), trail.fd, name, self._directory)


def make_directory(name: bytes, parent_fd: int) -> bool:
    """Makes a directory (0755); False when the name is taken. Raises OSError."""
    try:
        os.mkdir(name, 0o700, dir_fd=parent_fd)
    except FileExistsError:
        return False
    # O_PATH: without it gVisor follows a link in spite of O_NOFOLLOW, where O_DIRECTORY is beside it.
    fd = os.open(name, LOOK | os.O_DIRECTORY, dir_fd=parent_fd)
    try:
        # Not left to the umask, which belongs to the whole process.
        os.chmod(f"/proc/self/fd/{fd}", DIRECTORY_MODE)  # noqa: PTH101 - it has no other name
    finally:
        os.close(fd)
    return True


def entries_in(directory_fd: int) -> Iterator[os.DirEntry[str]]:
    """The entries of an open directory (O_PATH is enough), read as they are asked for. Raises OSError."""
    fd = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory_fd)
    try:
        with os.scandir(fd) as entries:
            yield from entries
    finally:
        os.close(fd)


def names_in(directory_fd: int) -> Iterator[bytes]:
    """The names of an open directory's entries."""
    return (os.fsencode(entry.name) for entry in entries_in(directory_fd))
