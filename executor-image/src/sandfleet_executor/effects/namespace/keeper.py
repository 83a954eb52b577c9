"""Keeps one session namespace alive: it makes a new one when the old one has ended."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sandfleet_executor.core.config import ExecutorConfig
from sandfleet_executor.core.files.mounts import Mount
from sandfleet_executor.effects.namespace.cgroup import Groups
from sandfleet_executor.effects.namespace.children import NamespaceError
from sandfleet_executor.effects.namespace.namespace import Namespace


@dataclass(frozen=True)
class Making:
    """What is asked for each namespace anew, since it may have changed, and who hears of it."""

    config: Callable[[], ExecutorConfig]
    # The open folders to mount.
    folders: Callable[[], Awaitable[Mapping[Mount, int]]]
    # Hears of modules that a namespace loads ahead, and of its end.
    told: Callable[[Mapping[str, Any]], None]
    # Takers of the listening sockets of a namespace, by name.
    listen: Mapping[str, Callable[[socket.socket], None]]
    # Hears of each namespace before any code runs in it.
    made: Callable[[], None] = lambda: None


class NamespaceKeeper:
    def __init__(self, making: Making, groups: Groups, *, counts_writes: bool) -> None:
        self._sources = making
        self._groups = groups
        self._counts_writes = counts_writes
        self._namespace: Namespace | None = None
        self._making = asyncio.Lock()
        self._closing = False

    async def get(self) -> Namespace:
        """The living namespace; a new one where the old one has ended. Raises NamespaceError."""
        if living := self._living:
            return living
        if self._closing:
            raise NamespaceError("cannot run anything: the sandbox is ending")
        async with self._making:
            if self._namespace is None or self._namespace.ended:
                config = self._sources.config()
                try:
                    # A claim's are lower than those that the cgroups were made with.
                    self._groups.limit(config.limits)
                except OSError as error:
                    raise NamespaceError(f"cannot set the limits of the session's cgroups: {error}") from error
                self._namespace = await Namespace.start(
                    config,
                    self._groups,
                    counts_writes=self._counts_writes,
                    folders=await self._sources.folders(),
                    told=self._sources.told,
                )
                for name, listener in self._namespace.sockets.items():
                    self._sources.listen[name](listener)
                self._sources.made()
            return self._namespace

    @property
    def _living(self) -> Namespace | None:
        return None if self._namespace is None or self._namespace.ended else self._namespace

    def wake(self) -> None:
        """Called often, so that commands can be ended and the memory guard looks even if user code has stopped the
        spawner.
        """
        if living := self._living:
            living.wake()

    def tmp_fd(self) -> int | None:
        """A descriptor of the namespace's /tmp, owned by the namespace; None while there is none."""
        return living.tmp_fd if (living := self._living) else None

    def system_fd(self) -> int | None:
        """A descriptor of the namespace's /; None while there is none, and where user code shares the executor's."""
        living = self._living
        return living.system_fd if living and self._sources.config().isolation == "namespace" else None

    async def unlinked(self) -> int:
        """Bytes in files of the workspace that only open descriptors hold."""
        living = self._living
        if living is None:
            return 0
        try:
            return await living.unlinked()
        except NamespaceError:
            # With the namespace went its processes.
            return 0

    @contextlib.asynccontextmanager
    async def still(self, seconds: float) -> AsyncIterator[bool]:
        """As the namespace's `stand_still`; without one nothing runs."""
        living = self._living
        async with living.stand_still(seconds) if living else contextlib.nullcontext(True) as still:
            yield still

    def separations(self, namespace: Namespace) -> list[str]:
        """What user code is separated by."""
        config = self._sources.config()
        if config.isolation == "none":
            return []
        found = ["pid", "mount", "ipc", "uts"]
        found += ["network"] if config.network == "none" else []
        found += ["user"] if namespace.hello.separated_user else []
        found += ["uid"] if config.user_id else []
        found += ["cgroup-pids"] if self._groups.processes else []
        found += ["cgroup-memory"] if namespace.hello.counts_memory else []
        found += ["cgroup-cpu"] if namespace.hello.in_cgroups and self._groups.weighs_cpu else []
        bounded = config.limits.cpus and namespace.hello.in_cgroups and self._groups.bounds_cpu
        found += ["cgroup-cpu-quota"] if bounded else []
        return found

    def refuse(self) -> None:
        """Makes no namespace any more: the sandbox is ending."""
        self._closing = True

    async def close(self) -> None:
        """Ends the namespace, if there is one."""
        if self._namespace:
            await self._namespace.close()
