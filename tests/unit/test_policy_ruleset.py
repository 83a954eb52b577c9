"""The pure parts of the policy enforcer around its model: the nftables, the flows to cut, what it remembers."""

from __future__ import annotations

import socket
import sys
from dataclasses import replace

from cluster.harness.enforcer import conntrack, netlink, parse
from cluster.harness.enforcer.model import NamedPort, Pod, World
from cluster.harness.enforcer.ruleset import Node, render
from cluster.harness.enforcer.state import Attached, State

NODE = Node("10.0.0.0/16", "uplink", "10.9.0.1")
A, B = "10.0.0.1", "10.0.0.2"
PODS = (Pod("shop", "a", A, {"app": "a"}), Pod("shop", "b", B, {"app": "b"}, (NamedPort("http", "TCP", 8080),)))


def world(**spec: object) -> World:
    value = {"metadata": {"name": "policy", "namespace": "shop"}, "spec": spec}
    return World(PODS, {"shop": {}}, (parse.policy(value),))


def chains(script: str) -> dict[str, list[str]]:
    """The lines of each chain of pods, by the direction and the address that jumps to it."""
    bodies: dict[str, list[str]] = {}
    name = ""
    for line in script.splitlines():
        if line.startswith("  chain "):
            name = line.split()[1]
            bodies[name] = []
        elif line.startswith("    "):
            bodies[name].append(line.strip())
    found = {}
    for line in script.splitlines():
        if line.startswith("  map "):
            direction = line.split()[1]
            _, _, elements = line.partition("elements = {")
            for element in elements.split("}")[0].split(","):
                if ":" in element:
                    address, _, chain = element.partition(" : jump ")
                    found[f"{direction} {address.strip()}"] = bodies[chain.strip()]
    return found


def test_an_unselected_pod_has_no_chain():
    assert chains(render(World(PODS, {}, ()), NODE)) == {}


def test_a_denied_pod_has_a_chain_that_only_drops():
    found = chains(render(world(podSelector={"matchLabels": {"app": "b"}}), NODE))
    assert found == {f"ingress {B}": ["drop"]}


def test_a_rule_becomes_the_addresses_of_its_peers_and_the_ports_of_its_destination():
    rule = {
        "from": [{"podSelector": {"matchLabels": {"app": "a"}}}],
        "ports": [{"port": "http"}, {"port": 90, "endPort": 99}],
    }
    found = chains(render(world(podSelector={"matchLabels": {"app": "b"}}, ingress=[rule]), NODE))
    assert found == {f"ingress {B}": [f"ip saddr {{ {A}/32 }} tcp dport {{ 90-99, 8080 }} return", "drop"]}


def test_ports_that_overlap_are_merged_because_nftables_refuses_them():
    ports = [{"port": 80, "endPort": 90}, {"port": 85, "endPort": 95}, {"port": 96}]
    found = chains(render(world(podSelector={"matchLabels": {"app": "b"}}, ingress=[{"ports": ports}]), NODE))
    assert found[f"ingress {B}"] == ["tcp dport { 80-96 } return", "drop"]


def test_a_peer_without_pods_lets_no_pod_in():
    rule = {"from": [{"podSelector": {"matchLabels": {"app": "nobody"}}}]}
    found = chains(render(world(podSelector={"matchLabels": {"app": "b"}}, ingress=[rule]), NODE))
    assert found[f"ingress {B}"] == ["drop"]


def test_a_named_port_that_no_destination_has_opens_nothing():
    found = chains(
        render(world(podSelector={"matchLabels": {"app": "a"}}, ingress=[{"ports": [{"port": "http"}]}]), NODE)
    )
    assert found[f"ingress {A}"] == ["drop"]


def test_exceptions_are_cut_out_of_a_block():
    rule = {"to": [{"ipBlock": {"cidr": "10.0.0.0/30", "except": ["10.0.0.1/32"]}}]}
    spec = {"podSelector": {"matchLabels": {"app": "a"}}, "policyTypes": ["Egress"], "egress": [rule]}
    found = chains(render(world(**spec), NODE))
    assert found[f"egress {A}"] == ["ip daddr { 10.0.0.0/32, 10.0.0.2/31 } return", "drop"]


def test_an_undecided_address_is_dropped_before_any_rule():
    lines = [line.strip() for line in render(World(), NODE).splitlines()]
    decide = lines[lines.index("chain decide {") : lines.index("chain forward {")]
    assert decide.index("ip saddr 10.0.0.0/16 ip saddr != @known drop") < decide.index("ip saddr vmap @egress")
    assert "ip daddr 10.0.0.0/16 ip daddr != @known drop" in decide


def test_the_whole_table_is_replaced_in_one_transaction():
    assert render(World(), NODE).splitlines()[:2] == [
        "table inet sandfleet_policy { }",
        "delete table inet sandfleet_policy",
    ]


LISTING = f"""\
tcp      6 431999 ESTABLISHED src={A} dst=10.96.0.10 sport=40000 dport=80 src={B} dst={A} sport=8080 dport=40000 [ASSURED] use=1
udp      17 20 src={A} dst={B} sport=5000 dport=53 [UNREPLIED] src={B} dst={A} sport=53 dport=5000 use=1
tcp      6 10 ESTABLISHED src=10.9.0.1 dst={B} sport=1 dport=8080 src={B} dst=10.9.0.1 sport=8080 dport=1 use=1
icmp     1 29 src={A} dst={B} type=8 code=0 id=1 src={B} dst={A} type=0 code=0 id=1 use=1
"""


def test_a_flow_to_a_service_is_judged_by_the_pod_behind_it():
    first = next(conntrack.parse(LISTING))
    assert (first.destination, first.port) == (B, 8080)
    assert (first.asked, first.asked_port) == ("10.96.0.10", 80)


def test_a_connection_that_is_over_is_not_looked_at():
    over = LISTING.replace("ESTABLISHED", "TIME_WAIT")
    assert [flow.protocol for flow in conntrack.parse(over)] == ["udp"]


def test_a_flow_is_deleted_by_the_ends_that_were_asked_for():
    first = next(conntrack.parse(LISTING))
    request = netlink.message(first)
    assert int.from_bytes(request[:4], sys.byteorder) == len(request)
    for part in (
        socket.inet_aton(A),
        socket.inet_aton("10.96.0.10"),
        (40000).to_bytes(2, "big"),
        (80).to_bytes(2, "big"),
    ):
        assert part in request
    assert socket.inet_aton(B) not in request


def test_a_tightened_policy_cuts_the_flows_of_pods_and_not_those_of_the_node():
    denied = world(podSelector={"matchLabels": {"app": "b"}})
    cut = conntrack.forbidden(denied, conntrack.parse(LISTING), NODE.machine_address)
    assert [(flow.protocol, flow.source, flow.port) for flow in cut] == [("tcp", A, 8080), ("udp", A, 53)]
    assert conntrack.forbidden(World(PODS, {}, ()), conntrack.parse(LISTING), NODE.machine_address) == []


def pod(name: str, version: int, address: str | None = None) -> dict[str, object]:
    metadata = {"namespace": "shop", "name": name, "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": {}, "status": {"podIP": address} if address else {}}


def test_a_watch_that_lags_does_not_take_back_what_a_fresher_read_said():
    state = State()
    state.pods.put(pod("a", 5, "10.0.0.5"))
    state.pods.put(pod("a", 4, "10.0.0.4"))
    state.pods.drop(pod("a", 4))
    assert [entry.address for entry in state.world().pods] == ["10.0.0.5"]


def test_an_address_counts_from_when_the_network_is_made_and_the_old_sandbox_takes_only_its_own_away():
    state = State()
    state.pods.put(pod("a", 1))
    state.attached["shop", "a"] = Attached("old", "10.0.0.4")
    state.attached["shop", "a"] = Attached("new", "10.0.0.5")
    state.detach("old")
    assert [entry.address for entry in state.world().pods] == ["10.0.0.5"]
    state.detach("new")
    assert state.world().pods == ()


def test_a_list_of_one_namespace_leaves_the_others_alone():
    state = State()
    state.policies.put(pod("a", 1))
    other = pod("b", 1)
    other["metadata"]["namespace"] = "lab"
    state.policies.put(other)
    state.policies.replace([], "shop")
    assert list(state.policies.objects) == [("lab", "b")]


def test_an_answer_that_was_on_its_way_when_its_flow_was_cut_begins_no_flow_of_its_own():
    asked = conntrack.Flow("udp", "10.0.1.2", 4000, "10.0.1.3", 8080, "10.0.1.3", 8080)
    answer = conntrack.Flow("udp", "10.0.1.3", 8080, "10.0.1.2", 4000, "10.0.1.2", 4000)
    others = [replace(answer, source_port=9090), replace(answer, protocol="tcp"), asked]
    assert conntrack.answers([asked], [*others, answer]) == [answer]
    assert conntrack.answers([replace(asked, protocol="tcp")], [*others, answer]) == []
