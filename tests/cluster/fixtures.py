"""The cluster that the tests of this directory run on: the one of KUBECONFIG, or one of their own."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import pytest
from cluster.harness import binaries
from cluster.harness import fake_nodes as fakes
from cluster.harness import s3 as storage
from cluster.harness.api import Api
from cluster.harness.chaos import Chaos
from cluster.harness.down import down
from cluster.harness.layout import REPOSITORY, ClusterError, Layout, cache, directory
from cluster.harness.plan import recorded
from cluster.harness.progress import timed
from cluster.harness.testing import Cluster
from cluster.harness.up import up


def _given(kubeconfig: Path) -> Cluster:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise ClusterError("cannot use the cluster of KUBECONFIG: kubectl is missing")
    command = [
        kubectl,
        "--kubeconfig",
        str(kubeconfig),
        "config",
        "view",
        "--raw",
        "--minify",
        "--flatten",
        "-o",
        "json",
    ]
    config = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    found = {name: Path(path) for name in ("kubectl", "helm", "kwok", "versitygw") if (path := shutil.which(name))}
    return Cluster(kubeconfig, Api(config), found, None)


@contextmanager
def _locked(what: str, how: int) -> Iterator[IO[str]]:
    folder = cache()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{what}.lock").open("w") as lock:
        fcntl.flock(lock, how)
        yield lock


@contextmanager
def exclusively(what: str) -> Iterator[None]:
    """One test process of this machine at a time."""
    with _locked(what, fcntl.LOCK_EX):
        yield


@contextmanager
def _shared(what: str) -> Iterator[Callable[[], None]]:
    """Any number of test processes at a time; the function waits until this one is the last."""
    with _locked(what, fcntl.LOCK_SH) as lock:
        yield lambda: fcntl.flock(lock, fcntl.LOCK_EX)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A cluster that was not up before is ended after the tests; SANDFLEET_KEEP=1 leaves it."""
    layout = Layout(directory())
    given = os.environ.get("KUBECONFIG")
    if given and Path(given).resolve() != layout.kubeconfig:
        yield _given(Path(given))
        return
    say = timed("cluster")
    # Workers of pytest-xdist come at the same time: the first one brings it up, and waits for the others to end it.
    with _shared(f"{layout.root.name}-users") as alone:
        with exclusively(layout.root.name):
            was_up = recorded(layout) is not None
            up(layout, say)
        api = Api(json.loads(layout.kubeconfig.read_text()))
        yield Cluster(layout.kubeconfig, api, binaries.provide(cache(), say), layout)
        if not was_up and not os.environ.get("SANDFLEET_KEEP"):
            alone()
            down(layout, say)


@pytest.fixture(scope="session")
def node(cluster: Cluster) -> Cluster:
    """The same cluster, for tests that reach into its node."""
    if cluster.layout is None:
        pytest.skip("needs the node of a cluster of our own: KUBECONFIG names another one")
    return cluster


def _with_images(node: Cluster, *names: str) -> Cluster:
    """SANDFLEET_IMAGES=keep takes those that are there."""
    if os.environ.get("SANDFLEET_IMAGES") == "keep":
        return node
    with exclusively("images"):
        command = [str(REPOSITORY / "scripts/image.sh"), *names]
        said = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if said.returncode:
        raise ClusterError(f"cannot make the images: {said.stderr.strip()[-2000:]}")
    return node


@pytest.fixture(scope="session")
def images(node: Cluster) -> Cluster:
    """The same, with the images of this tree in it as `localhost/sandfleet-{executor,operator}:dev`."""
    return _with_images(node)


@pytest.fixture(scope="session")
def executor_image(node: Cluster) -> Cluster:
    """The same, with the executor's image alone."""
    return _with_images(node, "executor")


@pytest.fixture(scope="session")
def program(cluster: Cluster) -> Callable[[str], Path]:
    def find(name: str) -> Path:
        if name in cluster.programs:
            return cluster.programs[name]
        if shutil.which("go") is None:
            pytest.skip(f"needs {name}, which is not on the path, or go to build it")
        return binaries.provide(cache(), timed("cluster"), [name])[name]

    return find


@pytest.fixture
def new_namespace(cluster: Cluster) -> Iterator[Callable[..., str]]:
    """Makes namespaces with labels, ready for pods; they go after the test."""
    made: list[str] = []

    def make(labels: Mapping[str, str] | None = None, name: str = "") -> str:
        name = name or f"test-{secrets.token_hex(4)}"
        made.append(name)
        metadata = {"name": name, "labels": dict(labels or {})}
        cluster.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        cluster.api.wait("the service account", lambda: bool(cluster.api.get("ServiceAccount", "default", name)), 30)
        return name

    yield make
    for name in made:
        cluster.api.delete("Namespace", name)


@pytest.fixture
def namespace(new_namespace: Callable[..., str]) -> str:
    return new_namespace()


@pytest.fixture
def chaos() -> Iterator[Chaos]:
    """TCP proxies that delay, cut and swallow."""
    one = Chaos()
    yield one
    one.close()


@pytest.fixture(scope="session")
def s3(
    cluster: Cluster, program: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[storage.S3]:
    """An S3 server on this machine; pods of a cluster of ours reach it as well."""
    host = cluster.addresses.machine if cluster.layout else "127.0.0.1"
    server, process = storage.start(program("versitygw"), tmp_path_factory.mktemp("s3"), host)
    yield server
    storage.stop(process)


@pytest.fixture
def fake_nodes(cluster: Cluster, program: Callable[[str], Path], tmp_path: Path) -> Iterator[Callable[..., None]]:
    """`fake_nodes(200)`: so many nodes that pretend, for pods that say `PLACEMENT`."""
    made = 0

    def make(count: int, start: fakes.StartTime | None = None) -> None:
        nonlocal made
        if made:
            raise ValueError("cannot make fake nodes twice in one test")
        made = count
        # Each kwok takes all nodes that pretend for its own.
        stack.enter_context(exclusively("fake-nodes"))
        stack.enter_context(
            fakes.run(program("kwok"), cluster.kubeconfig, cluster.api, tmp_path, count, start or fakes.StartTime())
        )

    with ExitStack() as stack:
        yield make


@pytest.fixture
def kubectl(cluster: Cluster) -> Callable[..., str]:
    return cluster.kubectl


@pytest.fixture
def helm(cluster: Cluster, program: Callable[[str], Path], tmp_path: Path) -> Callable[..., str]:
    """`helm("install", …)`: standard output; a failure is a ClusterError with what helm said."""
    return helm_of(cluster, program("helm"), tmp_path)


def helm_of(cluster: Cluster, program: Path, folder: Path) -> Callable[..., str]:
    homes = {name: str(folder / name.lower()) for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")}
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "KUBECONFIG": str(cluster.kubeconfig), **homes}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [str(program), *arguments], capture_output=True, text=True, check=False, env=environment, timeout=280
        )
        if done.returncode:
            raise ClusterError(f"helm {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    return run
