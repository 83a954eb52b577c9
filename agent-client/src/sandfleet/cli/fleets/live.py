"""`sandfleet top` without an id: the whole fleet, its pools, queues and sessions, and how fast sessions come and go."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from sandfleet import Fleet
from sandfleet._fleets import discovery
from sandfleet.cli import OK, table, top
from sandfleet.cli.fleets import pool, queue
from sandfleet.values import _show
from sandfleet.values.fleet import PoolInfo, QueueInfo

# States of sandboxes that serve no session.
_UNCLAIMED = {"starting", "warm"}
_POOLS = ("POOL", "WARM", "", "STARTING", "CLAIMED", "WAITING", "HIT RATE", "WHY")


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a look has found. Rates in sessions per second, since the look before; None at the first."""

    pools: tuple[PoolInfo, ...]
    queues: tuple[QueueInfo, ...]
    sessions: int
    began_rate: float | None = None
    ended_rate: float | None = None


def follow(options: argparse.Namespace) -> int:
    """Show the fleet until Ctrl-C, or for as many looks as are asked for."""
    out = sys.stdout
    canvas = top.Canvas(out) if out.isatty() and not options.json else None
    try:
        for look in _looks(options):
            if options.json:
                print(json.dumps(_show.to_json(look)), file=out, flush=True)
            elif canvas is None:
                print("\n".join(screen(look)[0]), end="\n\n", file=out, flush=True)
            else:
                canvas.draw(*screen(look))
    except KeyboardInterrupt:
        return OK
    return OK


def _looks(options: argparse.Namespace) -> Iterator[Look]:
    with ExitStack() as stack:
        fleets = [stack.enter_context(one) for one in _fleets(options.namespace)]
        before: set[str] = set()
        at = 0.0
        for number in itertools.count(1):
            now = time.monotonic()
            # Young sessions have the name of their pod, which they keep.
            found = (info for fleet in fleets for info in fleet.list(namespace=options.namespace))
            ids = {info.sandbox_id for info in found if info.state not in _UNCLAIMED}
            seconds = now - at if number > 1 else None
            yield Look(
                pools=tuple(one for fleet in fleets for one in fleet.pools(namespace=options.namespace)),
                queues=tuple(one for fleet in fleets for one in fleet.queues(namespace=options.namespace)),
                sessions=len(ids),
                began_rate=len(ids - before) / seconds if seconds else None,
                ended_rate=len(before - ids) / seconds if seconds else None,
            )
            if number == options.count:
                return
            before, at = ids, now
            time.sleep(options.interval)


def _fleets(namespace: str | None) -> list[Fleet]:
    """The fleet that the environment names; else all of this machine, where it has some; else the cluster's."""
    named = os.environ.get("SANDFLEET_ADDRESS") or os.environ.get("SANDFLEET_FLEET") or namespace is not None
    here = [] if named else discovery.addresses()
    return [Fleet.connect(address) for address in here] or [pool.connect(namespace)]


def screen(look: Look) -> tuple[list[str], list[float | None]]:
    """Return the lines of the screen, and the share by which each is coloured; -1 for headlines."""
    rates = "" if look.began_rate is None else f"  began {look.began_rate:.1f}/s  ended {look.ended_rate or 0:.1f}/s"
    lines, shares = [f"sessions {look.sessions}{rates}", ""], [-1.0, None]
    rows = [_POOLS, *map(_cells, look.pools)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_POOLS))]
    lines += ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    shares += [-1.0, *map(_need, look.pools)]
    if look.queues:
        more, colours = queue.screen(look.queues, bars=True)
        return [*lines, "", *more], [*shares, None, *colours]
    return lines, shares


def _cells(one: PoolInfo) -> Sequence[str]:
    full = one.warm / one.target_warm if one.target_warm else None
    counts = (one.starting, one.claimed, one.waiting)
    rate = "-" if one.hit_rate is None else f"{one.hit_rate:.0%}"
    warm = f"{one.warm}/{one.target_warm}"
    name, why = table.plain(one.pool_id), table.plain(one.reason) or "-"
    return (name, warm, top.bar(None if full is None else min(1.0, full)), *map(str, counts), rate, why)


def _need(one: PoolInfo) -> float | None:
    """How near the pool is to having no warm sandbox: 1 where it has none and claims wait."""
    if not one.target_warm:
        return 1.0 if one.waiting else None
    return 1.0 - min(1.0, one.warm / one.target_warm)
