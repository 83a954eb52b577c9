"""Metrics of a process: counters, histograms and gauges, and Prometheus' text format (0.0.4) of them.

Each instrument has a bounded number of series: what its labels would make beyond that is counted as "other". Counts
of several threads may miss one now and then, and reading them is safe in any thread.
"""

import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Series of one instrument, and characters of one label.
MAX_SERIES, MAX_LABEL = 2000, 128
OTHER = "other"
# Seconds: a warm claim, a cell, a cold start, a wait in a queue.
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_ESCAPED = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


@dataclass(frozen=True, slots=True)
class Sample:
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Distribution:
    """`counts`: of values up to each bound, and of those above the last; each value is counted once."""

    counts: tuple[int, ...]
    bounds: tuple[float, ...]
    total: float
    labels: Mapping[str, str] = field(default_factory=dict)


class Family(Protocol):
    """A metric with its series, as it is read. `kind`: gauge, counter or histogram."""

    @property
    def kind(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def samples(self) -> Sequence[Sample | Distribution]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """`name` ends with the unit, `text` says in one line what is measured."""

    name: str
    text: str
    samples: tuple[Sample, ...] = ()
    kind: str = "gauge"


class Counter:
    """Counts up from the start of the process. `name` ends with `_total`."""

    kind = "counter"

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        self.name, self.text, self.labels = name, text, tuple(labels)
        self._series: dict[tuple[str, ...], float] = {}

    def add(self, *labels: str, amount: float = 1.0) -> None:
        key = _bounded(labels, self._series)
        self._series[key] = self._series.get(key, 0.0) + amount

    @property
    def samples(self) -> list[Sample]:
        if not self.labels:
            return [Sample(self._series.get((), 0.0))]
        return [Sample(value, dict(zip(self.labels, key, strict=True))) for key, value in list(self._series.items())]


class Histogram:
    """How values are distributed since the start of the process. `name` ends with the unit."""

    kind = "histogram"

    def __init__(self, name: str, text: str, labels: Sequence[str] = (), *, bounds: Sequence[float] = SECONDS) -> None:
        self.name, self.text, self.labels, self._bounds = name, text, tuple(labels), tuple(map(float, bounds))
        self._series: dict[tuple[str, ...], list[int]] = {}
        self._totals: dict[tuple[str, ...], float] = {}

    def observe(self, value: float, *labels: str) -> None:
        key = _bounded(labels, self._series)
        counts = self._series.get(key)
        if counts is None:
            counts = self._series[key] = [0] * (len(self._bounds) + 1)
        counts[bisect.bisect_left(self._bounds, value)] += 1
        self._totals[key] = self._totals.get(key, 0.0) + value

    def merge(self, counts: Sequence[int], total: float, *labels: str) -> None:
        """Values that were counted elsewhere, in the same buckets; `total` is their sum."""
        key = _bounded(labels, self._series)
        before = self._series.get(key) or [0] * (len(self._bounds) + 1)
        self._series[key] = [one + more for one, more in zip(before, counts, strict=True)]
        self._totals[key] = self._totals.get(key, 0.0) + total

    @property
    def samples(self) -> list[Distribution]:
        return [
            Distribution(tuple(counts), self._bounds, self._totals[key], dict(zip(self.labels, key, strict=True)))
            for key, counts in list(self._series.items())
        ]


def _bounded(labels: tuple[str, ...], known: Mapping[tuple[str, ...], object]) -> tuple[str, ...]:
    key = tuple(label[:MAX_LABEL] for label in labels)
    return key if key in known or len(known) < MAX_SERIES else (OTHER,) * len(key)


def together(*parts: Callable[[], Sequence[Family]]) -> Callable[[], list[Family]]:
    """Give the families of all parts, as they are when they are asked for."""
    return lambda: [family for part in parts for family in part()]


def exposition(families: Iterable[Family]) -> str:
    """One without samples is named all the same, so that it can be found."""
    return "".join(f"{line}\n" for family in families for line in _lines(family))


def _lines(family: Family) -> Iterable[str]:
    yield f"# HELP {family.name} {family.text}"
    yield f"# TYPE {family.name} {family.kind}"
    for sample in family.samples:
        if isinstance(sample, Sample):
            yield _line(family.name, sample.labels, sample.value)
        else:
            yield from _buckets(family.name, sample)


def _buckets(name: str, found: Distribution) -> Iterable[str]:
    count = 0
    for bound, here in zip((*found.bounds, None), found.counts, strict=True):
        count += here
        yield _line(f"{name}_bucket", {**found.labels, "le": "+Inf" if bound is None else f"{bound:g}"}, count)
    yield _line(f"{name}_sum", found.labels, found.total)
    yield _line(f"{name}_count", found.labels, count)


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    said = ",".join(f'{label}="{text.translate(_ESCAPED)}"' for label, text in labels.items())
    # Six digits would make a counter of millions stand still.
    number = f"{value:.15g}"
    return f"{name}{{{said}}} {number}" if said else f"{name} {number}"
