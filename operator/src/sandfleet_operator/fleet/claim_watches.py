"""Who waits for which claim: each sees the latest standing, and the answer."""

import asyncio
from collections.abc import Callable

from sandfleet_operator.api.errors import FleetError, Problem
from sandfleet_operator.api.values import RequestKey, Sandbox
from sandfleet_operator.plan.scheduler.claim_queue import Queued

# Seconds between two tellings of a claim that only moves on, for each place before it, and the most. What all who wait
# are told in a second grows only with the logarithm of their number: thousands that move on all the time would
# otherwise take the fleet's whole processor time.
PER_PLACE, AT_MOST = 0.02, 30.0


class ClaimWatch:
    """One caller's view of one claim. What it has not seen in time is overwritten by what is newer: it never grows."""

    def __init__(self, leave: Callable[["ClaimWatch"], None]) -> None:
        self._leave = leave
        self._news: Queued | Sandbox | Problem | None = None
        self._told: Queued | None = None
        self._told_at = 0.0
        self._changed = asyncio.Event()
        self.is_settled = False
        # What keeps the claim's place at the next leader: empty where there is none.
        self.ticket: Callable[[], bytes] = bytes
        # What its caller has to know beside its standing.
        self.note = ""

    async def next(self) -> Queued | Sandbox:
        """Waits for the next standing or the sandbox. Raises FleetError with the claim's failure."""
        await self._changed.wait()
        self._changed.clear()
        news, self._news = self._news, None
        if isinstance(news, Problem):
            raise FleetError(news)
        assert news is not None
        return news

    def leave(self) -> None:
        """The caller waits no more. Leaving twice is no error."""
        self._leave(self)

    def tell(self, queued: Queued, now: float) -> bool:
        """Only what differs is told: the time that is left passes by itself. Returns False if it is to be told later.

        A new reason is told at once. A new position is told the later the more claims are before it.
        """
        old = self._told
        if self.is_settled or (old is not None and _standing(old) == _standing(queued)):
            return True
        moved = old is not None and _standing(old)[1:] == _standing(queued)[1:]
        if moved and now < self._told_at + min(PER_PLACE * queued.position, AT_MOST):
            return False
        self._told, self._told_at = queued, now
        self._put(queued)
        return True

    def settle(self, result: Sandbox | Problem) -> None:
        self.is_settled = True
        self._put(result)

    def _put(self, news: Queued | Sandbox | Problem) -> None:
        self._news = news
        self._changed.set()


class ClaimWatches:
    """All callers that wait. `abandoned` is called when the last one of a claim has left."""

    def __init__(self, abandoned: Callable[[RequestKey], None]) -> None:
        self._abandoned = abandoned
        self._watches: dict[RequestKey, set[ClaimWatch]] = {}

    def __bool__(self) -> bool:
        return bool(self._watches)

    def open(self, key: RequestKey) -> ClaimWatch:
        watch = ClaimWatch(lambda one: self._close(key, one))
        self._watches.setdefault(key, set()).add(watch)
        return watch

    def tell(self, key: RequestKey, queued: Queued, now: float) -> bool:
        """Returns False if it is to be told later."""
        told = [watch.tell(queued, now) for watch in self._watches.get(key, ())]
        return all(told)

    def settle(self, key: RequestKey, result: Sandbox | Problem) -> None:
        for watch in self._watches.pop(key, ()):
            watch.settle(result)

    def settle_all(self, problem: Problem) -> None:
        for key in list(self._watches):
            self.settle(key, problem)

    def _close(self, key: RequestKey, watch: ClaimWatch) -> None:
        waiting = self._watches.get(key)
        if waiting is None or watch not in waiting:
            return
        waiting.discard(watch)
        if not waiting:
            del self._watches[key]
            self._abandoned(key)


def _standing(queued: Queued) -> tuple[int, str, bool]:
    return queued.position, queued.reason, queued.eta is None
