"""The mounts of a session: which are wished, and the open folders of those that its namespace has."""

import asyncio
import errno
import os
import stat
from collections.abc import Mapping, Sequence

from sandfleet_executor.core.config import ExecutorConfig
from sandfleet_executor.core.errors import BadRequest
from sandfleet_executor.core.executions.events import Notice
from sandfleet_executor.core.files import mounts
from sandfleet_executor.core.files.mounts import Mount
from sandfleet_executor.core.session.bwrap import WORKSPACE
from sandfleet_executor.effects.files.threads import FileThreads
from sandfleet_executor.effects.files.walk import Trail, make_directory

NOT_MOUNTED = "FolderNotMounted"


class Mounts:
    """Folders are made and opened with the rights of the sandbox's user, and no link is followed.

    User code may put something else in the place of a folder. The next namespace is then made without it, and notices
    say so.
    """

    def __init__(self, config: ExecutorConfig, taken: Sequence[str], workspace_fd: int, threads: FileThreads) -> None:
        """`taken` are paths that the session needs. Raises BadRequest."""
        self._contained = config.isolation == "namespace"
        self._taken = taken
        self._workspace_fd = workspace_fd
        self._threads = threads
        # In a pod the machine is a node, whose folders are not the caller's.
        self._is_one_machine = config.listen is None
        self._wished = dict(config.mounts)
        mounts.check(self._wished, taken)
        self._open: dict[Mount, int] = {}
        self._missing: dict[Mount, str] = {}

    def folders(self) -> Mapping[Mount, int]:
        """Those of the workspace in the last namespace, with their descriptors, which stay the owner's.

        A folder of the machine is reached through the namespace's own root, where it can only be read.
        """
        return {mount: fd for mount, fd in self._open.items() if not mount.host}

    def of_machine(self) -> Sequence[Mount]:
        """Folders of the machine that the last namespace has."""
        return [mount for mount in self._open if mount.host]

    def told(self) -> Mapping[str, str]:
        """Path → folder, of all that are wished."""
        return {mount.target: mount.below for mount in mounts.check(self._wished, self._taken)}

    async def open(self) -> Mapping[Mount, int]:
        """Opens the folders for a new namespace."""
        found = {mount: await self._try(mount) for mount in mounts.check(self._wished, self._taken)}
        for fd in self._open.values():
            os.close(fd)
        self._open = {mount: fd for mount, fd in found.items() if isinstance(fd, int)}
        self._missing = {mount: why for mount, why in found.items() if isinstance(why, str)}
        return self._open

    async def check(self, more: Mapping[str, str]) -> None:
        """Raises BadRequest for mounts that cannot be added, or have no folder."""
        if more and not self._contained:
            raise BadRequest("cannot mount folders: without a session namespace there is nothing to mount them in")
        wished = set(mounts.check(self._wished, self._taken))
        for mount in mounts.check(self._wished | dict(more), self._taken):
            fd = await self._try(mount) if mount not in wished else ""
            if isinstance(fd, int):
                os.close(fd)
            elif fd:
                raise BadRequest(f"cannot mount {mount.target}: {fd}")

    def add(self, more: Mapping[str, str]) -> bool:
        """For the next namespace; whether that is another one. Where a path is given twice, the last one counts."""
        before, self._wished = self._wished, self._wished | dict(more)
        return mounts.check(before, self._taken) != mounts.check(self._wished, self._taken)

    def notices(self) -> Sequence[Notice]:
        """What the namespace lacks."""
        return [Notice(NOT_MOUNTED, f"cannot mount {mount.target}: {why}") for mount, why in self._missing.items()]

    async def _try(self, mount: Mount) -> int | str:
        """A descriptor of the folder, or why there is none."""
        if mount.host:
            return await self._try_host(mount.host)
        try:
            return await self._threads.run(open_folder, self._workspace_fd, mount.folder)
        except OSError as error:
            return f"{mount.source(WORKSPACE)} cannot be opened as a folder ({error.strerror})"

    async def _try_host(self, path: str) -> int | str:
        """A descriptor of a folder of the machine that the sandbox's user may read, or why there is none."""
        if not self._is_one_machine:
            return "a folder of the machine can be mounted on one machine alone"
        try:
            fd = await asyncio.to_thread(_open_host, path)
        except OSError as error:
            return f"{path} cannot be opened as a folder ({error.strerror})"
        try:
            await self._threads.run(_read, fd)
        except OSError as error:
            os.close(fd)
            return f"the sandbox's user cannot read {path} ({error.strerror}): chmod o+rx"
        return fd


def _open_host(path: str) -> int:
    """Raises OSError for what is no folder, or lies below a symbolic link."""
    if os.path.realpath(path) != path:
        raise OSError(errno.ELOOP, "it is, or lies below, a symbolic link")
    return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _read(folder_fd: int) -> None:
    """Raises OSError where the thread's user may not list the folder."""
    os.close(os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder_fd))


def open_folder(workspace_fd: int, names: Sequence[bytes]) -> int:
    """A descriptor (O_PATH) of the folder, which is made where there is nothing. Raises OSError."""
    with Trail(os.dup(workspace_fd)) as trail:
        for name in names:
            try:
                trail.enter(name)
            except FileNotFoundError:
                make_directory(name, trail.fd)
                trail.enter(name)
            except NotADirectoryError as error:
                if stat.S_ISLNK(os.stat(name, dir_fd=trail.fd, follow_symlinks=False).st_mode):
                    raise OSError(error.errno, "it is, or lies below, a symbolic link") from error
                raise
        return os.dup(trail.fd)
