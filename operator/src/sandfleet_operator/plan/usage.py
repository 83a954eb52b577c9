"""What executors say that their sessions have used, and what has come since the reading before (pure).

An executor is hostile. Its words are those of the contract, and its numbers no more than a sandbox can do.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

# Seconds of wall time that executions are told apart by; session.proto has them.
BOUNDS = (0.01, 0.1, 1.0, 10.0, 60.0, 600.0)
CALL_ENDS = frozenset({"ok", "error", "denied", "timeout", "unavailable", "cancelled"})
# What no sandbox passes in each second: executions and calls, and seconds of processors.
MOST_RATE, MOST_CORES = 1000.0, 1024.0
# Seconds of one execution, bytes and processes of one sandbox.
MOST_SECONDS, MOST_BYTES, MOST_PROCESSES = 30 * 86400.0, 1 << 44, 1 << 22


@dataclass(frozen=True, slots=True)
class End:
    """`kind`: cell or command. The others are words of the contract; `blame` is "none" where all went well."""

    kind: str
    outcome: str
    blame: str


@dataclass(frozen=True, slots=True)
class Ended:
    """Executions of one end: how many took up to each of BOUNDS or more, and seconds of all of them."""

    counts: tuple[int, ...]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Of one executor since its start, and what its session holds now. Seconds, bytes."""

    wall_seconds: float
    cpu_seconds: float = 0.0
    memory_bytes: int = 0
    disk_bytes: int = 0
    processes: int = 0
    ends: Mapping[End, Ended] = field(default_factory=dict)
    calls: Mapping[str, int] = field(default_factory=dict)


NOTHING = Reading(wall_seconds=0.0)


def grown(before: Reading, now: Reading, elapsed: float) -> Reading | None:
    """What has come in the `elapsed` seconds between two readings; None where it cannot be so.

    An executor that was started again counts from 0.
    """
    if not (math.isfinite(now.wall_seconds) and math.isfinite(now.cpu_seconds)):
        return None
    if now.wall_seconds < before.wall_seconds:
        before = NOTHING
    found = Reading(
        wall_seconds=now.wall_seconds - before.wall_seconds,
        cpu_seconds=now.cpu_seconds - before.cpu_seconds,
        memory_bytes=now.memory_bytes,
        disk_bytes=now.disk_bytes,
        processes=now.processes,
        ends={end: _more(before.ends.get(end), ended) for end, ended in now.ends.items()},
        calls={end: count - before.calls.get(end, 0) for end, count in now.calls.items()},
    )
    return found if _is_possible(found, max(elapsed, 1.0)) else None


def _more(before: Ended | None, now: Ended) -> Ended:
    if before is None:
        return now
    counts = tuple(count - earlier for count, earlier in zip(now.counts, before.counts, strict=True))
    return Ended(counts, now.seconds - before.seconds)


def _is_possible(found: Reading, elapsed: float) -> bool:
    counts = [*found.calls.values(), *(count for ended in found.ends.values() for count in ended.counts)]
    seconds = [ended.seconds for ended in found.ends.values()]
    return (
        all(count >= 0 for count in counts)
        and sum(counts) <= MOST_RATE * elapsed
        and all(0 <= one < math.inf and one <= MOST_SECONDS * max(1, sum(counts)) for one in seconds)
        # Of the last samples: they may take a little back.
        and -1.0 <= found.cpu_seconds <= MOST_CORES * elapsed
        and found.memory_bytes <= MOST_BYTES
        and found.disk_bytes <= MOST_BYTES
        and found.processes <= MOST_PROCESSES
    )
