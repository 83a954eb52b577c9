"""The meaning of a NetworkPolicy, as a pure function over frozen values: the enforcer is tested against it."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Requirement:
    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def holds(self, labels: Labels) -> bool:
        match self.operator:
            case "In":
                return self.key in labels and labels[self.key] in self.values
            case "NotIn":
                return self.key not in labels or labels[self.key] not in self.values
            case "Exists":
                return self.key in labels
            case "DoesNotExist":
                return self.key not in labels
            case _:
                raise ValueError(f"cannot select by {self.key!r}: unknown operator {self.operator!r}")


@dataclass(frozen=True)
class Selector:
    """All requirements hold; without any it selects everything."""

    requirements: tuple[Requirement, ...] = ()

    def selects(self, labels: Labels) -> bool:
        return all(requirement.holds(labels) for requirement in self.requirements)


@dataclass(frozen=True)
class NamedPort:
    name: str
    protocol: str
    number: int


@dataclass(frozen=True)
class Pod:
    namespace: str
    name: str
    address: str
    labels: Labels = field(default_factory=dict)
    ports: tuple[NamedPort, ...] = ()


@dataclass(frozen=True)
class AddressBlock:
    network: str
    exceptions: tuple[str, ...] = ()

    def contains(self, address: str) -> bool:
        value = ipaddress.ip_address(address)
        inside = value in ipaddress.ip_network(self.network)
        return inside and not any(value in ipaddress.ip_network(hole) for hole in self.exceptions)


@dataclass(frozen=True)
class Peer:
    """Either a block of addresses or pods: `namespaces` None means the policy's own, `pods` None means all of them."""

    pods: Selector | None = None
    namespaces: Selector | None = None
    block: AddressBlock | None = None


@dataclass(frozen=True)
class PortRange:
    """`port` None means every port, a name is looked up on the destination pod, `last` ends a range of numbers."""

    protocol: str = "TCP"
    port: int | str | None = None
    last: int | None = None


@dataclass(frozen=True)
class Rule:
    """No peers means everybody, no ports means everything."""

    peers: tuple[Peer, ...] = ()
    ports: tuple[PortRange, ...] = ()


@dataclass(frozen=True)
class Policy:
    namespace: str
    name: str
    subjects: Selector = Selector()
    directions: frozenset[str] = frozenset({"Ingress"})
    ingress: tuple[Rule, ...] = ()
    egress: tuple[Rule, ...] = ()


@dataclass(frozen=True)
class World:
    pods: tuple[Pod, ...] = ()
    namespaces: Mapping[str, Labels] = field(default_factory=dict)
    policies: tuple[Policy, ...] = ()

    def pod_at(self, address: str) -> Pod | None:
        return next((pod for pod in self.pods if pod.address == address), None)

    def policies_of(self, pod: Pod, direction: str) -> tuple[Policy, ...]:
        return tuple(
            policy
            for policy in self.policies
            if policy.namespace == pod.namespace
            and direction in policy.directions
            and policy.subjects.selects(pod.labels)
        )

    def is_peer(self, peer: Peer, policy: Policy, address: str) -> bool:
        if peer.block is not None:
            return peer.block.contains(address)
        pod = self.pod_at(address)
        if pod is None:
            return False
        if peer.namespaces is None:
            right_namespace = pod.namespace == policy.namespace
        else:
            right_namespace = peer.namespaces.selects(self.namespaces.get(pod.namespace, {}))
        return right_namespace and (peer.pods is None or peer.pods.selects(pod.labels))

    def is_port(self, wanted: PortRange, destination: str, protocol: str, port: int) -> bool:
        if wanted.protocol != protocol:
            return False
        if wanted.port is None:
            return True
        if isinstance(wanted.port, int):
            return wanted.port <= port <= (wanted.last or wanted.port)
        pod = self.pod_at(destination)
        return pod is not None and NamedPort(wanted.port, protocol, port) in pod.ports

    def allowed(self, source: str, destination: str, protocol: str, port: int) -> bool:
        """Whether a new flow between two addresses may begin. The node is no pod: the caller lets it reach its pods."""

        def admits(rule: Rule, policy: Policy, other: str) -> bool:
            right_peer = not rule.peers or any(self.is_peer(peer, policy, other) for peer in rule.peers)
            return right_peer and (
                not rule.ports or any(self.is_port(wanted, destination, protocol, port) for wanted in rule.ports)
            )

        sender, receiver = self.pod_at(source), self.pod_at(destination)
        if sender is not None and sender == receiver:
            return True
        leaving = self.policies_of(sender, "Egress") if sender else ()
        entering = self.policies_of(receiver, "Ingress") if receiver else ()
        may_leave = not leaving or any(
            admits(rule, policy, destination) for policy in leaving for rule in policy.egress
        )
        may_enter = not entering or any(admits(rule, policy, source) for policy in entering for rule in policy.ingress)
        return may_leave and may_enter
