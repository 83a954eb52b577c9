"""Each value is described, typed and takes effect; a typo is refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import fields, replace
from pathlib import Path

import pytest
import yaml
from chart.helm_chart import CHART, NAMESPACE, ROOT, documents, loaded, named, rendered, run
from sandfleet_operator.api.settings import Executor, Settings

script = loaded(ROOT / "scripts/chart.py")


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    for name in ("values.yaml", "values.schema.json", "README.md"):
        shutil.copy(CHART / name, tmp_path / name)
    return tmp_path


def test_the_schema_and_the_readme_are_what_the_values_say(chart: Path) -> None:
    assert script.main(["--check"], chart) == 0
    (chart / "values.yaml").write_text((CHART / "values.yaml").read_text().replace("replicas: 1", "replicas: 2"))
    assert script.main(["--check"], chart) == 1
    assert script.main([], chart) == 0
    assert script.main(["--check"], chart) == 0
    assert (chart / "README.md").read_text() != (CHART / "README.md").read_text()


def test_a_value_without_a_description_is_an_error(chart: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (chart / "values.yaml").write_text("a:\n  # -- Described.\n  b: 1\n  c: 2\n")
    assert script.main([], chart) == 1
    assert capsys.readouterr().err == "cannot describe a.c: values.yaml has no line `# -- …` above it\n"


def test_a_value_is_read_with_what_stands_above_it() -> None:
    text = '# -- One\n# and more.\n# @enum x, y\n# @schema {"minLength": 1}\na: x\nb:\n  # -- Two.\n  c: []\n# -- Free.\nd:\n  e: 1\n'
    schema = json.loads(script.schema_text(script.read_values(text)))["properties"]
    assert schema["a"] == {"description": "One and more.", "type": "string", "enum": ["x", "y"], "minLength": 1}
    assert schema["b"]["additionalProperties"] is False
    assert schema["b"]["properties"]["c"] == {"description": "Two.", "type": "array"}
    assert schema["d"] == {"description": "Free.", "type": "object"}


REFUSED = [
    ("operator.replica=2", "additional properties 'replica' not allowed"),
    ("sett.executorPort=1", "additional properties 'sett' not allowed"),
    ("settings.recovery.maxCrash=1", "additional properties 'maxCrash' not allowed"),
    ('settings.controlPlaneNamespace="x"', "additional properties 'controlPlaneNamespace' not allowed"),
    ('image.pullPolicy="Sometimes"', "value must be one of 'Always', 'IfNotPresent', 'Never'"),
    ('operator.replicas="two"', "got string, want integer"),
    ("operator.replicas=-1", "minimum: got -1, want 0"),
    ("settings.executorPort=65536", "maximum: got 65,536, want 65,535"),
    ('settings.allowedImages="a"', "got string, want array"),
    ("settings.allowedImages=[1]", "got number, want string"),
    ('settings.watchNamespaces=["Team"]', "does not match pattern"),
    ("settings.inline=[]", "want null or object"),
    ('settings.dns.labels={"a":1}', "got number, want string"),
    ('crds.enabled="yes"', "got string, want boolean"),
]  # fmt: skip


@pytest.mark.parametrize(("setting", "message"), REFUSED)
def test_an_invalid_value_is_refused_by_its_name(setting: str, message: str) -> None:
    done = run("--set-json", setting)
    assert done.returncode != 0
    assert message in done.stderr.replace("object or null", "null or object")


def test_a_parent_chart_may_hand_its_global_values_down() -> None:
    assert run("--set-json", 'global={"region":"x"}').returncode == 0


def settings_of(*values: str) -> Settings:
    (config_map,) = named(rendered(*values), "ConfigMap", "sandfleet-settings")
    return Settings.parse(json.loads(config_map["data"]["settings.json"]))


def test_the_settings_default_to_the_programs_own_but_for_the_image_and_the_policy_of_the_chart() -> None:
    wanted = Settings(
        control_plane_namespace=NAMESPACE,
        allowed_images=("sandfleet/executor:*",),
        admission_policies=("sandfleet-control-metadata",),
    )
    found = settings_of()
    assert replace(found, executor=Executor()) == wanted
    assert found.executor.image.startswith("sandfleet/executor:")


@pytest.mark.parametrize(
    ("version", "given", "delivery"),
    [
        ("1.34.9", "Auto", "InitContainer"),
        ("1.35.0-gke.100", "Auto", "ImageVolume"),
        ("1.36.1", "Auto", "ImageVolume"),
        ("1.33.0", "ImageVolume", "ImageVolume"),
        ("1.35.0", "InitContainer", "InitContainer"),
    ],
)
def test_the_cluster_s_version_decides_how_the_executor_comes_beside_an_image(version, given, delivery) -> None:
    done = run("--kube-version", version, "--set", f"settings.executor.delivery={given},settings.executor.image=a/b:1")
    (config_map,) = named(documents(done.stdout), "ConfigMap", "sandfleet-settings")
    assert Settings.parse(json.loads(config_map["data"]["settings.json"])).executor == Executor(
        image="a/b:1", delivery=delivery
    )


def test_every_setting_is_a_value_of_the_chart() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())["settings"]
    # The chart itself knows the namespace, its policies, and whether there is a snapshotter and an egress process.
    assert len(values) == len(fields(Settings)) - 4
    # It knows which image and which way "" and Auto are.
    assert Settings.parse({**values, "controlPlaneNamespace": "x", "executor": {}}).control_plane_namespace == "x"


def test_a_setting_reaches_the_program_and_restarts_it() -> None:
    changed = ('settings.inline={"resources":{"limits":{"memory":"1Gi"}}}', "settings.recovery.maxCrashes=3")
    assert settings_of(*changed).inline.resources.memory == 1 << 30
    assert settings_of(*changed).recovery.max_crashes == 3

    def sums(*values: str) -> set[str]:
        pods = [one["spec"]["template"] for one in named(rendered(*values), "Deployment")]
        return {pod["metadata"]["annotations"]["checksum/settings"] for pod in pods if "annotations" in pod["metadata"]}

    assert len(sums()) == len(sums(*changed)) == 1
    assert sums() != sums(*changed)
