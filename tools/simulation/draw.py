"""The picture of a comparison: what each team held over time under each policy, and how long its claims waited."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simulation.load import Load
from simulation.measures import measure, sample_times, sampled
from simulation.replay import Played

HOUR = 3600.0
# Okabe and Ito's colours, which people with any colour vision can tell apart.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#f0e442", "#000000")


def draw(path: Path, title: str, load: Load, played: Mapping[str, Played]) -> None:
    """SVG or PNG, by the name's suffix. Raises ImportError without matplotlib, ValueError for another suffix."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # The same picture for the same load.
    mpl.rcParams["svg.hashsalt"] = "sandfleet"
    figure = Figure(figsize=(10, 2.2 * len(played) + 0.8), layout="constrained")
    figure.suptitle(title)
    rows = figure.subplots(len(played), 2, sharex="col", width_ratios=(3, 1), squeeze=False)
    for (policy, one), (shares, waits) in zip(played.items(), rows, strict=True):
        _draw_shares(shares, load, policy, one)
        _draw_waits(waits, one)
    rows[0][0].legend(loc="upper right", fontsize="small", ncols=len(load.teams))
    rows[-1][0].set_xlabel("hours")
    rows[-1][1].set_xlabel("wait in seconds: median, p99")
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _draw_shares(axes: Any, load: Load, policy: str, played: Played) -> None:
    times = sample_times(played.seconds)
    held = {name: sampled(one.held, times) for name, one in played.teams.items()}
    colours = [COLOURS[number % len(COLOURS)] for number in range(len(held))]
    axes.stackplot([when / HOUR for when in times], *held.values(), labels=list(held), colors=colours, linewidth=0)
    axes.set_ylim(0, load.fleet.sandboxes)
    axes.set_ylabel("sandboxes")
    found = measure(played).jain
    axes.set_title(policy if found is None else f"{policy}: Jain's index {found:.2f}", loc="left", fontsize="medium")


def _draw_waits(axes: Any, played: Played) -> None:
    teams = measure(played).teams
    for number, one in enumerate(teams.values()):
        colour = COLOURS[number % len(COLOURS)]
        if one.p50 is not None and one.p99 is not None:
            axes.plot([max(one.p50, 0.01), max(one.p99, 0.01)], [number, number], color=colour, marker="o")
    axes.set_xscale("log")
    axes.set_yticks(range(len(teams)), list(teams))
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)
