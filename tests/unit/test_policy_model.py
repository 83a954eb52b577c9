"""The yardstick of the policy enforcer, against cases whose answers are written out by hand."""

from __future__ import annotations

import pytest
from cluster.harness.enforcer import parse
from cluster.harness.enforcer.model import NamedPort, Pod, World
from cluster.harness.enforcer.model import Policy as ParsedPolicy

SHOP_WEB, SHOP_DB, LAB_WEB, OUTSIDE = "10.0.0.1", "10.0.0.2", "10.0.1.1", "192.0.2.7"
PODS = (
    Pod("shop", "web", SHOP_WEB, {"app": "web", "tier": "front"}, (NamedPort("http", "TCP", 8080),)),
    Pod("shop", "db", SHOP_DB, {"app": "db"}, (NamedPort("sql", "TCP", 5432), NamedPort("sql", "UDP", 5433))),
    Pod("lab", "web", LAB_WEB, {"app": "web"}, (NamedPort("http", "TCP", 9090),)),
)
NAMESPACES = {"shop": {"kubernetes.io/metadata.name": "shop", "team": "a"}, "lab": {"team": "b"}}


def policy(**spec: object) -> ParsedPolicy:
    return parse.policy({"metadata": {"name": "policy", "namespace": "shop"}, "spec": {"podSelector": {}, **spec}})


def world(*policies: ParsedPolicy) -> World:
    return World(PODS, NAMESPACES, policies)


def ingress(*peers: object, ports: object = ()) -> ParsedPolicy:
    return policy(ingress=[{"from": list(peers), "ports": ports}])


def egress(*peers: object, ports: object = ()) -> ParsedPolicy:
    return policy(policyTypes=["Egress"], egress=[{"to": list(peers), "ports": ports}])


def test_without_policies_all_pods_reach_each_other():
    assert world().allowed(LAB_WEB, SHOP_DB, "TCP", 5432)
    assert world().allowed(SHOP_DB, OUTSIDE, "UDP", 53)
    assert world().allowed(OUTSIDE, SHOP_DB, "TCP", 1)


def test_an_empty_ingress_policy_denies_what_comes_in_and_nothing_else():
    denied = world(policy())
    assert not denied.allowed(LAB_WEB, SHOP_DB, "TCP", 5432)
    assert not denied.allowed(SHOP_WEB, SHOP_DB, "TCP", 5432)
    assert not denied.allowed(OUTSIDE, SHOP_DB, "TCP", 5432)
    assert denied.allowed(SHOP_DB, LAB_WEB, "TCP", 9090)


def test_a_pod_always_reaches_itself():
    closed = world(policy(policyTypes=["Ingress", "Egress"]))
    assert closed.allowed(SHOP_DB, SHOP_DB, "TCP", 5432)
    assert not closed.allowed(SHOP_DB, SHOP_WEB, "TCP", 8080)


def test_both_the_sender_and_the_receiver_have_to_agree():
    out = egress({"podSelector": {"matchLabels": {"app": "db"}}})
    closed = policy(podSelector={"matchLabels": {"app": "db"}}, policyTypes=["Ingress"])
    assert world(out).allowed(SHOP_WEB, SHOP_DB, "TCP", 5432)
    assert not world(out, closed).allowed(SHOP_WEB, SHOP_DB, "TCP", 5432)
    assert not world(out).allowed(SHOP_WEB, LAB_WEB, "TCP", 9090)


def test_policies_add_up():
    assert world(policy(), ingress({"namespaceSelector": {}})).allowed(LAB_WEB, SHOP_DB, "TCP", 5432)


@pytest.mark.parametrize(
    ("spec", "incoming", "outgoing"),
    [
        ({}, False, True),
        ({"egress": [{}]}, False, True),
        ({"ingress": [{}]}, True, True),
        ({"policyTypes": ["Egress"]}, True, False),
        ({"policyTypes": ["Egress"], "ingress": [{}]}, True, False),
        ({"policyTypes": ["Ingress", "Egress"], "egress": [{}]}, False, True),
    ],
)
def test_which_directions_a_policy_isolates(spec: dict[str, object], incoming: bool, outgoing: bool):
    one = world(policy(**spec))
    assert one.allowed(LAB_WEB, SHOP_DB, "TCP", 1) is incoming
    assert one.allowed(SHOP_DB, LAB_WEB, "TCP", 1) is outgoing


@pytest.mark.parametrize(
    ("peer", "web", "other_namespace", "outside"),
    [
        ({"podSelector": {}}, True, False, False),
        ({"podSelector": {"matchLabels": {"app": "web"}}}, True, False, False),
        ({"namespaceSelector": {}}, True, True, False),
        ({"namespaceSelector": {"matchLabels": {"team": "b"}}}, False, True, False),
        ({"namespaceSelector": {}, "podSelector": {"matchLabels": {"tier": "front"}}}, True, False, False),
        ({"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "web"}}}, True, True, False),
        (
            {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["b"]}]}},
            True,
            False,
            False,
        ),
        ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "shop"}}}, True, False, False),
        ({"ipBlock": {"cidr": "0.0.0.0/0"}}, True, True, True),
        ({"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/16"]}}, False, False, True),
        ({"ipBlock": {"cidr": "10.0.0.0/16", "except": ["10.0.0.0/24"]}}, False, True, False),
        ({"ipBlock": {"cidr": "192.0.2.7/32"}}, False, False, True),
    ],
)
def test_who_a_peer_is(peer: object, web: bool, other_namespace: bool, outside: bool):
    one = world(ingress(peer))
    answers = [one.allowed(source, SHOP_DB, "TCP", 5432) for source in (SHOP_WEB, LAB_WEB, OUTSIDE)]
    assert answers == [web, other_namespace, outside]


@pytest.mark.parametrize(
    ("ports", "tcp", "udp", "number", "allowed"),
    [
        ([], True, True, 5432, True),
        ([{"port": 5432}], True, False, 5432, True),
        ([{"port": 5431}], True, False, 5432, False),
        ([{"protocol": "UDP", "port": 5432}], False, True, 5432, True),
        ([{"protocol": "UDP"}], False, True, 5432, True),
        ([{"port": 5000, "endPort": 5432}], True, False, 5432, True),
        ([{"port": 5000, "endPort": 5431}], True, False, 5432, False),
        ([{"port": "sql"}], True, False, 5432, True),
        ([{"port": "sql", "protocol": "UDP"}], False, True, 5433, True),
        ([{"port": "sql", "protocol": "UDP"}], False, True, 5432, False),
        ([{"port": "http"}], True, False, 5432, False),
        ([{"port": "http"}], True, False, 8080, False),
    ],
)
def test_which_ports_a_rule_names(ports: object, tcp: bool, udp: bool, number: int, allowed: bool):
    one = world(ingress(ports=ports))
    assert one.allowed(LAB_WEB, SHOP_DB, "TCP", number) is (tcp and allowed)
    assert one.allowed(LAB_WEB, SHOP_DB, "UDP", number) is (udp and allowed)


def test_a_named_port_of_an_egress_rule_is_looked_up_on_each_destination():
    one = world(egress(ports=[{"port": "http"}]))
    assert one.allowed(SHOP_DB, SHOP_WEB, "TCP", 8080)
    assert one.allowed(SHOP_DB, LAB_WEB, "TCP", 9090)
    assert not one.allowed(SHOP_DB, LAB_WEB, "TCP", 8080)
    assert not one.allowed(SHOP_DB, OUTSIDE, "TCP", 8080)


@pytest.mark.parametrize(
    ("operator", "values", "selected"),
    [
        ("In", ["web", "x"], [SHOP_WEB]),
        ("NotIn", ["web"], [SHOP_DB]),
        ("Exists", [], [SHOP_WEB, SHOP_DB]),
        ("DoesNotExist", [], []),
    ],
)
def test_what_an_expression_selects(operator: str, values: list[str], selected: list[str]):
    expression = {"key": "app", "operator": operator, "values": values}
    one = world(policy(podSelector={"matchExpressions": [expression]}))
    assert [address for address in (SHOP_WEB, SHOP_DB) if not one.allowed(LAB_WEB, address, "TCP", 1)] == selected


def test_a_label_that_is_missing_is_not_in_and_is_no_reason_against_not_in():
    expression = {"key": "tier", "operator": "NotIn", "values": ["front"]}
    one = world(policy(podSelector={"matchExpressions": [expression]}))
    assert not one.allowed(LAB_WEB, SHOP_DB, "TCP", 1)
    assert one.allowed(LAB_WEB, SHOP_WEB, "TCP", 1)


def test_an_unknown_operator_is_refused_and_not_taken_for_a_match():
    one = world(policy(podSelector={"matchExpressions": [{"key": "app", "operator": "Like", "values": ["w"]}]}))
    with pytest.raises(ValueError, match="unknown operator 'Like'"):
        one.allowed(LAB_WEB, SHOP_DB, "TCP", 1)


def test_a_pod_that_is_over_or_uses_the_nodes_address_has_no_address_of_its_own():
    running = {"spec": {}, "status": {"phase": "Running", "podIP": SHOP_DB}}
    assert parse.pod_address(running) == SHOP_DB
    assert parse.pod_address({**running, "spec": {"hostNetwork": True}}) is None
    assert parse.pod_address({**running, "status": {"phase": "Succeeded", "podIP": SHOP_DB}}) is None
    assert parse.pod_address({"spec": {}, "status": {}}) is None
