"""Addresses on which another process could still listen, although the port is taken on all of them.

Linux refuses that. gVisor lets a second socket with SO_REUSEADDR listen on one address of a port that another one has
on all addresses, and gives it the connections: user code, which shares the pod's network, would take the executor's.
"""

import contextlib
import fcntl
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

SIOCGIFADDR = 0x8915
INTERFACE_NAME_BYTES = 16
ADDRESS = slice(20, 24)
LINK_LOCAL = "fe80"
WILDCARDS = ("0.0.0.0", "[::]")  # noqa: S104 - recognized, not chosen


def left_open(listen: str) -> list[str]:
    """`address:port` of each address on which the port of `listen` can be taken while another process listens there."""
    host, _, port = listen.rpartition(":")
    if host not in WILDCARDS:
        return []
    return [f"{shown(address)}:{port}" for address in own_addresses() if can_be_taken(address, int(port))]


def shown(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def own_addresses() -> Iterator[str]:
    """The addresses of all interfaces, except link-local ones, which no client uses."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[: INTERFACE_NAME_BYTES - 1])
            # One without an address.
            with contextlib.suppress(OSError):
                yield socket.inet_ntop(socket.AF_INET, fcntl.ioctl(asking, SIOCGIFADDR, request)[ADDRESS])
    # Without IPv6 there is no such file.
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            if not line.startswith(LINK_LOCAL):
                yield socket.inet_ntop(socket.AF_INET6, bytes.fromhex(line.split()[0]))


def can_be_taken(address: str, port: int) -> bool:
    """Never listens: a client that connected in that moment would find the port open, and closed in the next."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            attempt.bind((address, port))
        except OSError:
            return False
        return True
