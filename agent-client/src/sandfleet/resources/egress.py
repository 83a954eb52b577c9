"""Whether a sandbox reaches what its template allows."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sandfleet._wire.retry import Backoff
from sandfleet.values.sandbox import EgressState

if TYPE_CHECKING:
    from sandfleet._wire.link import Link

# Between two questions to the fleet.
_BACKOFF = Backoff(0.05, 1.0, chance=None)


async def wait_until_open(link: Link, timeout: float) -> bool:
    """Ask the fleet for at most `timeout` seconds, until the answer is final; return whether the sandbox reaches it."""
    asked = 0
    try:
        async with asyncio.timeout(timeout) as limit:
            while not (egress := (await link.known()).egress).is_settled:
                asked += 1
                await asyncio.sleep(_BACKOFF.after(asked))
    except TimeoutError:
        if not limit.expired():
            raise
        return False
    return egress.state is EgressState.OPEN
