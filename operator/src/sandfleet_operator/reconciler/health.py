"""Whether Kopf's watches live: the operator marks its own pod, and the mark has to come back through a watch.

A mark that the API server does not take proves nothing, so an outage of the API server is no failure of the operator.
"""

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

_log = logging.getLogger(__name__)


class Health:
    """`clock` is monotonic. A process without a pod (outside a cluster) is alive as long as it answers."""

    def __init__(self, clock: Callable[[], float], pod: Ref | None) -> None:
        self._clock = clock
        self._pod = pod
        # When the first mark was sent that no watch has shown; None while none is missing.
        self._missing: float | None = None
        self.ready = False

    def echo(self, obj: Json) -> None:
        """The watch has shown a pod of the operator."""
        if self._pod is not None and obj["metadata"]["name"] == self._pod.name:
            self._missing = None

    @property
    def alive(self) -> bool:
        """Whether the watches show what the API server takes."""
        return self._missing is None or self._clock() - self._missing < SILENT_AFTER

    async def beat(self, kube: KubeApi) -> None:
        """Marks the pod every BEAT_EVERY seconds, until cancelled."""
        while self._pod is not None:
            await self._mark(kube, self._pod)
            await asyncio.sleep(BEAT_EVERY)

    async def _mark(self, kube: KubeApi, pod: Ref) -> None:
        now = self._clock()
        if self._missing is None:
            self._missing = now
        try:
            await kube.merge(pod, {"metadata": {"annotations": {HEARTBEAT: f"{now:.0f}"}}})
        except KubeError as error:
            # Watches that end with the API server get their time anew when it is back.
            self._missing = None
            _log.info("cannot mark the pod: %s", error)
