"""Metrics of a process in Prometheus' text format (0.0.4), as `/metrics` beside the probes shows them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPED = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


@dataclass(frozen=True, slots=True)
class Sample:
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """`name` ends with the unit, `text` says in one line what is measured."""

    name: str
    text: str
    samples: tuple[Sample, ...] = ()


def exposition(gauges: Iterable[Gauge]) -> str:
    """One without samples is named all the same, so that it can be found."""
    return "".join(f"{line}\n" for gauge in gauges for line in _lines(gauge))


def _lines(gauge: Gauge) -> Iterable[str]:
    yield f"# HELP {gauge.name} {gauge.text}"
    yield f"# TYPE {gauge.name} gauge"
    for sample in gauge.samples:
        labels = ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in sample.labels.items())
        yield f"{gauge.name}{{{labels}}} {sample.value:g}" if labels else f"{gauge.name} {sample.value:g}"
