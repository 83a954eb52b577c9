"""Children of the spawner: forked ahead of their use, and given their work when it is known."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from sandfleet_executor.core.errors import BadRequest, RpcError
from sandfleet_executor.effects.namespace.channel import FrameChannel
from sandfleet_executor.worker.base.frames import Frame, FrameError

CONTEXT, COMMAND = "context", "command"
# How long a spare may take to say that it begins, in seconds: user code may have stopped or killed it.
SPARE_SECONDS = 1.0
KILL_SECONDS = 10.0
# How long after a context was taken the next is forked, in seconds: first things first.
REFILL_SECONDS = 0.05
# How long the context that is forked ahead behind another one is kept: under gVisor it holds 18 MB, and most sandboxes
# need one.
KEPT_SECONDS = 30.0


class NamespaceError(RpcError, code="UNAVAILABLE", reason="SessionUnavailable", retryable=True):
    """The session namespace cannot be made, or it has ended."""


@dataclass(frozen=True)
class Exit:
    """How a child of the spawner ended.

    `memory`: by the memory guard. `written`: bytes, by it and all below it, in all its life.
    """

    code: int
    signal: int
    memory: bool
    written: int = 0

    @property
    def how(self) -> str:
        """In words."""
        return f"signal {self.signal}" if self.signal else f"exit code {self.code}"


class Sample(NamedTuple):
    """Of the tree below a child: resident bytes and processes now, seconds and bytes written in all its life."""

    rss: int
    processes: int
    cpu: float
    written: int


class User(Protocol):
    """Who a child works for."""

    def on_data(self) -> None: ...
    def on_frame(self, frame: Frame) -> None: ...
    def on_channel_end(self, error: FrameError | None) -> None: ...
    def on_sample(self, sample: Sample) -> None: ...
    def on_exit(self, ended: Exit) -> None:
        """After everything that it has said."""


class Spawner(Protocol):
    """What children need of their namespace."""

    @property
    def ended(self) -> bool: ...
    async def prepare(self, kind: str, control: int) -> int: ...
    def watch(self, pid: int, on_exit: Callable[[Exit], None], on_sample: Callable[[Sample], None]) -> None: ...
    def kill(self, pid: int) -> None: ...


class Child:
    """A child that waits for its work."""

    def __init__(self, pid: int, control: socket.socket) -> None:
        self.pid = pid
        self.channel = FrameChannel(control, self._on_frame, self._on_channel_end, self._on_data)
        self.answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.gone: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self._user: User | None = None
        self._written_before = 0

    def release(self, written: int) -> None:
        """Its work is over, which wrote so many bytes, and it waits for the next."""
        self._written_before += written
        self._user = None
        self.answer = asyncio.get_running_loop().create_future()

    async def begin(self, request: dict[str, Any], payload: bytes, fds: Sequence[int], user: User, wait: float) -> bool:
        """Tells it.

        False when it has not begun, for certain only once it is gone; nothing of the request has run then.
        """
        self._user = user
        self.channel.send({"op": "begin", **request}, payload, fds)
        await asyncio.wait((self.answer, self.gone), timeout=wait, return_when=asyncio.FIRST_COMPLETED)
        return self.answer.done()

    def on_exit(self, ended: Exit) -> None:
        self.channel.drain()
        self.channel.close()
        self.gone.set_result(ended)
        if self._user and self.answer.done():
            self._user.on_exit(replace(ended, written=max(0, ended.written - self._written_before)))

    def on_sample(self, sample: Sample) -> None:
        if self._user:
            self._user.on_sample(sample)

    def _on_data(self) -> None:
        if self._user:
            self._user.on_data()

    def _on_frame(self, frame: Frame) -> None:
        if not self.answer.done():
            self.answer.set_result(frame.header)
        elif self._user:
            self._user.on_frame(frame)

    def _on_channel_end(self, error: FrameError | None) -> None:
        if self._user and self.answer.done():
            self._user.on_channel_end(error)


class Children:
    """At most one spare of each kind. A context is followed by another one; a command's supervisor comes back."""

    def __init__(self, spawner: Spawner) -> None:
        self._spawner = spawner
        self._spares: dict[str, Child] = {}
        self._filling: dict[str, asyncio.Task[None]] = {}
        self._filled: asyncio.Task[None] | None = None
        self._letting_go: asyncio.TimerHandle | None = None

    def fill(self) -> None:
        """Has one of each kind forked: first the small one, which is what the spawner is until it knows of contexts."""
        for kind in (COMMAND, CONTEXT):
            self._refill(kind)
        self._filled = self._filling[CONTEXT]

    @property
    def spares(self) -> list[int]:
        """Their pids."""
        return [child.pid for child in self._spares.values()]

    async def start(
        self,
        kind: str,
        request: dict[str, Any],
        payload: bytes,
        fds: Sequence[int],
        user: User,
        *,
        lasting: bool = False,
    ) -> Child:
        """A child that has begun its work; a `lasting` child does not come back soon.

        Raises NamespaceError and BadRequest.
        """
        if self._filled:
            # Until then the spawner imports, and could neither guard nor kill.
            await asyncio.wait((self._filled,))
            self._filled = None
        child = await self._take(kind)
        if kind == CONTEXT or lasting:
            self._refill_soon(kind)
        if kind == CONTEXT:
            self._let_go_of_spare()
        if child is None or not await self._begins(child, child.begin(request, payload, fds, user, SPARE_SECONDS)):
            child = await self._prepare(kind)
            if not await self._begins(child, child.begin(request, payload, fds, user, KILL_SECONDS)):
                raise NamespaceError("cannot start a process: it was ended before it could begin")
        answer = child.answer.result()
        if answer["event"] == "refused":
            raise BadRequest(str(answer["message"]))
        return child

    def give_back(self, child: Child, written: int) -> None:
        """Takes back a supervisor whose command has ended and wrote so many bytes: it is the next spare, or ended."""
        child.release(written)
        if COMMAND in self._spares or COMMAND in self._filling or self._spawner.ended or child.gone.done():
            child.channel.close()
        else:
            self._spares[COMMAND] = child

    def close(self) -> None:
        for task in self._filling.values():
            task.cancel()
        for child in self._spares.values():
            child.channel.close()
        self._spares.clear()

    async def _begins(self, child: Child, begin: Awaitable[bool]) -> bool:
        """False only for a child that is gone."""
        try:
            if await begin:
                return True
        except asyncio.CancelledError:
            self._spawner.kill(child.pid)
            raise
        if not child.gone.done():
            self._spawner.kill(child.pid)
            await asyncio.wait((child.gone,), timeout=KILL_SECONDS)
        return child.answer.done()

    async def _take(self, kind: str) -> Child | None:
        """The living spare, even if it is still being forked; None without one."""
        if filling := self._filling.get(kind):
            await asyncio.wait((filling,))
        child = self._spares.pop(kind, None)
        return None if child is None or child.gone.done() else child

    async def _prepare(self, kind: str) -> Child:
        """Raises NamespaceError."""
        ours, theirs = socket.socketpair()
        try:
            pid = await self._spawner.prepare(kind, theirs.fileno())
        except BaseException:  # A cancellation too: no child was made that would own it.
            ours.close()
            raise
        finally:
            theirs.close()
        child = Child(pid, ours)
        self._spawner.watch(pid, child.on_exit, child.on_sample)
        return child

    def _refill_soon(self, kind: str) -> None:
        asyncio.get_running_loop().call_later(REFILL_SECONDS, self._refill, kind)

    def _let_go_of_spare(self) -> None:
        """After a while in which no other context is asked for; the next one takes a fork longer then."""
        if self._letting_go:
            self._letting_go.cancel()
        self._letting_go = asyncio.get_running_loop().call_later(KEPT_SECONDS, self._let_go)

    def _let_go(self) -> None:
        if spare := self._spares.pop(CONTEXT, None):
            spare.channel.close()

    def _refill(self, kind: str) -> None:
        if kind in self._filling or kind in self._spares or self._spawner.ended:
            return
        task = asyncio.create_task(self._fill(kind))
        self._filling[kind] = task
        task.add_done_callback(lambda _: self._filling.pop(kind, None))

    async def _fill(self, kind: str) -> None:
        # Without a spare a start takes longer, and its caller is told of a failure.
        with contextlib.suppress(NamespaceError):
            child = await self._prepare(kind)
            if self._spawner.ended:
                child.channel.close()
            else:
                self._spares[kind] = child
