"""Leadership for a busy process: the elector runs in a thread with an event loop and connections of its own.

So neither computations nor other requests of the process delay a renewal.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future

from sandfleet_operator.api.kube import Ref
from sandfleet_operator.cluster.elector import Elector, steady
from sandfleet_operator.cluster.kube_api import KubeApi
from sandfleet_operator.plan.leadership import Terms

# Seconds for which the main event loop may be blocked. After that the process gives up its leadership.
STUCK_SECONDS = 60.0

_log = logging.getLogger(__name__)


class NotLeadingError(Exception):
    """Another process leads, or may lead: nothing is written any more."""


class LeadershipLostError(Exception):
    """Another process leads: all work of this one has to end at once."""


async def _nothing_seen() -> Iterable[int]:
    return ()


class Lease:
    """One contender.

    Call `acquire`, `hold` and `release` from one event loop, `fencing` and `holder` from any thread.
    """

    def __init__(
        self, api: KubeApi, ref: Ref, identity: str, terms: Terms | None = None, *, stuck: float = STUCK_SECONDS
    ) -> None:
        self.ref = ref
        self._api = api.apart()
        self._elector = Elector(self._api, ref, identity, terms, vouch=self._answers, seen=self._numbers_seen)
        self._seen: Callable[[], Awaitable[Iterable[int]]] = _nothing_seen
        self._stuck = stuck
        self._answered = steady()
        self._home: asyncio.AbstractEventLoop | None = None
        self._acquired: Future[int] = Future()
        self._lost: Future[None] = Future()
        self._released: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    @property
    def fencing(self) -> int | None:
        """The number of this leadership, higher than all before; None as soon as it may be over."""
        return self._elector.fencing

    @property
    def holder(self) -> str:
        """The identity of the leader, as last seen; empty if there is none."""
        return self._elector.holder

    async def acquire(self, seen: Callable[[], Awaitable[Iterable[int]]] = _nothing_seen) -> int:
        """Waits until this contender leads; the fencing number. The Lease is renewed from then on.

        The number is above all earlier ones of the Lease, and above those of `seen()`, which is called in this loop.
        No error of the API server ends the wait.
        """
        self._seen = seen
        self._home = asyncio.get_running_loop()
        self._answer()
        self._thread.start()
        return await asyncio.shield(asyncio.wrap_future(self._acquired))

    async def hold(self, lost: Callable[[], None]) -> None:
        """Waits until leadership is lost, then calls `lost` and returns. The process has to end its work at once."""
        await asyncio.shield(asyncio.wrap_future(self._lost))
        lost()

    async def release(self) -> None:
        """Lets the next leader start at once. Call it once, when all work has ended. A failure is harmless."""
        if self._thread.is_alive():
            self._released.set_result(None)
            await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        try:
            asyncio.run(self._contend())
        except Exception as error:  # noqa: BLE001 - the waiting event loop has to get any error
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

    async def _numbers_seen(self) -> Iterable[int]:
        """Asks the main event loop, whose objects no other thread reads."""
        home = self._home
        assert home is not None, "acquire comes first"

        async def asked() -> Iterable[int]:
            return await self._seen()

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asked(), home))

    def _answers(self) -> bool:
        """Whether the main event loop still answers. Each call asks it again."""
        try:
            if self._home:
                self._home.call_soon_threadsafe(self._answer)
        except RuntimeError:
            # It is closed.
            return False
        return steady() - self._answered < self._stuck

    def _answer(self) -> None:
        self._answered = steady()
