"""The model as nftables: one pure function from a world to a table that replaces the old one at once."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from .model import Peer, Pod, Policy, PortRange, Rule, World

TABLE = "inet sandfleet_policy"
EVERYWHERE = "0.0.0.0/0"


@dataclass(frozen=True)
class Node:
    """Where the pods are, and from where (link and address) the machine itself comes, which counts as the node."""

    pods: str
    machine_link: str
    machine_address: str


def _without(network: str, holes: Iterable[str]) -> list[ipaddress.IPv4Network]:
    remaining = [ipaddress.IPv4Network(network, strict=False)]
    for hole in (ipaddress.IPv4Network(value, strict=False) for value in holes):
        pieces: list[ipaddress.IPv4Network] = []
        for part in remaining:
            if hole.supernet_of(part):
                continue
            pieces.extend(part.address_exclude(hole) if part.supernet_of(hole) else [part])
        remaining = pieces
    return remaining


def _addresses(world: World, policy: Policy, peers: tuple[Peer, ...]) -> list[str]:
    """Everybody whom the peers name, as the fewest networks."""
    if not peers:
        return [EVERYWHERE]
    networks: list[ipaddress.IPv4Network] = []
    for peer in peers:
        if peer.block is None:
            networks.extend(
                ipaddress.IPv4Network(pod.address) for pod in world.pods if world.is_peer(peer, policy, pod.address)
            )
        elif ":" not in peer.block.network:
            networks.extend(_without(peer.block.network, peer.block.exceptions))
    return [str(network) for network in ipaddress.collapse_addresses(networks)]


def _merged(ranges: Iterable[tuple[int, int]]) -> str:
    """Ranges of ports for nftables, which refuses a set whose elements overlap."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in merged)


def _match(field: str, addresses: list[str]) -> str:
    return "" if addresses == [EVERYWHERE] else f"ip {field} {{ {', '.join(addresses)} }} "


def _numbers(wanted: PortRange, destination: Pod | None) -> list[tuple[int, int]]:
    match wanted.port:
        case None:
            return [(0, 65535)]
        case int(number):
            return [(number, wanted.last or number)]
        case name:
            ports = destination.ports if destination else ()
            return [(p.number, p.number) for p in ports if (p.name, p.protocol) == (name, wanted.protocol)]


def _permits(rule: Rule, addresses: list[str], field: str, destination: Pod | None) -> list[str]:
    """The nftables rules that let a rule's flows through, as far as its ports are known for this destination."""
    if not addresses:
        return []
    match = _match(field, addresses)
    if not rule.ports:
        return [f"{match}return"]
    lines = []
    for protocol in sorted({wanted.protocol for wanted in rule.ports}):
        wanted = [port for port in rule.ports if port.protocol == protocol]
        if ranges := _merged(pair for port in wanted for pair in _numbers(port, destination)):
            lines.append(f"{match}{protocol.lower()} dport {{ {ranges} }} return")
    return lines


def _ingress(world: World, pod: Pod, policies: tuple[Policy, ...]) -> list[str]:
    return [
        line
        for policy in policies
        for rule in policy.ingress
        for line in _permits(rule, _addresses(world, policy, rule.peers), "saddr", pod)
    ]


def _egress(world: World, policies: tuple[Policy, ...]) -> list[str]:
    lines = []
    for policy in policies:
        for rule in policy.egress:
            addresses = _addresses(world, policy, rule.peers)
            numbered = Rule(rule.peers, tuple(port for port in rule.ports if not isinstance(port.port, str)))
            named = Rule(rule.peers, tuple(port for port in rule.ports if isinstance(port.port, str)))
            if numbered.ports or not rule.ports:
                lines += _permits(numbered, addresses, "daddr", None)
            if named.ports:
                # A name may mean another number on each destination.
                for pod in world.pods:
                    if any(ipaddress.ip_address(pod.address) in ipaddress.ip_network(net) for net in addresses):
                        lines += _permits(named, [pod.address], "daddr", pod)
    return lines


def _isolated(world: World, direction: str) -> dict[str, tuple[str, ...]]:
    """For each address that a policy of this direction selects: the rules of its chain."""
    chains = {}
    for pod in world.pods:
        if policies := world.policies_of(pod, direction):
            lines = _ingress(world, pod, policies) if direction == "Ingress" else _egress(world, policies)
            chains[pod.address] = tuple(dict.fromkeys(lines))
    return chains


def _set(kind: str, name: str, of: str, elements: Iterable[str]) -> str:
    listed = ", ".join(elements)
    return f"  {kind} {name} {{ type {of}; {f'elements = {{ {listed} }};' if listed else ''} }}"


def render(world: World, node: Node) -> str:
    """An nft script that replaces the whole table in one transaction. Traffic without a decision is dropped."""
    chains: dict[str, tuple[str, ...]] = {}
    maps = []
    for direction in ("Egress", "Ingress"):
        elements = []
        for address, lines in sorted(_isolated(world, direction).items()):
            chain = f"{direction.lower()}_{hashlib.sha256(chr(10).join(lines).encode()).hexdigest()[:16]}"
            chains[chain] = lines
            elements.append(f"{address} : jump {chain}")
        maps.append(_set("map", direction.lower(), "ipv4_addr : verdict", elements))
    bodies = [
        f"  chain {name} {{\n" + "".join(f"    {line}\n" for line in (*lines, "drop")) + "  }"
        for name, lines in chains.items()
    ]
    known = sorted(pod.address for pod in world.pods)
    # A chain has to be there before the map that jumps to it.
    return "\n".join(
        [
            f"table {TABLE} {{ }}",
            f"delete table {TABLE}",
            f"table {TABLE} {{",
            *bodies,
            _set("set", "known", "ipv4_addr", known),
            _set("set", "itself", "ipv4_addr . ipv4_addr", (f"{address} . {address}" for address in known)),
            *maps,
            "  chain decide {",
            "    ct state established,related accept",
            "    ct state invalid drop",
            "    ip saddr . ip daddr @itself accept",
            f"    ip saddr {node.pods} ip saddr != @known drop",
            f"    ip daddr {node.pods} ip daddr != @known drop",
            "    ip saddr vmap @egress",
            "    ip daddr vmap @ingress",
            "  }",
            "  chain forward {",
            "    type filter hook forward priority filter - 1; policy accept;",
            f'    iifname "{node.machine_link}" ip saddr {node.machine_address} accept',
            "    jump decide",
            "  }",
            "  chain input {",
            "    type filter hook input priority filter - 1; policy accept;",
            f"    ip saddr {node.pods} jump decide",
            "  }",
            "}",
            "",
        ]
    )
