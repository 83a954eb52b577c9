"""Sets of NetworkPolicies for the truth table, by what they exercise, with their specs by namespace (x, y or z)."""

from __future__ import annotations

from typing import Any

Spec = dict[str, Any]
Case = list[tuple[str, Spec]]

ALL: Spec = {}
BOTH = ["Ingress", "Egress"]


def pods(**labels: str) -> Spec:
    return {"matchLabels": labels}


def one_of(key: str, operator: str, *values: str) -> Spec:
    return {"matchExpressions": [{"key": key, "operator": operator, **({"values": list(values)} if values else {})}]}


def tcp(port: int | str, last: int | None = None) -> Spec:
    return {"protocol": "TCP", "port": port, **({"endPort": last} if last else {})}


def udp(port: int | str) -> Spec:
    return {"protocol": "UDP", "port": port}


def incoming(subjects: Spec, *rules: Spec) -> Spec:
    return {"podSelector": subjects, "policyTypes": ["Ingress"], "ingress": list(rules)}


def outgoing(subjects: Spec, *rules: Spec) -> Spec:
    return {"podSelector": subjects, "policyTypes": ["Egress"], "egress": list(rules)}


def block(network: str, *exceptions: str) -> Spec:
    return {"ipBlock": {"cidr": network, **({"except": list(exceptions)} if exceptions else {})}}


def cases(pod_network: str, one_pod: str, outside: tuple[str, str]) -> dict[str, Case]:
    """`one_pod` is x/a's address, `outside` are two addresses that belong to no pod and are not the node's."""
    other_pods = {"podSelector": pods(pod="b")}
    team = {"namespaceSelector": pods(team="y")}
    return {
        "no policy": [],
        "deny what comes in": [("x", incoming(ALL))],
        "deny what goes out": [("x", outgoing(ALL))],
        "deny both, everywhere": [(name, {"podSelector": ALL, "policyTypes": BOTH}) for name in "xyz"],
        "allow everything explicitly": [("x", incoming(ALL, {})), ("x", outgoing(ALL, {}))],
        "ingress only, because no types are named": [("x", {"podSelector": pods(pod="a")})],
        "both, because egress rules are there": [("x", {"podSelector": ALL, "egress": [{"to": [team]}]})],
        "one pod denied": [("x", incoming(pods(pod="a")))],
        "pods of the same namespace": [("x", incoming(ALL, {"from": [{"podSelector": ALL}]}))],
        "one pod of the same namespace": [("x", incoming(ALL, {"from": [other_pods]}))],
        "a whole other namespace": [("x", incoming(ALL, {"from": [team]}))],
        "every namespace, which is no stranger": [("x", incoming(ALL, {"from": [{"namespaceSelector": ALL}]}))],
        "one pod of one other namespace": [("x", incoming(ALL, {"from": [{**team, **other_pods}]}))],
        "a namespace or a pod": [("x", incoming(ALL, {"from": [team, other_pods]}))],
        "a namespace by its own name": [
            ("x", incoming(ALL, {"from": [{"namespaceSelector": one_of("role", "Exists")}]})),
        ],
        "namespaces but one": [("x", incoming(ALL, {"from": [{"namespaceSelector": one_of("team", "NotIn", "y")}]}))],
        "pods by an expression": [
            ("x", incoming(one_of("pod", "In", "a", "b"), {"from": [{"podSelector": one_of("pod", "NotIn", "b")}]}))
        ],
        "pods without a label": [("x", incoming(one_of("sandboxed", "DoesNotExist")))],
        "one TCP port": [("x", incoming(ALL, {"ports": [tcp(8080)]}))],
        "one UDP port": [("x", incoming(ALL, {"ports": [udp(9090)]}))],
        "one port of each, from one pod": [
            ("x", incoming(ALL, {"from": [other_pods], "ports": [tcp(8080), udp(9090)]}))
        ],
        "a range of ports": [("x", incoming(ALL, {"ports": [tcp(8000, 8999)]}))],
        "all ports of one protocol": [("x", incoming(ALL, {"ports": [{"protocol": "UDP"}]}))],
        "a named port, another number on each pod": [("x", incoming(ALL, {"ports": [tcp("web")]}))],
        "a named port of each destination": [("x", outgoing(ALL, {"ports": [tcp("web"), udp("names")]}))],
        "a named port that no pod has": [("x", incoming(ALL, {"ports": [tcp("nothing")]}))],
        "policies add up": [
            ("x", incoming(ALL)),
            ("x", incoming(pods(pod="a"), {"from": [team], "ports": [tcp(8080)]})),
            ("x", incoming(pods(pod="a"), {"from": [other_pods], "ports": [udp(8080)]})),
        ],
        "out to one namespace": [("x", outgoing(ALL, {"to": [team]}))],
        "out to one port": [("x", outgoing(ALL, {"ports": [tcp(9090)]}))],
        "out to one pod, which lets no pod in": [
            ("x", outgoing(ALL, {"to": [{**team, **other_pods}]})),
            ("y", incoming(pods(pod="b"))),
        ],
        "out here, in there": [
            ("x", outgoing(pods(pod="a"), {"to": [team], "ports": [tcp(8080)]})),
            ("y", incoming(ALL, {"from": [{"namespaceSelector": pods(team="x")}], "ports": [tcp(8080), tcp(9090)]})),
        ],
        "out to a block": [("x", outgoing(ALL, {"to": [block(f"{outside[0]}/32")]}))],
        "out to everywhere but the pods": [("x", outgoing(ALL, {"to": [block("0.0.0.0/0", pod_network)]}))],
        "out to a block with an exception": [
            ("x", outgoing(ALL, {"to": [block("0.0.0.0/0", f"{outside[1]}/32", f"{one_pod}/32")]})),
        ],
        "in from a block with an exception": [
            ("x", incoming(ALL, {"from": [block("0.0.0.0/0", f"{outside[0]}/32")], "ports": [tcp(8080)]})),
        ],
        "in from one address": [("x", incoming(ALL, {"from": [block(f"{outside[1]}/32")]}))],
        "a block or a pod": [("x", incoming(ALL, {"from": [block(f"{outside[1]}/32"), other_pods]}))],
    }
