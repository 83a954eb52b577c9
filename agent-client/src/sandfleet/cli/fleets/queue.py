"""`sandfleet queue ls|top|explain`: the queues of a fleet, how full they are, and what becomes of claims in them."""

from __future__ import annotations

import argparse
import itertools
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence

from sandfleet.cli import OK, print_json, sentence, table, top
from sandfleet.cli.fleets import explain, pool
from sandfleet.values.fleet import QueueInfo

_COLUMNS = ("QUEUE", "COHORT", "WEIGHT", "QUOTA", "ADMITTED", "BORROWED", "PENDING", "OLDEST", "PER MIN", "REASON")
# Columns that narrow terminals go without, the least first.
_LESS = ("PER MIN", "WEIGHT", "COHORT", "BORROWED", "OLDEST", "QUOTA")
_WIDE = 10_000
_MINUTE = 60
_MOST_SECONDS = 3600
_SHOWN = ("QUEUE", "BAR", "USED", "ADMITTED", "PENDING", "OLDEST")
_NONE = "there are no queues: claims wait for sandboxes only"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("ls", help="list queues", description="List queues, by name.")
    pool.add_namespaces(listing, "queues")
    listing.add_argument("--json", action="store_true", help="print a JSON array")
    shown = "show how full queues are, and why claims wait, until Ctrl-C"
    looking = actions.add_parser("top", help=shown, description=sentence(shown))
    pool.add_namespaces(looking, "queues")
    looking.add_argument(
        "--interval", type=_interval, default=1.0, metavar="SECONDS", help="time between two looks (default: 1)"
    )
    looking.add_argument("--count", type=_count, metavar="N", help="end after N looks")
    looking.add_argument("--json", action="store_true", help="print a JSON array a line")
    asking = "explain what would become of a claim in a queue"
    explaining = actions.add_parser("explain", help=asking, description=sentence(asking))
    explaining.add_argument("queue", metavar="QUEUE", help="name of the queue")
    explain.add_claim(explaining)


def _interval(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"cannot use {text!r} as an interval: it is 0 to {_MOST_SECONDS} seconds")
    return seconds


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"cannot look {text!r} times: write a number from 1 on")
    return int(text)


def run(options: argparse.Namespace) -> int:
    """Do what the action says."""
    match options.action:
        case "ls":
            return _list(options)
        case "top":
            return _top(options)
        case _:
            wish = explain.claim_of(options)
            with pool.connect(options.namespace) as fleet:
                return explain.show(fleet.explain(**wish), as_json=options.json)


def _list(options: argparse.Namespace) -> int:
    with pool.connect(options.namespace) as fleet:
        found = fleet.queues(namespace=options.namespace)
    if options.json:
        print_json(found)
        return OK
    if not found:
        print(_NONE)
        return OK
    table.show(_COLUMNS, map(_row, found), drop=_LESS)
    for queue in found:
        if queue.message:
            print(textwrap.fill(table.plain(queue.message), table.width() if sys.stdout.isatty() else _WIDE))
    return OK


def _row(queue: QueueInfo) -> tuple[str, ...]:
    return (
        queue.queue_id,
        queue.cohort or "-",
        f"{queue.weight:g}",
        explain.words(queue.nominal, zero=True) or "-",
        str(queue.admitted),
        explain.words(queue.borrowed) or "-",
        str(queue.pending),
        "-" if queue.oldest_wait is None else table.length(queue.oldest_wait),
        f"{queue.admission_rate * _MINUTE:.0f}",
        queue.reason or (queue.stop_policy if queue.stop_policy != "None" else "-"),
    )


def _top(options: argparse.Namespace) -> int:
    top.watch(
        _looks(options),
        sys.stdout,
        as_json=options.json,
        text=lambda found: "\n".join(map(_line, found)) or _NONE,
        draw=screen,
    )
    return OK


def _looks(options: argparse.Namespace) -> Iterator[tuple[QueueInfo, ...]]:
    with pool.connect(options.namespace) as fleet:
        for number in itertools.count(1):
            yield fleet.queues(namespace=options.namespace)
            if number == options.count:
                return
            time.sleep(options.interval)


def _line(queue: QueueInfo) -> str:
    """One queue in a line of words, for files and pipes."""
    share, parts = used(queue), [queue.queue_id, f"admitted {queue.admitted}", f"pending {queue.pending}"]
    if share is not None:
        parts.append(f"used {share:.0%}")
    if queue.oldest_wait is not None:
        parts.append(f"oldest {table.length(queue.oldest_wait)}")
    return "  ".join([*parts, *([queue.message] if queue.message else [])])


def screen(queues: Sequence[QueueInfo], width: int) -> top.Drawn:
    """Return the lines of the screen, and the share by which each is coloured; -1 for the headline.

    The reason why claims wait stands in lines of its own below a queue: it is a sentence, and none of it may be cut.
    """
    if not queues:
        return [_NONE], [None]
    head, *rows = table.lines(_SHOWN, map(_cells, queues), width - 1, ("BAR", "OLDEST"))
    lines = [head.replace("BAR", "   ")]
    shares: list[float | None] = [-1.0]
    for row, queue in zip(rows, queues, strict=True):
        why = textwrap.wrap(table.plain(queue.message), max(20, width - 3), initial_indent="  ", subsequent_indent="  ")
        lines += [row, *why]
        shares += [_alarm(queue), *(None for _ in why)]
    return lines, shares


def _cells(queue: QueueInfo) -> tuple[str, ...]:
    share = used(queue)
    oldest = "-" if queue.oldest_wait is None else table.length(queue.oldest_wait)
    percent = "-" if share is None else f"{share:.0%}"
    counts = (str(queue.admitted), str(queue.pending))
    return (queue.queue_id, top.bar(share and min(1.0, share)), percent, *counts, oldest)


def _alarm(queue: QueueInfo) -> float | None:
    """Return the share that colours a queue: a full one is no alarm as long as no claim waits in it."""
    share = used(queue)
    return share if share is None or queue.pending else min(share, 0.5)


def used(queue: QueueInfo) -> float | None:
    """Return the largest part of its nominal quota that is in use; above 1 it borrows. None without a quota."""
    pairs = (
        (queue.usage.sandboxes, queue.nominal.sandboxes),
        (queue.usage.cpu, queue.nominal.cpu),
        (queue.usage.memory, queue.nominal.memory),
    )
    shares = [(used or 0) / most if most else float(bool(used)) for used, most in pairs if most is not None]
    return max(shares, default=None)
