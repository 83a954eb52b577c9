"""`sandfleet top` without an id: the whole fleet, its pools, queues and sessions, and how fast sessions come and go."""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from sandfleet import Fleet
from sandfleet._fleets import discovery
from sandfleet.cli import OK, sandboxes, table, top
from sandfleet.cli.fleets import pool, queue
from sandfleet.errors import RpcTimeout, SandfleetError, UnavailableError
from sandfleet.values.fleet import PoolInfo, QueueInfo

# States of sandboxes that serve no session.
_UNCLAIMED = {"starting", "warm"}
_WIDE = 200
_POOLS = ("POOL", "WARM", "BAR", "STARTING", "CLAIMED", "WAITING", "HIT RATE", "WHY")


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a look has found. Rates in sessions per second, since the look before; None at the first."""

    pools: tuple[PoolInfo, ...]
    queues: tuple[QueueInfo, ...]
    sessions: int
    # The owner of each pool's fleet: the program, where the fleets are those of this machine.
    owners: tuple[str, ...] = ()
    began_rate: float | None = None
    ended_rate: float | None = None


@dataclass(frozen=True, slots=True)
class _Part:
    """The view of one fleet in a look."""

    owner: str
    pools: tuple[PoolInfo, ...]
    queues: tuple[QueueInfo, ...]
    sessions: frozenset[str]


def follow(options: argparse.Namespace) -> int:
    """Show the fleet until Ctrl-C, or for as many looks as are asked for."""
    top.watch(
        _looks(options),
        sys.stdout,
        as_json=options.json,
        text=lambda look: "\n".join([*screen(look, _WIDE)[0], ""]),
        draw=screen,
    )
    return OK


def _looks(options: argparse.Namespace) -> Iterator[Look]:
    with closing(_Fleets(options.namespace)) as fleets:
        before: set[str] = set()
        at = 0.0
        for number in itertools.count(1):
            now = time.monotonic()
            parts = fleets.look()
            ids = {each for part in parts for each in part.sessions}
            seconds = now - at if number > 1 else None
            yield Look(
                pools=tuple(each for part in parts for each in part.pools),
                queues=tuple(each for part in parts for each in part.queues),
                sessions=len(ids),
                owners=tuple(part.owner for part in parts for _ in part.pools),
                began_rate=len(ids - before) / seconds if seconds else None,
                ended_rate=len(before - ids) / seconds if seconds else None,
            )
            if number == options.count:
                return
            before, at = ids, now
            time.sleep(options.interval)


class _Fleets:
    """The fleet that the environment names; else all of this machine, which come and go; else the cluster's."""

    def __init__(self, namespace: str | None) -> None:
        self._namespace = namespace
        self._open: dict[str, Fleet] = {}
        named = os.environ.get("SANDFLEET_ADDRESS") or os.environ.get("SANDFLEET_FLEET") or namespace is not None
        self._one = pool.connect(namespace) if named else None if discovery.addresses() else _of_cluster()

    def look(self) -> list[_Part]:
        """Look at each. Raises UnavailableError where there is one that does not answer."""
        if self._one is not None:
            return [self._part(self._one, "")]
        here = discovery.addresses()
        for address in self._open.keys() - {*here}:
            self._open.pop(address).close()
        return [part for address in here if (part := self._here(address)) is not None]

    def _here(self, address: str) -> _Part | None:
        """Look at a fleet of this machine; None where it has ended with its program, or is about to."""
        try:
            if address not in self._open:
                self._open[address] = Fleet.connect(address)
            return self._part(self._open[address], sandboxes.client_of(address))
        except (UnavailableError, RpcTimeout, OSError):
            if (gone := self._open.pop(address, None)) is not None:
                gone.close()
            return None

    def _part(self, fleet: Fleet, owner: str) -> _Part:
        # Young sessions have the name of their pod, which they keep.
        found = (each for each in fleet.list(namespace=self._namespace) if each.state not in _UNCLAIMED)
        return _Part(
            owner=owner,
            pools=fleet.pools(namespace=self._namespace),
            queues=fleet.queues(namespace=self._namespace),
            sessions=frozenset(each.sandbox_id for each in found),
        )

    def close(self) -> None:
        """Close the connections."""
        for fleet in filter(None, (self._one, *self._open.values())):
            fleet.close()


def _of_cluster() -> Fleet:
    try:
        return pool.connect(None)
    except SandfleetError as error:
        why = "none runs on this machine, and kubectl leads to none; `sandfleet top -n NAMESPACE` says why"
        raise UnavailableError(f"cannot show a fleet: {why}", reason="NoFleet") from error


def screen(look: Look, width: int) -> top.Drawn:
    """Return the lines of the screen, and the share by which each is coloured; -1 for headlines."""
    rates = "" if look.began_rate is None else f"  began {look.began_rate:.1f}/s  ended {look.ended_rate or 0:.1f}/s"
    lines, shares = [f"sessions {look.sessions}{rates}", ""], [-1.0, None]
    rows = [_POOLS, *map(_cells, look.pools)]
    if len({*look.owners}) > 1:
        rows = [(owner, *row) for owner, row in zip(("WHOSE", *look.owners), rows, strict=True)]
    head, *rest = table.lines(rows[0], rows[1:], width - 1, ("STARTING", "BAR", "HIT RATE"))
    lines += [head.replace("BAR", "   "), *rest]
    shares += [-1.0, *map(_need, look.pools)]
    if look.queues:
        more, colours = queue.screen(look.queues, width)
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
    """How near the pool is to having no warm sandbox: 1, an alarm, only where it has none and claims wait."""
    if not one.warm and one.waiting:
        return 1.0
    return min(0.8, 1.0 - one.warm / one.target_warm) if one.target_warm and one.warm < one.target_warm else None
