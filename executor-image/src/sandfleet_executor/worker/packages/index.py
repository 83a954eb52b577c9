"""Whether the session reaches a package index, asked within a second."""

import errno
import ipaddress
import os
import queue
import socket
import threading
import time
from collections.abc import Iterable
from enum import Enum
from urllib.parse import urlsplit

SECONDS = 0.7
# Never routed anywhere (RFC 5737, RFC 3849): they only show whether there is a route at all.
ELSEWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
PROXIES = ("PIP_PROXY", "https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")
NO_ROUTE = (errno.ENETUNREACH, errno.EHOSTUNREACH)


class Reach(Enum):
    REACHED = "it answers"
    # No answer yet: pip finds out, and does not wait as long as it would by itself.
    UNKNOWN = "not known"
    # It is certain that pip would not get there.
    NONE = "no network leads there"


def reach(addresses: Iterable[str]) -> tuple[Reach, str]:
    """Of the first index that can be reached, and why the others cannot."""
    if any(os.environ.get(name) for name in PROXIES):
        return Reach.REACHED, ""
    places = [_place(each) for each in addresses]
    if None in places:
        return Reach.REACHED, ""
    if not any(_has_route(family, address) for family, address in ELSEWHERE):
        return Reach.NONE, "this session has no network"
    answers: queue.Queue[Reach] = queue.Queue()
    for place in places:
        if place is not None:
            threading.Thread(target=lambda at: answers.put(_ask(*at)), args=(place,), daemon=True).start()
    found: list[Reach] = []
    end = time.monotonic() + SECONDS
    try:
        while len(found) < len(places) and Reach.REACHED not in found:
            found.append(answers.get(timeout=max(0.0, end - time.monotonic())))
    except queue.Empty:
        found.append(Reach.UNKNOWN)
    best = next(each for each in Reach if each in found)
    hosts = ", ".join(dict.fromkeys(place[0] for place in places if place is not None))
    return best, f"no network of this session leads to {hosts}"


def _place(address: str) -> tuple[str, int] | None:
    """Host and port of an index; None where it is in the session itself."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    try:
        local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = not host or host == "localhost"
    return None if local else (host, parts.port or (80 if parts.scheme == "http" else 443))


def _has_route(family: int, address: str) -> bool:
    """Whether a packet would be sent; none is."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.connect((address, 9))
    except OSError:
        return False
    return True


def _ask(host: str, port: int) -> Reach:
    try:
        with socket.create_connection((host, port), timeout=SECONDS):
            return Reach.REACHED
    except socket.gaierror:
        return Reach.NONE
    except OSError as error:
        return Reach.NONE if error.errno in NO_ROUTE else Reach.UNKNOWN
