"""Finds names and text in a tree: in short steps, so that no search keeps a thread of FileThreads from others."""

import os
import re
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, cast

from sandfleet_executor.core.files.globs import Glob, InvalidPattern, State
from sandfleet_executor.core.files.paths import PARTIAL_PREFIX
from sandfleet_executor.effects.files.trees import Info, describe
from sandfleet_executor.effects.files.walk import Pins, Trail, find, names_in

try:
    import re2
except ImportError:
    # There are no wheels of it for musl; everything else goes without.
    re2 = None

STEP_SECONDS = 0.05
MAX_SECONDS = 30.0
# Names that are looked at, in all; of one directory no more are kept.
MAX_NAMES = 500_000
# Of one answer.
MAX_ANSWER_BYTES = 4 << 20
MAX_SEARCHED_BYTES = 4 << 30
# What is searched at once. A longer line is searched in parts; the worst pattern takes a second or two for this much.
BLOCK_BYTES = 32 << 10
# The automaton of a pattern.
PATTERN_MEMORY = 256 << 10
MAX_PATTERN_BYTES = 1024
MAX_LINE_BYTES = 1000
_BEFORE_BYTES = 200
_LOOK_FOR_NUL = 8192

Found = TypeVar("Found")


@dataclass
class Bounds:
    """Of one search; `matches` is the caller's."""

    matches: int
    seconds: float = MAX_SECONDS
    names: int = MAX_NAMES
    searched_bytes: int = MAX_SEARCHED_BYTES


class SearchUnavailable(RuntimeError):
    """What searches for expressions is not installed."""


class _Bound(Exception):
    """A bound was reached; its name is the API's SearchStop."""


class Finder(Generic[Found]):
    """A running search. For any thread: it may be closed while a step runs."""

    def __init__(self, top_fd: int, bounds: Bounds, clock: Callable[[], float] = time.monotonic) -> None:
        """Takes the descriptor over."""
        self.found: list[Found] = []
        # Why not everything was looked at: MATCHES, TIME or SIZE.
        self.stop = ""
        self._bounds = bounds
        self._clock = clock
        self._end = clock() + bounds.seconds
        self._size = 0
        self._names = 0
        self._lock = threading.Lock()
        self._closed = False
        self._trail = Trail(top_fd)
        self._work = self._run(self._trail)

    def _run(self, trail: Trail) -> Generator[None, None, None]:
        """The work; each step ends at a `yield`."""
        raise NotImplementedError

    def step(self) -> bool:
        """Works for a moment. False when all is done. Raises what its work raises."""
        with self._lock:
            now = self._clock()
            pause = now + STEP_SECONDS
            try:
                while now < pause and not self._closed:
                    if now >= self._end:
                        self.stop = "TIME"
                        return False
                    next(self._work)
                    now = self._clock()
            except StopIteration:
                return False
            except _Bound as bound:
                self.stop = str(bound)
                return False
            return not self._closed

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                self._work.close()
                self._trail.__exit__()

    def _add(self, found: Found, size: int) -> None:
        if len(self.found) >= self._bounds.matches:
            raise _Bound("MATCHES")
        self._size += size + 64
        if self._size > MAX_ANSWER_BYTES:
            raise _Bound("SIZE")
        self.found.append(found)

    def _matching(self, trail: Trail, glob: Glob) -> Iterator[tuple[bytes, os.stat_result] | None]:
        """The names below that match, each while the trail stands in its directory; None now and then."""
        levels: list[tuple[State, deque[bytes]]] = [(glob.start, self._list(trail.fd))]
        while levels:
            yield None
            state, names = levels[-1]
            if not names:
                levels.pop()
                if levels:
                    trail.leave()
                continue
            name = names.popleft()
            matches, after = glob.step(state, name)
            leads_on = glob.leads_on(after)
            if not (matches or leads_on):
                continue
            try:
                status = os.stat(name, dir_fd=trail.fd, follow_symlinks=False)
            except OSError:
                continue
            if matches:
                yield name, status
            if leads_on and stat.S_ISDIR(status.st_mode):
                self._descend(trail, name, after, levels)

    def _descend(self, trail: Trail, name: bytes, state: State, levels: list[tuple[State, deque[bytes]]]) -> None:
        try:
            trail.enter(name)
        except OSError:
            # Exchanged just now, or closed to the user.
            return
        try:
            levels.append((state, self._list(trail.fd)))
        except OSError:
            trail.leave()

    def _list(self, fd: int) -> deque[bytes]:
        names = []
        for name in names_in(fd):
            self._names += 1
            if self._names > self._bounds.names:
                raise _Bound("SIZE")
            if not name.startswith(PARTIAL_PREFIX):
                names.append(name)
        return deque(sorted(names))


class NameFinder(Finder[Info]):
    """Finds what a pattern matches."""

    def __init__(self, roots: Pins, pattern: bytes, path: bytes, bounds: Bounds) -> None:
        """Raises InvalidPattern, and what `find` raises."""
        self._glob = Glob(pattern)
        with find(roots, path, follow_last=True) as spot:
            self._path = spot.path
            top = spot.open(os.O_PATH | os.O_DIRECTORY)
        super().__init__(top, bounds)

    def _run(self, trail: Trail) -> Generator[None, None, None]:
        for match in self._matching(trail, self._glob):
            if match is not None:
                name, status = match
                info = describe(b"/".join((self._path, *trail.names, name)), status, trail.fd, name)
                self._add(info, len(info.path) + len(info.target))
            yield


@dataclass(frozen=True, slots=True)
class Match:
    """`line` and `column` from 1; `column` in characters."""

    path: bytes
    line: int
    column: int
    text: bytes


class Pattern(Protocol):
    """What re2 makes of one; it has no types of its own."""

    def search(self, text: bytes, pos: int) -> re.Match[bytes] | None: ...


class TextFinder(Finder[Match]):
    """Finds lines that a pattern matches, in the files of a tree or in one."""

    def __init__(
        self,
        roots: Pins,
        pattern: bytes,
        path: bytes,
        bounds: Bounds,
        *,
        regex: bool,
        ignore_case: bool,
        include: bytes = b"**",
    ) -> None:
        """Raises InvalidPattern, and what `find` raises."""
        self.searched = self.skipped = 0
        self._bytes = 0
        self._pattern = _compile(pattern, regex=regex, ignore_case=ignore_case)
        self._glob = Glob(include)
        with find(roots, path, follow_last=True) as spot:
            self._path = spot.path
            status = spot.stat()
            self._is_file = not stat.S_ISDIR(status.st_mode)
            if self._is_file:
                self._path = self._path.rpartition(b"/")[0]
                self._only = spot.name or b""
            top = os.dup(spot.directory_fd) if self._is_file else spot.open(os.O_PATH | os.O_DIRECTORY)
        super().__init__(top, bounds)

    def _run(self, trail: Trail) -> Generator[None, None, None]:
        if self._is_file:
            yield from self._file(trail, self._only)
            return
        for match in self._matching(trail, self._glob):
            if match is not None and stat.S_ISREG(match[1].st_mode):
                yield from self._file(trail, match[0])
            yield

    def _file(self, trail: Trail, name: bytes) -> Iterator[None]:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        try:
            fd = os.open(name, flags, dir_fd=trail.fd)
        except OSError:
            self.skipped += 1
            return
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode) or b"\0" in os.pread(fd, _LOOK_FOR_NUL, 0):
                self.skipped += 1
                return
            self.searched += 1
            yield from self._lines(fd, b"/".join((self._path, *trail.names, name)))
        except OSError:
            # It cannot be read to its end: a fault of the disk, or of a mount.
            self.skipped += 1
        finally:
            os.close(fd)

    def _lines(self, fd: int, path: bytes) -> Iterator[None]:
        """Searches a file in blocks of whole lines."""
        line, rest = 1, b""
        while data := os.read(fd, BLOCK_BYTES - len(rest)):
            self._bytes += len(data)
            if self._bytes > self._bounds.searched_bytes:
                raise _Bound("SIZE")
            block = rest + data
            end = block.rfind(b"\n") + 1 or (len(block) if len(block) >= BLOCK_BYTES else 0)
            block, rest = block[:end], block[end:]
            self._search(block, path, line)
            line += block.count(b"\n")
            yield
        self._search(rest, path, line)

    def _search(self, block: bytes, path: bytes, line: int) -> None:
        place, counted = 0, 0
        while place < len(block) and (match := self._pattern.search(block, place)) is not None:
            at = match.start()
            if at >= len(block):
                # An empty match behind the last newline is on no line.
                return
            line += block.count(b"\n", counted, at)
            counted = at
            start = block.rfind(b"\n", 0, at) + 1
            end = block.find(b"\n", at)
            end = len(block) if end < 0 else end
            column = len(block[start:at].decode("utf-8", "surrogateescape")) + 1
            self._add(Match(path, line, column, _part(block[start:end], at - start)), len(path) + MAX_LINE_BYTES)
            place = end + 1


def _part(line: bytes, at: int) -> bytes:
    if len(line) <= MAX_LINE_BYTES:
        return line.removesuffix(b"\r")
    start = max(0, at - _BEFORE_BYTES)
    return line[start : start + MAX_LINE_BYTES]


def _compile(pattern: bytes, *, regex: bool, ignore_case: bool) -> Pattern:
    if not pattern or len(pattern) > MAX_PATTERN_BYTES:
        raise InvalidPattern(f"it has to have 1 to {MAX_PATTERN_BYTES} bytes")
    if re2 is None:
        raise SearchUnavailable("this image has no google-re2")
    options = re2.Options()
    options.max_mem = PATTERN_MEMORY
    options.log_errors = False
    options.never_nl = True
    options.literal = not regex
    options.case_sensitive = not ignore_case
    try:
        if regex:
            re2.compile(pattern, options)
        # ^ and $ are those of a line.
        return cast("Pattern", re2.compile(b"(?m)" + pattern if regex else pattern, options))
    except re2.error as error:
        said = error.args[0] if error.args else error
        text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        raise InvalidPattern(text) from error
