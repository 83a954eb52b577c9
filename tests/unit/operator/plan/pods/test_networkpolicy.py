"""What the NetworkPolicies admit, by the model that also tests the cluster's enforcer."""

import ipaddress
from dataclasses import replace

import pytest
from cluster.harness.enforcer import parse
from cluster.harness.enforcer.model import Pod, World
from hypothesis import given, settings
from hypothesis import strategies as st
from sandfleet_operator.api.kinds.template import Egress, EgressRule
from sandfleet_operator.api.networks import network
from sandfleet_operator.plan.pods.egress import blocked
from sandfleet_operator.plan.pods.merge import Refusal, effective
from sandfleet_operator.plan.pods.networkpolicy import default_deny, own_egress, template_egress
from sandfleet_operator.plan.pods.podspec import PodRequest, sandbox_pod
from support.examples import examples
from support.operator.builders import EGRESS, SETTINGS, a_sandbox, a_sandbox_template, opens, pairs

PORT = SETTINGS.executor_port
SANDBOX = {"sandfleet.io/component": "sandbox"}
CLIENT = {"sandfleet.io/client": "true"}
FLEET = {"app.kubernetes.io/part-of": "sandfleet"}
PODS = {
    "10.1.0.1": ("team-a", SANDBOX),
    "10.1.0.2": ("team-a", SANDBOX),
    "10.1.0.3": ("team-a", CLIENT),
    "10.1.0.4": ("team-a", {}),
    "10.1.0.5": ("agents", CLIENT),
    "10.1.0.6": ("agents", {}),
    "10.1.0.7": ("other", CLIENT),
    "10.1.0.8": ("sandfleet-system", FLEET),
    "10.1.0.9": ("sandfleet-system", {}),
    "10.1.0.10": ("other", FLEET),
    "10.1.0.11": ("kube-system", {"k8s-app": "kube-dns"}),
    "10.1.0.12": ("kube-system", {}),
    "10.1.0.13": ("team-a", {"k8s-app": "kube-dns"}),
}
NAMESPACES = {
    name: {"kubernetes.io/metadata.name": name, **(CLIENT if name == "agents" else {})}
    for name in ("team-a", "agents", "other", "sandfleet-system", "kube-system")
}
STRANGER = "203.0.113.7"


def world(*policies, labels=SANDBOX) -> World:
    """`labels` are those of the first sandbox."""
    owners = PODS | {"10.1.0.1": ("team-a", labels)}
    pods = tuple(Pod(namespace, address, address, own) for address, (namespace, own) in owners.items())
    return World(pods, NAMESPACES, tuple(parse.policy(policy) for policy in policies if policy))


INGRESS = [
    ("another sandbox", "10.1.0.2", False),
    ("a client of the same namespace", "10.1.0.3", True),
    ("a pod of the same namespace", "10.1.0.4", False),
    ("a client of a namespace for clients", "10.1.0.5", True),
    ("another pod of a namespace for clients", "10.1.0.6", False),
    ("a pod that calls itself a client elsewhere", "10.1.0.7", False),
    ("the control plane", "10.1.0.8", True),
    ("another pod beside the control plane", "10.1.0.9", False),
    ("a pod that calls itself the control plane elsewhere", "10.1.0.10", False),
    ("a stranger", STRANGER, False),
]


@pytest.mark.parametrize(("who", "source", "allowed"), INGRESS, ids=[row[0] for row in INGRESS])
def test_default_deny_admits(who, source, allowed) -> None:
    closed = world(default_deny("team-a", SETTINGS))
    assert closed.allowed(source, "10.1.0.1", "TCP", PORT) is allowed
    assert not closed.allowed(source, "10.1.0.1", "TCP", PORT + 1)
    assert not closed.allowed(source, "10.1.0.1", "UDP", PORT)
    # Without it every client is admitted.
    assert world().allowed(source, "10.1.0.1", "TCP", PORT)


def test_default_deny_has_no_egress() -> None:
    closed = world(default_deny("team-a", SETTINGS))
    for address in (*PODS, STRANGER):
        assert not closed.allowed("10.1.0.1", address, "TCP", 443) or address == "10.1.0.1"
        assert world().allowed("10.1.0.1", address, "TCP", 443)


def test_default_deny_selects_no_other_pods() -> None:
    assert world(default_deny("team-a", SETTINGS)).allowed("10.1.0.12", "10.1.0.4", "TCP", 80)


def test_a_templates_policy_opens_its_list_for_its_class_only() -> None:
    policy = template_egress(a_sandbox_template(egress=opens(("203.0.113.0/24", 443, (8000, 8100)))), SETTINGS)
    assert policy["metadata"]["name"] == "sandfleet-egress-python"
    assert policy["metadata"]["ownerReferences"][0]["kind"] == "SandboxTemplate"
    for class_name, expected in (("python", True), ("other", False)):
        opened = world(
            default_deny("team-a", SETTINGS), policy, labels=SANDBOX | {"sandfleet.io/egress-class": class_name}
        )
        for port, listed in ((443, True), (8000, True), (8100, True), (8101, False), (80, False)):
            assert opened.allowed("10.1.0.1", STRANGER, "TCP", port) is (expected and listed)
        assert not opened.allowed("10.1.0.1", STRANGER, "UDP", 443)
        assert not opened.allowed("10.1.0.1", "203.0.114.1", "TCP", 443)
        assert not opened.allowed("10.1.0.1", "10.1.0.11", "UDP", 53)


def test_a_sandboxs_own_list_is_for_it_alone() -> None:
    wanted = opens("203.0.113.0/24")
    policy = own_egress(a_sandbox(), wanted, SETTINGS)
    assert policy["metadata"]["name"] == "sandfleet-own-egress-demo"
    assert policy["metadata"]["ownerReferences"][0]["kind"] == "CodeSandbox"
    for name, expected in (("demo", True), ("other", False)):
        opened = world(default_deny("team-a", SETTINGS), policy, labels=SANDBOX | {"sandfleet.io/egress-own": name})
        assert opened.allowed("10.1.0.1", STRANGER, "UDP", 1) is expected


DNS = [
    ("the cluster's resolver", "10.1.0.11", 53, True),
    ("another port of it", "10.1.0.11", 9153, False),
    ("another pod beside it", "10.1.0.12", 53, False),
    ("a pod that calls itself so elsewhere", "10.1.0.13", 53, False),
    ("a resolver of the world", "8.8.8.8", 53, False),
]


@pytest.mark.parametrize(("what", "address", "port", "allowed"), DNS, ids=[row[0] for row in DNS])
def test_names_are_resolved_by(what, address, port, allowed) -> None:
    policy = template_egress(a_sandbox_template(egress=Egress(dns=True)), SETTINGS)
    opened = world(default_deny("team-a", SETTINGS), policy, labels=SANDBOX | {"sandfleet.io/egress-class": "python"})
    for protocol in ("TCP", "UDP"):
        assert opened.allowed("10.1.0.1", address, protocol, port) is allowed


def test_an_empty_list_needs_no_policy() -> None:
    assert template_egress(a_sandbox_template(), SETTINGS) is None
    assert own_egress(a_sandbox(), Egress(), SETTINGS) is None


def blocks(*rules) -> list[dict]:
    policy = template_egress(
        a_sandbox_template(egress=opens(*rules)), replace(SETTINGS, blocked_cidrs=("10.96.0.0/12",))
    )
    return [rule["to"][0]["ipBlock"] for rule in policy["spec"]["egress"]]


BLOCKED = [
    ("far from all of it", "203.0.113.0/24", [{"cidr": "203.0.113.0/24"}]),
    ("bits behind the prefix", "203.0.113.9/24", [{"cidr": "203.0.113.0/24"}]),
    ("services inside", "10.0.0.0/8", [{"cidr": "10.0.0.0/8", "except": ["10.96.0.0/12"]}]),
    ("inside of services", "10.97.0.0/16", []),
    ("exactly the services", "10.96.0.0/12", []),
    ("metadata alone", "169.254.169.254/32", []),
    ("link-local inside", "169.0.0.0/8", [{"cidr": "169.0.0.0/8", "except": ["169.254.0.0/16"]}]),
    ("its own exceptions stay", EgressRule("10.0.0.0/8", ("10.1.0.0/16", "10.100.0.0/16")), [{"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16", "10.96.0.0/12"]}]),
    ("an exception elsewhere says nothing", EgressRule("203.0.113.0/24", ("10.1.0.0/16", "::/0")), [{"cidr": "203.0.113.0/24"}]),
    ("an exception around it leaves nothing", EgressRule("203.0.113.0/24", ("203.0.0.0/16",)), []),
    ("two exceptions that leave nothing", EgressRule("203.0.113.0/24", ("203.0.113.0/25", "203.0.113.128/25")), []),
    ("everything", "0.0.0.0/0", [{"cidr": "0.0.0.0/0", "except": ["10.96.0.0/12", "100.100.100.200/32", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16", "192.0.0.192/32", "224.0.0.0/4"]}]),
    ("IPv6, and services through NAT64", "64:ff9b::a60:0/108", []),
    ("link-local of IPv6", "fe80::/64", []),
]  # fmt: skip


@pytest.mark.parametrize(("what", "rule", "expected"), BLOCKED, ids=[row[0] for row in BLOCKED])
def test_rules_without_blocked_networks(what, rule, expected) -> None:
    assert blocks(rule) == expected


@given(EGRESS)
@settings(max_examples=examples(60))
def test_policies_never_open_blocked_networks_and_are_valid(wanted) -> None:
    policy = own_egress(a_sandbox(), wanted, SETTINGS)
    opened = (
        world(policy, labels=SANDBOX | {"sandfleet.io/egress-own": "demo"})
        if policy
        else world(default_deny("team-a", SETTINGS))
    )
    for one in blocked(SETTINGS.blocked_cidrs):
        for address in (one.network_address, one.broadcast_address):
            assert not any(opened.allowed("10.1.0.1", str(address), "TCP", port) for port in (53, 443, 8080))
    for rule in policy["spec"]["egress"] if policy else ():
        block = rule["to"][0].get("ipBlock")
        if block:
            whole = network(block["cidr"])
            for hole in map(ipaddress.ip_network, block.get("except", ())):
                assert hole.subnet_of(whole)
                assert hole != whole


@given(pairs(), st.sampled_from(["203.0.113.7", "2001:db8::1", "8.8.8.8"]), st.sampled_from([53, 443, 9000]))
@settings(max_examples=examples(60))
def test_a_pods_policies_open_exactly_its_sandboxs_egress(pair, address, port) -> None:
    result = effective(*pair, SETTINGS)
    if isinstance(result, Refusal):
        return
    pod = sandbox_pod(PodRequest(namespace="team-a", name="demo", wanted=result), SETTINGS)
    template = a_sandbox_template(egress=pair[0].egress)
    own = own_egress(a_sandbox(), result.egress, SETTINGS) if result.own_egress else None
    policies = (default_deny("team-a", SETTINGS), template_egress(template, SETTINGS), own)
    granted = any(
        ipaddress.ip_address(address) in network(rule.cidr)
        and not any(ipaddress.ip_address(address) in network(hole) for hole in rule.excluded)
        and (not rule.ports or any(p.protocol == "TCP" and p.port <= port <= max(p.port, p.end_port) for p in rule.ports))
        for rule in result.egress.allow
    )  # fmt: skip
    opened = world(*policies, labels=pod["metadata"]["labels"])
    assert opened.allowed("10.1.0.1", address, "TCP", port) is granted
