"""The schemas of the custom resources: walked, filled in as the API server does, and made into objects."""

from collections.abc import Iterator
from pathlib import Path

import yaml

SOURCES = Path(__file__).parents[3] / "charts/sandfleet/files/crds"
CRDS = {
    crd["spec"]["names"]["kind"]: crd
    for crd in (yaml.load(path.read_text(), Loader=yaml.CSafeLoader) for path in sorted(SOURCES.glob("*.yaml")))
}
SCHEMAS = {kind: crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for kind, crd in CRDS.items()}


def nodes(schema: dict, path: str = "") -> Iterator[tuple[str, dict]]:
    """Every schema below, each with its path: `spec.env[].name`."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{name}".lstrip("."))
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from nodes(schema["additionalProperties"], f"{path}{{}}")


def is_leaf(schema: dict) -> bool:
    return not {"properties", "items", "additionalProperties"} & set(schema) and schema.get("type") != "object"


def leaves(kind: str, part: str) -> list[str]:
    return [path for path, schema in nodes(SCHEMAS[kind]) if path.startswith(f"{part}.") and is_leaf(schema)]


def filled(schema: dict, value: object) -> object:
    """The value with the schema's defaults, as the API server stores it."""
    if isinstance(value, list):
        return [filled(schema["items"], one) for one in value]
    if not isinstance(value, dict) or "properties" not in schema:
        return value
    result = dict(value)
    for name, inner in schema["properties"].items():
        if name not in result and "default" in inner:
            result[name] = inner["default"]
        if name in result:
            result[name] = filled(inner, result[name])
    return result


def sample(schema: dict, path: str = "", other: str = "", wrong: object = None) -> object:
    """A value with every field; the leaf at path `other` differs from a sample without, or is `wrong`."""
    if path == other and wrong is not None:
        return wrong
    if "properties" in schema:
        inner = schema["properties"]
        return {name: sample(inner[name], f"{path}.{name}".lstrip("."), other, wrong) for name in inner}
    if "items" in schema:
        return [sample(schema["items"], f"{path}[]", other, wrong)]
    if "additionalProperties" in schema:
        return {"key": sample(schema["additionalProperties"], f"{path}{{}}", other, wrong)}
    return _leaf(schema, path, int(path == other))


def _leaf(schema: dict, path: str, which: int) -> object:
    if "enum" in schema:
        return schema["enum"][which]
    if "x-kubernetes-int-or-string" in schema:
        # Requests below limits, which bound them.
        return f"{which + (1 if 'requests' in path else 3)}{'' if path.endswith('cpu') else 'Gi'}"
    if schema.get("format") == "date-time":
        return f"2026-11-21T10:00:0{which}Z"
    if schema["type"] == "number":
        return schema["minimum"] + (which + 1) / 8
    if schema["type"] == "integer":
        return schema.get("minimum", 0) + which + 1
    return {"boolean": bool(which), "string": "ab"[which]}[schema["type"]]
