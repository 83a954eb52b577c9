"""A reader of a page of the docs: its blocks run as written, on a cluster with a release of the chart."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from cluster.fixtures import helm_of
from cluster.harness.testing import Cluster
from cluster.releases import Release
from support.pages import ROOT, Block, broken_promises

SYSTEM = "sandfleet-system"
# What a reader has in the folder, beside what a page says to save there.
REPOSITORY = ("charts", "examples")
SECONDS = 240


@dataclass(frozen=True)
class Reader:
    """Follows a page in a folder of its own, with the programs that the page uses on the path."""

    folder: Path
    environment: dict[str, str]

    def follow(self, block: Block, other: tuple[str, str] = ("", "")) -> str:
        """What the block prints; a block that fails, or prints something else than it promises, fails the test."""
        # A path of the page that is another in tests.
        text = block.text.replace(*other) if other[0] else block.text
        program = ["bash", "-euc"] if block.language == "bash" else [sys.executable, "-c"]
        done = subprocess.run(
            [*program, text],
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


@contextmanager
def reading(
    cluster: Cluster, program: Callable[[str], Path], folder: Path, *watched: str, makes: tuple[str, ...] = ()
) -> Iterator[Reader]:
    """Has installed Sandfleet as docs/howto/install.md says, for the namespaces `watched`. The page makes `makes`."""
    taken = {one["metadata"]["name"] for one in cluster.api.list("Namespace")} & {SYSTEM, *makes}
    if taken:
        pytest.skip(f"needs a cluster without the namespaces of the page: it has {', '.join(sorted(taken))}")
    programs = folder / "bin"
    programs.mkdir()
    for name in ("kubectl", "helm"):
        (programs / name).symlink_to(program(name))
    paths = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    homes = {f"HELM_{name}_HOME": str(folder / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
    environment = {**os.environ, **homes, "PATH": paths, "KUBECONFIG": str(cluster.kubeconfig)}
    environment["SANDFLEET_FLEET"] = "kubernetes"
    reader = folder / "reader"
    reader.mkdir()
    for name in REPOSITORY:
        (reader / name).symlink_to(ROOT / name)
    # The kinds are the cluster's. Without namespaces of its own a release would take those of other tests.
    values = f"crds.enabled=false,settings.watchNamespaces={{{','.join(watched)}}}"
    release = Release(cluster, helm_of(cluster, program("helm"), folder), "sandfleet", SYSTEM)
    try:
        release.install("--create-namespace", "--set", values)
        yield Reader(reader, environment)
    finally:
        for namespace in {*watched, *makes}:
            cluster.kubectl("delete", "csb,sbs,sbp,sbt,sbq", "--all", "-n", namespace, "--ignore-not-found")
        release.uninstall()
        for namespace in (*makes, SYSTEM):
            cluster.kubectl("delete", "namespace", namespace, "--ignore-not-found", "--wait=false")
