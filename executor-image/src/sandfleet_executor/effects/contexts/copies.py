"""Copies of interpreters: forked by them, adopted by the spawner, kept until one is needed."""

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass

from sandfleet_executor.core.contexts import rollback
from sandfleet_executor.core.contexts.frames import BadFrame
from sandfleet_executor.core.contexts.rollback import Budget, Refusal
from sandfleet_executor.core.errors import Code, RpcError
from sandfleet_executor.effects.contexts.interpreter import Interpreter
from sandfleet_executor.effects.namespace.children import Child, NamespaceError
from sandfleet_executor.effects.namespace.namespace import Namespace

# Nothing is to be undone, and a copy is due all the same.
UNCOPIED = 1


# The statuses of the reasons that are no state of the context; both pass.
_CODES: dict[str, Code] = {"ForkFailed": "RESOURCE_EXHAUSTED", "CopyBroken": "UNAVAILABLE"}


class NotCopiedError(RpcError):
    """There are no copies; `why` says why not."""

    def __init__(self, why: Refusal) -> None:
        super().__init__(f"cannot fork the context because {why.message}")
        self.why = why
        self.code = _CODES.get(why.reason, "FAILED_PRECONDITION")
        self.reason = why.reason
        self.retryable = why.reason in _CODES


@dataclass(frozen=True)
class Forked:
    """Copies that their context has forked, and that the spawner expects."""

    pids: Sequence[int]
    sockets: Sequence[socket.socket]


async def ask(namespace: Namespace, interpreter: Interpreter, count: int, most_bytes: int) -> Forked:
    """Has an idle interpreter fork copies, all of them or none. It is ready for a cell then.

    `adopt` has to follow. Raises NotCopiedError.
    """
    with contextlib.ExitStack() as given:
        pairs = [socket.socketpair() for _ in range(count)]
        for _, theirs in pairs:
            given.callback(theirs.close)
        try:
            pids = await _ask(namespace, interpreter, [theirs for _, theirs in pairs], most_bytes)
        except BaseException:  # A cancellation too: a copy ends with its socket.
            for ours, _ in pairs:
                ours.close()
            raise
    return Forked(pids, [ours for ours, _ in pairs])


async def _ask(
    namespace: Namespace, interpreter: Interpreter, sockets: list[socket.socket], most_bytes: int
) -> list[int]:
    pids: list[int] | Refusal = rollback.COPY_BROKEN
    try:
        await namespace.expect_copies()
        try:
            pids = await interpreter.copy(sockets, most_bytes)
        finally:
            if isinstance(pids, Refusal):
                with contextlib.suppress(NamespaceError):
                    await namespace.adopt(())
    except (BadFrame, NamespaceError) as error:
        raise NotCopiedError(broken(error)) from error
    if isinstance(pids, Refusal):
        raise NotCopiedError(pids)
    return pids


async def adopt(namespace: Namespace, forked: Forked) -> list[Child]:
    """The copies, which wait to go on. Raises NotCopiedError."""
    try:
        await namespace.adopt(forked.pids)
    except NamespaceError as error:
        for ours in forked.sockets:
            ours.close()
        raise NotCopiedError(broken(error)) from error
    made = [Child(pid, ours) for pid, ours in zip(forked.pids, forked.sockets, strict=True)]
    for each in made:
        namespace.watch(each.pid, each.on_exit, each.on_sample)
        _count_as_waiting(namespace, each)
    return made


def broken(error: Exception) -> Refusal:
    return Refusal("CopyBroken", str(error))


def _count_as_waiting(namespace: Namespace, copy: Child) -> None:
    namespace.waiting.add(copy.pid)
    copy.gone.add_done_callback(lambda _: namespace.waiting.discard(copy.pid))


async def fork(
    namespace: Namespace, interpreter: Interpreter, seeds: Sequence[str], most_bytes: int
) -> list[Interpreter]:
    """A running copy of an idle interpreter for each seed of its random numbers: all of them, or none.

    Raises NotCopiedError and NamespaceError.
    """
    made = await adopt(namespace, await ask(namespace, interpreter, len(seeds), most_bytes))
    begun = [Interpreter.resume(namespace, copy, seed) for copy, seed in zip(made, seeds, strict=True)]
    went_on = await asyncio.gather(*begun, return_exceptions=True)
    if failed := [each for each in went_on if isinstance(each, BaseException)]:
        for copy in made:
            end(namespace, copy)
        raise failed[0]
    return [each for each in went_on if isinstance(each, Interpreter)]


def end(namespace: Namespace, copy: Child) -> None:
    """Of no use any more."""
    copy.channel.close()
    if not copy.gone.done():
        # It has nothing below it that would have to be looked for.
        namespace.signal(copy.pid, signal.SIGKILL)


@dataclass(frozen=True)
class Copy:
    child: Child
    namespace: Namespace
    # After which cell it was taken.
    cell: int

    def ended(self) -> Refusal | None:
        """Why the copy has ended; None while it lives."""
        if self.namespace.ended:
            return rollback.SANDBOX_ENDED
        if self.child.gone.done():
            return rollback.MEMORY_SHORT if self.child.gone.result().memory else rollback.COPY_ENDED
        return None


class Keeper:
    """The one copy of a context, and why there is none."""

    def __init__(self, most_bytes: int, why_never: Refusal | None = None) -> None:
        self._most_bytes = most_bytes
        self._copy: Copy | None = None
        self._adopting: asyncio.Task[None] | None = None
        # Since when a cell is held up by the copy that is being made.
        self._held_since: float | None = None
        self._budget = Budget(time.monotonic())
        self._why_not = rollback.FIRST_CELL if most_bytes else why_never or rollback.DISABLED
        # Cells that have ended since the copy was taken, or that there is none of.
        self.undone = 0

    @property
    def due(self) -> bool:
        """Whether the context has changed since it was copied."""
        return bool(self._most_bytes) and self.undone > 0

    @property
    def cell(self) -> int:
        """After which cell the copy was taken; 0 without one."""
        return self._copy.cell if self._copy and not self._copy.child.gone.done() else 0

    @property
    def idle_seconds(self) -> float:
        """How long the context has to be idle before it is copied."""
        return self._budget.idle_seconds(time.monotonic())

    def cell_comes(self, *, waits: bool) -> None:
        """`waits`: for one before it."""
        now = time.monotonic()
        self._budget.comes(now, waits=waits)
        if self._held_since is None:
            self._held_since = now

    def cell_ended(self) -> None:
        self.undone += 1
        self._budget.ended(time.monotonic())

    def may_wait(self) -> bool:
        """Whether a cell may be held up for a copy now."""
        return self._budget.allows(time.monotonic())

    async def take(self, namespace: Namespace, interpreter: Interpreter, cell: int, *, waited: bool) -> None:
        """A new copy in the place of the old one; `waited`: a cell is held up by it.

        Returns when the interpreter is ready for a cell. The spawner adopts the copy meanwhile.
        """
        self._held_since = time.monotonic() if waited else None
        await self._settle()
        started = time.monotonic()
        before, self._copy = self._copy, None
        self.undone = 0
        try:
            forked = await ask(namespace, interpreter, 1, self._most_bytes)
        except NotCopiedError as error:
            self._why_not = error.why
        else:
            self._adopting = asyncio.create_task(self._adopt(namespace, forked, cell))
        finally:
            # An old copy would bring back an outdated state.
            if before:
                end(before.namespace, before.child)
        ended = time.monotonic()
        held_since, self._held_since = self._held_since, None
        self._budget.took(ended - started, ended, held_since=held_since)

    async def _adopt(self, namespace: Namespace, forked: Forked, cell: int) -> None:
        try:
            (child,) = await adopt(namespace, forked)
        except NotCopiedError as error:
            self._why_not = error.why
            return
        if self._adopting is asyncio.current_task():
            self._copy, self._why_not = Copy(child, namespace, cell), rollback.COPY_ENDED
        else:
            # The context begins anew, or ends.
            end(namespace, child)

    async def _settle(self) -> None:
        """Waits until it is known whether there is a copy."""
        if self._adopting:
            await asyncio.wait((self._adopting,))

    async def why_not(self) -> Refusal | None:
        """Why the context cannot be rolled back; None where it can, as far as can be seen."""
        await self._settle()
        copy = self._copy
        if copy is None:
            return rollback.NOT_YET if self.undone and self._why_not is rollback.FIRST_CELL else self._why_not
        return copy.ended()

    async def go_on(self, namespace: Namespace) -> tuple[Interpreter, int, int] | Refusal:
        """The copy as an interpreter, the cell that it was taken after, and how many since then are undone."""
        why_not = await self.why_not()
        copy, self._copy = self._copy, None
        undone, self.undone = self.undone, 0
        self._budget.refill()
        if why_not or copy is None:
            return why_not or rollback.COPY_ENDED
        try:
            interpreter = await Interpreter.resume(namespace, copy.child)
        except NamespaceError:
            end(namespace, copy.child)
            # The end of the copy may have been reported after that of the context.
            return copy.ended() or rollback.COPY_BROKEN
        # The copy itself goes on: the next one is still to be made.
        self._why_not, self.undone = rollback.NOT_YET, UNCOPIED
        return interpreter, copy.cell, undone

    def forget(self) -> None:
        """The context begins anew, or ends."""
        copy, self._copy, self._adopting = self._copy, None, None
        self.undone = 0
        self._why_not = rollback.FIRST_CELL if self._most_bytes else rollback.DISABLED
        if copy:
            end(copy.namespace, copy.child)
