"""Ports of this machine that nobody listens on."""

import socket


def free_port(host: str = "127.0.0.1") -> int:
    """One that was free just now; "" asks for all addresses."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
