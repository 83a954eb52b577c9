#!/usr/bin/env python3
"""Plays a load to the real scheduler in simulated time, and compares policies: `tools/simulate.py LOAD`."""

import argparse
import json
import math
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import yaml
from sandfleet_operator.api.errors import FleetError
from simulation.draw import draw
from simulation.fit import fit
from simulation.load import Load, read_load, sessions
from simulation.measures import Measures, measure
from simulation.policies import POLICIES
from simulation.replay import Played, replay

OK, FAILED, USAGE = 0, 1, 2
LOADS = Path(__file__).parent / "simulation" / "loads"


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser("simulate.py", description=__doc__)
    result.add_argument(
        "load",
        nargs="?",
        default="office-day",
        metavar="LOAD",
        help="a YAML file, or the name of a load beside this program (default: office-day)",
    )
    result.add_argument("--list", action="store_true", help="print the names of the loads beside this program")
    result.add_argument(
        "--policy",
        action="append",
        choices=POLICIES,
        help="simulate this policy; may be repeated (default: all, the fleet's own, fair, first)",
    )
    result.add_argument("--draw", default="", metavar="FILE", help="draw shares and waits into this .svg or .png")
    result.add_argument(
        "--fit",
        type=float,
        metavar="SECONDS",
        help="find the smallest fleet and quotas with which each team's p99 wait is within this time",
    )
    result.add_argument("--json", action="store_true", help="print a JSON object")
    return result


def main(words: Sequence[str] | None = None) -> int:
    options = parser().parse_args(words)
    if options.list:
        print("\n".join(shipped()))
        return OK
    if options.fit is not None and not 0 <= options.fit < math.inf:
        return _refuse(f"cannot fit: {options.fit:g} is no number of seconds")
    if options.draw and not os.access(Path(options.draw).parent, os.W_OK):
        return _refuse(f"cannot draw {options.draw}: its folder is not there, or cannot be written to")
    try:
        load = read_load(yaml.safe_load(text_of(options.load)))
    except OSError as error:
        return _refuse(f"cannot read {options.load}: {error.strerror}")
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        return _refuse(f"cannot read {options.load}: {' '.join(str(error).split())}")
    except FleetError as error:
        return _refuse(f"{options.load}: {error.problem.message}")
    return _compare(load, options) if options.fit is None else _fit(load, options, options.fit)


def shipped() -> list[str]:
    """Names of the loads that come with the program."""
    return sorted(one.name.removesuffix(".yaml") for one in LOADS.iterdir() if one.name.endswith(".yaml"))


def text_of(load: str) -> str:
    """Of a shipped load by its name, else of a file. Raises OSError, UnicodeDecodeError."""
    return (LOADS / f"{load}.yaml").read_text("utf-8") if load in shipped() else Path(load).read_text("utf-8")


def _compare(load: Load, options: argparse.Namespace) -> int:
    drawn, played = sessions(load), dict[str, Played]()
    begun = time.monotonic()
    for name in options.policy or POLICIES:
        _tell(f"simulating {len(drawn)} sessions under {name}")
        played[name] = replay(load, drawn, POLICIES[name])
    spent = time.monotonic() - begun
    if options.draw:
        try:
            draw(Path(options.draw), Path(options.load).stem, load, played)
        except ImportError:
            return _refuse("cannot draw: matplotlib is missing")
        except (OSError, ValueError) as error:
            return _refuse(f"cannot draw {options.draw}: {error}")
    found = {name: measure(one) for name, one in played.items()}
    if options.json:
        print(json.dumps({name: asdict(one) for name, one in found.items()}))
    else:
        print(table(found))
        _tell(f"{sum(one.events for one in played.values()) / max(spent, 1e-9):,.0f} events a second")
    return OK


def _fit(load: Load, options: argparse.Namespace, p99: float) -> int:
    drawn = sessions(load)
    _tell(f"looking for the smallest fleet that serves {len(drawn)} sessions within {p99:g} s at p99")
    found = fit(load, drawn, POLICIES[(options.policy or ["fair"])[0]], p99)
    if found is None:
        print(f"no fleet keeps a p99 wait of {p99:g} s under this load", file=sys.stderr)
        return FAILED
    if options.json:
        print(json.dumps(asdict(found)))
    else:
        quotas = "".join(f"\nqueue {name}: nominal quota of {many} sandboxes" for name, many in found.quotas.items())
        print(f"{found.sandboxes} sandboxes, {found.warm} of them warm{quotas}")
    return OK


def table(found: Mapping[str, Measures]) -> str:
    """For people: one line for each policy and team."""
    rows: list[tuple[str, ...]] = [
        ("POLICY", "TEAM", "CLAIMS", "SERVED", "REFUSED", "WAITING", "P50", "P99", "LONGEST", "HELD", "JAIN")
    ]
    for policy, one in found.items():
        jain = "-" if one.jain is None else f"{one.jain:.2f}"
        for name, team in one.teams.items():
            waits = ("-" if wait is None else f"{wait:.2f}s" for wait in (team.p50, team.p99, team.longest))
            counts = (team.claims, team.served, sum(team.refused.values()), team.still_waiting)
            rows.append((policy, name, *map(str, counts), *waits, f"{team.held:.1f}", jain))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _tell(text: str) -> None:
    if sys.stderr.isatty():
        print(f"simulate: {text}", file=sys.stderr)


def _refuse(message: str) -> int:
    print(f"simulate: {message}", file=sys.stderr)
    return USAGE


if __name__ == "__main__":
    # Ctrl-C at the terminal ends it without a word.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(main())
