"""Thousands of driven agents on simulated executors: what a cell takes beside how many sessions there are.

Once more while an executor is killed every second, the fleet restarts twice and no collector takes the spans. With
SANDFLEET_PLOTS=FOLDER it draws `agents.svg` there. SANDFLEET_AGENTS is the largest number of sessions.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figures import Figure, progress, quantile

MOST = int(os.environ.get("SANDFLEET_AGENTS", "2000"))
SIZES = (*(size for size in (50, 500, 2000, 4000) if size < MOST), MOST)
STEPS, THINK, SIGMA = 3, 20.0, 0.5
# Seconds of the run at which the fleet restarts.
RESTARTS = (30, 60)
# Nothing listens there.
NO_COLLECTOR = "http://127.0.0.1:9/v1/traces"
HERE = Path(__file__).parent.parent


@dataclass(frozen=True)
class Ran:
    """One run: how many sessions, what its client said, and what the fleet has seen."""

    sessions: int
    said: dict[str, Any]
    seen: dict[str, Any]

    @property
    def faults(self) -> int:
        """Results that are wrong, lost or doubled, cells that ran twice, and sandboxes that are left."""
        said, seen = self.said, self.seen
        return int(said["wrongs"] + said["lost"] + said["doubled"] + seen["doubled"] + seen["left"])

    @property
    def milliseconds(self) -> list[float]:
        return [1e3 * seconds for seconds in self.said["samples"]]


def figures() -> Iterator[Figure]:
    load = f"{STEPS} cells, think times log-normal, median {THINK:g} s, sigma {SIGMA:g}"
    runs = []
    for size in SIZES:
        progress(f"{size} agents at once: {load}")
        runs.append(run(size))
        yield from told(runs[-1], runs[0], "")
    progress(f"{MOST} agents while executors are killed, the fleet restarts and no collector is there")
    rough = run(MOST, is_rough=True)
    killed = f", {rough.seen['killed']} executors killed, {rough.seen['restarts']} fleet restarts, no collector"
    yield from told(rough, runs[0], killed)
    if folder := os.environ.get("SANDFLEET_PLOTS"):
        draw(Path(folder) / "agents.svg", runs, rough)


def told(ran: Ran, base: Ran, how: str) -> Iterator[Figure]:
    samples, beside = ran.milliseconds, base.milliseconds
    what = f"{ran.sessions} agents{how}"
    against = f"beside {base.sessions} agents; a cell itself takes 20 ms"
    yield Figure(f"cell, {what}, p50", quantile(samples, 0.5), "ms", quantile(beside, 0.5), against)
    yield Figure(f"cell, {what}, p99", quantile(samples, 0.99), "ms", quantile(beside, 0.99), against)
    said = ran.said
    note = f"{said['cpu'] / said['seconds']:.2f} cores of the client, in {said['seconds']:.0f} s"
    each = [1e3 * one.said["cpu"] / one.sessions for one in (ran, base)]
    yield Figure(f"processor time of the client a session, {what}", each[0], "ms", each[1], note)
    note = f"at most {ran.seen['most']} sandboxes at once"
    each = [one.said["memory"] / one.sessions / 1024 for one in (ran, base)]
    yield Figure(f"memory of the client a session, {what}", each[0], "KiB", each[1], note)
    note = "results wrong, lost or doubled, cells that ran twice, sandboxes left; target 0"
    yield Figure(f"faults, {what}", ran.faults, "", note=f"{note}; {said['ends']} {said['wrong']}")


def run(sessions: int, *, is_rough: bool = False) -> Ran:
    with tempfile.TemporaryDirectory() as folder:
        fleet = _program("simulated", folder, stdin=subprocess.PIPE)
        assert fleet.stdin is not None and fleet.stdout is not None
        load = {"sessions": sessions, "steps": STEPS, "think": THINK, "sigma": SIGMA, "namespace": "team"}
        load |= {"fleet": fleet.stdout.readline().strip(), "ca": f"{folder}/ca", "token": f"{folder}/token"}
        client = _program("many_agents", json.dumps(load | {"collector": NO_COLLECTOR if is_rough else ""}))
        ended = threading.Event()
        if is_rough:
            threading.Thread(target=_trouble, args=(fleet, ended), daemon=True).start()
        said, _ = client.communicate()
        ended.set()
        seen, _ = fleet.communicate()
    return Ran(sessions, json.loads(said), json.loads(seen))


def _program(name: str, argument: str, **options: Any) -> subprocess.Popen[str]:
    # gRPC's own lines on each executor that ends are not read.
    command, env = [sys.executable, "-m", f"support.{name}", argument], {**os.environ, "GRPC_VERBOSITY": "NONE"}
    return subprocess.Popen(command, cwd=HERE, stdout=subprocess.PIPE, text=True, env=env, **options)


def _trouble(fleet: subprocess.Popen[str], ended: threading.Event) -> None:
    second = 0
    while not ended.wait(1.0):
        second += 1
        fleet.send_signal(signal.SIGUSR2 if second in RESTARTS else signal.SIGUSR1)


def draw(path: Path, runs: Sequence[Ran], rough: Ran) -> None:
    """Draw the times of cells, and what a session costs the client, beside the number of sessions."""
    from matplotlib.figure import Figure as Picture

    path.parent.mkdir(parents=True, exist_ok=True)
    picture = Picture(figsize=(11, 4.2), layout="constrained")
    times, costs = picture.subplots(1, 2)
    sizes = [ran.sessions for ran in runs]
    for share, colour in ((0.5, "#0072b2"), (0.99, "#d55e00")):
        name = f"p{share * 100:.0f}"
        times.plot(sizes, [quantile(ran.milliseconds, share) for ran in runs], "o-", color=colour, label=name)
        failing = quantile(rough.milliseconds, share)
        times.plot([rough.sessions], [failing], "x", color=colour, label=f"{name}, with failures")
    times.axhline(20, color="gray", linewidth=0.8, linestyle=":")
    times.set(xscale="log", yscale="log", xlabel="live sessions", ylabel="ms of a cell that takes 20 ms")
    times.legend()
    cpu, memory = (
        [1e3 * ran.said["cpu"] / ran.sessions for ran in runs],
        [ran.said["memory"] / ran.sessions / 1024 for ran in runs],
    )
    costs.plot(sizes, cpu, "o-", color="#009e73", label="processor time, ms")
    costs.plot(sizes, memory, "o-", color="#cc79a7", label="memory, KiB")
    costs.set(xscale="log", yscale="log", xlabel="live sessions", ylabel="of the client, a session")
    costs.legend()
    picture.savefig(path)
