#!/usr/bin/env python3
"""Write the chart's values.schema.json and the table in its README.md from values.yaml.

With `--check` nothing is written; the exit code is 1 if a file is out of date. Each value has its description above it,
behind `# --`, on as many lines as it takes. `# @enum A, B` lists the allowed values, `# @schema {…}` adds to the
value's JSON schema. A mapping is a section if a value in it is described; otherwise it is one value.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "charts/sandfleet"
BEGIN = "<!-- Made by scripts/chart.py from values.yaml: change that and run it again. -->"
END = "<!-- The end of what scripts/chart.py makes. -->"
TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}

Json = dict[str, Any]


class ChartError(Exception):
    """values.yaml or README.md cannot be used; the message says where and why."""


@dataclass(frozen=True)
class Comment:
    """What stands directly above a value."""

    description: str
    schema: Json

    @classmethod
    def above(cls, lines: list[str], number: int) -> Comment:
        first = number
        while first and lines[first - 1].lstrip().startswith("#"):
            first -= 1
        words: list[str] = []
        schema: Json = {}
        described = False
        for text in (line.strip().removeprefix("#").strip() for line in lines[first:number]):
            if text.startswith("@enum "):
                schema["enum"] = [word.strip() for word in text.removeprefix("@enum ").split(",")]
            elif text.startswith("@schema "):
                schema |= json.loads(text.removeprefix("@schema "))
            elif text.startswith("-- "):
                described, words = True, [text.removeprefix("-- ")]
            elif described:
                words.append(text)
        return cls(" ".join(words), schema)


@dataclass(frozen=True)
class Value:
    """One value, or with `inner` a section of them."""

    path: str
    default: Any
    comment: Comment
    inner: tuple[Value, ...] = ()

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]


def values(node: yaml.MappingNode, lines: list[str], path: str = "") -> Iterator[Value]:
    """Raises ChartError for a value without a description."""
    for key, content in node.value:
        where = f"{path}.{key.value}".lstrip(".")
        comment = Comment.above(lines, key.start_mark.line)
        inner: tuple[Value, ...] = ()
        if isinstance(content, yaml.MappingNode) and not comment.description and content.value:
            inner = tuple(values(content, lines, where))
        elif not comment.description:
            raise ChartError(f"cannot describe {where}: values.yaml has no line `# -- …` above it")
        yield Value(where, yaml.safe_load(yaml.serialize(content)), comment, inner)


def read_values(text: str) -> tuple[Value, ...]:
    node = yaml.compose(text)
    if not isinstance(node, yaml.MappingNode):
        raise ChartError("cannot read values.yaml: it is no mapping")
    return tuple(values(node, text.splitlines()))


def schema_of(value: Value) -> Json:
    if value.inner:
        return section(value.inner)
    said: Json = {"description": value.comment.description}
    if type(value.default) in TYPES:
        said["type"] = TYPES[type(value.default)]
    return said | value.comment.schema


def section(inner: tuple[Value, ...]) -> Json:
    return {
        "type": "object",
        "properties": {value.name: schema_of(value) for value in inner},
        "additionalProperties": False,
    }


def schema_text(whole: tuple[Value, ...]) -> str:
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of the chart sandfleet"}
    schema |= section(whole)
    # Helm hands it to a chart that is another chart's dependency.
    schema["properties"]["global"] = {"description": "Values of a parent chart; not used.", "type": "object"}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def leaves(whole: tuple[Value, ...]) -> Iterator[Value]:
    for value in whole:
        if value.inner:
            yield from leaves(value.inner)
        else:
            yield value


def type_of(value: Value) -> str:
    said = schema_of(value)["type"]
    return " or ".join(said) if isinstance(said, list) else str(said)


def row(value: Value) -> str:
    choices = f" One of {', '.join(f'`{word}`' for word in value.comment.schema.get('enum', ()))}."
    description = value.comment.description + (choices if "enum" in value.comment.schema else "")
    cells = (f"`{value.path}`", type_of(value), f"`{json.dumps(value.default)}`", description)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def readme_text(before: str, whole: tuple[Value, ...]) -> str:
    head, begin, rest = before.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ChartError("cannot write README.md: the lines that frame its table are missing")
    table = ["| value | type | default | |", "| --- | --- | --- | --- |", *(row(value) for value in leaves(whole))]
    return head + "\n".join([BEGIN, "", *table, "", END]) + tail


def made(chart: Path) -> dict[Path, str]:
    """What the files have to say, by path."""
    whole = read_values((chart / "values.yaml").read_text())
    readme = chart / "README.md"
    return {chart / "values.schema.json": schema_text(whole), readme: readme_text(readme.read_text(), whole)}


def main(arguments: list[str], chart: Path = CHART) -> int:
    try:
        texts = made(chart)
    except ChartError as error:
        print(error, file=sys.stderr)
        return 1
    outdated = {path: text for path, text in texts.items() if not path.exists() or path.read_text() != text}
    for path, text in outdated.items():
        if arguments == ["--check"]:
            print(f"{path.name} of the chart is out of date: run scripts/chart.py", file=sys.stderr)
        else:
            path.write_text(text)
    return 1 if outdated and arguments == ["--check"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
