"""The heads of the journal with which calls of an executor end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from sandfleet._wire import api
    from sandfleet.journal.heads import KeptHeads

Answer = TypeVar("Answer")

_KEY = "sandfleet-journal-head"
# How long the end of a call is waited for after its last message, in seconds.
_PATIENCE = 5.0


class _Call(Protocol):
    async def trailing_metadata(self) -> object: ...


async def hear(kept: KeptHeads, pod_uid: str, call: _Call) -> None:
    """Keep the head that a call has ended with."""
    # The stubs do not know that metadata are pairs.
    for key, value in cast("Iterable[tuple[str, str | bytes]]", await call.trailing_metadata() or ()):
        if key == _KEY and isinstance(value, str):
            kept.told(pod_uid, value)


async def heard(kept: KeptHeads, pod_uid: str, call: api.aio.UnaryUnaryCall[Any, Answer]) -> Answer:
    """Return the answer of a call, and keep the head that it has ended with."""
    answer = await call
    await hear(kept, pod_uid, call)
    return answer


async def hear_later(kept: KeptHeads, pod_uid: str, call: _Call) -> None:
    """Do the same of a stream whose end has not come yet. A stream that does not end has no head."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE):
            await hear(kept, pod_uid, call)
