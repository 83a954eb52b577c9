"""The connections of the executor's own port, where user code shares its network: what gRPC does not look after."""

import contextlib
import socket
import threading
import time
from collections.abc import Collection
from pathlib import Path

from sandfleet_executor.effects.network.port_check import own_addresses

TCP = (socket.AF_INET, socket.AF_INET6)
# No client connects from inside of the pod; user code can, as often as it has descriptors.
MOST_FROM_INSIDE = 16
# Between two looks. Each takes a few system calls for every connection: one for each handshake would make many slow.
LOOK_SECONDS = 0.01
MAPPED = "::ffff:"


class Connections:
    """Those of one port. `noticed` may be called often, and in any thread.

    Sets TCP_NODELAY on each: gRPC sets it on its listener, from which Linux's connections have it and gVisor's do not.
    Each answer in two parts would wait for the other side's delayed acknowledgement, 40 ms.

    Ends those from inside of the pod above MOST_FROM_INSIDE: they would take descriptors and handshakes from clients.
    """

    def __init__(self, port: int, inside: Collection[str] | None = None) -> None:
        """`inside`: the addresses of this pod; by default those that it has now."""
        self._port = port
        self._inside = frozenset(own_addresses() if inside is None else inside)
        self._new = threading.Event()
        threading.Thread(target=self._watch, name="connections", daemon=True).start()

    def noticed(self) -> None:
        """A handshake begins."""
        self._new.set()

    def _watch(self) -> None:
        while True:
            self._new.wait()
            self._new.clear()
            self.look()
            time.sleep(LOOK_SECONDS)

    def look(self) -> int:
        """Looks at all once; how many it has ended."""
        from_inside = ended = 0
        for path in Path("/proc/self/fd").iterdir():
            # Not a socket, or closed meanwhile.
            with contextlib.suppress(OSError):
                one = socket.socket(fileno=int(path.name))
                try:
                    if one.type != socket.SOCK_STREAM or one.family not in TCP or one.getsockname()[1] != self._port:
                        continue
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    from_inside += (inside := one.getpeername()[0].removeprefix(MAPPED) in self._inside)
                    if inside and from_inside > MOST_FROM_INSIDE:
                        one.shutdown(socket.SHUT_RDWR)
                        ended += 1
                finally:
                    one.detach()
        return ended
