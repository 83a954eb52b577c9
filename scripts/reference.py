#!/usr/bin/env python3
"""Write crds, conditions, reasons, audit and languages.md of docs/reference, and the client's values/reasons.py.

Their sources are the CRDs, the operator's api/conditions.py, api/reasons.py and plan/audit.py, and the executor's
worker/languages.py.
With `--check` nothing is written; the exit code is 1 if a file is out of date.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from sandfleet_executor.worker.languages import KERNEL, LANGUAGES, TOPICS, declared
from sandfleet_operator.api.conditions import ConditionType, GrantReason, PoolReason, Reason, SavedReason, ServiceReason
from sandfleet_operator.api.errors import CallReason
from sandfleet_operator.api.reasons import (
    AdmissionReason,
    ClaimReason,
    EndReason,
    GatewayReason,
    QueueReason,
    SuspendReason,
)
from sandfleet_operator.plan.audit import FIELDS, Decision, Verdict
from sandfleet_operator.plan.reviews.reasons import ReviewReason
from sandfleet_operator.plan.snapshots.reasons import SnapshotReason

ROOT = Path(__file__).resolve().parents[1]
CRDS = ROOT / "charts/sandfleet/files/crds"
NOTE = "<!-- Made by scripts/reference.py: change its sources and run it again. -->"
KINDS = ("codesandboxes", "sandboxtemplates", "sandboxpools", "sandboxqueues", "sandboxsnapshots")

Json = dict[str, Any]

COLUMNS = 120
INLINE = "spec.inline"


def crds() -> list[Json]:
    return [yaml.safe_load((CRDS / f"{name}.yaml").read_text()) for name in KINDS]


def cell(text: object) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")


def paragraph(text: str) -> str:
    return "\n".join(textwrap.wrap(text, COLUMNS, break_long_words=False, break_on_hyphens=False))


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    lines = [head, tuple("---" for _ in head), *rows]
    return ["| " + " | ".join(cell(text) for text in line) + " |" for line in lines] + [""]


def named(schema: Json, *path: str) -> set[str]:
    for name in path:
        schema = schema["properties"][name]
    return set(schema["properties"])


def fields(schema: Json, path: str) -> Iterator[tuple[str, Json, bool]]:
    """Each field below, with its path, its schema and whether it is required."""
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
    """The bounds of a field; for a list those of its entries and of their number."""
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
    return [
        f"### {part}",
        "",
        paragraph(inner["description"]),
        "",
        *table(("field", "type", "bounds", "default", ""), rows),
    ]


def of_inline(schema: Json) -> list[str]:
    """The note on inline templates, whose fields the page lists only once."""
    if "inline" not in schema["properties"]["spec"]["properties"]:
        return []
    template = next(crd for crd in crds() if crd["spec"]["names"]["kind"] == "SandboxTemplate")
    whole = template["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    missing = ", ".join(f"`{name}`" for name in sorted(named(whole, "spec") - named(schema, "spec", "inline")))
    return [paragraph(f"`{INLINE}` has the fields of SandboxTemplate's `spec` but {missing}, and the same rules."), ""]


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
        paragraph(schema["description"]),
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
        "All kinds are namespaced and belong to `sandfleet.io/v1alpha1`. `kubectl get sandfleet` lists the objects of every",
        "kind; `kubectl explain csb.spec` shows the texts of this page. Quantities are Kubernetes': `500m`, `1.5`, `2Gi`.",
        "Names are DNS labels. The schema refuses values outside their bounds and unknown words; the rules that it checks",
        "beyond that are listed under each kind.",
        "",
    ]
    for crd in crds():
        lines += of_kind(crd)
    return "\n".join(lines).rstrip() + "\n"


def conditions_page() -> str:
    types = [(f"`{one.value}`", one.meaning) for one in ConditionType]
    reasons, of_pools, of_queues, of_snapshots, of_services = (
        [(f"`{one.value}`", one.meaning, one.remedy) for one in words]
        for words in (Reason, PoolReason, GrantReason, SavedReason, ServiceReason)
    )
    lines = [
        "# Conditions and reasons",
        "",
        NOTE,
        "",
        "`kubectl get csb` shows the reason of `Ready`; `kubectl describe csb NAME` shows all conditions with their messages.",
        "While `Ready` is not `True`, it repeats the reason of the condition that prevents it. To wait for a condition, use",
        "`kubectl wait --for=condition=Ready csb/NAME`.",
        "",
        *table(("condition", "when it is True"), types),
        "## Reasons",
        "",
        "A reason is one word for programs; the condition's message has the details. `status.restartHistory` uses the same words.",
        "",
        *table(("reason", "what it means", "what to do"), reasons),
        "## Services",
        "",
        "`status.services` shows the state of each service that the template declares. Events with these reasons report when",
        "a service is in trouble and when it has recovered. [howto/services.md](../howto/services.md#in-the-status) lists the",
        "states. Services change no condition.",
        "",
        *table(("reason", "what it means", "what to do"), of_services),
        "## Pools",
        "",
        "`kubectl get sbp` shows the reason of a pool's only condition, `Ready`, which is `True` while the pool has its",
        "target number of warm sandboxes. [howto/runbook.md](../howto/runbook.md) says how to examine each reason.",
        "",
        *table(("reason", "what it means", "what to do"), of_pools),
        "## Queues",
        "",
        "`kubectl get sbq` shows the reason of a queue's only condition, `Active`, which is `True` while the queue admits what",
        "its quota permits.",
        "",
        *table(("reason", "what it means", "what to do"), of_queues),
        "## Snapshots",
        "",
        "`kubectl get sbs` shows the reason of a snapshot's only condition, `Saved`, which is `True` while the snapshot is in",
        "the store.",
        "",
        *table(("reason", "what it means", "what to do"), of_snapshots),
    ]
    return "\n".join(lines).rstrip() + "\n"


def of_calls(reasons: type[CallReason]) -> list[str]:
    rows = [
        (f"`{one.value}`", f"`{one.code.value}`", "yes" if one.retryable else "no", one.meaning, one.remedy)
        for one in reasons
    ]
    return table(("reason", "code", "retry", "what it means", "what to do"), rows)


def reasons_page() -> str:
    failures, of_queues, of_suspensions, of_snapshots, of_reviews, of_gateway = map(
        of_calls, (ClaimReason, AdmissionReason, SuspendReason, SnapshotReason, ReviewReason, GatewayReason)
    )
    waits = [(f"`{one.value}`", one.meaning, one.remedy) for one in QueueReason]
    ends = [(f"`{one.value}`", one.meaning) for one in EndReason]
    lines = [
        "# Reasons of the fleet",
        "",
        NOTE,
        "",
        "A reason is one word for programs; the message beside it has the details. In Python they are the enums of",
        "`sandfleet.values.reasons`.",
        "",
        "## Why a call fails",
        "",
        "A failed call carries its reason in `sandfleet_api.executor.v1.ErrorDetail` (the metadata `sandfleet-error-bin`),",
        "together with `retryable`, which decides where it differs from this table. A sandbox that cannot be opened has the",
        "reason of its condition instead, see [conditions.md](conditions.md).",
        "",
        *failures,
        "## Why a queue does not take a claim",
        "",
        "Where the answer says when to come back (`ErrorDetail.retry_after`), an earlier attempt has no chance.",
        "",
        *of_queues,
        "## Why a session is not suspended",
        "",
        "`ExecutionRunning`, `PackagesInstalling` and `ConnectionOpen` pass by themselves: their answers say `retryable`.",
        "",
        *of_suspensions,
        "## Why a snapshot is not taken, restored or moved",
        "",
        *of_snapshots,
        "## Why a review is not listed or answered",
        "",
        "([howto/reviews.md](../howto/reviews.md))",
        "",
        *of_reviews,
        "## Why the gateway refuses or ends a connection",
        "",
        "It also repeats the fleet's reasons above, and says `ExecutorUnreachable` itself",
        "([howto/laptop.md](../howto/laptop.md)).",
        "",
        *of_gateway,
        "## Why a claim waits",
        "",
        "`Queued.reason` is one of these, or the reason of the pool's condition ([conditions.md](conditions.md#pools)).",
        "",
        *table(("reason", "what it means", "what to do"), waits),
        "## Why a sandbox ended, or its executor was replaced",
        "",
        "The message of `ClaimEnded` and `SandboxNotFound` names it, and `Sandbox.last_restart_reason` on one machine.",
        "",
        *table(("reason", "what it means"), ends),
    ]
    return "\n".join(lines).rstrip() + "\n"


def audit_page() -> str:
    decisions = [(f"`{one.value}`", one.meaning, ", ".join(f"`{name}`" for name in one.details)) for one in Decision]
    lines = [
        "# Audit records",
        "",
        NOTE,
        "",
        paragraph(
            "The control plane writes one record for each of its decisions: who asked for what, what was decided, and "
            "why. [howto/observe.md](../howto/observe.md#audit-log) says how to switch the records on and how to read them. A record "
            "has names, numbers and the words of these pages; it never has code, files, environment variables, "
            "messages or tokens."
        ),
        "",
        paragraph(
            "As a JSON line a record has these fields. As an OTLP log its body is that line; its event name is "
            "`sandfleet.audit.DECISION`, its attributes are `sandfleet.audit.FIELD`, `sandfleet.audit.detail.NAME`, "
            "`user.name` and `user.id`."
        ),
        "",
        *table(("field", ""), [(f"`{name}`", text) for name, text in FIELDS.items()]),
        "## Decisions",
        "",
        *table(("decision", "what it means", "details"), decisions),
        "## Verdicts",
        "",
        *table(("verdict", "what it means"), [(f"`{one.value}`", one.meaning) for one in Verdict]),
        "## What has no record",
        "",
        paragraph(
            "Calls that only show what the caller may see (`List`, `Watch`, `Explain`, …), and `Get` without "
            "access. What runs in a sandbox is in its journal, and objects that people write with "
            "kubectl are in the API server's own audit log."
        ),
    ]
    return "\n".join(lines).rstrip() + "\n"


def client_reasons() -> str:
    lines = [
        '"""Why calls of the fleet fail, why claims wait, and why sandboxes end.',
        "",
        "Made by scripts/reference.py from the operator's api/reasons.py: change that file and run the script again.",
        '"""',
        "",
        "from enum import StrEnum",
    ]
    kinds = (
        (ClaimReason, "Why a call of the fleet fails: the reason of a SandfleetError."),
        (AdmissionReason, "Why a queue does not take a claim: the reason of a SandfleetError."),
        (SuspendReason, "Why a session is not suspended: the reason of a SandfleetError."),
        (SnapshotReason, "Why a snapshot is not taken, restored or moved: the reason of a SandfleetError."),
        (ReviewReason, "Why a review is not listed or answered: the reason of a SandfleetError."),
        (GatewayReason, "Why the gateway refuses or ends a connection, beside what the fleet says."),
        (QueueReason, "Why a claim waits: the reason of a Queued, beside the reasons of its pool."),
        (EndReason, "Why a sandbox ended, or its executor was replaced."),
    )
    for kind, about in kinds:
        lines += ["", "", f"class {kind.__name__}(StrEnum):", f'    """{about}"""', ""]
        for one in kind:
            lines += [f'    {one.name} = "{one.value}"', *documented(one.meaning, one.remedy)]
    return "\n".join(lines) + "\n"


def documented(meaning: str, remedy: str) -> list[str]:
    """A docstring of what a reason means, and of what to do."""
    if not remedy:
        return [f'    """{meaning}"""']
    return [
        f'    """{meaning}',
        "",
        *textwrap.wrap(remedy, 116, initial_indent="    ", subsequent_indent="    "),
        '    """',
    ]


def languages_page() -> str:
    shown = {**LANGUAGES, f"{KERNEL}…": declared(f"{KERNEL}any")}
    rows = [
        (words, *(f"no: {each.differs[topic]}" if topic in each.differs else "yes" for each in shown.values()))
        for topic, words in TOPICS.items()
    ]
    lines = [
        "# What contexts of each language have",
        "",
        NOTE,
        "",
        *table(("", *shown), rows),
        paragraph(
            "One suite of tests (tests/contract/executor/test_languages.py) holds the contexts of all languages to the"
            " same sentences; what a language has no words for is skipped there with its reason. Jupyter kernels (`jupyter-ir` is R's) have"
            " a suite of their own (test_jupyter_kernels.py)."
        ),
    ]
    return "\n".join(lines) + "\n"


PAGES = {
    "docs/reference/languages.md": languages_page,
    "docs/reference/crds.md": crds_page,
    "docs/reference/conditions.md": conditions_page,
    "docs/reference/reasons.md": reasons_page,
    "docs/reference/audit.md": audit_page,
    "agent-client/src/sandfleet/values/reasons.py": client_reasons,
}


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
