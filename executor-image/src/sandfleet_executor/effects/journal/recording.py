"""The record of each execution, and what is in the files that it changed."""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from sandfleet_executor.core.executions.events import Event, Finished
from sandfleet_executor.core.executions.records import CELL
from sandfleet_executor.core.files.paths import InvalidPath
from sandfleet_executor.core.journal.transcript import FileDigest, Transcript
from sandfleet_executor.effects.files.files import Download
from sandfleet_executor.effects.files.threads import FileThreads
from sandfleet_executor.effects.files.trees import NotARegularFile
from sandfleet_executor.effects.files.walk import Pins, Roots, RootUnavailable
from sandfleet_executor.effects.journal.journal import Journal

# What is read of the files that one execution changed; the digests of the others are missing.
MAX_FILES = 256
MAX_FILE_BYTES = 8 << 20
MAX_BYTES = 32 << 20
BLOCK_BYTES = 1 << 20

_log = logging.getLogger(__name__)

Look = Callable[[Sequence[bytes]], Awaitable[Mapping[bytes, FileDigest]]]


class Recording:
    """Of one execution: its record is written when it ends."""

    def __init__(self, journal: Journal, transcript: Transcript, look: Look, tasks: set[asyncio.Task[None]]) -> None:
        self._journal = journal
        self._transcript = transcript
        self._look = look
        self._tasks = tasks

    def note(self, **asked: Any) -> None:
        """What was asked, or what a reviewer made of it."""
        self._transcript.asked |= asked

    def sent(self, data: bytes) -> None:
        """Input that it got."""
        self._transcript.sent(data)

    def signalled(self, number: int) -> None:
        """A signal that its caller sent."""
        self._transcript.signalled(number)

    def see(self, event: Event) -> None:
        if not isinstance(event, Finished):
            self._transcript.see(event)
            return
        kind = "terminal" if self._transcript.asked.get("terminal") else "execution"
        if not (event.files.created or event.files.modified):
            self._journal.put_behind(kind, lambda: self._transcript.body(event, {}))
            return
        # The next record waits for the digests; the result does not.
        place = self._journal.promise(kind)
        task = asyncio.get_running_loop().create_task(self._finish(event, lambda body: self._journal.keep(place, body)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(self, end: Finished, keep: Callable[[dict[str, Any]], None]) -> None:
        found: Mapping[bytes, FileDigest] = {}
        try:
            found = await self._look((*end.files.created, *end.files.modified))
        finally:
            keep(self._transcript.body(end, found))


class Recorder:
    """Makes the recordings of a session's executions."""

    def __init__(self, journal: Journal, clock: Callable[[], float]) -> None:
        self.journal = journal
        # Set as soon as the workspace can be walked.
        self.look: Look = _nothing
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, execution_id: str, kind: int) -> Recording:
        return Recording(self.journal, Transcript(execution_id, kind, self._clock()), self.look, self._tasks)

    def lost(self, execution_id: str, kind: int, end: Finished) -> None:
        """An execution that ran when an earlier executor ended: what it was asked is not known any more."""
        transcript = Transcript(execution_id, kind, self._clock())
        self.journal.put("execution", {**transcript.body(end, {}), "begun": None})

    def shown(self, ended: Mapping[str, int]) -> None:
        """The newest executions that have ended, and their kinds. A kill may have come between result and record."""
        try:
            missing = self.journal.unmentioned(ended)
        except OSError as error:
            _log.warning("cannot look for records that an earlier executor did not write: %s", error)
            return
        for execution_id in missing:
            kind = "cell" if ended[execution_id] == CELL else "command"
            self.journal.put("execution", {"id": execution_id, "type": kind, "outcome": None, "unrecorded": True})


async def _nothing(_paths: Sequence[bytes]) -> Mapping[bytes, FileDigest]:
    return {}


class FileDigests:
    """Reads the files of the workspace, with the rights of its user."""

    def __init__(self, roots: Roots, threads: FileThreads) -> None:
        self._roots = roots
        self._threads = threads

    async def of(self, paths: Sequence[bytes]) -> Mapping[bytes, FileDigest]:
        """Of the files that are there, as they are now."""
        pins = self._roots.pin()
        return await self._threads.run_then(pins.close, lambda: digests(pins, paths))


def digests(pins: Pins, paths: Sequence[bytes]) -> dict[bytes, FileDigest]:
    """Blocks. Files that are too large, or no regular files, have no digest."""
    found: dict[bytes, FileDigest] = {}
    rest = MAX_BYTES
    for path in paths[:MAX_FILES]:
        try:
            download = Download(pins, path)
        except (OSError, InvalidPath, NotARegularFile, RootUnavailable):
            continue
        try:
            size = download.info.size
            if size <= min(rest, MAX_FILE_BYTES):
                rest -= size
                found[path] = _digest(download, size)
            else:
                found[path] = FileDigest(size)
        except OSError:
            continue
        finally:
            download.close()
    return found


def _digest(download: Download, size: int) -> FileDigest:
    """Of the first `size` bytes: a file that grows meanwhile has an end nevertheless."""
    digest, offset = hashlib.sha256(), 0
    while data := download.read(offset, min(BLOCK_BYTES, size - offset)):
        digest.update(data)
        offset += len(data)
    return FileDigest(offset, digest.hexdigest())
