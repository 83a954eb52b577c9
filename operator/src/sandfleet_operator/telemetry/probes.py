"""The probes of a process, over HTTP: whether it lives, could serve, and who serves. Its metrics stand beside them.

The event loop itself answers. So a stuck loop gives no answer, and the kubelet restarts the pod; an outage of the API
server changes no answer.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass

from sandfleet_operator.telemetry.metrics import CONTENT_TYPE

# Seconds that a caller may take to send its request.
READ_SECONDS = 5.0
MAX_LINE = 4096
METRICS = "/metrics"
STATUS = {True: "200 OK", False: "503 Service Unavailable", None: "404 Not Found"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """`ready`: it leads, or could take over. `leader` is the leader's identity as last seen, empty if none is known."""

    ready: bool
    leads: bool
    leader: str = ""
    # The number of its own leadership; None while it does not lead.
    fencing: int | None = None


class Probes:
    """`/healthz`: the process lives. `/readyz`: it leads or could take over. `/leadz`: it leads.

    Each answer names the leader. `/metrics` is for Prometheus.
    """

    def __init__(
        self, alive: Callable[[], bool], standing: Callable[[], Standing], metrics: Callable[[], str] | None = None
    ) -> None:
        """`metrics` gives the text; None: the process has no metrics."""
        self._alive = alive
        self._standing = standing
        self._metrics = metrics

    async def serve(self, port: int, host: str = "0.0.0.0") -> None:  # noqa: S104 - the kubelet asks
        """Serves until cancelled. Port 0: serves nothing, as outside a pod."""
        if not port:
            await asyncio.Event().wait()
        server = await self.listen(port, host)
        async with server:
            await server.serve_forever()

    async def listen(self, port: int, host: str) -> asyncio.Server:
        return await asyncio.start_server(self._answer, host, port, limit=MAX_LINE)

    def answer(self, path: str) -> tuple[bool | None, str]:
        """Whether the check of this path holds (None: there is no such check), and the body."""
        if path == METRICS and self._metrics is not None:
            return True, self._metrics()
        standing = self._standing()
        checks = {"/healthz": self._alive(), "/readyz": standing.ready, "/leadz": standing.leads}
        good = checks.get(path)
        return good, "" if good is None else json.dumps(asdict(standing)) + "\n"

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(READ_SECONDS):
                line = await reader.readline()
            words = line.split()
            path = words[1].decode("ascii", "replace") if len(words) > 1 else ""
            good, text = self.answer(path)
            body = text.encode()
            kind = CONTENT_TYPE if path == METRICS else "application/json"
            head = f"HTTP/1.1 {STATUS[good]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
            writer.write(f"{head}Connection: close\r\n\r\n".encode("ascii") + body)
            await writer.drain()
        except (OSError, TimeoutError, ValueError):
            pass
        finally:
            writer.close()
