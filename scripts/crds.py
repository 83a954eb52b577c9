#!/usr/bin/env python3
"""Write what CodeSandbox repeats of SandboxTemplate from its schema. `--check`: exit with 1 where it is out of date.

These are the fields of `spec.inline`, and those of `spec.executionLimits`, which have no defaults there.

A comment behind a field of SandboxTemplate says what happens to it: `# inline: no` leaves it out, `# inline: open`
leaves out its default and the defaults below it. Every other field is copied as it is.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
CRDS = ROOT / "charts/sandfleet/files/crds"
BEGIN = "# Made by scripts/crds.py from SandboxTemplate's {part}: change that and run it again.\n"
END = "# The end of what scripts/crds.py makes.\n"
MARK = re.compile(r"#\s*inline:\s*(no|open)\s*$")
WIDTH = 118

Json = dict[str, Any]


class _Dumper(yaml.SafeDumper):
    """Writes each value out instead of referring to an equal one."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the base class's
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002 - the base class's
        super().increase_indent(flow, indentless=False)


def _entry(node: yaml.Node, key: str) -> yaml.Node:
    if isinstance(node, yaml.SequenceNode):
        return node.value[int(key)]  # type: ignore[no-any-return]
    return next(value for name, value in node.value if name.value == key)


def _marks(properties: yaml.Node, lines: list[str], path: str = "") -> Iterator[tuple[str, str]]:
    """The path of each field that has a mark, and the mark."""
    for key, schema in properties.value:
        where = f"{path}.{key.value}".lstrip(".")
        if found := MARK.search(lines[key.start_mark.line]):
            yield where, found[1]
        for name, inner in schema.value if isinstance(schema, yaml.MappingNode) else ():
            if name.value == "properties":
                yield from _marks(inner, lines, where)


def _without_defaults(schema: Json) -> Json:
    inner = {name: _without_defaults(one) for name, one in schema.get("properties", {}).items()}
    kept = {key: value for key, value in schema.items() if key != "default"}
    return kept | ({"properties": inner} if inner else {})


def _taken_over(properties: Json, marks: dict[str, str], path: str = "") -> Json:
    made: Json = {}
    for name, schema in properties.items():
        where = f"{path}.{name}".lstrip(".")
        mark = marks.get(where)
        if mark == "no":
            continue
        if mark == "open":
            made[name] = _without_defaults(schema)
        elif "properties" in schema:
            made[name] = schema | {"properties": _taken_over(schema["properties"], marks, where)}
        else:
            made[name] = schema
    return made


def repeated(text: str) -> dict[str, Json]:
    """The properties by the part of SandboxTemplate that they come from; `text` is its source."""
    path = ("spec", "versions", "0", "schema", "openAPIV3Schema", "properties", "spec", "properties")
    node, schema = yaml.compose(text), yaml.safe_load(text)
    for key in path:
        node, schema = _entry(node, key), schema[int(key) if isinstance(schema, list) else key]
    inline = _taken_over(schema, dict(_marks(node, text.splitlines())))
    return {"spec": inline, "spec.executionLimits": inline["executionLimits"]["properties"]}


def framed(text: str, part: str, properties: Json) -> str:
    """The source of CodeSandbox with these properties between the lines that frame them."""
    head, begin, rest = text.partition(BEGIN.format(part=part))
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"cannot write codesandboxes.yaml: the lines that frame the template's {part} are missing")
    indent = " " * (len(head) - len(head.rstrip(" ")))
    made = yaml.dump({"properties": properties}, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=WIDTH)
    return head + begin + "".join(f"{indent}{line}\n" for line in made.splitlines()) + indent + end + tail


def main() -> int:
    target = CRDS / "codesandboxes.yaml"
    before = target.read_text()
    text = before
    for part, properties in repeated((CRDS / "sandboxtemplates.yaml").read_text()).items():
        text = framed(text, part, properties)
    if text == before:
        return 0
    if sys.argv[1:] == ["--check"]:
        print("codesandboxes.yaml is out of date: run scripts/crds.py", file=sys.stderr)
        return 1
    target.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
