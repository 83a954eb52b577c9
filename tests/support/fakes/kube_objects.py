"""What the API server does to objects, as functions of values: patches, server-side apply, selectors."""

import re
from collections.abc import Callable, Mapping
from typing import Any

Json = dict[str, Any]

# Lists that are merged by a key of their items, or as sets; every other one is replaced as a whole.
KEYED = {
    "conditions": "type",
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "ownerReferences": "uid",
}
SETS = {"finalizers"}
# Maps that are replaced as a whole.
ATOMIC = {"podSelector", "namespaceSelector", "selector"}


def copied(value: Any) -> Any:
    """A copy of JSON, several times faster than deepcopy."""
    if isinstance(value, dict):
        return {key: copied(inner) for key, inner in value.items()}
    return [copied(inner) for inner in value] if isinstance(value, list) else value


class PatchError(Exception):
    """What a JSON patch asks for cannot be done, or one of its tests failed."""


def json_patch(obj: Json, operations: list[Json]) -> Json:
    """RFC 6902 without move and copy."""
    new = copied(obj)
    for operation in operations:
        *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        where: Any = new
        for part in parents:
            where = _child(where, part)
        _operate(operation["op"], where, last, copied(operation.get("value")))
    return new


def _child(where: Any, part: str) -> Any:
    try:
        return where[int(part)] if isinstance(where, list) else where[part]
    except (KeyError, IndexError, ValueError, TypeError):
        raise PatchError(f"no such path: {part}") from None


def _operate(op: str, where: Any, last: str, value: Any) -> None:
    if op == "add" and isinstance(where, list):
        where.insert(len(where) if last == "-" else int(last), value)
    elif op == "add":
        where[last] = value
    elif op == "test":
        found = where.get(last) if isinstance(where, dict) else _child(where, last)
        if found != value:
            raise PatchError(f"testing value {last} failed")
    elif op in {"remove", "replace"}:
        _child(where, last)
        key = int(last) if isinstance(where, list) else last
        if op == "remove":
            del where[key]
        else:
            where[key] = value
    else:
        raise NotImplementedError(op)


def merge_patch(old: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, Mapping):
        return copied(patch)
    new = dict(old) if isinstance(old, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        else:
            new[key] = merge_patch(new.get(key), value)
    return new


def overlay(old: Any, config: Any, name: str = "") -> Any:
    """The old value with the configuration's fields."""
    if isinstance(old, Mapping) and isinstance(config, Mapping) and name not in ATOMIC:
        return {**old, **{key: overlay(old.get(key), value, key) for key, value in config.items()}}
    if isinstance(old, list) and isinstance(config, list):
        if name in SETS:
            return old + [item for item in config if item not in old]
        if key := KEYED.get(name):
            merged = {item[key]: item for item in old}
            for item in config:
                merged[item[key]] = overlay(merged.get(item[key]), item)
            return list(merged.values())
    return copied(config)


def prune(old: Any, before: Any, config: Any, name: str = "") -> Any:
    """The old value without what the configuration had before and has no more; None: nothing is left."""
    if isinstance(old, Mapping) and isinstance(before, Mapping) and name not in ATOMIC:
        return _prune_fields(old, before, config if isinstance(config, Mapping) else {}) or (
            None if config is None else {}
        )
    key = KEYED.get(name)
    if isinstance(old, list) and isinstance(before, list) and isinstance(config or [], list) and (key or name in SETS):
        had, has = ({item[key] if key else item: item for item in items} for items in (before, config or []))
        left = []
        for item in old:
            ident = item[key] if key else item
            if ident not in had:
                left.append(item)
            elif ident in has:
                left.append(prune(item, had[ident], has[ident]) if key else item)
        return left or (None if config is None else [])
    return None if config is None else old


def _prune_fields(old: Mapping[str, Any], before: Mapping[str, Any], config: Mapping[str, Any]) -> Json:
    pruned = {
        key: prune(value, before[key], config.get(key), key) if key in before else value for key, value in old.items()
    }
    return {key: value for key, value in pruned.items() if value is not None}


def selects(selector: str) -> Callable[[Mapping[str, str]], bool]:
    """Over labels; equality and set based terms."""
    terms = [_term(text.strip()) for text in re.split(r",(?![^()]*\))", selector) if text.strip()]
    return lambda labels: all(term(labels) for term in terms)


def _term(text: str) -> Callable[[Mapping[str, str]], bool]:
    if match := re.fullmatch(r"(\S+)\s+(in|notin)\s+\(([^)]*)\)", text):
        values = {value.strip() for value in match[3].split(",")}
        return lambda labels: (labels.get(match[1]) in values) == (match[2] == "in")
    if match := re.fullmatch(r"([^=!\s]+)\s*(==|=|!=)\s*([^=!\s]*)", text):
        return lambda labels: (labels.get(match[1]) == match[3]) == (match[2] != "!=")
    return (lambda labels: text[1:] not in labels) if text.startswith("!") else (lambda labels: text in labels)


def selects_fields(selector: str) -> Callable[[Json], bool]:
    """Equality terms over paths: `spec.nodeName=a,status.phase!=Running`."""
    terms = [re.fullmatch(r"([\w.]+?)(==|=|!=)(.*)", text) for text in selector.split(",") if text]

    def field(obj: Any, dotted: str) -> Any:
        for part in dotted.split("."):
            obj = (obj or {}).get(part)
        return obj or ""

    return lambda obj: all((field(obj, term[1]) == term[3]) == (term[2] != "!=") for term in terms if term)
