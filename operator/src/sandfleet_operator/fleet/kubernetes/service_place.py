"""The leader's place in the Service: a label of its pod, which the Service selects. No client meets a standby."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from sandfleet_operator.api.kube import POD, Json, KubeError, NotFound, Ref
from sandfleet_operator.cluster.kube_api import KubeApi
from sandfleet_operator.plan.pods import names

LEADS = f"{names.POOL.partition('/')[0]}/leads"
# Seconds between two looks whether the label is where it belongs, and until the next try.
EVERY, RETRY = 30.0, 2.0

_LOG = logging.getLogger(__name__)


class ServicePlace:
    """`pod` is the fleet's own one, in the namespace of the control plane; `serves`: whether this fleet does now."""

    def __init__(self, kube: KubeApi, namespace: str, pod: str, serves: Callable[[], bool]) -> None:
        self._kube, self._namespace, self._pod, self._serves = kube, namespace, pod, serves

    async def hold(self) -> None:
        """Until it is cancelled, or this fleet serves no more."""
        while self._serves():
            pause = EVERY
            try:
                await self.take()
            except KubeError as error:
                _LOG.warning("cannot take the place in the Service: %s", error)
                pause = RETRY
            await asyncio.sleep(pause)

    async def take(self) -> None:
        """An earlier leader, which may not know yet that its time is over, loses the place."""
        labelled = await self._kube.list(POD, self._namespace, f"{LEADS}=true")
        others = {obj["metadata"]["name"] for obj in labelled.items} - {self._pod}
        if len(others) == len(labelled.items):
            await self._label(self._pod, "true")
        for other in sorted(others):
            with suppress(NotFound):
                await self._label(other, None)

    async def _label(self, pod: str, value: str | None) -> None:
        patch: Json = {"metadata": {"labels": {LEADS: value}}}
        await self._kube.merge(Ref(POD, self._namespace, pod), patch)
