"""What tracing and metrics cost, and what a file of spans and an exporter without a collector take."""

import asyncio
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from figures import Figure, progress, quantile
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from sandfleet import AsyncSandbox
from sandfleet.observe import provider
from sandfleet.observe.report.assemble import report
from sandfleet.observe.report.journal import Journal, Recorded
from sandfleet.observe.report.page import html
from sandfleet_operator.telemetry.control_plane import ClaimMetrics

# Turns of cells with spans and without; cells of a turn, before which one is not measured: the spans of a cell are made
# while the next one runs. Blocks of turns, whose ratios show the spread.
TURNS, CELLS, BLOCKS = 120, 5, 8
SPANS = 20_000
DEAD = 50_000
COUNTS = 200_000
STEPS = 10_000
RECEIVER = """
import sys
from support.otlp import collecting
with collecting() as collector:
    print(collector.endpoint, flush=True)
    sys.stdin.read()
"""


def figures() -> Iterator[Figure]:
    progress("cells with and without spans, by turns")
    with apart() as endpoint:
        yield from asyncio.run(cells(endpoint))
    progress("spans appended to a file")
    yield appended()
    progress("an exporter whose collector is dead")
    yield dead()
    yield counted()
    if shutil.which("chromium"):
        progress("reports in a browser")
        yield Figure(
            f"a report of {STEPS:,} steps is drawn",
            drawn(STEPS),
            "ms",
            drawn(1),
            "beside one of one step; target ≤ 1 s",
        )


@contextmanager
def apart() -> Iterator[str]:
    """A collector that is a process of its own, as a collector is; gives its endpoint."""
    command = [sys.executable, "-c", RECEIVER]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]
    ) as process:
        yield process.stdout.readline().strip()
        process.stdin.close()


async def cells(endpoint: str) -> list[Figure]:
    with mock.patch.dict(os.environ, {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}):
        traced = provider.exporting("bench")
    turns: list[tuple[list[float], list[float]]] = []
    async with AsyncSandbox.create() as sandbox:

        async def cell() -> float:
            start = time.perf_counter()
            await sandbox.run_code("x = 1")
            return (time.perf_counter() - start) * 1e3

        for number in range(TURNS + 2):
            took: dict[bool, list[float]] = {}
            # Each is the first one half of the time: what else runs on the machine meets both.
            for is_traced in (number % 2 == 0, number % 2 == 1):
                with provider.use(traced if is_traced else None):
                    await cell()
                    took[is_traced] = [await cell() for _ in range(CELLS)]
            # The first ones warm up.
            if number >= 2:
                turns.append((took[True], took[False]))
    return [compared(f"a cell with spans, p{int(share * 100)}", turns, share) for share in (0.5, 0.9)]


def compared(name: str, turns: list[tuple[list[float], list[float]]], share: float) -> Figure:
    def both(some: list[tuple[list[float], list[float]]]) -> tuple[float, float]:
        one, other = ([cell for turn in some for cell in turn[place]] for place in (0, 1))
        return quantile(one, share), quantile(other, share)

    value, base = both(turns)
    blocks = sorted(one / other for one, other in (both(turns[number::BLOCKS]) for number in range(BLOCKS)))
    spread = f"of {BLOCKS} blocks {blocks[1]:.3f} to {blocks[-2]:.3f} without the outermost two"
    return Figure(name, value, "ms", base, f"{value / base:.3f} of the same without spans; {spread}; target ≤ 1.05")


def appended() -> Figure:
    """Spans per second that this process appends to a file."""
    with tempfile.TemporaryDirectory() as folder:
        traced = provider.exporting("bench", f"{folder}/spans.jsonl", over_otlp=False)
        tracer, start, spent = traced.get_tracer("bench"), time.perf_counter(), time.process_time()
        for number in range(SPANS):
            tracer.start_span("span", attributes={"sandfleet.run.id": "bench", "n": number, "text": "x" * 50}).end()
            if number % 1000 == 999:
                traced.force_flush()
        seconds = time.perf_counter() - start
        note = f"target ≥ 5,000/s; {(time.process_time() - spent) / SPANS * 1e6:.0f} µs processor time a span"
        traced.shutdown()
    return Figure("spans appended to a file", SPANS / seconds, "1/s", note=note)


def dead() -> Figure:
    """Growth of the process while its exporter finds no collector."""
    traced = TracerProvider(shutdown_on_exit=False)
    exporter = OTLPSpanExporter("http://127.0.0.1:9/v1/traces", timeout=1)
    traced.add_span_processor(BatchSpanProcessor(exporter))
    tracer = traced.get_tracer("bench")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(DEAD):
        tracer.start_span("lost", attributes={"text": f"{number}" + "x" * 200}).end()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    exporter.shutdown()
    traced.shutdown()
    return Figure(f"growth after {DEAD:,} spans to a dead collector", grown, "MiB", note="the queue holds 2,048 spans")


def drawn(count: int) -> float:
    """Milliseconds from the opening of a report to its end, by the page's own clock."""
    text = "print(1)\n" * 20
    journal = Journal(
        "bench", {f"e{n}": Recorded(begun=float(n), seconds=0.5, code=text, output=text) for n in range(1, count + 1)}
    )
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        page = Path(folder) / "report.html"
        page.write_text(html(report("bench", [], [journal])), encoding="utf-8")
        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile"]
        shown = subprocess.run([*command, "--dump-dom", page.as_uri()], capture_output=True, text=True, check=True)
    return float(re.search(r'data-drawn="(\d+)"', shown.stdout)[1])


def counted() -> Figure:
    """Microseconds that the metrics of one claim take."""
    sandbox = mock.Mock(pool="team/python", warm=True)
    metrics = ClaimMetrics()
    start = time.process_time()
    for _ in range(COUNTS):
        metrics.bound(sandbox, 0.01)
    spent = (time.process_time() - start) / COUNTS * 1e6
    return Figure("metrics of a claim", spent, "µs", note="of 10 ms processor time that a claim may take: target ≤ 1 %")
