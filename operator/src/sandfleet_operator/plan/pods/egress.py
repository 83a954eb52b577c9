"""Egress lists as sets of addresses and ports: containment, and rules without the blocked networks."""

import ipaddress
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sandfleet_operator.api.errors import invalid
from sandfleet_operator.api.kinds.template import Egress, EgressRule, Port
from sandfleet_operator.api.networks import Network, network

ALL_PORTS = (1, 65535)
# Stands for all protocols and ports, including ICMP, which no list of ports covers.
EVERYTHING = ""

# Networks that no list opens, even if a template names them.
ALWAYS_BLOCKED = (
    "127.0.0.0/8",  # loopback
    "::1/128",
    "169.254.0.0/16",  # link-local: most clouds' metadata, node-local name servers
    "fe80::/10",
    "224.0.0.0/4",  # multicast
    "ff00::/8",
    "100.100.100.200/32",  # metadata, as are the next four
    "168.63.129.16/32",
    "192.0.0.192/32",
    "fd00:ec2::254/128",
    "fd20:ce::254/128",
)
# A gateway of RFC 6052 translates an address in this network into the IPv4 address of its last 32 bits.
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")

# Limit of one list, counting each network with each of its ports and exceptions: every node has to enforce them.
MAX_PARTS = 512

# Inclusive bounds of ports, or of addresses as numbers.
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Opening:
    """Addresses of one IP version, sorted and without overlaps, and ports of one protocol."""

    version: int
    addresses: tuple[Span, ...]
    protocol: str
    ports: Span


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Ports on which the same addresses are open."""

    ports: Span
    addresses: tuple[Span, ...]


def allows_nothing(egress: Egress) -> bool:
    return not egress.allow and not egress.dns


def blocked(cidrs: Iterable[str]) -> tuple[Network, ...]:
    """The networks that are always blocked and the given ones, including their NAT64 addresses."""
    direct = [network(cidr) for cidr in (*ALWAYS_BLOCKED, *cidrs)]
    translated = [_behind_nat64(one) for one in direct if isinstance(one, ipaddress.IPv4Network)]
    return tuple(direct + translated)


def _behind_nat64(one: ipaddress.IPv4Network) -> Network:
    address = int(NAT64.network_address) + int(one.network_address)
    return ipaddress.IPv6Network((address, NAT64.prefixlen + one.prefixlen))


def without(rule: EgressRule, forbidden: Sequence[Network]) -> EgressRule | None:
    """The rule without the forbidden networks, in canonical form; None if nothing is left. Raises FleetError."""
    whole = network(rule.cidr)
    holes = [network(cidr) for cidr in rule.excluded] + list(forbidden)
    inside = []
    for hole in holes:
        if hole.version != whole.version or not hole.overlaps(whole):
            continue
        if hole.prefixlen <= whole.prefixlen:
            return None
        inside.append(hole)
    merged = _merged(inside)
    if whole in merged:
        return None
    return EgressRule(str(whole), tuple(map(str, merged)), rule.ports)


def _merged(networks: Iterable[Network]) -> list[Network]:
    """Networks of one IP version without overlaps, neighbours joined: Kubernetes checks each `except` on its own."""
    found = list(networks)
    four = [one for one in found if isinstance(one, ipaddress.IPv4Network)]
    six = [one for one in found if isinstance(one, ipaddress.IPv6Network)]
    return [*ipaddress.collapse_addresses(four), *ipaddress.collapse_addresses(six)]


def check(egress: Egress) -> None:
    """Raises FleetError for an unreadable network and for a list that is too long."""
    parts = sum((1 + len(rule.excluded)) * max(1, len(rule.ports)) for rule in egress.allow)
    if parts > MAX_PARTS:
        why = f"its networks, each with its ports and exceptions, are {parts} parts; the most is {MAX_PARTS}"
        raise invalid("EgressTooLong", f"cannot take the egress list: {why}")
    for rule in egress.allow:
        _addresses(rule)


def first_outside(wish: Egress, allowed: Egress) -> str:
    """The first part of the wish that the allowed list does not contain, in words; empty if it contains all of it.

    The answer is exact: several allowed rules may together contain one rule of the wish. Raises FleetError.
    """
    check(wish)
    check(allowed)
    if wish.dns and not allowed.dns:
        return "name resolution"
    allowances = [opening for rule in allowed.allow for opening in _openings(rule)]
    known: dict[tuple[int, str], list[_Stretch]] = {}
    for rule in wish.allow:
        for opening in _openings(rule):
            kind = (opening.version, opening.protocol)
            if kind not in known:
                known[kind] = _stretches(allowances, *kind)
            if not _covered(opening, known[kind]):
                return f"{rule.cidr} {_words(opening)}"
    return ""


def _words(opening: _Opening) -> str:
    if opening.protocol == EVERYTHING:
        return "on every port"
    first, last = opening.ports
    return f"on {opening.protocol} {first}" if first == last else f"on {opening.protocol} {first}-{last}"


def _openings(rule: EgressRule) -> list[_Opening]:
    version, addresses = _addresses(rule)
    if not rule.ports:
        return [_Opening(version, addresses, EVERYTHING, ALL_PORTS)]
    return [_Opening(version, addresses, port.protocol, _bounds(port)) for port in rule.ports]


def _bounds(port: Port) -> Span:
    if not port.port:
        return ALL_PORTS
    return port.port, max(port.port, port.end_port)


def _addresses(rule: EgressRule) -> tuple[int, tuple[Span, ...]]:
    whole = network(rule.cidr)
    spans = [_span(whole)]
    for cidr in rule.excluded:
        hole = network(cidr)
        if hole.version == whole.version:
            spans = [part for span in spans for part in _cut(span, _span(hole))]
    return whole.version, tuple(spans)


def _span(one: Network) -> Span:
    return int(one.network_address), int(one.broadcast_address)


def _cut(span: Span, hole: Span) -> list[Span]:
    """The span without the hole: at most two parts."""
    before = (span[0], min(span[1], hole[0] - 1))
    after = (max(span[0], hole[1] + 1), span[1])
    return [part for part in (before, after) if part[0] <= part[1]]


def _stretches(openings: Iterable[_Opening], version: int, protocol: str) -> list[_Stretch]:
    """The open addresses for each range of ports, in order, for one IP version and protocol."""
    fits = [one for one in openings if one.version == version and one.protocol in {protocol, EVERYTHING}]
    edges = sorted({edge for one in fits for edge in (one.ports[0], one.ports[1] + 1)})
    found = []
    for first, after in pairwise(edges):
        spans = [span for one in fits if one.ports[0] <= first <= one.ports[1] for span in one.addresses]
        found.append(_Stretch((first, after - 1), _joined(spans)))
    return found


def _joined(spans: Iterable[Span]) -> tuple[Span, ...]:
    joined: list[Span] = []
    for first, last in sorted(spans):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return tuple(joined)


def _covered(wanted: _Opening, stretches: list[_Stretch]) -> bool:
    """Whether the addresses are open on each of the ports; true for no addresses."""
    if not wanted.addresses:
        return True
    position, end = wanted.ports
    for stretch in stretches:
        first, last = stretch.ports
        if last < position:
            continue
        if first > position or not _holds(stretch.addresses, wanted.addresses):
            return False
        position = last + 1
        if position > end:
            return True
    return False


def _holds(joined: tuple[Span, ...], wanted: tuple[Span, ...]) -> bool:
    for first, last in wanted:
        # The last span that begins at or before `first`.
        index = bisect_right(joined, first, key=lambda span: span[0]) - 1
        if index < 0 or joined[index][1] < last:
            return False
    return True
