"""The manifests and values in README and docs are what the API server and Helm take."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from chart.helm_chart import run
from support.operator.crd_schemas import SCHEMAS, filled
from support.operator.crd_strategies import refusals
from support.pages import Block, blocks, blocks_of, pages

BLOCKS = [block for page in pages() for block in blocks_of(page) if block.language == "yaml"]
# Kinds of others that the pages show.
FOREIGN = ("HorizontalPodAutoscaler",)


def faults(block: Block, folder: Path) -> list[str]:
    if block.kind == "values":
        (folder / "values.yaml").write_text(block.text)
        done = run("--values", str(folder / "values.yaml"))
        return [done.stderr] if done.returncode else []
    found = []
    for one in yaml.safe_load_all(block.text):
        kind = block.kind or one.get("kind", "")
        if kind in SCHEMAS:
            spec = filled(SCHEMAS[kind]["properties"]["spec"], one["spec"])
            # A part may leave out what the page has shown before.
            found += [said for said in refusals(kind, spec) if not (block.kind and said.endswith("Required value"))]
        elif kind not in FOREIGN:
            found.append(f"of which kind is it? {sorted(one)}")
    return found


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_the_api_server_and_helm_take_what_a_page_shows(block: Block, tmp_path: Path) -> None:
    assert faults(block, tmp_path) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("spec: {image: a}", "of which kind is it? ['spec']"),
        ("kind: SandboxPool\nspec: {templateRef: {name: a}, size: 1}", "unknown field 'size'"),
        ("kind: SandboxPool\nspec: {templateRef: {name: a}, replicas: 2, maxSize: 1}", "maxSize"),
        ("kind: SandboxTemplate\nspec: {rollback: {maxMemory: -1Gi}}", "spec.image: Required value"),
    ],
)
def test_a_faulty_manifest_is_found(text: str, fault: str, tmp_path: Path) -> None:
    (block,) = blocks("a.md", f"```yaml\n{text}\n```")
    assert any(fault in one for one in faults(block, tmp_path))
