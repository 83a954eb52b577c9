"""kind cannot be run on the build machines: what can be looked at without it."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib

import pytest
import yaml
from cluster.harness.layout import REPOSITORY
from cluster.harness.manifests import runtime_classes

CONFIG = yaml.safe_load((REPOSITORY / "kind-config.yaml").read_text())
SCRIPT = REPOSITORY / "tests" / "cluster" / "kind-up.sh"


def test_it_is_a_kind_cluster_with_two_workers():
    assert (CONFIG["kind"], CONFIG["apiVersion"]) == ("Cluster", "kind.x-k8s.io/v1alpha4")
    assert set(CONFIG) == {"kind", "apiVersion", "name", "nodes", "containerdConfigPatches"}
    assert [node["role"] for node in CONFIG["nodes"]] == ["control-plane", "worker", "worker"]


def test_its_containerd_has_the_runtime_that_the_runtime_class_names():
    (patch,) = CONFIG["containerdConfigPatches"]
    runtimes = tomllib.loads(patch)["plugins"]["io.containerd.cri.v1.runtime"]["containerd"]["runtimes"]
    (handler,) = runtimes
    assert handler == runtime_classes()[0]["handler"]
    assert f"handler: {handler}" in SCRIPT.read_text()
    assert runtimes[handler]["options"]["ConfigPath"] in SCRIPT.read_text()


def test_the_script_puts_gvisor_on_the_nodes_that_the_runtime_class_selects():
    (label,) = CONFIG["nodes"][1]["labels"]
    selector = re.search(r"nodeSelector: \{(.+): \"true\"\}", SCRIPT.read_text())
    assert selector is not None
    assert selector[1] == label


@pytest.mark.process
def test_the_script_is_sound_as_far_as_a_shell_can_tell():
    assert subprocess.run(["bash", "-n", SCRIPT], check=False).returncode == 0
    if linter := shutil.which("shellcheck"):
        done = subprocess.run([linter, SCRIPT], capture_output=True, text=True, check=False)
        assert done.stdout == ""
