"""Leadership for a process that has much to do: it is held from a thread with an event loop and connections of its own.

A renewal stands behind nothing then: neither behind what the process computes nor behind what it asks of the API server.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future

from sandfleet_operator.api.kube import Ref
from sandfleet_operator.effects.elector import Elector, steady
from sandfleet_operator.effects.kubeapi import KubeApi
from sandfleet_operator.plan.leadership import Terms

# Seconds for which the loop that works under the leadership may stand still: one that does so longer is not to lead.
STUCK_SECONDS = 60.0

_log = logging.getLogger(__name__)


class Lease:
    """One contender. `acquire`, `hold` and `release` are for one event loop, `fencing` and `holder` for any thread."""

    def __init__(
        self, api: KubeApi, ref: Ref, identity: str, terms: Terms | None = None, *, stuck: float = STUCK_SECONDS
    ) -> None:
        self.ref = ref
        self._api = api.apart()
        self._elector = Elector(self._api, ref, identity, terms, vouch=self._answers)
        self._stuck = stuck
        self._answered = steady()
        self._home: asyncio.AbstractEventLoop | None = None
        self._acquired: Future[int] = Future()
        self._lost: Future[None] = Future()
        self._released: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    @property
    def fencing(self) -> int | None:
        """The number of this leadership, higher than every one before; None as soon as it may be over."""
        return self._elector.fencing

    @property
    def holder(self) -> str:
        """Who leads, as last seen; "" for nobody."""
        return self._elector.holder

    async def acquire(self) -> int:
        """Waits until it leads; the fencing number. It is renewed from then on. Nothing that the API server answers ends the wait."""
        self._home = asyncio.get_running_loop()
        self._answer()
        self._thread.start()
        return await asyncio.shield(asyncio.wrap_future(self._acquired))

    async def hold(self, lost: Callable[[], None]) -> None:
        """Until leadership is lost: calls `lost` then, once, and returns. The process has to end its work at once."""
        await asyncio.shield(asyncio.wrap_future(self._lost))
        lost()

    async def release(self) -> None:
        """Lets the next one begin at once. Call it once, when all work has ended; failing is harmless."""
        if self._thread.is_alive():
            self._released.set_result(None)
            await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        try:
            asyncio.run(self._contend())
        except Exception as error:  # noqa: BLE001 - whoever waits has to hear of it, whatever it is
            for waited in (self._acquired, self._lost):
                if not waited.done():
                    waited.set_exception(error)

    async def _contend(self) -> None:
        leading = asyncio.create_task(self._lead())
        try:
            await asyncio.wait({leading, asyncio.wrap_future(self._released)}, return_when=asyncio.FIRST_COMPLETED)
            if leading.done():
                leading.result()
                return
            leading.cancel()
            await asyncio.wait({leading})
            await self._elector.release()
        finally:
            await self._api.close()

    async def _lead(self) -> None:
        self._acquired.set_result(await self._elector.acquire())
        await self._elector.hold(lambda: _log.warning("leadership is lost"))
        self._lost.set_result(None)

    def _answers(self) -> bool:
        """Whether the loop that works under the leadership goes on; it is asked again each time."""
        try:
            if self._home:
                self._home.call_soon_threadsafe(self._answer)
        except RuntimeError:
            # It is closed.
            return False
        return steady() - self._answered < self._stuck

    def _answer(self) -> None:
        self._answered = steady()
