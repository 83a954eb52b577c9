"""What a recorded session had around it: how to create a fresh sandbox like it, and what is others there."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from sandfleet.journal.notebook import items, mapping, text_of
from sandfleet.journal.records import MAX_NUMBER
from sandfleet.journal.steps import digests
from sandfleet.values.sandbox import Limits

if TYPE_CHECKING:
    from sandfleet.journal.records import Record
    from sandfleet.values.options import CreateOptions

# What a template decides, and what changes how code runs.
_SETTINGS = ("isolation", "network", "contract")
_MAX_MOUNTS, _MAX_CHANGES = 64, 10


def session_settings(records: Sequence[Record], given: Mapping[str, str]) -> CreateOptions:
    """Return the variables, limits and mounts of the recorded sandbox, to create a fresh one of the same template.

    `given` are values of variables of which the record has only digests.
    """
    opened = next((record.body for record in records if record.kind == "opened"), {})
    options: CreateOptions = {"envs": session_envs(records, given)}
    if (limits := _limits(mapping(opened.get("limits")))) != Limits():
        options["limits"] = limits
    if mounts := _mounts(opened):
        options["mounts"] = mounts
    return options


def session_envs(records: Sequence[Record], given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which the recorded sandbox was created, as far as record and `given` have them."""
    opened = next((record.body for record in records if record.kind == "opened"), {})
    # Of those that make two runs alike the record has the values, too.
    told = {str(name): value for name, value in mapping(opened.get("environment")).items() if isinstance(value, str)}
    return fitting({**told, **given}, digests(opened.get("envs")))[0]


def fitting(given: Mapping[str, str], wanted: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the variables whose values have the recorded digests, and the names of those that are missing."""
    envs = {name: value for name, value in given.items() if wanted.get(name) in ("", _digest(value))}
    return envs, sorted(wanted.keys() - envs.keys())


def lacking(wanted: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Return the names of wanted variables that the fresh session has not, or with another value."""
    return sorted(name for name, digest in wanted.items() if name not in found or digest not in ("", found[name]))


def changes(was: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Name the settings of the session that are others now; "" where all are as they were."""
    said = [
        f"{text_of(name)} was {text_of(old) or 'not there'}, and is {text_of(new) or 'not there'}"
        for name, old, new in _pairs(was, now)
        if old != new
    ]
    more = f"; and {len(said) - _MAX_CHANGES} more" if len(said) > _MAX_CHANGES else ""
    return "; ".join(said[:_MAX_CHANGES]) + more


def _pairs(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[object, object, object]]:
    """Each setting, with what it was and what it is."""
    for name in _SETTINGS:
        if name in was:
            yield name, was.get(name), now.get(name)
    for part, word in (("environment", "{}"), ("limits", "limit {}"), ("mounts", "mount {}")):
        before, after = mapping(was.get(part)), mapping(now.get(part))
        for name, value in before.items():
            yield word.format(name), value, after.get(name)
    if isinstance(was.get("packages"), list):
        before_, after_ = (" ".join(map(str, items(one.get("packages")))) for one in (was, now))
        yield "packages of the template", before_, after_


def _limits(said: Mapping[str, Any]) -> Limits:
    """The recorded limits; a value that is no limit is left out."""
    known: dict[str, Any] = {}
    for one in fields(Limits):
        value = said.get(one.name)
        kinds = int if isinstance(one.default, int) else int | float
        if isinstance(value, kinds) and 0 < value <= MAX_NUMBER:
            known[one.name] = value
    return Limits(**known)


def _mounts(opened: Mapping[str, Any]) -> dict[str, str]:
    said = mapping(opened.get("mounts"))
    return {path: folder for path, folder in list(said.items())[:_MAX_MOUNTS] if isinstance(folder, str)}


def _digest(value: str) -> str:
    return hashlib.sha256(value.encode("utf-8", "surrogateescape")).hexdigest()
