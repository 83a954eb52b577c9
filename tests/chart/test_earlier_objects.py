"""From a release before the fields were renamed: the chart refuses, and the program in the how-to converts."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from chart.helm_chart import CHART, ROOT, run
from chart.test_examples import EXAMPLES, objects, unknown
from sandfleet_operator.api.kinds.pool import sandbox_pool
from sandfleet_operator.api.kinds.sandbox import code_sandbox
from sandfleet_operator.api.kinds.template import sandbox_template
from support.operator.crd_schemas import SCHEMAS, filled, leaves
from support.operator.crd_strategies import refusals
from support.tools import tool

pytestmark = pytest.mark.process

# As kubectl wrote them with that release: every field of each kind, then its examples.
EARLIER = ROOT / "tests/chart/golden/objects_before_renaming.json"
PARSERS = {"CodeSandbox": code_sandbox, "SandboxTemplate": sandbox_template, "SandboxPool": sandbox_pool}
Json = dict


def converted(tmp_path: Path) -> dict[tuple[str, str], Json]:
    """By the program as the how-to prints it."""
    text = (ROOT / "docs/howto/install.md").read_text()
    (program,) = re.findall(r"```python\n(# convert\.py.*?)```", text, re.DOTALL)
    (tmp_path / "convert.py").write_text(program)
    command = [sys.executable, "-I", tmp_path / "convert.py"]
    done = subprocess.run(command, input=EARLIER.read_text(), capture_output=True, text=True, check=True)
    return {(one["kind"], one["metadata"]["name"]): one for one in json.loads(done.stdout)["items"]}


def paths(schema: Json, value: object, path: str) -> set[str]:
    """Of every field that the value has."""
    if isinstance(value, list):
        return {found for one in value for found in paths(schema["items"], one, f"{path}[]")}
    if not isinstance(value, dict) or "properties" not in schema:
        return {path}
    inner = schema["properties"]
    return {path} | {found for name, one in value.items() for found in paths(inner[name], one, f"{path}.{name}")}


def test_converted_objects_have_only_fields_of_the_schema(tmp_path: Path) -> None:
    made = converted(tmp_path)
    assert len(made) > 10
    for (kind, name), one in made.items():
        assert unknown(SCHEMAS[kind], {"spec": one["spec"]}) == []
        assert set(one["metadata"]) <= {"namespace", "name", "labels", "annotations"}
        if kind != "SandboxPool" and not name.startswith("every-field"):
            assert refusals(kind, one["spec"]) == []


# Fields that came after the renaming: no earlier object has them.
NEWER = (
    "spec.approvals",
    "spec.executor",
    "spec.image",
    "spec.user",
    "spec.egress.names",
    "spec.egress.sets",
    "spec.egress.credentials",
    "spec.inline.egress.names",
    "spec.reviewRules",
    "spec.suspend",
    "spec.onIdle",
    "spec.recovery",
    "spec.snapshot",
    "spec.networkClosure",
    "spec.priorityClass",
    "spec.startTimeoutSeconds",
    "spec.affinity",
    "spec.topologySpreadConstraints",
    "spec.podAnnotations",
    "spec.podLabels",
    "spec.mounts",
    "spec.preload",
    "spec.inline.approvals",
    "spec.inline.reviewRules",
    "spec.inline.mounts",
)


def test_every_field_is_converted(tmp_path: Path) -> None:
    made = converted(tmp_path)
    for kind in PARSERS:
        both = [one for (of, name), one in made.items() if of == kind and name.startswith("every-field")]
        found = {path for one in both for path in paths(SCHEMAS[kind]["properties"]["spec"], one["spec"], "spec")}
        wanted = {re.sub(r"\{\}$", "", path) for path in leaves(kind, "spec") if not path.startswith(NEWER)}
        assert {path.removesuffix("[]") for path in wanted} - {path.removesuffix("[]") for path in found} == set()
    # What the cluster and the fleet wrote of the old object stays behind.
    assert made["CodeSandbox", "every-field"]["metadata"]["annotations"] == {"team": "a"}
    assert ("CodeSandbox", "claim-0123") not in made


def test_converted_examples_say_what_the_examples_of_today_say(tmp_path: Path) -> None:
    made, compared = converted(tmp_path), 0
    for path in EXAMPLES:
        for (kind, name), one in objects(path).items():
            stored = {**one, "spec": filled(SCHEMAS[kind]["properties"]["spec"], one["spec"])}
            assert PARSERS[kind](made[kind, name]).spec == PARSERS[kind](stored).spec
            compared += 1
    assert compared == len(made) - 4


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    """A chart that decides about the objects and the ceiling in its values."""
    made = tmp_path / "decides"
    (made / "templates").mkdir(parents=True)
    (made / "Chart.yaml").write_text("apiVersion: v2\nname: decides\nversion: 0.1.0\n")
    shutil.copy(CHART / "templates/_earlier.tpl", made / "templates")
    (made / "templates/decide.yaml").write_text('{{ include "sandfleet.refuseEarlier" .Values }}')
    return made


def refused(chart: Path, values: Json) -> str:
    """What helm says, or nothing."""
    (chart / "given.yaml").write_text(yaml.safe_dump(values))
    command = [tool("helm"), "template", "one", chart, "--values", chart / "given.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert bool(done.returncode) == bool(done.stderr)
    return done.stderr


def test_the_chart_refuses_objects_with_old_fields_and_names_them(chart: Path) -> None:
    items = json.loads(EARLIER.read_text())["items"]
    whole = [one for one in items if one["metadata"]["name"] == "every-field"]
    said = refused(chart, {"objects": whole})
    assert "cannot upgrade: fields of an earlier release would be lost: " in said
    assert (
        "CodeSandbox team-a/every-field (spec.template, spec.pool, spec.queue, spec.limits, spec.resources.cpu, "
        "spec.resources.memory, spec.resources.ephemeralStorage, spec.contract); "
    ) in said
    assert (
        "SandboxTemplate team-a/every-field (spec.limits, spec.resources.limits.ephemeralStorage, "
        "spec.resources.requests.ephemeralStorage, spec.contracts, spec.services[0].readiness, "
        "spec.services[0].liveness, spec.services[0].restart, spec.services[0].graceSeconds); "
    ) in said
    assert (
        "SandboxPool team-a/every-field (spec.template, spec.size); docs/howto/install.md says how to go over" in said
    )
    heading = re.search(r'says how to go over, under "([^"]*)"', said)
    assert heading
    assert f"## {heading[1]}\n" in (ROOT / "docs/howto/install.md").read_text()


def test_the_chart_refuses_each_old_object_on_its_own(chart: Path) -> None:
    items = json.loads(EARLIER.read_text())["items"]
    assert "; and " in refused(chart, {"objects": items})
    for one in items:
        assert f"{one['kind']} team-a/{one['metadata']['name']} (spec." in refused(chart, {"objects": [one]})


def test_the_chart_takes_converted_objects_and_no_objects(chart: Path, tmp_path: Path) -> None:
    made = list(converted(tmp_path).values())
    assert refused(chart, {"objects": made, "inline": {"executionLimits": {"processes": 8}}}) == ""
    assert refused(chart, {"objects": [], "inline": None}) == ""
    assert refused(chart, {"objects": [{**made[0], "spec": {}}]}) == ""


def test_a_ceiling_with_old_fields_is_refused() -> None:
    done = run("--set-json", 'settings.inline={"limits":{"processes":3},"contracts":["autonomous"]}')
    assert done.returncode
    assert (
        "cannot use settings.inline, which has fields of an earlier release: settings.inline.limits, "
        "settings.inline.contracts; " in done.stderr
    )
