"""The half of docs/howto/queues.md that needs a cluster: its blocks run as written, one after the other."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cluster.fixtures import helm_of
from cluster.harness.testing import Cluster
from cluster.releases import Release
from support.pages import ROOT, Block, blocks_of, broken_promises

PAGE, METRICS = "docs/howto/queues.md", "docs/reference/metrics.md"
SYSTEM, TEAMS = "sandfleet-system", ("search", "support", "batch")
# What a reader of the page has in the folder, beside what it says to save there.
REPOSITORY = ("charts", "examples")
SECONDS = 240


@dataclass(frozen=True)
class Reader:
    """Follows the page in a folder of its own, with the programs that the page uses on the path."""

    folder: Path
    environment: dict[str, str]

    def save(self) -> None:
        """The files that the page shows: the queues, and values under the name in their first line."""
        shown = [block for block in blocks_of(PAGE) if block.language == "yaml"]
        for block in shown:
            name = block.text.splitlines()[0].removeprefix("# ") if block.kind == "values" else "queues.yaml"
            (self.folder / name).write_text(block.text)
        for name in REPOSITORY:
            (self.folder / name).symlink_to(ROOT / name)

    def follow(self, block: Block) -> str:
        """What the block prints; a block that fails, or prints something else than it promises, fails the test."""
        program = ["bash", "-euc"] if block.language == "bash" else [sys.executable, "-c"]
        done = subprocess.run(
            [*program, block.text],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{block}: {done.stdout}{done.stderr}"
        if block.language == "python":
            assert broken_promises(block.text, done.stdout) == [], f"{block}: {done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture
def reader(images: Cluster, kinds: None, program: Callable[[str], Path], tmp_path: Path) -> Iterator[Reader]:
    """Has installed Sandfleet as docs/howto/install.md says; all that the page makes goes after the test."""
    taken = {one["metadata"]["name"] for one in images.api.list("Namespace")} & {SYSTEM, *TEAMS}
    if taken:
        pytest.skip(f"needs a cluster without the namespaces of the page: it has {', '.join(sorted(taken))}")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("kubectl", "helm"):
        (programs / name).symlink_to(program(name))
    paths = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    homes = {f"HELM_{name}_HOME": str(tmp_path / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
    environment = {
        **os.environ,
        **homes,
        "PATH": paths,
        "KUBECONFIG": str(images.kubeconfig),
        "SANDFLEET_FLEET": "kubernetes",
    }
    folder = tmp_path / "reader"
    folder.mkdir()
    # The kinds are the cluster's. Without namespaces of its own a release would take those of other tests.
    values = f"crds.enabled=false,settings.watchNamespaces={{{SYSTEM}}}"
    release = Release(images, helm_of(images, program("helm"), tmp_path), "sandfleet", SYSTEM)
    try:
        release.install("--create-namespace", "--set", values)
        yield Reader(folder, environment)
    finally:
        for namespace in TEAMS:
            images.kubectl("delete", "csb,sbp,sbt,sbq", "--all", "-n", namespace, "--ignore-not-found")
        images.kubectl("delete", "clusterrolebinding", "queue-admins", "--ignore-not-found")
        release.uninstall()
        for namespace in (*TEAMS, SYSTEM):
            images.kubectl("delete", "namespace", namespace, "--ignore-not-found", "--wait=false")


@pytest.mark.timeout(600)
def test_a_reader_goes_from_helm_values_to_a_client_that_waits_and_gets_in(reader: Reader) -> None:
    reader.save()
    followed = [block for block in blocks_of(PAGE) if block.only_read == "needs a cluster"]
    said = {block: reader.follow(block) for block in followed}
    assert {block.language for block in said} == {"bash", "python"}
    (listed,) = (text for block, text in said.items() if "get sbq" in block.text)
    rows = [line.split()[:2] for line in listed.splitlines()]
    assert [[team, team] for team in sorted(TEAMS)] == [row for row in rows if row[0] in TEAMS]
    (look,) = (block for block in blocks_of(METRICS) if block.language == "bash")
    assert "# TYPE sandfleet_claim_wait_error_ratio gauge" in reader.follow(look)
