"""What waits for reviewers, in all fleets that can be found, and how a request is shown to one."""

from __future__ import annotations

import builtins
import io
import json
import keyword
import os
import re
import tokenize
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sandfleet._fleets import cluster, discovery
from sandfleet.cli import table
from sandfleet.errors import UnavailableError
from sandfleet.values._show import visible

if TYPE_CHECKING:
    from sandfleet._sync.fleet import Fleet
    from sandfleet.values.reviews import Review

# Kinds whose content is coloured: code, and the arguments of a tool.
_CODE = {"cell", "tool"}
_BLUE, _GREEN, _GREY, _RED, _END = "\033[34m", "\033[32m", "\033[90m", "\033[31m", "\033[0m"


@dataclass(frozen=True, slots=True)
class Place:
    """A fleet, and of which of its namespaces; None: its own, "": all."""

    address: str
    namespace: str | None = None

    def connect(self) -> Fleet:
        """Connect to the fleet. Raises UnavailableError."""
        from sandfleet._sync.fleet import Fleet

        return Fleet.connect(self.address, namespace=self.namespace)


def everything(namespace: str | None = None) -> list[tuple[Place, Review]]:
    """What waits in the cluster that the environment or a namespace names, else in all fleets of this machine.

    Raises SandfleetError: a fleet that is named does not answer.
    """
    named = os.environ.get("SANDFLEET_ADDRESS")
    if not named and cluster.is_chosen(asked=namespace is not None):
        return _of(Place(cluster.KUBERNETES, namespace))
    if named:
        return _of(Place(named, namespace))
    found: list[tuple[Place, Review]] = []
    for address in discovery.addresses():
        # One may be the fleet of a process that has just ended.
        with suppress(UnavailableError):
            found += _of(Place(address))
    return found


def _of(place: Place) -> list[tuple[Place, Review]]:
    with place.connect() as fleet:
        return [(place, one) for one in fleet.reviews.list(namespace=place.namespace)]


def find(name: str, namespace: str | None = None) -> tuple[Place, Review] | None:
    """The review of this id in full, with its fleet; "": the oldest. None: it does not wait."""
    for place, one in everything(namespace):
        if name in {"", one.review_id}:
            with place.connect() as fleet:
                return place, fleet.reviews.get(one.sandbox_id, one.review_id)
    return None


def text_of(review: Review, *, colours: bool) -> str:
    """All that a reviewer looks at."""
    now, coloured = datetime.now(UTC), colours and review.kind in _CODE
    said = (
        ("review", f"{review.review_id}@{review.state}"),
        ("kind", review.kind),
        ("name", review.name),
        ("context", review.context_id),
        ("asked by", review.holder),
        ("why", review.intent),
        ("approvals", _approvals(review)),
        ("sandbox", f"{review.sandbox_id}, lease ends {table.until(review.lease_expires, now)}"),
        ("settings", in_words(review.settings)),
        ("hints", "; ".join(review.hints)),
    )
    # On one line: what an agent says must not look like a line of this command.
    parts = ["\n".join(f"{name + ':':<10}{on_one_line(text)}" for name, text in said if text)]
    parts.append(highlighted(review.code) if coloured else visible(review.code))
    if review.edited is not None:
        edited = review.edited.decode("utf-8", "backslashreplace")
        parts.append(f"in its place, as {', '.join(map(on_one_line, review.approved_by))} would have it:")
        parts.append(highlighted(edited) if coloured else visible(edited))
    if review.diff:
        parts.append(_coloured(review.diff) if colours else visible(review.diff))
    return "\n\n".join(parts)


def in_words(settings: str) -> str:
    """Say the settings of a request in words; what they do not say is as always."""
    try:
        said = json.loads(settings)
    except ValueError:
        return settings
    if not isinstance(said, dict):
        return settings
    return "; ".join(
        f"{_words(name)}{_value(_without(name, value))}"
        for name, value in said.items()
        if value not in ("", [], {}, None, False)
    )


def _words(name: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", r" \1", name).replace("_", " ").lower()


def _without(name: str, value: object) -> object:
    """Leave out of a word of the API the name that it begins with: onFailure ON_FAILURE_KEEP is "keep"."""
    begin = f"{_words(name).replace(' ', '_').upper()}_"
    return value.removeprefix(begin).lower() if isinstance(value, str) and value.startswith(begin) else value


def _value(value: object) -> str:
    if value is True:
        return ""
    if isinstance(value, dict):
        return f" {', '.join(f'{name}={_word(each)}' for name, each in value.items())}"
    return f" {', '.join(map(_word, value))}" if isinstance(value, list) else f" {_word(value)}"


def _word(value: object) -> str:
    # Quoted where it could be taken for more than one setting.
    return value if isinstance(value, str) and re.fullmatch(r"[\w./:@%+-]+", value) else json.dumps(value)


def _approvals(review: Review) -> str:
    if review.approvals == 1:
        return ""
    by = f", by {', '.join(review.approved_by)}" if review.approved_by else ""
    return f"{len(review.approved_by)} of {review.approvals}{by}"


def on_one_line(text: str) -> str:
    """Show a text with line ends as their escapes too."""
    return visible(text, kept="\t")


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
