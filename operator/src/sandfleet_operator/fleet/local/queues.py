"""The queues of a fleet on one machine: SandboxQueues as kubectl applies them, in a YAML file.

No API server has checked them, so what it would refuse is refused here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import yaml

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.meta import API_VERSION, meta_of, part
from sandfleet_operator.api.kinds.queue import PriorityClass, QueueSpec, Quota, queue_spec
from sandfleet_operator.api.table import as_type, table, unreadable
from sandfleet_operator.api.validate import DNS_LABEL

MAX_BYTES = 1 << 20
KIND = "SandboxQueue"
# What a field may be at least and at most, as the kind's schema says.
BOUNDS: Mapping[str, tuple[int, int]] = {
    "nominalQuota.sandboxes": (0, 100_000),
    "borrowingLimit.sandboxes": (0, 100_000),
    "lendingLimit.sandboxes": (0, 100_000),
    "weight": (1, 1000),
    "ageingSeconds": (1, 86_400),
    "maxWaitSeconds": (1, 3600),
    "maxLength": (0, 100_000),
}
MAX_CLASSES = 16
NAMES = "write at most 63 of a-z, 0-9 and -, with a letter or digit at both ends"


class QueueFileError(Exception):
    """Its message is "cannot X: why"."""


def read_queues(path: Path) -> Mapping[str, QueueSpec]:
    """Name → spec of the file's SandboxQueues. Their namespaces do not count. Raises QueueFileError."""
    found: dict[str, QueueSpec] = {}
    try:
        for name, spec in _queues(_text(path)):
            if name in found:
                raise unreadable("metadata.name", f"two queues are called {name}")
            found[name] = spec
    except OSError as error:
        raise QueueFileError(f"cannot read the queues of {path}: {error.strerror}") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise QueueFileError(f"cannot read the queues of {path}: {' '.join(str(error).split())}") from error
    except FleetError as error:
        why = error.problem.message.removeprefix("cannot read ")
        raise QueueFileError(f"cannot use the queues of {path}: {why}") from error
    if not found:
        raise QueueFileError(f"cannot use the queues of {path}: there is none in it")
    return found


def _text(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        text = file.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise unreadable("the file", f"it is longer than {MAX_BYTES} characters")
    return text


def _queues(text: str) -> Iterator[tuple[str, QueueSpec]]:
    documents = [one for one in yaml.safe_load_all(text) if one is not None]
    for number, document in enumerate(documents, 1):
        where = f"document {number}"
        said = as_type(document, dict, where)
        if (said.get("kind"), said.get("apiVersion")) != (KIND, API_VERSION):
            what = f"{said.get('kind') or 'an object without a kind'} ({said.get('apiVersion') or 'no apiVersion'})"
            raise unreadable(where, f"it is {what}, not {KIND} ({API_VERSION})")
        yield _queue(document, where)


def _queue(document: object, where: str) -> tuple[str, QueueSpec]:
    name = meta_of(document).name
    if not DNS_LABEL.fullmatch(name):
        raise unreadable(f"{where}, metadata.name", NAMES)
    given, where = part(document, "spec"), f"queue {name}, spec"
    spec = queue_spec(given, where)
    _check_words(QueueSpec, given, where)
    if as_type(given, dict, where).get("nominalQuota") is None:
        raise unreadable(f"{where}.nominalQuota", "it is missing")
    _check_bounds(given, where)
    for word in (spec.cohort, *(one.name for one in spec.priority_classes)):
        if word and not DNS_LABEL.fullmatch(word):
            raise unreadable(f"{where}, name {word[:80]!r}", NAMES)
    _check_lending(spec, where)
    return name, spec


def _check_words(kind: Any, given: Any, where: str) -> None:
    """Raises FleetError for a field that the kind does not have: a misspelt quota would be none."""
    columns = {column.at.word: column.type for column in table(kind)}
    for word, inner in given.items():
        path = f"{where}.{word}"
        if word not in columns:
            raise unreadable(path, f"there is no such field, only {', '.join(columns)}")
        if is_dataclass(columns[word]) and inner is not None:
            _check_words(columns[word], inner, path)
        for place, one in enumerate((inner or ()) if word == "priorityClasses" else ()):
            _check_words(PriorityClass, one, f"{path}[{place}]")


def _check_bounds(given: Any, where: str) -> None:
    for word, (least, most) in BOUNDS.items():
        outer, _, inner = word.partition(".")
        value = given.get(outer)
        value = value.get(inner) if inner and value is not None else value
        if value is not None and not least <= value <= most:
            raise unreadable(f"{where}.{word}", f"{value} is not between {least} and {most}")
    if len(given.get("priorityClasses") or ()) > MAX_CLASSES:
        raise unreadable(f"{where}.priorityClasses", f"there are more than {MAX_CLASSES}")


def _check_lending(spec: QueueSpec, where: str) -> None:
    for one in fields(Quota):
        lent, own = getattr(spec.lending, one.name), getattr(spec.nominal, one.name)
        if lent is not None and own is not None and lent > own:
            raise unreadable(f"{where}.lendingLimit.{one.name}", "it is above nominalQuota: more than there is")
