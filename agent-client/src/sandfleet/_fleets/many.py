"""Several claims at once: as a gang all of them are served together or not at all."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from sandfleet._wire import api
from sandfleet.errors import ClaimError, InvalidArgument
from sandfleet.values.reasons import AdmissionReason

if TYPE_CHECKING:
    from sandfleet.values.options import CreateOptions, ManyOptions


class _Killed(Protocol):
    async def kill(self) -> bool: ...


Made = TypeVar("Made", bound=_Killed)

# Options that no two sandboxes can share.
_SINGLE = ("name", "workspace_id")
# Seconds that the other claims of a gang have to say why it was undone.
_CAUSE = 1.0


async def all_or_none(
    claim: Callable[[CreateOptions, api.fleet.Gang | None], Coroutine[Any, Any, Made]],
    count: int,
    options: ManyOptions,
) -> tuple[Made, ...]:
    """Make the claim `count` times. Raises the first refusal; what the other claims had is released then."""
    if count < 1:
        raise InvalidArgument(f"cannot claim {count} sandboxes: claim one at least", reason="InvalidArgument")
    if shared := [name for name in _SINGLE if options.get(name)]:
        why = f"{shared[0]} is an option of a single sandbox"
        raise InvalidArgument(f"cannot claim {count} sandboxes: {why}", reason="InvalidArgument")
    name = options.get("request_id") or os.urandom(16).hex()
    together = api.fleet.Gang(gang_id=name, size=count) if options.pop("gang", False) else None
    tasks = []
    for number in range(count):
        mine = options.copy()
        mine["request_id"] = f"{name}-{number}"
        tasks.append(asyncio.ensure_future(claim(mine, together)))
    are_served = False
    try:
        are_served = await _are_served(tasks)
    finally:
        if not are_served:
            await _undo(tasks)
    failures = [error for one in tasks if not one.cancelled() and (error := one.exception()) is not None]
    if failures:
        raise next((one for one in failures if not _is_consequence(one)), failures[0])
    return tuple(one.result() for one in tasks)


async def _are_served(tasks: list[asyncio.Task[Made]]) -> bool:
    """Wait for all, or for the first failure, with which the others of a gang fail."""
    done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    if left and all(_is_consequence(error) for one in done if (error := one.exception()) is not None):
        await asyncio.wait(left, timeout=_CAUSE)
    return not left and not any(one.exception() for one in done)


async def _undo(tasks: list[asyncio.Task[Made]]) -> None:
    for task in tasks:
        task.cancel()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    made = [one for one in found if not isinstance(one, BaseException)]
    await asyncio.gather(*(one.kill() for one in made), return_exceptions=True)


def _is_consequence(error: BaseException | None) -> bool:
    """Whether another claim of the gang was the first to fail."""
    return isinstance(error, ClaimError) and error.reason == AdmissionReason.GANG_BROKEN.value
