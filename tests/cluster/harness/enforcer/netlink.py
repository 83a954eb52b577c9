"""Delete entries of the kernel's connection table one by one: the conntrack tool reads the whole table for each."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable

from .conntrack import Flow

NETLINK_NETFILTER = 12
DELETE = (1 << 8) | 2  # the subsystem of conntrack, and its message
REQUEST = 1
NESTED = 0x8000
ORIGINAL, ADDRESSES, PROTOCOL = 1, 1, 2
NUMBERS = {"tcp": socket.IPPROTO_TCP, "udp": socket.IPPROTO_UDP, "sctp": socket.IPPROTO_SCTP}


def _attribute(kind: int, content: bytes) -> bytes:
    length = 4 + len(content)
    return struct.pack("=HH", length, kind) + content + b"\0" * (-length % 4)


def message(flow: Flow) -> bytes:
    """The request to delete a flow, which is named by its question's ends."""
    ends = _attribute(1, socket.inet_aton(flow.source)) + _attribute(2, socket.inet_aton(flow.asked))
    ports = _attribute(2, struct.pack("!H", flow.source_port)) + _attribute(3, struct.pack("!H", flow.asked_port))
    protocol = _attribute(1, bytes([NUMBERS[flow.protocol]])) + ports
    both = _attribute(ADDRESSES | NESTED, ends) + _attribute(PROTOCOL | NESTED, protocol)
    body = struct.pack("=BBH", socket.AF_INET, 0, 0) + _attribute(ORIGINAL | NESTED, both)
    return struct.pack("=IHHII", 16 + len(body), DELETE, REQUEST, 0, 0) + body


def delete(flows: Iterable[Flow]) -> None:
    """No answer is asked for: a flow that has ended by itself is as good."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER) as kernel:
        for flow in flows:
            kernel.send(message(flow))
