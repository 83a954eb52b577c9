"""Probes what the executor's network reaches now. In a pod, user code has the same network."""

import asyncio
import contextlib
import ipaddress
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

from sandfleet_executor.core.network.egress_probe import ID_BYTES, Target, name_servers, question

RESOLV_CONF = Path("/etc/resolv.conf")
DNS_PORT = 53
# Two short tries: a packet that was dropped before a policy came into force is not sent again within a second.
TRY_SECONDS = 0.5
TRIES = 2
MAX_REPLY = 512
MAX_REPORT = 512
# IP_RECVERR and IPV6_RECVERR of ip(7) and ipv6(7), which Python does not name.
REPORTS = {socket.AF_INET: (socket.IPPROTO_IP, 11), socket.AF_INET6: (socket.IPPROTO_IPV6, 25)}


async def reached(targets: Sequence[Target], resolv_conf: Path = RESOLV_CONF, dns_port: int = DNS_PORT) -> list[bool]:
    """Whether each answers; all are tried at once, for a second at most."""
    return await asyncio.gather(*(_reached(target, resolv_conf, dns_port) for target in targets))


async def _reached(target: Target, resolv_conf: Path, dns_port: int) -> bool:
    if target.address:
        return await _tried(lambda: _connects(target))
    servers, domain = _resolver(resolv_conf)
    asked = [_tried(partial(_replies, Target(server, dns_port), domain)) for server in servers]
    return any(await asyncio.gather(*asked))


def _resolver(resolv_conf: Path) -> tuple[list[str], str]:
    try:
        return name_servers(resolv_conf.read_text(encoding="ascii", errors="replace"))
    except OSError:
        return [], ""


async def _tried(attempt: Callable[[], Awaitable[bool]]) -> bool:
    for _ in range(TRIES):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TRY_SECONDS):
                if await attempt():
                    return True
    return False


async def _connects(target: Target) -> bool:
    family = _family(target.address)
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.setblocking(False)
        # Where that cannot be had, every refusal counts.
        with contextlib.suppress(OSError):
            sock.setsockopt(*REPORTS[family], 1)
        try:
            await asyncio.get_running_loop().sock_connect(sock, (target.address, target.port))
        except ConnectionRefusedError:
            return not _reported(sock)
        except OSError:
            return False
        return True


def _reported(sock: socket.socket) -> bool:
    """Whether a hop on the way has refused (ICMP) and not the target: some network plugins enforce policies in this
    way.
    """
    try:
        return bool(sock.recvmsg(1, MAX_REPORT, socket.MSG_ERRQUEUE)[1])
    except OSError:
        return False


async def _replies(server: Target, domain: str) -> bool:
    number = os.urandom(ID_BYTES)
    loop = asyncio.get_running_loop()
    try:
        with socket.socket(_family(server.address), socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            # From here on only what this server sends is received.
            await loop.sock_connect(sock, (server.address, server.port))
            await loop.sock_sendall(sock, question(number, domain))
            while (await loop.sock_recv(sock, MAX_REPLY))[:ID_BYTES] != number:
                pass
    except (OSError, ValueError):
        return False
    return True


def _family(address: str) -> socket.AddressFamily:
    """Raises ValueError."""
    return socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET
