"""Lists CodeSandboxes where Kopf lists them: Kopf does not show what was deleted while its watch could not go on."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from sandfleet_operator.api.kube import KubeError

# Objects of one list of Kopf come within so many seconds of each other.
LIST_SECONDS = 1.0
# Seconds before a list that failed is tried again.
AGAIN_SECONDS = 10.0

_log = logging.getLogger(__name__)


class KopfLists:
    """`relist` brings the store up to date with all CodeSandboxes."""

    def __init__(self, relist: Callable[[], Awaitable[None]]) -> None:
        self._relist = relist
        self._begun = asyncio.Event()
        # When Kopf last showed an object of a list.
        self._shown = -LIST_SECONDS

    def note(self) -> None:
        """Kopf shows an object of a list."""
        now = asyncio.get_running_loop().time()
        if now - self._shown > LIST_SECONDS:
            self._begun.set()
        self._shown = now

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._begun.wait()
            self._begun.clear()
            try:
                await self._relist()
            except KubeError as error:
                _log.warning("cannot list the CodeSandboxes again: %s", error)
                await asyncio.sleep(AGAIN_SECONDS)
                self._begun.set()
