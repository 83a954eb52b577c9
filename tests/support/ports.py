"""Free ports of this machine."""

import random
import socket

# Below the kernel's ephemeral ports: no connection takes one between the check and the server's start.
PORTS = range(10_000, 30_000)


def free_port(host: str = "") -> int:
    """One that was free just now, on all addresses unless one is named; raises OSError when none of a hundred is."""
    for port in random.SystemRandom().sample(PORTS, 100):
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return port
    raise OSError("cannot find a free port: of a hundred tried none is")
