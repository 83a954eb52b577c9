"""Bring a cluster up, or what is missing of it: every step looks first whether it is done."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from . import binaries, certs, cgroups, components, images, machine, manifests, network, node
from .api import Api, has_condition
from .down import clear
from .layout import NODE_NAME, REPOSITORY, TESTKIT_IMAGE, Addresses, ClusterError, Layout, cache, choose_addresses
from .plan import Plan, Say, alone, end_node, read_plan, recorded, refuse_foreign, write
from .processes import children, find, wait_until
from .supervisor import GO, PRIVATE

LEAST_DISK_BYTES = 4 << 30
# The kernel's, for the address of a Unix socket.
LONGEST_SOCKET = 107
# What works with a cluster and decides nothing about it.
NOT_THE_CLUSTER = {"base_image.py", "chaos.py", "fake_nodes.py", "progress.py", "s3.py", "testing.py"}

STARTING, LOADING = "starting the node", "loading images"
WAITING_FOR_API, WAITING_FOR_NODE = "waiting for the API server", "waiting for the node"
WAITING_FOR_NAMES = "waiting for name resolution"
# What a start takes, in seconds, once the programs are there.
STARTS: Mapping[str, float] = {
    STARTING: 1,
    LOADING: 2,
    WAITING_FOR_API: 5,
    WAITING_FOR_NODE: 3,
    WAITING_FOR_NAMES: 5,
}


def start_node(layout: Layout, addresses: Addresses) -> None:
    """Namespaces first, then the way to them, then the record of who is in them, and only then the word to begin.

    A process that waits for that word ends without it: an interrupted start leaves no process behind.
    """
    namespaces = ["--mount", "--pid", "--net", "--uts", "--ipc", "--propagation", "private", "--mount-proc"]
    command = ["unshare", *namespaces, "--fork", "--kill-child"]
    supervisor = [sys.executable, "-P", "-m", "cluster.harness.supervisor", str(layout.root)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "tests"), "PYTHONDONTWRITEBYTECODE": "1"}
    with (layout.logs / "supervisor.log").open("ab") as log:
        outer = subprocess.Popen(
            [*command, *supervisor],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=environment,
            cwd="/",
            start_new_session=True,
        )
    assert outer.stdin is not None
    with outer.stdin as word:
        wait_until(lambda: bool(children(outer.pid)) or outer.poll() is not None, 10)
        first = next(map(find, children(outer.pid)), None)
        if first is None:
            raise ClusterError(f"cannot start the node: see {layout.logs / 'supervisor.log'}")
        network.connect(layout, addresses, first.pid)
        write(layout.record, json.dumps(asdict(first)))
        word.write(GO)


def write_files(context: components.Context, here: machine.Machine) -> None:
    layout = context.layout
    for folder in ("logs", "etc", "run", "volumes"):
        (layout.root / folder).mkdir(exist_ok=True)
    certs.make(layout.pki, context.addresses, dt.datetime.now(dt.UTC))
    for identity in ("controller-manager", "scheduler", "kubelet", "kube-proxy", "provisioner"):
        write(Path(context.access(identity)), certs.kubeconfig(layout.pki, identity, context.server))
    node.write_all(context, here)
    write(layout.etc / "components.json", components.dump(components.all_components(context)))
    layout.kubeconfig.touch(mode=0o600)
    write(layout.kubeconfig, certs.kubeconfig(layout.pki, "admin", context.server))
    layout.kubeconfig.chmod(0o600)


def _digest(programs: Mapping[str, Path], here: machine.Machine) -> str:
    """Of all that decides how the cluster is: other programs, another harness or machine means another cluster."""
    summary = hashlib.sha256(repr((sorted((k, str(v)) for k, v in programs.items()), here)).encode())
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        if path.name not in NOT_THE_CLUSTER:
            summary.update(path.read_bytes())
    return summary.hexdigest()[:16]


def load_images(context: components.Context) -> None:
    ctr = context.programs["ctr"]
    if not wait_until(context.layout.containerd_socket.is_socket, 30):
        raise ClusterError(f"cannot load images: containerd does not start (see {context.layout.logs}/containerd.log)")
    listing = [*images.client(context.layout, ctr), "ls", "--quiet"]
    present: list[str] = []

    def answers() -> bool:
        done = subprocess.run(listing, capture_output=True, text=True, check=False)
        present[:] = done.stdout.split()
        return done.returncode == 0

    if not wait_until(answers, 30):
        raise ClusterError(f"cannot load images: containerd does not answer (see {context.layout.logs}/containerd.log)")
    if TESTKIT_IMAGE not in present:
        images.load(context.layout, ctr, images.testkit(context.programs["probe"]))
    if images.COREDNS_IMAGE not in present:
        images.load(context.layout, ctr, images.coredns(context.programs["coredns"]))


def _prepare(layout: Layout, here: machine.Machine, programs: Mapping[str, Path], say: Say) -> Addresses:
    """The plan, and with it the decision whether what runs may stay."""
    digest = _digest(programs, here)
    plan = read_plan(layout)
    if plan is not None and not (plan.digest == digest and plan.is_whole()):
        say("the cluster that is there was made by another version, or its clone is gone: ending it")
        clear(layout, here)
        plan = None
    if plan is None:
        addresses = choose_addresses(network.routes_in_use(layout.machine_link))
        made = tuple(path for path in PRIVATE if not Path(path).exists())
        plan = Plan(digest, addresses.block, made, sys.executable)
        write(layout.plan, json.dumps(asdict(plan)))
    for path in plan.made_directories:
        Path(path).mkdir(parents=True, exist_ok=True)
    return Addresses(plan.block)


def _require_space(layout: Layout) -> None:
    # containerd makes a second socket, with a longer name.
    if (length := len(os.fsencode(f"{layout.containerd_socket}.ttrpc"))) > LONGEST_SOCKET:
        raise ClusterError(
            f"cannot start a cluster in {layout.root}: the path is {length - LONGEST_SOCKET} bytes too long for the sockets in it"
        )
    existing = next(path for path in (layout.root, *layout.root.parents) if path.exists())
    if (free := shutil.disk_usage(existing).free) < LEAST_DISK_BYTES:
        raise ClusterError(
            f"cannot start a cluster: {free >> 20} MiB are free at {existing}; it needs {LEAST_DISK_BYTES >> 20}"
        )


def planned(layout: Layout) -> dict[str, float]:
    """What `up` will say, with the usual seconds of each; raises ClusterError when no cluster can run here."""
    machine.examine()
    starts = {what: one for what, one in STARTS.items() if what != STARTING or recorded(layout) is None}
    return machine.planned() | binaries.planned(cache()) | starts


def up(layout: Layout, say: Say) -> None:
    """Returns when pods can be run, volumes made and names resolved; raises ClusterError, which names the obstacle."""
    here = machine.examine()
    machine.install_packages(say, machine.missing_packages())
    machine.try_network()
    refuse_foreign(layout)
    _require_space(layout)
    programs = binaries.provide(cache(), say)
    with alone(layout):
        addresses = _prepare(layout, here, programs, say)
        context = components.Context(layout, addresses, programs, sys.executable)
        if recorded(layout) is None or not network.has_link(layout.machine_link):
            end_node(layout)
            say(STARTING)
            write_files(context, here)
            cgroups.make(here, layout.cgroup)
            start_node(layout, addresses)
        say(LOADING)
        load_images(context)
        wait_for_cluster(layout, addresses, say)


def wait_for_cluster(layout: Layout, addresses: Addresses, say: Say) -> None:
    api = Api(json.loads(layout.kubeconfig.read_text()))
    say(WAITING_FOR_API)
    api.wait("the API server", lambda: bool(api.get("Namespace", "kube-system")), 90)
    api.apply_all(manifests.everything(addresses))
    say(WAITING_FOR_NODE)
    api.wait("the node", lambda: has_condition(api.get("Node", NODE_NAME), "Ready"), 60)
    say(WAITING_FOR_NAMES)
    api.wait("CoreDNS", lambda: has_condition(api.get("Deployment", "coredns", "kube-system"), "Available"), 60)
    api.wait("service accounts", lambda: bool(api.get("ServiceAccount", "default", "default")), 30)


def check() -> None:
    """Raises ClusterError, which says what is missing, when no cluster can be had here; installs and builds nothing."""
    machine.examine()
    if (missing := machine.missing_packages()) and shutil.which("apt-get") is None:
        raise ClusterError(
            f"cannot start a cluster: {', '.join(missing)} missing, and there is no apt-get to install them"
        )
    binaries.toolchain(binaries.MODULES[0])
