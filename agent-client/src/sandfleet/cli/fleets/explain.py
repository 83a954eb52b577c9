"""`sandfleet explain`: why a claim waits, what stands before it, and what would let it in; or what a reason means."""

from __future__ import annotations

import argparse
import ast
import difflib
import json
from collections.abc import Iterator
from importlib.resources import files
from itertools import pairwise
from typing import Any, NamedTuple

from sandfleet.cli import OK, USAGE, print_json, refuse, sandboxes, table
from sandfleet.cli.create import add_queue_arguments
from sandfleet.cli.fleets import pool
from sandfleet.values.fleet import Explanation, Quota

_GIB = 1 << 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument(
        "sandbox", metavar="ID", nargs="?", help="sandbox whose claim is explained, or a reason: QuotaReached, say"
    )
    parser.add_argument("--request", default="", metavar="ID", help="request id of a claim that waits")
    add_queue_arguments(parser)
    add_claim(parser, priority=False)


def add_claim(parser: argparse.ArgumentParser, *, priority: bool = True) -> None:
    """Declare what a claim is that is not made."""
    if priority:
        parser.add_argument("--priority", default="", metavar="CLASS", help="priority class (default: the last)")
    parser.add_argument("--pool", default="", metavar="POOL", help="pool of a cluster that the claim is for")
    parser.add_argument("--template", default="", metavar="NAME", help="template of the claim's sandbox")
    parser.add_argument("-n", "--namespace", metavar="NS", help="namespace of the claim, on a cluster")
    parser.add_argument("--json", action="store_true", help="print a JSON object")


def claim_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return what the options say of a claim that is not made."""
    return {name: given for name in ("queue", "priority", "pool", "template") if (given := getattr(options, name))}


def run(options: argparse.Namespace) -> int:
    """Explain the claim of a sandbox or of a request, else one that is not made."""
    wish = claim_of(options)
    if bool(options.sandbox) + bool(options.request) + bool(wish) > 1:
        refuse("cannot explain: give either ID, --request, or what a new claim asks for", as_json=options.json)
        return USAGE
    if options.sandbox and (told := _told(options.sandbox)):
        print(json.dumps([one._asdict() for one in told]) if options.json else "\n\n".join(map(str, told)))
        return OK
    if options.sandbox and (near := _like(options.sandbox)):
        refuse(f"{options.sandbox} is no reason; did you mean {' or '.join(near)}?", as_json=options.json)
        return USAGE
    sandbox_id = sandboxes.full_id(options.sandbox, options) if options.sandbox else ""
    with pool.connect(options.namespace) as fleet:
        found = fleet.explain(sandbox_id=sandbox_id, request_id=options.request, **wish)
    return show(found, as_json=options.json)


class Told(NamedTuple):
    """The reference about a reason: it names what has the reason, its meaning, and what to do."""

    reason: str
    about: str
    meaning: str
    remedy: str = ""

    def __str__(self) -> str:
        parts = (f"{self.reason}: {self.meaning}", self.remedy, f"({self.about})")
        return "\n".join(map(table.wrapped, filter(None, parts)))


def _all_told() -> Iterator[Told]:
    """Read the reasons in the docstrings of `sandfleet.values.reasons`."""
    tree = ast.parse(files("sandfleet.values").joinpath("reasons.py").read_text(encoding="utf-8"))
    for kind in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        for member, text in pairwise(kind.body):
            match member, text:
                case ast.Assign(value=ast.Constant(value=str(name))), ast.Expr(value=ast.Constant(value=str(said))):
                    meaning, _, remedy = said.partition("\n\n")
                    yield Told(name, ast.get_docstring(kind) or "", meaning, " ".join(remedy.split()))


def _told(word: str) -> list[Told]:
    """Find what a reason means; nothing where the word is none of them."""
    return [told for told in _all_told() if told.reason.lower() == word.lower()]


def _like(word: str) -> list[str]:
    """Find the reasons that a word in CamelCase may have meant."""
    known = dict.fromkeys(told.reason for told in _all_told())
    return difflib.get_close_matches(word, known, 2) if word.isalpha() and word[:1].isupper() else []


def show(found: Explanation, *, as_json: bool) -> int:
    """Print an explanation."""
    if as_json:
        print_json(found)
        return OK
    print(table.wrapped(f"{found.verdict}: {table.plain(found.message)}"))
    for name, said in _details(found):
        if said:
            print(table.wrapped(f"{name + ':':<10}{table.plain(said)}", 10))
    return OK


def _details(found: Explanation) -> tuple[tuple[str, str], ...]:
    ahead = ", ".join(f"{claims} in {f'queue {name}' if name else 'no queue'}" for name, claims in found.ahead.items())
    return (
        ("reason", found.reason),
        ("queue", found.queue),
        ("position", str(found.position) if found.position else ""),
        ("ahead", ahead),
        ("missing", words(found.missing) if found.missing else ""),
    )


def words(quota: Quota, *, zero: bool = False) -> str:
    """Say an amount as the fleet does: "3 sandboxes, 1.5 CPU"; "" if nothing is in it. `zero`: a part may be 0."""
    one = quota.sandboxes == 1
    parts = (
        (quota.sandboxes, f"{quota.sandboxes} {'sandbox' if one else 'sandboxes'}"),
        (quota.cpu, f"{quota.cpu or 0:g} CPU"),
        (quota.memory, f"{(quota.memory or 0) / _GIB:.4g} GiB of memory"),
    )
    return ", ".join(text for value, text in parts if value or (zero and value == 0))
