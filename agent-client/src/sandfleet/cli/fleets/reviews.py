"""`sandfleet reviews ls|show|watch|approve|deny`: what waits for approval in reviewed sandboxes, and the answers."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sandfleet.cli import FAILED, OK, USAGE, print_json, refuse, table, what
from sandfleet.cli.fleets.pool import add_namespaces
from sandfleet.cli.fleets.waiting import everything, find, text_of

if TYPE_CHECKING:
    from sandfleet.values.reviews import Answer, Review

_COLUMNS = ("REVIEW", "KIND", "WAITS", "SANDBOX", "LEASE", "WHAT", "WHY")
_WHAT, _WHY = 60, 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("ls", help="list what waits", description="List what waits, the oldest first.")
    showing = actions.add_parser(
        "show",
        help="show a request in full",
        description="Show a request in full; in a terminal page by page, with a key for each answer.",
    )
    watching = actions.add_parser(
        "watch",
        help="show what waits, one after the other, and stay",
        description="Show what waits, one after the other, with a key for each answer; stay until q or Ctrl-C.",
    )
    approving = actions.add_parser("approve", help="let it run once", description="Let it run once, as it was shown.")
    approving.add_argument(
        "--edit",
        type=Path,
        metavar="FILE",
        help="let the text of this file run in its place; - reads it from standard input",
    )
    denying = actions.add_parser("deny", help="do not let it run", description="Do not let it run.")
    denying.add_argument("--reason", default="", metavar="TEXT", help="why, for the agent")
    showing.add_argument("review", metavar="REVIEW", nargs="?", default="", help="its id; the oldest one without it")
    for action in (approving, denying):
        action.add_argument("review", metavar="REVIEW", help="as `ls` and `show` print it: ID@STATE")
    for action in (listing, showing, watching, approving, denying):
        action.add_argument("--json", action="store_true", help="print JSON")
        add_namespaces(action, "reviews")


def run(options: argparse.Namespace) -> int:
    """Do what the action says."""
    if options.action == "ls":
        return _list(options.namespace, as_json=options.json)
    if options.action in {"watch", "show"} and not options.json and sys.stdin.isatty() and sys.stdout.isatty():
        from sandfleet.cli.fleets.desk import Desk

        stays = options.action == "watch"
        return Desk(options.namespace, stays=stays).run("" if stays else options.review.partition("@")[0])
    if options.action == "watch":
        refuse("cannot watch: it is for a terminal; programs use `reviews ls --json`", as_json=options.json)
        return USAGE
    return _with(options)


def _with(options: argparse.Namespace) -> int:
    """Print or answer the request that the options name."""
    name, _, state = options.review.partition("@")
    if options.action != "show" and not state.isdecimal():
        why = "it is named as ID@STATE, as `reviews show` prints it, so that an answer is to what was shown"
        refuse(f"cannot answer {options.review!r}: {why}", as_json=options.json)
        return USAGE
    found = find(name, options.namespace)
    if found is None:
        named = f"cannot find review {name!r}: none of this id waits"
        refuse(named if name else "cannot find a review: none waits", as_json=options.json)
        return FAILED
    place, review = found
    if options.action == "show":
        return _print(review, as_json=options.json)
    if review.state != int(state):
        why = "the sandbox has let something run since it was shown: show it again"
        refuse(f"cannot answer {options.review!r}: {why}", as_json=options.json)
        return FAILED
    try:
        answer = _answer(review, options)
    except OSError as error:
        refuse(f"cannot read the edit {str(options.edit)!r}: {what(error)}", error, as_json=options.json)
        return FAILED
    with place.connect() as fleet:
        missing = fleet.reviews.answer(review, answer)
    if options.json:
        print(json.dumps({"missing": missing}))
    elif missing:
        print(f"noted; it runs when {missing} more reviewer{'s' if missing > 1 else ''} have approved it")
    return OK


def _answer(review: Review, options: argparse.Namespace) -> Answer:
    if options.action == "deny":
        return review.deny(options.reason)
    if options.edit is None:
        return review.approve()
    return review.edit(sys.stdin.buffer.read() if options.edit == Path("-") else options.edit.read_bytes())


def _list(namespace: str | None, *, as_json: bool) -> int:
    waiting = [one for _, one in everything(namespace)]
    if as_json:
        print_json(waiting)
        return OK
    now = datetime.now(UTC)
    rows = [
        (
            f"{one.review_id}@{one.state}",
            one.kind,
            table.since(one.since, now),
            one.sandbox_id,
            table.until(one.lease_expires, now),
            _cut(f"{one.name} {one.code}" if one.kind == "tool" else one.name or one.code, _WHAT),
            _cut(one.intent, _WHY),
        )
        for one in waiting
    ]
    table.show(_COLUMNS, rows, drop=("LEASE", "SANDBOX", "KIND"), none="no request waits")
    return OK


def _cut(text: str, most: int) -> str:
    line = table.plain(" ".join(text.split()))
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _print(review: Review, *, as_json: bool) -> int:
    if as_json:
        print_json(review)
    else:
        print(text_of(review, colours=not table.is_plain(sys.stdout)))
    return OK
