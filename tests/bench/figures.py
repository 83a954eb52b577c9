"""What a benchmark yields, and how it is shown."""

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Figure:
    """`baseline` is measured in the same run; `ratio` = value / baseline."""

    name: str
    value: float
    unit: str
    baseline: float | None = None
    # What the baseline is, and the target of DESIGN §8.
    note: str = ""

    @property
    def ratio(self) -> float | None:
        return self.value / self.baseline if self.baseline else None


def line(figure: Figure) -> str:
    values = {**asdict(figure), "ratio": figure.ratio}
    return json.dumps({name: round(value, 4) if isinstance(value, float) else value for name, value in values.items()})


def table(figures: Iterable[Figure]) -> str:
    rows = [("figure", "value", "baseline", "ratio", "")]
    for figure in figures:
        baseline = f"{figure.baseline:,.2f} {figure.unit}" if figure.baseline is not None else "-"
        ratio = f"{figure.ratio:.2f}" if figure.ratio is not None else "-"
        rows.append((figure.name, f"{figure.value:,.2f} {figure.unit}", baseline, ratio, figure.note))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, (*widths, 0), strict=True)) for row in rows
    )


def quantile(samples: list[float], share: float) -> float:
    """As `statistics.quantiles`, of any share between 0 and 1."""
    return statistics.quantiles(samples, n=1000, method="inclusive")[round(share * 1000) - 1]


def repeat(work: Callable[[], object], times: int, *, warm_up: int = 3) -> list[float]:
    """Milliseconds of each run."""
    for _ in range(warm_up):
        work()
    samples = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        samples.append((time.perf_counter() - start) * 1e3)
    return samples


def progress(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)
