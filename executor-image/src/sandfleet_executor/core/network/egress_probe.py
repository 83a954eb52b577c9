"""The targets of an egress probe from inside a sandbox, and the question to its name servers."""

import ipaddress
from dataclasses import dataclass

from sandfleet_executor.core.errors import BadRequest

MAX_TARGETS = 8
# As many as resolvers read, too.
MAX_NAME_SERVERS = 3
MAX_NAME = 253
MAX_LABEL = 63
# Of a DNS message: recursion is wanted, one question; type and class of the question.
HEADER = bytes.fromhex("01000001000000000000")
QUESTION = bytes.fromhex("00010001")
ID_BYTES = 2


@dataclass(frozen=True)
class Target:
    """A TCP port, or the name servers where there is no address."""

    address: str = ""
    port: int = 0


def tcp_target(address: str, port: int) -> Target:
    """Raises BadRequest."""
    try:
        # A name would have to be looked up, and a scope means nothing here.
        known = ipaddress.ip_address(address) if "%" not in address else None
    except ValueError:
        known = None
    if known is None or not 0 < port < 1 << 16:
        raise BadRequest(f"cannot probe {address[:80]!r} port {port}: it is no IP address, or no port")
    return Target(str(known), port)


def checked(targets: list[Target]) -> list[Target]:
    """Raises BadRequest."""
    if not 0 < len(targets) <= MAX_TARGETS:
        raise BadRequest(f"cannot probe {len(targets)} targets: it has to be 1 to {MAX_TARGETS}")
    return targets


def name_servers(resolv_conf: str) -> tuple[list[str], str]:
    """The addresses, and the first domain that names are looked for in (empty: none)."""
    servers, domain = [], ""
    for line in resolv_conf.splitlines():
        words = line.split()
        if len(words) > 1 and words[0] == "nameserver":
            servers.append(words[1].partition("%")[0])
        elif len(words) > 1 and words[0] in ("search", "domain"):
            domain = words[1]
    return servers[:MAX_NAME_SERVERS], domain


def question(number: bytes, domain: str) -> bytes:
    """A DNS query for the address of a domain: of the cluster's own one its name server knows without asking others."""
    labels = [label.encode("ascii", "replace") for label in domain.strip(".").split(".") if label]
    if len(domain) > MAX_NAME or any(len(label) > MAX_LABEL for label in labels):
        labels = []
    name = b"".join(bytes([len(label)]) + label for label in labels)
    return number + HEADER + name + b"\0" + QUESTION
