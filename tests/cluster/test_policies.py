"""NetworkPolicies hold: every flow of a grid of pods and strangers, measured, is what the model says."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cluster.harness.api import path_of
from cluster.harness.enforcer import parse
from cluster.harness.enforcer.model import World
from cluster.harness.layout import Addresses
from cluster.harness.processes import alive, kill, wait_until
from cluster.harness.testing import CONTROL_PORT, Cluster, Probe, probe_pod
from cluster.policy_cases import cases

Flow = tuple[str, str, str, int]
NAMESPACES = ("x", "y", "z")
PORTS = (8080, 9090)
LISTENERS = tuple(f"{protocol}:{port}" for port in PORTS for protocol in ("tcp", "udp"))
SETTLE_SECONDS = 15
# The names of the truth table's cases do not depend on addresses.
CASES = tuple(cases("10.0.0.0/16", "10.0.0.1", ("192.0.2.1", "192.0.2.2")))


@dataclass(frozen=True)
class Grid:
    """Nine pods in three namespaces, a third of them in gVisor, and two addresses of the machine that are strangers."""

    cluster: Cluster
    names: dict[str, str]
    """The namespaces' real names."""
    probes: dict[str, Probe]
    """Everybody who can dial, by address."""

    def world(self) -> World:
        """As the API has it, so that the model is asked about what is really there."""
        api = self.cluster.api
        here = set(self.names.values())
        pods = [pod for name in here for pod in api.list("Pod", name)]
        policies = [policy for name in here for policy in api.list("NetworkPolicy", name)]
        labels = {entry["metadata"]["name"]: entry["metadata"].get("labels", {}) for entry in api.list("Namespace")}
        return World(
            tuple(parse.pod(pod, pod["status"]["podIP"]) for pod in pods),
            labels,
            tuple(parse.policy(p) for p in policies),
        )

    def expected(self) -> dict[Flow, bool]:
        world = self.world()
        return {flow: world.allowed(flow[0], flow[1], flow[2].upper(), flow[3]) for flow in self.flows()}

    def flows(self) -> list[Flow]:
        strangers = {address for address, probe in self.probes.items() if probe.source}
        return [
            (source, destination, *listener)
            for source in self.probes
            for destination in self.probes
            for listener in ((protocol, port) for port in PORTS for protocol in ("tcp", "udp"))
            if source != destination and not {source, destination} <= strangers
        ]

    def measured(self, flows: Iterable[Flow], milliseconds: int = 700) -> dict[Flow, bool]:
        """Which flows are open; one that does not answer within the time counts as closed."""
        asked: dict[str, dict[str, Flow]] = {}
        for flow in flows:
            source, destination, protocol, port = flow
            asked.setdefault(source, {})[f"{protocol}:{destination}:{port}"] = flow

        def dial(source: str) -> dict[Flow, bool]:
            targets = asked[source]
            answers = self.probes[source].dial(list(targets), milliseconds)
            return {targets[target]: answer for target, answer in answers.items()}

        with ThreadPoolExecutor(len(self.probes)) as pool:
            return {flow: answer for answers in pool.map(dial, asked) for flow, answer in answers.items()}

    def differences(self) -> list[str]:
        """Flows that are not as the model says, once what was just changed has had the time to arrive."""
        deadline = time.monotonic() + SETTLE_SECONDS
        expected = self.expected()
        while True:
            measured = self.measured(expected)
            # On a busy machine an open flow may answer late; a closed one never does.
            late = [flow for flow, is_open in expected.items() if is_open and not measured[flow]]
            measured |= self.measured(late, 3000)
            wrong = [flow for flow in expected if measured[flow] is not expected[flow]]
            if not wrong or time.monotonic() > deadline:
                return [f"{' '.join(map(str, flow))}: is {'open' if measured[flow] else 'closed'}" for flow in wrong]

    def address(self, namespace: str, pod: str) -> str:
        address: str = self.cluster.api.get("Pod", pod, self.names[namespace])["status"]["podIP"]
        return address

    def apply(self, namespace: str, name: str, spec: dict[str, Any]) -> None:
        metadata = {"name": name, "namespace": self.names[namespace]}
        self.cluster.api.apply(
            {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata, "spec": spec}
        )

    def clear(self) -> None:
        for name in self.names.values():
            self.cluster.api.call("DELETE", path_of("NetworkPolicy", name))


def _pod(namespace: str, name: str) -> dict[str, Any]:
    web = 9090 if name == "c" else 8080
    ports = [
        {"name": "web", "containerPort": web, "protocol": "TCP"},
        {"name": "names", "containerPort": web, "protocol": "UDP"},
    ]
    labels = {"pod": name, **({"sandboxed": "yes"} if name == "c" else {})}
    runtime = {"runtimeClassName": "gvisor"} if name == "c" else {}
    return probe_pod(namespace, name, ["serve", str(CONTROL_PORT), *LISTENERS], labels=labels, ports=ports, **runtime)


@pytest.fixture(scope="module")
def strangers(node: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Probe]]:
    """A probe on the machine itself, on addresses that are not the node's."""
    addresses: Addresses = node.addresses
    listeners = [
        f"{protocol}:{address}:{port}" for address in addresses.outside for port in PORTS for protocol in ("tcp", "udp")
    ]
    log = tmp_path_factory.mktemp("strangers") / "log"
    control = f"{addresses.machine}:{CONTROL_PORT}"
    command = ["setpriv", "--pdeathsig", "KILL", str(node.programs["probe"]), "serve", control, *listeners]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        probes = {address: Probe(addresses.machine, address) for address in addresses.outside}
        node.api.wait("the strangers", lambda: _answers(probes[addresses.outside[0]], log), 10)
        yield probes
    finally:
        process.kill()
        process.wait()


def _answers(probe: Probe, log: Path) -> bool:
    assert not log.read_text(), log.read_text()
    try:
        return probe.heard() is not None
    except OSError:
        return False


@pytest.fixture(scope="module")
def grid(node: Cluster, strangers: dict[str, Probe]) -> Iterator[Grid]:
    names = {name: f"grid-{name}-{int(time.time())}" for name in NAMESPACES}
    for short, name in names.items():
        labels = {"team": short, **({"role": "special"} if short == "z" else {})}
        node.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    for name in names.values():
        node.api.wait(
            "the service account", lambda name=name: bool(node.api.get("ServiceAccount", "default", name)), 30
        )
        for pod in "abc":
            node.api.create(_pod(name, pod))
    pods = [node.pod_ready(name, pod) for name in names.values() for pod in "abc"]
    probes = {pod["status"]["podIP"]: Probe(pod["status"]["podIP"]) for pod in pods}
    yield Grid(node, names, {**probes, **strangers})
    for name in names.values():
        node.api.delete("Namespace", name)


@pytest.fixture
def clean_grid(grid: Grid) -> Iterator[Grid]:
    yield grid
    grid.clear()


def test_without_a_policy_every_flow_is_open(clean_grid: Grid):
    assert clean_grid.expected() == dict.fromkeys(clean_grid.flows(), True)
    assert not (wrong := clean_grid.differences()), "\n".join(wrong)


def test_with_everything_denied_no_flow_between_pods_is_open(clean_grid: Grid):
    for name in NAMESPACES:
        clean_grid.apply(name, "deny", {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]})
    assert not (wrong := clean_grid.differences()), "\n".join(wrong)
    assert set(clean_grid.measured(clean_grid.flows()).values()) == {False}


@pytest.mark.parametrize("case", CASES)
def test_the_truth_table_holds(clean_grid: Grid, case: str):
    addresses = clean_grid.cluster.addresses
    policies = cases(addresses.pods, clean_grid.address("x", "a"), addresses.outside)[case]
    for number, (namespace, spec) in enumerate(policies):
        clean_grid.apply(namespace, f"policy-{number}", spec)
    assert not (wrong := clean_grid.differences()), "\n".join(wrong)


def test_a_pod_that_changes_its_labels_changes_its_sides(clean_grid: Grid):
    clean_grid.apply(
        "x",
        "only-b",
        {
            "podSelector": {"matchLabels": {"pod": "a"}},
            "ingress": [{"from": [{"podSelector": {"matchLabels": {"pod": "b"}}}]}],
        },
    )
    assert not (wrong := clean_grid.differences()), "\n".join(wrong)
    path = path_of("Pod", clean_grid.names["x"], "c")
    merge = "application/merge-patch+json"
    clean_grid.cluster.api.call("PATCH", path, {"metadata": {"labels": {"pod": "b"}}}, merge)
    try:
        assert not (wrong := clean_grid.differences()), "\n".join(wrong)
        allowed = (clean_grid.address("x", "c"), clean_grid.address("x", "a"), "tcp", 8080)
        assert clean_grid.expected()[allowed]
    finally:
        clean_grid.cluster.api.call("PATCH", path, {"metadata": {"labels": {"pod": "c"}}}, merge)


@pytest.mark.alone(on="cluster")
@pytest.mark.parametrize("protocol", ["tcp", "udp"])
@pytest.mark.parametrize("client", ["a", "c"], ids=["runc", "gvisor"])
def test_a_flow_that_a_policy_forbids_is_cut_and_its_neighbour_goes_on(clean_grid: Grid, protocol: str, client: str):
    probe = clean_grid.probes[clean_grid.address("x", client)]
    cut, kept = (f"{protocol}:{clean_grid.address(name, 'b')}:8080" for name in ("y", "z"))
    probe.open_stream(cut)
    probe.open_stream(kept)
    flowing = lambda target: probe.stream(target)["silent_seconds"] < 0.5  # noqa: E731 - one expression, used thrice
    assert wait_until(lambda: flowing(cut) and flowing(kept), 5)
    clean_grid.apply("y", "deny", {"podSelector": {}, "policyTypes": ["Ingress"]})
    assert wait_until(lambda: probe.stream(cut)["silent_seconds"] > 2, 15)
    echoes = probe.stream(cut)["echoes"]
    assert wait_until(lambda: flowing(kept), 5)
    assert probe.stream(cut)["echoes"] == echoes


@pytest.mark.alone(on="cluster")
def test_a_pod_gets_no_packet_out_before_its_policies_are_in_force_however_long_that_takes(
    clean_grid: Grid, new_namespace: Callable[..., str]
):
    node = clean_grid.cluster
    listener = clean_grid.address("z", "a")
    targets = [f"{protocol}:{listener}:{port}" for port in PORTS for protocol in ("tcp", "udp")]
    open_name, closed_name = new_namespace(), new_namespace()
    deny = {"podSelector": {}, "policyTypes": ["Egress"]}
    metadata = {"name": "deny", "namespace": closed_name}
    shouting = [(name, f"shout-{number}") for name in (open_name, closed_name) for number in range(3)]
    known = set(clean_grid.probes)

    def strange() -> set[str]:
        return set(clean_grid.probes[listener].heard()) - known

    enforcer = node.component("enforcer")
    kill(enforcer, signal.SIGSTOP)
    try:
        value = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata, "spec": deny}
        node.api.create(value)
        for name, pod in shouting:
            node.api.create(probe_pod(name, pod, ["shout", *targets]))
        assert not wait_until(lambda: bool(strange()), 6)
    finally:
        kill(enforcer, signal.SIGCONT)
    addresses = {key: node.pod_ready(*key)["status"]["podIP"] for key in shouting}
    those_of_the_open_one = {addresses[key] for key in shouting if key[0] == open_name}
    assert wait_until(lambda: those_of_the_open_one <= strange(), 10)
    assert strange() == those_of_the_open_one


@pytest.mark.alone(on="cluster")
def test_policies_hold_while_the_enforcer_is_dead_and_new_pods_wait_for_it(
    clean_grid: Grid, new_namespace: Callable[..., str]
):
    node = clean_grid.cluster
    clean_grid.apply("x", "deny", {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]})
    assert not (wrong := clean_grid.differences()), "\n".join(wrong)
    killed = node.kill("enforcer")
    assert wait_until(lambda: not alive(killed), 10)
    assert not (wrong := clean_grid.differences()), "\n".join(wrong)
    node.run_pod(probe_pod(new_namespace(), "after"), 60)
    assert not (wrong := clean_grid.differences()), "\n".join(wrong)
