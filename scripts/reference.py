#!/usr/bin/env python3
"""Write docs/reference/crds.md and conditions.md from what they speak of. `--check`: exit with 1 where they are out of date."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from sandfleet_operator.api.conditions import ConditionType, PoolReason, Reason, ServiceReason

ROOT = Path(__file__).resolve().parents[1]
CRDS = ROOT / "charts/sandfleet/files/crds"
NOTE = "<!-- Made by scripts/reference.py: change its sources and run it again. -->"
KINDS = ("codesandboxes", "sandboxtemplates", "sandboxpools", "sandboxqueues")

Json = dict[str, Any]


INLINE = "spec.inline"


def crds() -> list[Json]:
    return [yaml.safe_load((CRDS / f"{name}.yaml").read_text()) for name in KINDS]


def cell(text: object) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    lines = [head, tuple("---" for _ in head), *rows]
    return ["| " + " | ".join(cell(text) for text in line) + " |" for line in lines] + [""]


def named(schema: Json, *path: str) -> set[str]:
    for name in path:
        schema = schema["properties"][name]
    return set(schema["properties"])


def fields(schema: Json, path: str) -> Iterator[tuple[str, Json, bool]]:
    """Each field below, with its path, its schema and whether it has to be there."""
    required = schema.get("required", ())
    for name, inner in schema.get("properties", {}).items():
        yield f"{path}.{name}", inner, name in required
        yield from fields(inner, f"{path}.{name}")
        yield from fields(inner.get("items", {}), f"{path}.{name}[]")


def kind_of(schema: Json) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "quantity"
    if "additionalProperties" in schema:
        return f"map of {kind_of(schema['additionalProperties'])}s"
    if schema["type"] == "array":
        return f"list of {kind_of(schema['items'])}s"
    return str(schema.get("format") if schema.get("format") == "date-time" else schema["type"])


def bounds(schema: Json) -> str:
    """Of the field, or of a list's entries and their number."""
    said = []
    entries = schema.get("items", {})
    if enum := schema.get("enum") or entries.get("enum"):
        said.append(", ".join(f"`{word}`" for word in enum))
    elif "maxLength" in schema and schema.get("type") == "string":
        said.append(f"≤ {schema['maxLength']} characters")
    if "minimum" in schema:
        most = f"{'below ' if schema.get('exclusiveMaximum') else ''}{schema.get('maximum')}"
        said.append(f"{schema['minimum']} to {most}" if "maximum" in schema else f"≥ {schema['minimum']}")
    if "maxItems" in schema or "maxProperties" in schema:
        said.append(f"≤ {schema.get('maxItems') or schema.get('maxProperties')} entries")
    return "; ".join(said)


def default_of(schema: Json, *, needed: bool) -> str:
    value = schema.get("default")
    if needed:
        return "required"
    if value in (None, {}, ""):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`".replace("'", "")


def rules(schema: Json, path: str) -> Iterator[tuple[str, str]]:
    for rule in schema.get("x-kubernetes-validations", ()):
        yield f"{path}{rule.get('fieldPath', '')}", rule["message"]
    for name, inner in schema.get("properties", {}).items():
        yield from rules(inner, f"{path}.{name}".lstrip("."))
    if "items" in schema:
        yield from rules(schema["items"], f"{path}[]")


def of_part(schema: Json, part: str) -> list[str]:
    inner = schema["properties"].get(part)
    if inner is None:
        return []
    rows = [
        (f"`{path}`", kind_of(one), bounds(one), default_of(one, needed=needed), one["description"])
        for path, one, needed in fields(inner, part)
        if not path.startswith(f"{INLINE}.")
    ]
    return [f"### {part}", "", inner["description"], "", *table(("field", "type", "bounds", "default", ""), rows)]


def of_inline(schema: Json) -> list[str]:
    """The template in place is not said twice."""
    if "inline" not in schema["properties"]["spec"]["properties"]:
        return []
    template = next(crd for crd in crds() if crd["spec"]["names"]["kind"] == "SandboxTemplate")
    whole = template["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    missing = ", ".join(f"`{name}`" for name in sorted(named(whole, "spec") - named(schema, "spec", "inline")))
    return [f"`{INLINE}` has the fields of SandboxTemplate's `spec` but {missing}, and the same rules.", ""]


def of_kind(crd: Json) -> list[str]:
    names, version = crd["spec"]["names"], crd["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    columns = [
        (one["name"].upper(), "yes" if one.get("priority") else "", one["description"])
        for one in version["additionalPrinterColumns"]
    ]
    refusals = [(f"`{path}`", text) for path, text in rules(schema, "") if not path.startswith(f"{INLINE}.")]
    return [
        f"## {names['kind']}",
        "",
        schema["description"],
        "",
        f"`kubectl get {names['shortNames'][0]}` shows:",
        "",
        *table(("column", "only with `-o wide`", ""), columns),
        *of_part(schema, "spec"),
        *of_inline(schema),
        *of_part(schema, "status"),
        "### What the API server refuses",
        "",
        *table(("field", "it says"), refusals),
    ]


def crds_page() -> str:
    lines = [
        "# The custom resources",
        "",
        NOTE,
        "",
        "`sandfleet.io/v1alpha1`, all of them namespaced; `kubectl get sandfleet` lists every kind, `kubectl explain csb.spec` says what stands here.",
        "Quantities are Kubernetes': `500m`, `1.5`, `2Gi`. Beside what is listed under each kind, names are DNS labels, and bounds and unknown words are",
        "refused by the schema.",
        "",
    ]
    for crd in crds():
        lines += of_kind(crd)
    return "\n".join(lines).rstrip() + "\n"


def conditions_page() -> str:
    types = [(f"`{one.value}`", one.meaning) for one in ConditionType]
    reasons, of_pools, of_services = (
        [(f"`{one.value}`", one.meaning, one.remedy) for one in words] for words in (Reason, PoolReason, ServiceReason)
    )
    lines = [
        "# Conditions and reasons",
        "",
        NOTE,
        "",
        "`kubectl get csb` shows the reason of `Ready`; `kubectl describe csb NAME` shows all conditions with their messages. `Ready` repeats the reason of",
        "what keeps it from being `True`. Wait for one with `kubectl wait --for=condition=Ready csb/NAME`.",
        "",
        *table(("condition", "when it is True"), types),
        "## Reasons",
        "",
        "A reason is one word for programs; the condition's message says the particulars. `status.restartHistory` uses the same words.",
        "",
        *table(("reason", "what it means", "what to do"), reasons),
        "## Services",
        "",
        "How the services are that a template declares stands in `status.services`; Events with these reasons tell when one is in trouble, and when it is",
        "ready again. [howto/services.md](../howto/services.md#in-the-status) has the states. Services change no condition.",
        "",
        *table(("reason", "what it means", "what to do"), of_services),
        "## Pools",
        "",
        "`kubectl get sbp` shows the reason of a pool's one condition, `Ready`: as many sandboxes are warm as are to be.",
        "[howto/runbook.md](../howto/runbook.md) says how to look into each.",
        "",
        *table(("reason", "what it means", "what to do"), of_pools),
    ]
    return "\n".join(lines).rstrip() + "\n"


PAGES = {"docs/reference/crds.md": crds_page, "docs/reference/conditions.md": conditions_page}


def main() -> int:
    check = sys.argv[1:] == ["--check"]
    outdated = 0
    for name, page in PAGES.items():
        path, text = ROOT / name, page()
        if path.exists() and path.read_text() == text:
            continue
        if check:
            print(f"{name} is out of date: run scripts/reference.py", file=sys.stderr)
            outdated += 1
        else:
            path.write_text(text)
    return min(outdated, 1)


if __name__ == "__main__":
    sys.exit(main())
