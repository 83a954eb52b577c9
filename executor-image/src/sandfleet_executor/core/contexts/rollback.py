"""Rollback of cells (D7): when a copy is due, and what callers are told of a rollback. Times are seconds."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandfleet_executor.core.contexts.frames import BadFrame
from sandfleet_executor.core.executions.events import Rollback

# How long a context is idle before it is copied, at least and at most: cells in quick succession are not held up.
IDLE_SECONDS, MOST_IDLE_SECONDS = 0.01, 0.25
# A copy fits into the pauses of a context that are so many times as long as it takes.
FITS = 1.5
# For so many times as long as it took, a cell that comes after it is slowed: the copy is put away on the same
# processors, and the context finds its memory again.
AFTER = 1.0
# How many of the last pauses between cells say how long the next one is going to be.
PAUSES = 4
# The part of a context's time that may go into copies for which a cell has to wait, and for how many copies it is
# saved up.
SHARE = 0.1
MOST_SAVED = 4
# What the first copy is taken to cost.
FIRST_COST = 0.05

RESTORED = ("variables", "imports", "cwd", "environment", "random")
KEPT = ("files", "tmp", "offsets", "sockets")
MAX_PID = 1 << 22
MAX_REASON = 64
MAX_MESSAGE = 512


@dataclass(frozen=True)
class Refusal:
    """Why there is no copy: one word in CamelCase, and the rest of a sentence that begins with "because "."""

    reason: str
    message: str


FIRST_CELL = Refusal("FirstCell", "nothing had been run before")
OTHER_LANGUAGE = Refusal("LanguageNotCopied", "only contexts of Python can be copied")
DISABLED = Refusal("Disabled", "rollback is switched off for this sandbox")
NOT_YET = Refusal("NotYet", "the cell came before a copy could be made")
MEMORY_SHORT = Refusal("MemoryShort", "the copy was given up when memory was short")
COPY_ENDED = Refusal("CopyEnded", "something in the sandbox ended the copy")
COPY_BROKEN = Refusal("CopyBroken", "the copy did not answer")
SANDBOX_ENDED = Refusal("SessionKilled", "all processes of the sandbox were killed, the copy among them")


class Budget:
    """The time for which cells may be held up by copies. Of cells in quick succession only some are followed by a copy.

    So at most a tenth of the time is lost, and at most what twenty copies take is undone with a cell that it was not
    due before.
    """

    def __init__(self, now: float) -> None:
        self._cost = FIRST_COST
        # Of a copy that was made.
        self._known = 0.0
        self._saved = MOST_SAVED * self._cost
        self._at = now
        # When the last copy slows no cell any more.
        self._over = now
        self._ended: float | None = None
        self._pauses: deque[float] = deque(maxlen=PAUSES)

    def ended(self, now: float) -> None:
        """A cell has ended."""
        self._ended = now

    def comes(self, now: float, *, waits: bool) -> None:
        """A cell comes; `waits`: for one before it."""
        if self._ended is not None:
            self._pauses.append(0.0 if waits else now - self._ended)
        self._charge(now)

    def allows(self, now: float) -> bool:
        """Whether a cell may wait for a copy now."""
        self._saved = min(MOST_SAVED * self._cost, self._saved + (now - self._at) * SHARE)
        self._at = now
        return self._saved >= self._cost

    def idle_seconds(self, now: float) -> float:
        """How long the context is idle before a copy: a moment if the copy is over when the next cell comes.

        Also if that cell would wait for all of a copy: of one that has begun it waits for the rest. Otherwise as long
        as the last copy took, and longer than the last pauses.
        """
        fits = not self._pauses or min(self._pauses) >= IDLE_SECONDS + FITS * self._known
        if fits or self.allows(now):
            return IDLE_SECONDS
        return min(max(IDLE_SECONDS, self._known, FITS * max(self._pauses)), MOST_IDLE_SECONDS)

    def took(self, seconds: float, now: float, *, held_since: float | None) -> None:
        """What a copy took that is made now, and since when a cell has waited for it; None: none has."""
        self._cost = self._known = seconds
        self._over = now + AFTER * seconds
        if held_since is not None:
            self._charge(held_since)

    def _charge(self, since: float) -> None:
        """A cell is slowed by a copy from now on, once."""
        self._saved -= max(0.0, self._over - since)
        self._over = since

    def refill(self) -> None:
        """After a rollback: the next cell may fail as well."""
        self._saved = MOST_SAVED * self._cost


def copied(header: Mapping[str, Any], count: int) -> list[int] | Refusal:
    """A context's answer on its copies, checked: their pids. Raises BadFrame."""
    if header.get("event") != "copied":
        raise BadFrame("cannot read what the interpreter says: not about copies")
    pids = header.get("pids")
    if not isinstance(pids, list) or not all(type(pid) is int and 1 < pid < MAX_PID for pid in pids):
        raise BadFrame("cannot read what the interpreter says: not pids")
    if not pids:
        reason, message = header.get("reason"), header.get("message")
        if not isinstance(reason, str) or not isinstance(message, str) or not reason.isalnum():
            raise BadFrame("cannot read what the interpreter says: no reason")
        return Refusal(reason[:MAX_REASON], message[:MAX_MESSAGE].encode("utf-8", "replace").decode())
    if len(set(pids)) != count:
        raise BadFrame("cannot read what the interpreter says: not as many copies as asked for")
    return pids


def done(cell: int, undone: int) -> Rollback:
    """Rolled back to the state after `cell`; `undone` good cells were undone with the failed one."""
    before = f"after cell {cell}" if cell else "before its first cell"
    more = f", which undid {undone} cells before it as well" if undone else ""
    message = f"The context was rolled back to its state {before}{more}."
    return Rollback(done=True, restored=RESTORED, kept=KEPT, message=message, cell_number=cell, cells_undone=undone)


def refused(why: Refusal) -> Rollback:
    """Not rolled back."""
    return Rollback(refused=why.reason, message=f"The context could not be rolled back because {why.message}.")
