"""From the API's objects, as JSON, to the values of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .model import AddressBlock, NamedPort, Peer, Pod, Policy, PortRange, Requirement, Rule, Selector

Json = Mapping[str, Any]


def selector(value: Json | None) -> Selector:
    value = value or {}
    exact = [Requirement(key, "In", frozenset({label})) for key, label in (value.get("matchLabels") or {}).items()]
    expressions = [
        Requirement(item["key"], item["operator"], frozenset(item.get("values") or ()))
        for item in value.get("matchExpressions") or ()
    ]
    return Selector((*exact, *expressions))


def _peer(value: Json) -> Peer:
    if block := value.get("ipBlock"):
        return Peer(block=AddressBlock(block["cidr"], tuple(block.get("except") or ())))
    pods, namespaces = value.get("podSelector"), value.get("namespaceSelector")
    return Peer(
        pods=None if pods is None else selector(pods),
        namespaces=None if namespaces is None else selector(namespaces),
    )


def _rules(values: Sequence[Json] | None, peers: str) -> tuple[Rule, ...]:
    return tuple(
        Rule(
            tuple(_peer(item) for item in value.get(peers) or ()),
            tuple(
                PortRange(item.get("protocol", "TCP"), item.get("port"), item.get("endPort"))
                for item in value.get("ports") or ()
            ),
        )
        for value in values or ()
    )


def policy(value: Json) -> Policy:
    spec = value["spec"]
    ingress, egress = _rules(spec.get("ingress"), "from"), _rules(spec.get("egress"), "to")
    directions = spec.get("policyTypes") or ["Ingress", *(["Egress"] if egress else [])]
    return Policy(
        value["metadata"]["namespace"],
        value["metadata"]["name"],
        selector(spec.get("podSelector")),
        frozenset(directions),
        ingress,
        egress,
    )


def pod(value: Json, address: str) -> Pod:
    ports = (
        NamedPort(port["name"], port.get("protocol", "TCP"), port["containerPort"])
        for container in value["spec"].get("containers", ())
        for port in container.get("ports") or ()
        if port.get("name")
    )
    metadata = value["metadata"]
    return Pod(metadata["namespace"], metadata["name"], address, metadata.get("labels") or {}, tuple(ports))


def pod_address(value: Json) -> str | None:
    """The pod's own address; None while it has none, when it is over, and for a pod that uses the node's."""
    status = value.get("status", {})
    if value["spec"].get("hostNetwork") or status.get("phase") in {"Succeeded", "Failed"}:
        return None
    return status.get("podIP") or None
