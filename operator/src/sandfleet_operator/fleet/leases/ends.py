"""Leases that are about to end: who asks an executor for the last time looks at them here."""

import asyncio
from collections.abc import Callable, Iterable

from sandfleet_operator.api.values import Sandbox
from sandfleet_operator.plan.scheduler.recent import Recent
from sandfleet_operator.plan.witness import ends_soon

# Seconds between two looks.
LOOK_SECONDS = 2.0
# Leases whose ends are kept.
REMEMBERED = 50_000


class LeaseEnds:
    """Tells once of each lease that it is about to end."""

    def __init__(self) -> None:
        self._told: Recent[str, float] = Recent(REMEMBERED)

    def is_due(self, key: str, end: float | None, now: float) -> bool:
        """Whether the lease of `key`, which ends at `end`, is about to end, and that was not told before."""
        if end is None or not ends_soon(end, now) or self._told.get(key) == end:
            return False
        self._told.put(key, end)
        return True


async def keep_looking(
    look: Callable[[Iterable[Sandbox], float], None],
    sandboxes: Callable[[], Iterable[Sandbox]],
    clock: Callable[[], float],
) -> None:
    """Shows the sandboxes and the time to `look` again and again. `clock` is that of leases."""
    while True:
        look(list(sandboxes()), clock())
        await asyncio.sleep(LOOK_SECONDS)
