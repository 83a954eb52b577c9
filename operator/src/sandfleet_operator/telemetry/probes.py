"""The probes of a process, over HTTP: whether it lives, whether it could serve, and who serves.

The event loop itself answers. So a stuck loop gives no answer, and the kubelet restarts the pod; an outage of the API
server changes no answer.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass

# Seconds that a caller may take to send its request.
READ_SECONDS = 5.0
MAX_LINE = 4096
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

    Each answer names the leader.
    """

    def __init__(self, alive: Callable[[], bool], standing: Callable[[], Standing]) -> None:
        self._alive = alive
        self._standing = standing

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
        standing = self._standing()
        checks = {"/healthz": self._alive(), "/readyz": standing.ready, "/leadz": standing.leads}
        good = checks.get(path)
        return good, "" if good is None else json.dumps(asdict(standing)) + "\n"

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(READ_SECONDS):
                line = await reader.readline()
            words = line.split()
            good, body = self.answer(words[1].decode("ascii", "replace") if len(words) > 1 else "")
            head = f"HTTP/1.1 {STATUS[good]}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            writer.write(f"{head}Connection: close\r\n\r\n{body}".encode("ascii", "replace"))
            await writer.drain()
        except (OSError, TimeoutError, ValueError):
            pass
        finally:
            writer.close()
