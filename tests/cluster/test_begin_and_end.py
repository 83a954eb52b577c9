"""A cluster begins whatever happened before, and ends without a trace. Runs before the cluster of the other tests."""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cluster.harness.api import Api
from cluster.harness.layout import REPOSITORY, ClusterError, Layout
from cluster.harness.machine import examine
from cluster.harness.plan import recorded
from cluster.harness.processes import alive, kill, wait_until
from cluster.harness.supervisor import PRIVATE, TUNABLES
from cluster.harness.testing import Cluster, probe_pod

pytestmark = [
    pytest.mark.alone(on="machine"),
    pytest.mark.skipif("KUBECONFIG" in os.environ, reason="a cluster was given: none is begun here"),
]


def run(layout: Layout, command: str) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "SANDFLEET_CLUSTER_DIR": str(layout.root),
        "PYTHONPATH": str(REPOSITORY / "tests"),
        "PYTHONUNBUFFERED": "1",
    }
    arguments = [sys.executable, "-m", "cluster.harness", command]
    return subprocess.Popen(arguments, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)


def finish(layout: Layout, command: str) -> None:
    process = run(layout, command)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors


@dataclass(frozen=True)
class Traces:
    """What a cluster could leave on a machine."""

    mounts: tuple[str, ...]
    links: tuple[str, ...]
    routes: tuple[str, ...]
    rules: str
    settings: tuple[str, ...]
    directories: tuple[str, ...]
    groups: tuple[str, ...]
    processes: tuple[str, ...]


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _belongs(process: Path, layout: Layout) -> bool:
    """Whether a process has anything of the cluster in it: its arguments, environment, control groups or mounts."""
    for name in ("cmdline", "environ", "cgroup", "mountinfo"):
        try:
            text = (process / name).read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(layout.root) in text or layout.cgroup in text:
            return True
    return False


def traces(layout: Layout) -> Traces:
    processes = [path for path in Path("/proc").iterdir() if path.name.isdigit() and int(path.name) != os.getpid()]
    settings = [Path("/proc/sys", name) for name in (*TUNABLES, "net/ipv4/ip_forward", "net/ipv4/conf/all/rp_filter")]
    own = [path for root in _group_roots() if (path := root / layout.cgroup).exists()]
    return Traces(
        tuple(sorted(Path("/proc/self/mountinfo").read_text().splitlines())),
        tuple(sorted(link["ifname"] for link in json.loads(_output("ip", "-json", "link")))),
        tuple(sorted(_output("ip", "route", "show", "table", "all").splitlines())),
        _output("nft", "--stateless", "list", "ruleset"),
        tuple(f"{path}={path.read_text()}" for path in settings if path.exists()),
        tuple(path for path in (*PRIVATE, str(layout.root)) if Path(path).exists()),
        tuple(map(str, own)),
        tuple(path.name for path in processes if _belongs(path, layout)),
    )


def _group_roots() -> list[Path]:
    base = Path("/sys/fs/cgroup")
    return [base, *(path for path in base.iterdir() if path.is_dir())]


@pytest.fixture
def layout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Layout]:
    # Short, whatever the test is called: there are sockets below it.
    one = Layout(tmp_path_factory.mktemp("c") / "cluster")
    yield one
    if one.plan.exists():
        finish(one, "down")


def cluster_of(layout: Layout) -> Cluster:
    return Cluster(layout.kubeconfig, Api(json.loads(layout.kubeconfig.read_text())), {}, layout)


def gvisor_pod(name: str) -> dict[str, object]:
    return probe_pod("default", name, runtimeClassName="gvisor")


@pytest.mark.timeout(600)
def test_up_and_down_twice_leave_the_machine_as_it_was(layout: Layout):
    before = traces(layout)
    assert before.processes == ()
    for _ in range(2):
        finish(layout, "up")
        cluster_of(layout).run_pod(gvisor_pod("left-behind"))
        there = traces(layout)
        # Or else the comparison could not see anything.
        assert len(there.processes) > 15
        assert layout.machine_link in there.links
        assert there.groups != ()
        assert there.mounts == before.mounts
        assert there.settings == before.settings
        finish(layout, "down")
        assert traces(layout) == before
    finish(layout, "down")


MOMENTS = ("starting the node", "loading images", "waiting for the API server", "waiting for name resolution")


@pytest.mark.timeout(600)
def test_killed_at_any_moment_and_started_again_it_works(layout: Layout):
    before = traces(layout)
    for moment in MOMENTS:
        process = run(layout, "up")
        assert process.stderr is not None
        seen = any(moment in line for line in process.stderr)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert seen, f"never came to {moment!r}"
    finish(layout, "up")
    cluster = cluster_of(layout)
    pod = cluster.run_pod(gvisor_pod("steady"))
    first = recorded(layout)
    assert first is not None
    finish(layout, "up")
    assert recorded(layout) == first, "a cluster that runs is left alone"
    kill(first)
    assert wait_until(lambda: not alive(first), 10)
    finish(layout, "up")
    again = cluster.pod_ready("default", "steady", 90)
    assert again["metadata"]["uid"] == pod["metadata"]["uid"], "what was in the cluster is still there"
    cluster.run_pod(gvisor_pod("new"), 90)
    ending = run(layout, "down")
    assert wait_until(lambda: recorded(layout) is None, 30)
    os.killpg(ending.pid, signal.SIGKILL)
    ending.wait()
    finish(layout, "down")
    assert traces(layout) == before


@pytest.mark.timeout(600)
def test_a_cluster_is_left_to_the_clone_that_began_it_while_that_clone_is_there(layout: Layout):
    finish(layout, "up")
    first, plan = recorded(layout), json.loads(layout.plan.read_text())
    layout.plan.write_text(json.dumps({**plan, "python": "/usr/bin/env"}))
    finish(layout, "up")
    assert recorded(layout) == first
    layout.plan.write_text(json.dumps({**plan, "python": "/gone/.venv/bin/python"}))
    finish(layout, "up")
    assert recorded(layout) not in {first, None}
    assert json.loads(layout.plan.read_text()) == plan


def test_a_directory_too_deep_for_sockets_is_refused_with_the_reason(tmp_path: Path):
    deep = tmp_path / ("a" * 100)
    process = run(Layout(deep), "up")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert f"cannot start a cluster in {deep}: the path is " in errors
    assert not deep.exists()


def test_a_directory_with_something_else_in_it_is_not_touched(tmp_path: Path):
    (tmp_path / "thesis.tex").write_text("years of work")
    process = run(Layout(tmp_path), "up")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert f"cannot start a cluster in {tmp_path}: it holds something else (thesis.tex)" in errors
    finish(Layout(tmp_path), "down")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def message_in(change: Callable[[], None]) -> str:
    """What `examine` says in a process that has changed itself first."""
    with multiprocessing.get_context("fork").Pool(1, change) as pool:
        with pytest.raises(ClusterError) as error:
            pool.apply(examine)
        return str(error.value)


def test_without_root_it_says_what_to_do():
    message = message_in(lambda: os.setuid(65534))
    assert message == "cannot start a cluster: not root (run it with sudo, or use kind: make kind-up)"


def test_a_root_that_may_not_make_namespaces_is_told_so():
    def change() -> None:
        header, data = struct.pack("Ii", 0x20080522, 0), struct.pack("6I", 0, 0, 0, 0, 0, 0)
        assert ctypes.CDLL(None).capset(header, data) == 0

    assert message_in(change) == "cannot start a cluster: this root may not make namespaces (CAP_SYS_ADMIN is missing)"
