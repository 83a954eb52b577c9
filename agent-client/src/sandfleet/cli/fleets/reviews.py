"""`sandfleet reviews ls|show|approve|deny`: what waits for approval in reviewed sandboxes, and the answers."""

from __future__ import annotations

import argparse
import builtins
import io
import json
import keyword
import sys
import tokenize
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sandfleet._fleets import discovery
from sandfleet.cli import FAILED, OK, USAGE, refuse, table, what
from sandfleet.errors import UnavailableError
from sandfleet.values import _show

if TYPE_CHECKING:
    from sandfleet._sync.fleet import Fleet
    from sandfleet.values.reviews import Answer, Review

_COLUMNS = ("REVIEW", "KIND", "WAITS", "SANDBOX", "LEASE", "WHAT", "WHY")
_WHAT, _WHY = 60, 40
# Kinds whose content is coloured: code, and the arguments of a tool.
_CODE = {"cell", "tool"}
_BLUE, _GREEN, _GREY, _RED, _END = "\033[34m", "\033[32m", "\033[90m", "\033[31m", "\033[0m"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("ls", help="list what waits", description="List what waits, the oldest first.")
    showing = actions.add_parser("show", help="show a request in full", description="Show a request in full.")
    approving = actions.add_parser("approve", help="let it run once", description="Let it run once, as it was shown.")
    approving.add_argument(
        "--edit",
        type=Path,
        metavar="FILE",
        help="let the text of this file run in its place; - reads it from standard input",
    )
    denying = actions.add_parser("deny", help="do not let it run", description="Do not let it run.")
    denying.add_argument("--reason", default="", metavar="TEXT", help="why, for the agent")
    for action in (showing, approving, denying):
        action.add_argument("review", metavar="REVIEW", help="as `ls` and `show` print it: ID@STATE")
    for action in (listing, showing, approving, denying):
        action.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Do what the action says."""
    if options.action == "ls":
        return _list(as_json=options.json)
    name, _, state = options.review.partition("@")
    if options.action != "show" and not state.isdecimal():
        why = "it is named as ID@STATE, as `reviews show` prints it, so that an answer is to what was shown"
        refuse(f"cannot answer {options.review!r}: {why}", as_json=options.json)
        return USAGE
    found = _find(name)
    if found is None:
        refuse(f"cannot find review {name!r}: none of this id waits", as_json=options.json)
        return FAILED
    address, review = found
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
    with _fleet(address) as fleet:
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


def _fleet(address: str) -> Fleet:
    from sandfleet._sync.fleet import Fleet

    return Fleet.connect(address)


def _all() -> list[tuple[str, Review]]:
    """What waits in the fleets that can be found, with their addresses."""
    found: list[tuple[str, Review]] = []
    for address in discovery.addresses():
        try:
            with _fleet(address) as fleet:
                found += [(address, one) for one in fleet.reviews.list()]
        except UnavailableError:
            # The fleet of a process that has just ended.
            continue
    return found


def _find(name: str) -> tuple[str, Review] | None:
    for address, one in _all():
        if one.review_id == name:
            with _fleet(address) as fleet:
                return address, fleet.reviews.get(one.sandbox_id, name)
    return None


def _list(*, as_json: bool) -> int:
    waiting = [one for _, one in _all()]
    if as_json:
        print(json.dumps(_show.to_json(waiting)))
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
    table.show(_COLUMNS, rows)
    return OK


def _cut(text: str, most: int) -> str:
    line = table.plain(" ".join(text.split()))
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _print(review: Review, *, as_json: bool) -> int:
    if as_json:
        print(json.dumps(_show.to_json(review)))
        return OK
    now, colours = datetime.now(UTC), not table.is_plain(sys.stdout)
    said = (
        ("review", f"{review.review_id}@{review.state}"),
        ("kind", review.kind),
        ("name", review.name),
        ("context", review.context_id),
        ("asked by", review.holder),
        ("why", review.intent),
        ("approvals", _approvals(review)),
        ("sandbox", f"{review.sandbox_id}, lease ends {table.until(review.lease_expires, now)}"),
        ("settings", review.settings),
        ("hints", "; ".join(review.hints)),
    )
    for name, text in said:
        if text:
            # On one line: what an agent says must not look like a line of this command.
            print(f"{name + ':':<10}{on_one_line(text)}")
    print(f"\n{highlighted(review.code) if colours and review.kind in _CODE else visible(review.code)}")
    if review.edited is not None:
        edited = review.edited.decode("utf-8", "backslashreplace")
        print(f"\nin its place, as {', '.join(map(on_one_line, review.approved_by))} would have it:\n")
        print(highlighted(edited) if colours and review.kind in _CODE else visible(edited))
    if review.diff:
        print(f"\n{_coloured(review.diff) if colours else visible(review.diff)}")
    return OK


def _approvals(review: Review) -> str:
    if review.approvals == 1:
        return ""
    by = f", by {', '.join(review.approved_by)}" if review.approved_by else ""
    return f"{len(review.approved_by)} of {review.approvals}{by}"


def visible(text: str) -> str:
    """Show what a terminal would act on, or hide, as its escape: the text comes from an agent."""
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else letter.encode("unicode_escape").decode()
        for letter in text
    )


def on_one_line(text: str) -> str:
    """The same, with line ends as their escapes too."""
    return visible(text).replace("\n", r"\n")


def highlighted(code: str) -> str:
    """Colour Python's keywords, built-ins, strings and comments; the text itself stays as `visible` shows it."""
    text = visible(code)
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return text
    lines = text.splitlines(keepends=True)
    for token in reversed(tokens):
        colour = _colour(token)
        if colour and token.start[0] == token.end[0]:
            row, (first, last) = token.start[0] - 1, (token.start[1], token.end[1])
            line = lines[row]
            lines[row] = f"{line[:first]}{colour}{line[first:last]}{_END}{line[last:]}"
    return "".join(lines)


def _colour(token: tokenize.TokenInfo) -> str:
    if token.type == tokenize.STRING:
        return _GREEN
    if token.type == tokenize.COMMENT:
        return _GREY
    named = token.type == tokenize.NAME
    return _BLUE if named and (keyword.iskeyword(token.string) or hasattr(builtins, token.string)) else ""


def _coloured(diff: str) -> str:
    colours = {"+": _GREEN, "-": _RED}
    lines = (visible(line) for line in diff.splitlines())
    return "\n".join(f"{colours[line[0]]}{line}{_END}" if line[:1] in colours else line for line in lines)
