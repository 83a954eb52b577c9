"""JSON Schemas of MCP's tools as parameters, types and checks of Python (pure)."""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Callable, Mapping
from typing import Any

from sandfleet.values.tools import ToolParameter

_TYPES = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "object": "dict",
    "array": "list",
    "null": "None",
}
_MAX_DEPTH = 8
_MAX_ENUM = 8
_MAX_PROBLEMS = 5

Schema = Mapping[str, Any]
Bind = Callable[[Mapping[str, Any]], dict[str, Any]]


def python_name(name: str) -> str:
    """A name that Python code can write: `search-orders` is `search_orders`."""
    plain = re.sub(r"\W", "_", name.lstrip("_")) or "tool"
    plain = plain if plain[0].isalpha() else f"n{plain}"
    return f"{plain}_" if keyword.iskeyword(plain) else plain


def parameters_of(schema: Schema) -> tuple[ToolParameter, ...]:
    """The parameters, those that are required first."""
    required = _required(schema)
    found = [
        ToolParameter(python_name(name), _annotation(each, schema, name in required), _default(each, name in required))
        for name, each in _properties(schema).items()
    ]
    return tuple(sorted(found, key=lambda one: one.default is not None))


def described(doc: str, schema: Schema) -> str:
    """What the tool does, with what the schema says of its parameters."""
    said = [
        f"    {python_name(name)}: {' '.join(str(each['description']).split())}"
        for name, each in _properties(schema).items()
        if isinstance(each, Mapping) and each.get("description")
    ]
    return "\n".join([doc.strip(), "", "Args:", *said]).strip() if said else doc.strip()


def renamed(schema: Schema) -> dict[str, Any]:
    """The schema with the names that Python code writes."""
    shown = {key: value for key, value in schema.items() if key != "title"}
    if "properties" in shown:
        shown["properties"] = {python_name(name): each for name, each in _properties(schema).items()}
    if "required" in shown:
        shown["required"] = [python_name(name) for name in _required(schema)]
    return shown


def binding(schema: Schema) -> Bind:
    """A check of arguments, which gives them their own names. Raises ValueError for a schema that is none."""
    import jsonschema.validators
    import referencing

    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(dict(schema))
    except jsonschema.SchemaError as error:
        raise ValueError(f"its schema is wrong: {error.message}") from None
    # A registry that looks up nothing: a server's schema must not make this process ask other hosts.
    validator = kind(dict(schema), registry=referencing.Registry())
    names = {python_name(name): name for name in _properties(schema)}
    if len(names) != len(_properties(schema)):
        raise ValueError("two of its parameters have the same name in Python")
    optional = _properties(schema).keys() - _required(schema)

    def bind(arguments: Mapping[str, Any]) -> dict[str, Any]:
        given = {names.get(name, name): value for name, value in arguments.items()}
        # None stands for an argument that is left out.
        given = {name: value for name, value in given.items() if value is not None or name not in optional}
        try:
            json.dumps(given)
        except TypeError:
            raise ValueError("an MCP server takes JSON alone, and no bytes") from None
        problems = sorted(validator.iter_errors(given), key=lambda each: list(map(str, each.path)))
        if problems:
            raise ValueError(_problems(problems))
        return given

    return bind


def type_of(schema: Any, root: Schema, depth: int = 0) -> str:
    """The type as Python writes it; "" where the schema says none."""
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return ""
    if isinstance(reference := schema.get("$ref"), str):
        return type_of(_referred(reference, root), root, depth + 1)
    if isinstance(values := schema.get("enum"), list) and 0 < len(values) <= _MAX_ENUM:
        return f"Literal[{', '.join(map(repr, values))}]"
    for key in ("anyOf", "oneOf"):
        if isinstance(choices := schema.get(key), list):
            return _united(type_of(each, root, depth + 1) for each in choices)
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return _united(type_of({**schema, "type": kind}, root, depth + 1) for kind in kinds)
    if kinds == "array" and (inner := type_of(schema.get("items"), root, depth + 1)):
        return f"list[{inner}]"
    return _TYPES.get(kinds, "") if isinstance(kinds, str) else ""


def _united(types: Any) -> str:
    found = list(dict.fromkeys(types))
    return "" if "" in found else " | ".join(found)


def _annotation(schema: Any, root: Schema, required: bool) -> str:
    found = type_of(schema, root)
    bare = not required and isinstance(schema, Mapping) and "default" not in schema
    return f"{found} | None" if found and bare and not found.endswith("None") else found


def _default(schema: Any, required: bool) -> str | None:
    if required:
        return None
    return repr(schema.get("default")) if isinstance(schema, Mapping) else "None"


def _referred(reference: str, root: Schema) -> Any:
    if not reference.startswith("#/"):
        return None
    found: Any = root
    for part in reference[2:].split("/"):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _properties(schema: Schema) -> Mapping[str, Any]:
    found = schema.get("properties")
    return found if isinstance(found, Mapping) else {}


def _required(schema: Schema) -> list[str]:
    found = schema.get("required")
    return [str(name) for name in found] if isinstance(found, list) else []


def _problems(problems: list[Any]) -> str:
    said = [f"{each.json_path.removeprefix('$').lstrip('.')}: {each.message}" for each in problems[:_MAX_PROBLEMS]]
    if more := len(problems) - len(said):
        said.append(f"and {more} more")
    return "; ".join(one.removeprefix(": ") for one in said)
