"""Writes down for the next leader which requests have ended, behind their ends: a ConfigMap of the control plane."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from sandfleet_operator.api.kube import CONFIG_MAP, Json, KubeError, NotFound, Ref
from sandfleet_operator.cluster.kube_api import KubeApi
from sandfleet_operator.plan.scheduler.ended_claims import EndedClaims

NAME = "sandfleet-ended"
# Seconds between two writes, until the next try of one that failed, and for the last one.
EVERY, RETRY, LAST = 1.0, 10.0, 2.0

_LOG = logging.getLogger(__name__)


class EndedRecord:
    """`leads`: whether this fleet does now."""

    def __init__(self, kube: KubeApi, namespace: str, ended: EndedClaims, leads: Callable[[], bool]) -> None:
        self._kube, self._ref, self._ended, self._leads = kube, Ref(CONFIG_MAP, namespace, NAME), ended, leads

    async def load(self) -> None:
        """Reads what earlier leaders have written. Without it a takeover goes on, and serves such requests again."""
        try:
            self._ended.recall((await self._kube.get(self._ref)).get("data") or {})
        except NotFound:
            return
        except KubeError as error:
            _LOG.warning("cannot read which requests have ended: %s", error)

    async def hold(self) -> None:
        """Until it is cancelled; then it writes what is left, as before an update of the fleet."""
        try:
            while True:
                pause = EVERY if await self._written() else RETRY
                await asyncio.sleep(pause)
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST):
                    await self._written()

    async def _written(self) -> bool:
        changed = self._ended.take_changed() if self._leads() else {}
        if not changed:
            return True
        try:
            await self._write({"data": changed})
        except KubeError as error:
            _LOG.warning("cannot write down which requests have ended: %s", error)
            self._ended.untake(changed)
            return False
        return True

    async def _write(self, content: Json) -> None:
        try:
            await self._kube.merge(self._ref, content)
        except NotFound:
            kind, metadata = self._ref.kind, {"namespace": self._ref.namespace, "name": self._ref.name}
            await self._kube.create(
                {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **content}
            )
