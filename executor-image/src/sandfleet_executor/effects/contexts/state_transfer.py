"""Moves the bytes of states between an interpreter's socket and a file. The interpreter is hostile."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from sandfleet_executor.core.contexts import states
from sandfleet_executor.core.contexts.states import BadState, Item, Listing, Manifest
from sandfleet_executor.effects.contexts.state_store import BrokenOffError, Draft
from sandfleet_executor.worker.base import packets
from sandfleet_executor.worker.base.frames import Frame, FrameError

# What is in memory at once, in bytes.
CHUNK_BYTES = 1 << 20
# Words of one save or restore: each variable has a few, and a save may begin anew.
MAX_WORDS = 400_000
# How long the interpreter may be silent beyond its time, in seconds, and how long it may take to begin.
GRACE_SECONDS, BEGIN_SECONDS = 5.0, 30.0

Tell = Callable[[dict[str, Any], int], None]
GiveWay = Callable[[], Awaitable[None]]


class Line:
    """The executor's end of the socket."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._words = 0

    @classmethod
    def open(cls, tell: Tell, request: dict[str, Any]) -> "Line":
        """Hands the other end to the interpreter, with the request."""
        ours, theirs = packets.pair()
        with theirs:
            tell(request, theirs.fileno())
        return cls(ours)

    async def hear(self) -> Frame:
        """The next packet. Raises BrokenOffError at the end, BadState for an invalid packet."""
        try:
            data = await asyncio.get_running_loop().sock_recv(self._sock, packets.MAX_PACKET + 1)
        except OSError:
            data = b""
        if not data:
            raise BrokenOffError("cannot go on with the variables: the process at it has ended")
        if len(data) > packets.MAX_PACKET:
            raise BadState("cannot read a packet: it is too long")
        try:
            frame = packets.decode(data)
        except FrameError as error:
            raise BadState(str(error)) from error
        self._words += bool(frame.header)
        if self._words > MAX_WORDS:
            raise BadState("cannot read what the interpreter says: too many words")
        return frame

    async def send(self, data: bytes) -> None:
        """Raises BrokenOffError."""
        try:
            await asyncio.get_running_loop().sock_sendall(self._sock, data)
        except OSError as error:
            raise BrokenOffError("cannot go on with the variables: the process at it has ended") from error

    def close(self) -> None:
        self._sock.close()


@contextlib.asynccontextmanager
async def within(seconds: float, doing: str) -> AsyncIterator[None]:
    """Raises BrokenOffError when the time is over, and for an interpreter that breaks the protocol."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise BrokenOffError(f"cannot {doing}: it was not done within {seconds:g} s") from None
    except BadState as error:
        raise BrokenOffError(f"cannot {doing}: {error}") from error


class Saving:
    """One save, from the fork of the copy to the manifest. Close it."""

    def __init__(self, line: Line, draft: Draft, bounds: states.Bounds) -> None:
        self._line = line
        self._draft = draft
        self._bounds = bounds
        self._held = bytearray()
        # Bytes up to the end of the last variable.
        self._kept = 0
        self._saved, self._unsaved, self._records = Listing(), Listing(), 0
        self._threads: tuple[str, ...] = ()

    @classmethod
    def open(cls, tell: Tell, draft: Draft, bounds: states.Bounds, memory: int) -> "Saving":
        """`memory`: the sandbox's, in bytes."""
        limits = {
            "total": min(bounds.total, draft.room),
            "variable": bounds.variable,
            "variables": states.MAX_VARIABLES,
            "seconds": bounds.seconds,
            "variable_seconds": min(states.VARIABLE_SECONDS, bounds.seconds),
            "memory": memory,
        }
        return cls(Line.open(tell, {"op": "save", "bounds": limits}), draft, bounds)

    async def begun(self) -> None:
        """From here on the copy stands, and the context may go on. Raises BrokenOffError."""
        async with within(BEGIN_SECONDS, "save the variables"):
            word = (await self._line.hear()).header
            if word.get("event") == "refused":
                why = states.text_of(word.get("message"), states.MAX_MESSAGE)
                raise BrokenOffError(f"cannot save the variables: {why}")
            if word.get("event") != "begun":
                raise BadState("cannot read what the interpreter says: out of order")
            self._threads = states.threads_of(word.get("threads"))

    async def finish(self, context_id: str, created: int, cell: int, way: GiveWay | None = None) -> Manifest:
        """Writes the state down; before each piece `way` may hold it up. Raises StateError."""
        async with within(self._bounds.seconds + GRACE_SECONDS, "save the variables"):
            while True:
                if way:
                    await way()
                frame = await self._line.hear()
                await self._take(frame.payload)
                if frame.header and (memo := await self._on_word(frame.header)) is not None:
                    break
            await self._flush()
            manifest = Manifest(
                context_id,
                created,
                cell,
                size=self._kept,
                records=self._records,
                memo=memo,
                saved=tuple(self._saved.items),
                saved_omitted=self._saved.omitted,
                unsaved=tuple(self._unsaved.items),
                unsaved_omitted=self._unsaved.omitted,
                threads=self._threads,
            )
            await asyncio.to_thread(self._draft.commit, manifest)
            return manifest

    def close(self) -> None:
        """Ends the copy where it is not done."""
        self._line.close()

    @property
    def _size(self) -> int:
        return self._draft.size + len(self._held)

    async def _take(self, data: bytes) -> None:
        self._held += data
        if self._size > min(self._bounds.total, self._draft.room):
            raise BadState("cannot take the state: it is larger than was agreed")
        if len(self._held) >= CHUNK_BYTES:
            await self._flush()

    async def _flush(self) -> None:
        held, self._held = self._held, bytearray()
        await asyncio.to_thread(self._draft.write, held)

    async def _on_word(self, word: dict[str, Any]) -> int | None:
        """The number of entries of the memo at the end."""
        match word.get("event"):
            case "saved":
                item = states.item_of(word)
                self._kept, self._records = self._size, self._records + 1
                if item.kind in states.LISTED:
                    self._saved.add(item)
            case "unsaved":
                self._unsaved.add(states.missing_of(word))
            case "undo":
                await self._back_to(self._kept)
            case "restart":
                self._saved, self._unsaved, self._records, self._kept = Listing(), Listing(), 0, 0
                await self._back_to(0)
            case "end" if self._size == self._kept:
                return states.count_of(word.get("memo"), states.MAX_MEMO)
            case _:
                raise BadState("cannot read what the interpreter says: out of order")
        return None

    async def _back_to(self, size: int) -> None:
        if size >= self._draft.size:
            del self._held[size - self._draft.size :]
            return
        self._held.clear()
        await asyncio.to_thread(self._draft.truncate, size)


@dataclass(frozen=True)
class Restored:
    """What came back into a context, and what did not."""

    manifest: Manifest
    restored: tuple[Item, ...]
    restored_omitted: int
    unrestored: tuple[Item, ...]
    unrestored_omitted: int

    @property
    def count(self) -> int:
        """How many variables came back."""
        return len(self.restored) + self.restored_omitted

    @property
    def missing(self) -> list[str]:
        """By name: what the state lacks, and what could not be brought back from it."""
        return [item.name for item in (*self.manifest.unsaved, *self.unrestored)]


class Restoring:
    """One restore. Close it."""

    def __init__(self, line: Line, manifest: Manifest, fd: int) -> None:
        self._line = line
        self._manifest = manifest
        self._fd = fd
        self._restored, self._unrestored = Listing(), Listing()
        # Which variable is being read.
        self.at: Item | None = None
        self.ended = False
        self._heard: set[str] = set()

    @classmethod
    def open(cls, tell: Tell, manifest: Manifest, fd: int) -> "Restoring":
        """The descriptor is this one's from here on."""
        request = {"op": "restore", "count": manifest.records, "memo": manifest.memo}
        return cls(Line.open(tell, request), manifest, fd)

    async def run(self) -> None:
        """To the end, or to that of the interpreter. Raises BrokenOffError."""
        sending = asyncio.create_task(self._send())
        try:
            async with within(states.MAX_SECONDS + GRACE_SECONDS, "restore the variables"):
                while not self.ended:
                    self._on_word((await self._line.hear()).header)
        finally:
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, BrokenOffError):
                await sending

    def report(self) -> Restored:
        """What is known now. Variables without a word of the interpreter were not reached."""
        for item in self._manifest.saved:
            if item.name not in self._heard:
                self._unrestored.add(
                    Item(item.name, item.kind, item.type, reason="NotReached", message="restoring ended before it")
                )
        return Restored(
            self._manifest,
            tuple(self._restored.items),
            self._restored.omitted,
            tuple(self._unrestored.items),
            self._unrestored.omitted,
        )

    def too_slow(self, seconds: float) -> None:
        """The variable that is being read has taken all the time."""
        if self.at is not None:
            message = f"it was not done when the {seconds:g} s for all were over"
            self._heard.add(self.at.name)
            self._unrestored.add(Item(self.at.name, self.at.kind, reason="TooSlow", message=message))

    def close(self) -> None:
        self._line.close()
        os.close(self._fd)

    async def _send(self) -> None:
        piece, position, size = packets.MAX_PACKET - packets.PREFIX.size, 0, self._manifest.size
        while position < size:
            data = await asyncio.to_thread(os.pread, self._fd, min(CHUNK_BYTES, size - position), position)
            if not data:
                break
            for start in range(0, len(data), piece):
                await self._line.send(packets.encode(None, data[start : start + piece]))
            position += len(data)

    def _on_word(self, word: dict[str, Any]) -> None:
        match word.get("event"):
            case "at":
                self.at = states.item_of(word)
            case "restored":
                item = states.item_of(word)
                self._heard.add(item.name)
                if item.kind in states.LISTED:
                    self._restored.add(item)
            case "unrestored":
                missing = states.missing_of(word)
                self._heard.add(missing.name)
                self._unrestored.add(missing)
            case "end":
                self.ended = True
            case _:
                raise BadState("cannot read what the interpreter says: out of order")
