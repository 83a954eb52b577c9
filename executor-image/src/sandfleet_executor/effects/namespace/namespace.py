"""One session namespace: bubblewrap, the spawner in it, and the executor's line to it."""

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

from sandfleet_executor.core.config import ExecutorConfig
from sandfleet_executor.core.files.mounts import Mount
from sandfleet_executor.core.packages import preload
from sandfleet_executor.effects.namespace import share
from sandfleet_executor.effects.namespace.cgroup import Groups
from sandfleet_executor.effects.namespace.channel import FrameChannel, take_descriptor
from sandfleet_executor.effects.namespace.children import Children, Exit, NamespaceError, Sample
from sandfleet_executor.effects.namespace.launch import launch, plan
from sandfleet_executor.worker.base import tree
from sandfleet_executor.worker.base.frames import Frame, FrameError

START_SECONDS = 30.0
ANSWER_SECONDS = 10.0
# How long a listening process may take to accept a connection.
CONNECT_SECONDS = 5.0
# How long after the last execution the memory guard still looks often.
IDLE_SECONDS = 0.5
# How long something has to run before it looks often.
BUSY_SECONDS = 0.02


@dataclass(frozen=True)
class Hello:
    kernel: str
    python: str
    separated_user: bool
    languages: tuple[str, ...]
    # Device and inode of each mounted folder.
    mounts: list[list[int]]
    # Whether user code is in a cgroup of memory.
    counts_memory: bool
    # Whether it is in cgroups of its own at all.
    in_cgroups: bool
    # Names of the listening sockets whose descriptors come with it.
    sockets: list[str]

    @classmethod
    def read(cls, said: dict[str, Any]) -> Self:
        """What the spawner says of itself first."""
        return cls(**{each.name: said[each.name] for each in fields(cls)} | {"languages": tuple(said["languages"])})


def connection(fd: int) -> socket.socket:
    made = socket.socket(fileno=fd)
    made.setblocking(False)
    return made


class Namespace:
    """Made by `start`; ends with `close`, or when all its processes were killed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._exits: dict[int, Callable[[Exit], None]] = {}
        self._early_exits: dict[int, Exit] = {}
        self._samples: dict[int, Callable[[Sample], None]] = {}
        self._next_id = 0
        self._busy = 0
        self._still = asyncio.Lock()
        # The executor's pid of PID 1; 0 until it is looked up.
        self._spawner = 0
        self._said_busy = False
        self._busy_timer = asyncio.get_running_loop().call_later(0, lambda: None)
        self._channel: FrameChannel
        self._told: Callable[[Mapping[str, Any]], None] | None = None
        self._first_seconds = START_SECONDS
        self.children = Children(self)
        self.hello: Hello
        # Pids of what waits to be needed, beside the spares.
        self.waiting: set[int] = set()
        self.tmp_fd = self.system_fd = -1
        # Listening sockets in the session's network, by name: `tools` and `egress`, each where there is one. Their
        # taker owns them.
        self.sockets: dict[str, socket.socket] = {}
        self.ended = False

    @classmethod
    async def start(
        cls,
        config: ExecutorConfig,
        groups: Groups,
        *,
        counts_writes: bool = False,
        folders: Mapping[Mount, int] | None = None,
        told: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> "Namespace":
        """`folders` are the open folders of the mounts. `told` hears what the spawner says of the modules that it loads
        ahead, and {"event": "ended"}. Raises NamespaceError when the spawner does not answer.
        """
        folders = folders or {}
        ours, theirs = socket.socketpair()
        try:
            with contextlib.ExitStack() as opened:
                command, fds = plan(
                    config, groups, theirs.fileno(), opened, counts_writes=counts_writes, mounts=folders
                )
                process = await launch(command, theirs, fds)
        except OSError as error:
            ours.close()
            raise NamespaceError(f"cannot start bubblewrap: {error}") from error
        finally:
            theirs.close()
        self = cls(process)
        self._told = told
        # Until the first context is forked the spawner imports.
        self._first_seconds = START_SECONDS + (preload.SECONDS if config.preload else 0)
        try:
            async with asyncio.timeout(START_SECONDS):
                await self._greet(ours)
        except (TimeoutError, NamespaceError) as error:
            ours.close()
            raise NamespaceError(await why_not(process, error)) from error
        self._channel = FrameChannel(ours, self._on_frame, self._on_channel_end)
        if (wrong := exchanged(folders, self.hello.mounts)) is not None:
            await self.close()
            raise NamespaceError(f"cannot mount {wrong.target}: its folder was exchanged meanwhile")
        self.children.fill()
        if share.is_needed(separated_user=self.hello.separated_user):
            await share.bound(self._pid_of_spawner())
        return self

    async def prepare(self, kind: str, control: int) -> int:
        """The pid (in the namespace) of a new child, which has the socket `control`. Raises NamespaceError."""
        answer = await self._ask({"op": "prepare", "kind": kind}, (control,), self._first_seconds)
        if answer["event"] != "forked":
            raise NamespaceError(str(answer.get("message", "cannot start a process")))
        return int(answer["pid"])

    async def connect(self, port: int, seconds: float = CONNECT_SECONDS) -> dict[str, Any] | socket.socket:
        """A connection to the port on the session's loopback, or the answer that says why there is none. Raises
        NamespaceError.

        The process that answers is hostile. `seconds` is how long it may take to accept the connection.
        """
        ours, theirs = socket.socketpair()
        try:
            request = {"op": "connect", "port": port, "seconds": seconds}
            answer = await self._ask(request, (theirs.fileno(),), self._first_seconds)
            return answer if answer["event"] != "connected" else connection(take_descriptor(ours))
        except (FrameError, OSError) as error:
            raise NamespaceError(f"cannot connect: {error}") from error
        finally:
            # A descriptor that comes after the wait was given up is closed with these.
            ours.close()
            theirs.close()

    async def expect_copies(self) -> None:
        """Tells the spawner that copies become children of its own; `adopt` has to follow. Raises NamespaceError."""
        await self._ask({"op": "expect"})

    async def adopt(self, pids: Sequence[int]) -> None:
        """Tells the spawner the pids of the copies that it expects; none ends the wait. Raises NamespaceError."""
        answer = await self._ask({"op": "adopt", "pids": list(pids)})
        if answer["event"] != "adopted":
            raise NamespaceError(str(answer.get("message", "cannot adopt a copy")))

    def watch(self, pid: int, on_exit: Callable[[Exit], None], on_sample: Callable[[Sample], None]) -> None:
        """Tells of the end of a child, and of what its tree uses while it is busy."""
        if early := self._early_exits.pop(pid, None):
            on_exit(early)
            return
        self._exits[pid] = on_exit
        self._samples[pid] = on_sample

    def wake_copy(self, pid: int) -> None:
        """It is to go on as a context."""
        self.waiting.discard(pid)
        self._send({"op": "wake", "pid": pid})

    def signal(self, pid: int, number: int) -> None:
        self._send({"op": "signal", "pid": pid, "signal": number})

    def kill(self, pid: int) -> None:
        """Ends the child with everything below it."""
        self._send({"op": "kill", "pid": pid})

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """While something runs the memory guard looks more often."""
        self._count_busy(1)
        try:
            yield
        finally:
            self._count_busy(-1)

    async def usage(self, age: float = 0.0) -> dict[str, Any]:
        """{memory, peak, tmp, processes, cpu} of everything in the namespace; what waits for its use is no process of
        the user's.

        What was found less than `age` seconds ago is good enough.
        """
        used = await self._ask({"op": "usage", "age": age})
        spares = {*self.children.spares, *self.waiting}
        return used | {"processes": sum(count for pid, count in used["processes"].items() if int(pid) not in spares)}

    async def unlinked(self) -> int:
        """Bytes in files of the workspace that have no name any more and that processes hold open."""
        return int((await self._ask({"op": "unlinked"}))["bytes"])

    async def ports(self, pids: Sequence[int]) -> dict[int, tuple[list[int], bool]]:
        """By child: (TCP ports that its tree listens on, whether that is known completely). Raises NamespaceError."""
        trees = (await self._ask({"op": "ports", "pids": list(pids)}))["trees"]
        return {int(pid): ([int(port) for port in ports], bool(known)) for pid, (ports, known) in trees.items()}

    @contextlib.asynccontextmanager
    async def stand_still(self, seconds: float) -> AsyncIterator[bool]:
        """All processes stand still meanwhile, for so many seconds at most; says whether they do. One at a time."""
        async with self._still:
            try:
                still = bool((await self._ask({"op": "freeze", "seconds": seconds}))["still"])
            except NamespaceError:
                # Where its processes have ended nothing can change the files.
                still = self.ended
            try:
                yield still
            finally:
                with contextlib.suppress(NamespaceError):
                    await asyncio.shield(self._ask({"op": "thaw"}))

    async def ping(self) -> None:
        """Raises NamespaceError when the spawner does not answer."""
        await self._ask({"op": "ping"})

    def wake(self) -> None:
        """Lets PID 1 go on where user code has stopped it: under gVisor it may, being the same user."""
        if self.ended:
            return
        # Never without need: a signal that comes while it forks can hold a process up for seconds there.
        found = tree.read_process(self._pid_of_spawner())
        if found is not None and found.state == "T":
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._spawner, signal.SIGCONT)

    def _pid_of_spawner(self) -> int:
        """As the executor sees it."""
        if not self._spawner:
            mine = self._process.pid
            self._spawner = next((each.pid for each in tree.scan().values() if each.parent == mine), mine)
        return self._spawner

    async def close(self) -> None:
        """Ends every process in it."""
        self._finish()
        if self._process.returncode is None:
            # While PID 1 imports, it does not see its socket end. Bubblewrap may not signal a process of another user.
            mine = self._process.pid
            for pid in (*(each.pid for each in tree.scan().values() if each.parent == mine), mine):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        await self._process.wait()

    async def _greet(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(sock, readable.set)
        data, fds = b"", []
        try:
            while not (size := frame_size(data)) or len(data) < size:
                await readable.wait()
                readable.clear()
                try:
                    chunk, new_fds, _, _ = socket.recv_fds(sock, 4096, 4)
                except BlockingIOError:
                    continue
                if not chunk:
                    raise NamespaceError("the spawner ended")
                data += chunk
                fds += new_fds
        finally:
            loop.remove_reader(sock)
        self.hello = Hello.read(json.loads(data[8:]))
        self.tmp_fd, self.system_fd, *rest = fds
        self.sockets = {name: socket.socket(fileno=fd) for name, fd in zip(self.hello.sockets, rest, strict=True)}

    async def _ask(
        self, request: dict[str, Any], fds: Sequence[int] = (), patience: float = ANSWER_SECONDS
    ) -> dict[str, Any]:
        if self.ended:
            raise NamespaceError("the session namespace has ended")
        self._next_id += 1
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[self._next_id] = answer
        number = self._next_id
        self._channel.send({**request, "id": number}, fds=fds)
        try:
            async with asyncio.timeout(patience):
                return await answer
        except TimeoutError as error:
            raise NamespaceError("the spawner does not answer") from error
        finally:
            self._answers.pop(number, None)

    def _send(self, request: dict[str, Any]) -> None:
        if not self.ended:
            self._channel.send(request)

    def _count_busy(self, change: int) -> None:
        """Both are said a little later: short cells, and cells one after the other, make no traffic."""
        self._busy += change
        if bool(self._busy) == bool(self._busy - change):
            return
        self._busy_timer.cancel()
        delay = BUSY_SECONDS if self._busy else IDLE_SECONDS
        self._busy_timer = asyncio.get_running_loop().call_later(delay, self._say_busy)

    def _say_busy(self) -> None:
        if self._said_busy != bool(self._busy):
            self._said_busy = bool(self._busy)
            self._send({"op": "busy", "count": int(self._said_busy)})

    def _on_frame(self, frame: Frame) -> None:
        header = frame.header
        match header["event"]:
            case "exited":
                code, number, written = int(header["code"]), int(header["signal"]), int(header["written"])
                self._on_exited(int(header["pid"]), Exit(code, number, bool(header["memory"]), written))
            case "sample":
                for pid, (rss, processes, cpu, written) in header["trees"].items():
                    if on_sample := self._samples.get(int(pid)):
                        on_sample(Sample(int(rss), int(processes), float(cpu), int(written)))
            case "preloading" | "preloaded":
                if self._told:
                    self._told(header)
            case _:
                answer = self._answers.get(header["id"])
                if answer and not answer.done():
                    answer.set_result(header)

    def _on_exited(self, pid: int, ended: Exit) -> None:
        self._samples.pop(pid, None)
        if on_exit := self._exits.pop(pid, None):
            on_exit(ended)
        else:
            # The child ended before its owner asked to be told.
            self._early_exits[pid] = ended

    def _on_channel_end(self, _error: FrameError | None) -> None:
        self._finish()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def _finish(self) -> None:
        """Tells all waiting callers of the end."""
        if self.ended:
            return
        self.ended = True
        if self._told:
            self._told({"event": "ended"})
        self._channel.close()
        self.children.close()
        os.close(self.tmp_fd)
        os.close(self.system_fd)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(NamespaceError("the session namespace has ended"))
        for on_exit in list(self._exits.values()):
            on_exit(Exit(code=137, signal=9, memory=False))
        self._exits.clear()


async def why_not(process: asyncio.subprocess.Process, error: Exception) -> str:
    """Ends a process that did not answer; what is known of the reason."""
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    said = await process.stderr.read(4096) if process.stderr else b""
    await process.wait()
    last = said.decode(errors="replace").strip().splitlines()[-1:] or [str(error) or "no answer in time"]
    return f"cannot make the session namespace: {last[0]}"


def frame_size(data: bytes) -> int:
    """Length of the first frame, 0 while that is not known."""
    return 8 + int.from_bytes(data[:4], "big") + int.from_bytes(data[4:8], "big") if len(data) >= 8 else 0


def exchanged(folders: Mapping[Mount, int], mounted: Sequence[Sequence[int]]) -> Mount | None:
    """The first mount that is not the open folder.

    Bubblewrap looks the path up once more, and the sandbox's user may have put a link there over the files API.
    """
    for (mount, fd), found in zip(folders.items(), mounted, strict=True):
        status = os.fstat(fd)
        if [status.st_dev, status.st_ino] != list(found):
            return mount
    return None
