"""Egress lists by name, as people write them: `packages.example.com`, `*.example.org`, `api.example.com:8443`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.reasons import ClaimReason

MAX_NAMES = 100
MAX_HOST = 253
# A name without a port stands for these.
WEB_PORTS = (80, 443)
WILDCARD = "*."
LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
PORT = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)
# A last label of these is a number to a resolver, and the name an address: 127.1, 2130706433, 0x7f.1.
NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


@dataclass(frozen=True, slots=True)
class Name:
    """One entry of a list. `host` is canonical; `ports` are those that may be connected to."""

    host: str
    ports: tuple[int, ...] = WEB_PORTS

    def allows(self, host: str, port: int) -> bool:
        """Whether a canonical host and a port are meant: `*.example.org` means every name below example.org."""
        if port not in self.ports:
            return False
        if self.host.startswith(WILDCARD):
            return host.endswith(self.host[1:])
        return host == self.host


def canonical(host: str) -> str:
    """The host in lower case without a final dot; empty where it is no name: every form of an address is none."""
    found = host.lower().removesuffix(".")
    labels = found.split(".")
    if not found.isascii() or len(found) > MAX_HOST or NUMBER.fullmatch(labels[-1]):
        return ""
    return found if all(LABEL.fullmatch(label) for label in labels) else ""


def port_of(text: str) -> int:
    """The port in decimal digits, without zeros before it; 0 for anything else."""
    return int(text) if PORT.fullmatch(text) and int(text) < 1 << 16 else 0


def parse(text: str) -> Name:
    """HOST, *.HOST, either with :PORT. Raises FleetError."""
    host, colon, port = text.rpartition(":") if ":" in text else (text, "", "")
    if colon and not port_of(port):
        raise _refusal(text, "after the colon stands no port")
    star = WILDCARD if host.startswith(WILDCARD) else ""
    found = canonical(host.removeprefix(star))
    if not found:
        why = (
            "write a host name as packages.example.com or *.example.org, with a :PORT or without; no address and no URL"
        )
        raise _refusal(text, why)
    if star and "." not in found:
        raise _refusal(text, "a * before a single label would allow all names below a top-level domain")
    return Name(star + found, (int(port),) if colon else WEB_PORTS)


def parse_all(texts: Sequence[str]) -> tuple[Name, ...]:
    """Raises FleetError."""
    if len(texts) > MAX_NAMES:
        raise ClaimReason.INVALID_EGRESS.error(f"cannot allow egress to {len(texts)} names: the most are {MAX_NAMES}")
    return tuple(map(parse, texts))


def _refusal(text: str, why: str) -> FleetError:
    shown = ascii(text[:80])
    return ClaimReason.INVALID_EGRESS.error(f"cannot allow egress to {shown}: {why}", text[:80])
