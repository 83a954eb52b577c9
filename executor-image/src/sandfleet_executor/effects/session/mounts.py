"""The mounts of a session: which are wished, and the open folders of those that its namespace has."""

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
        self._wished = dict(config.mounts)
        mounts.check(self._wished, taken)
        self._open: dict[Mount, int] = {}
        self._missing: dict[Mount, str] = {}

    def folders(self) -> Mapping[Mount, int]:
        """Of the last namespace, with their descriptors, which stay the owner's."""
        return self._open

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
        try:
            return await self._threads.run(open_folder, self._workspace_fd, mount.folder)
        except OSError as error:
            return f"{mount.source(WORKSPACE)} cannot be opened as a folder ({error.strerror})"


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
