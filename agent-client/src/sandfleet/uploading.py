"""An upload ends as soon as it is known that there is no use in the rest: the executor says so while data is still on its way."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandfleet import _api as api

# In the initial metadata, which come before the answer.
_UNWANTED = "sandfleet-unwanted"


@contextlib.asynccontextmanager
async def unwanted(call: api.aio.StreamUnaryCall[Any, Any]) -> AsyncIterator[Callable[[], bool]]:
    """Give what says whether the rest is of no use: the answer, which says why, comes once the client has stopped."""
    told = asyncio.create_task(_told(call))
    try:
        yield lambda: told.done() and told.result()
    finally:
        told.cancel()


async def _told(call: api.aio.StreamUnaryCall[Any, Any]) -> bool:
    # However the call ends, its own answer tells it.
    with contextlib.suppress(Exception):
        return any(key == _UNWANTED for key, _ in await call.initial_metadata() or ())
    return False
