"""What executions have used together, and how they ended (pure)."""

import bisect
from collections.abc import Iterable
from dataclasses import dataclass, field

from sandfleet_executor.core.executions.events import Usage

# Interpreters say what they wrote: however often one lies, the sum fits into its field.
MOST_BYTES = (1 << 63) - 1
# What an interpreter may claim above what was sampled: more than it can do between two samples.
UNSEEN_SECONDS, UNSEEN_BYTES = 1.0, 1 << 30
# Seconds of wall time that executions are told apart by; session.proto has them.
BOUNDS = (0.01, 0.1, 1, 10, 60, 600)
# Languages of cells that are counted apart; the others are counted together.
MOST_LANGUAGES = 64
OTHER_LANGUAGES = "other"


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums since the start, and the highest of what only has a highest. Seconds and bytes."""

    executions: int = 0
    cpu_seconds: float = 0.0
    written_bytes: int = 0
    peak_memory_bytes: int = 0
    peak_processes: int = 0

    def plus(self, usage: Usage) -> "Totals":
        """With one more execution that ended."""
        return self.with_running(usage, ended=1)

    def with_running(self, usage: Usage, *, ended: int = 0) -> "Totals":
        """With the usage so far of a running execution."""
        return Totals(
            executions=self.executions + ended,
            cpu_seconds=self.cpu_seconds + usage.cpu_seconds,
            written_bytes=min(self.written_bytes + (usage.written_bytes or 0), MOST_BYTES),
            peak_memory_bytes=max(self.peak_memory_bytes, usage.peak_memory_bytes),
            peak_processes=max(self.peak_processes, usage.peak_processes),
        )


@dataclass(frozen=True, slots=True)
class Claim:
    """What an execution has used: processor time, its highest memory, and what it has written to storage."""

    cpu_seconds: float
    peak_bytes: int
    written_bytes: int


def believed(claimed: Claim, seen: Claim, wall_seconds: float, cores: int) -> Claim:
    """What an interpreter says of its cell, as far as the samples of its processes bear it out.

    It says it from within, where code can change it: never less than was seen, and not more than can be.
    """
    return Claim(
        min(max(claimed.cpu_seconds, seen.cpu_seconds), max(seen.cpu_seconds, wall_seconds * cores + UNSEEN_SECONDS)),
        min(max(claimed.peak_bytes, seen.peak_bytes), seen.peak_bytes + UNSEEN_BYTES),
        min(max(claimed.written_bytes, seen.written_bytes), seen.written_bytes + UNSEEN_BYTES),
    )


@dataclass(frozen=True, slots=True)
class End:
    """`span` is that of an execution: execute_cell or run_command."""

    span: str
    outcome: str
    blame: str


@dataclass(slots=True)
class Tally:
    """Executions of one end. `counts`: of those up to each bound, and of those above the last."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    wall_seconds: float = 0.0


@dataclass(slots=True)
class LanguageTally:
    """The cells of a language."""

    executions: int = 0
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    peak_memory_bytes: int = 0

    def add(self, usage: Usage) -> None:
        self.executions += 1
        self.cpu_seconds += usage.cpu_seconds
        self.wall_seconds += usage.wall_seconds
        self.peak_memory_bytes = max(self.peak_memory_bytes, usage.peak_memory_bytes)


class Tallies:
    """How executions ended, and calls of tools, since the start. Words of ours alone make new ones, and languages."""

    def __init__(self) -> None:
        self._languages: dict[str, LanguageTally] = {}
        self._ends: dict[End, Tally] = {}
        self._calls: dict[str, int] = {}

    def ended(self, end: End, wall_seconds: float) -> None:
        tally = self._ends.setdefault(end, Tally())
        tally.counts[bisect.bisect_left(BOUNDS, wall_seconds)] += 1
        tally.wall_seconds += wall_seconds

    def spoke(self, language: str, usage: Usage) -> None:
        """A cell of this language has ended. Users can name kernels of Jupyter: the number is bounded."""
        if language not in self._languages and len(self._languages) >= MOST_LANGUAGES:
            language = OTHER_LANGUAGES
        self._languages.setdefault(language, LanguageTally()).add(usage)

    def called(self, end: str) -> None:
        """A call of a tool has ended."""
        self._calls[end] = self._calls.get(end, 0) + 1

    @property
    def executions(self) -> Iterable[tuple[End, Tally]]:
        return self._ends.items()

    @property
    def languages(self) -> Iterable[tuple[str, LanguageTally]]:
        return self._languages.items()

    @property
    def tool_calls(self) -> Iterable[tuple[str, int]]:
        return self._calls.items()
