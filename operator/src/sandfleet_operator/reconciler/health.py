"""Health of the process: it marks its own pod, and the mark has to come back through Kopf's watch."""

import asyncio
import logging
from collections.abc import Callable

from sandfleet_operator.api.kinds.meta import GROUP
from sandfleet_operator.api.kube import Json, KubeError, Ref
from sandfleet_operator.cluster.kube_api import KubeApi

HEARTBEAT = f"{GROUP}/heartbeat"
# Seconds.
BEAT_EVERY = 20.0
SILENT_AFTER = 120.0
READ_SECONDS = 5.0

_log = logging.getLogger(__name__)


class Health:
    """`clock` is monotonic. A process without a pod (outside a cluster) is alive as long as it answers."""

    def __init__(self, clock: Callable[[], float], pod: Ref | None) -> None:
        self._clock = clock
        self._pod = pod
        self._echoed = clock()
        self.ready = False

    def echo(self, obj: Json) -> None:
        """The watch has shown a pod of the operator."""
        if self._pod is not None and obj["metadata"]["name"] == self._pod.name:
            self._echoed = self._clock()

    @property
    def alive(self) -> bool:
        return self._pod is None or self._clock() - self._echoed < SILENT_AFTER

    async def beat(self, kube: KubeApi) -> None:
        """Marks the pod every BEAT_EVERY seconds, until cancelled."""
        while self._pod is not None:
            try:
                await kube.merge(self._pod, {"metadata": {"annotations": {HEARTBEAT: f"{self._clock():.0f}"}}})
            except KubeError as error:
                _log.info("cannot mark the pod: %s", error)
            await asyncio.sleep(BEAT_EVERY)

    async def serve(self, port: int) -> None:
        """Serves `/healthz` and `/readyz` on all addresses, until cancelled."""
        server = await asyncio.start_server(self._answer, "0.0.0.0", port, limit=4096)  # noqa: S104 - the kubelet asks
        async with server:
            await server.serve_forever()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(READ_SECONDS):
                line = await reader.readline()
            words = line.split()
            checks = {b"/healthz": self.alive, b"/readyz": self.ready}
            good = checks.get(words[1]) if len(words) > 1 else None
            status = {True: "200 OK", False: "503 Service Unavailable", None: "404 Not Found"}[good]
            writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
            await writer.drain()
        except (OSError, TimeoutError, ValueError):
            pass
        finally:
            writer.close()
