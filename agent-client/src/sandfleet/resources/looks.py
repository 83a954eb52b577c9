"""Completion and inspection of code in a context."""

from __future__ import annotations

from sandfleet._wire import api
from sandfleet._wire.convert import common, looks
from sandfleet._wire.link import Link
from sandfleet.errors import InvalidArgument
from sandfleet.values.execution import Completion, Inspection
from sandfleet.values.options import LookOptions

_MOST = 2**32


async def complete(link: Link, context_id: str, code: str, cursor_pos: int | None, options: LookOptions) -> Completion:
    """Ask for what may stand at the position."""
    request = api.interpreter.CompleteRequest(
        context_id=context_id,
        code=code,
        cursor_pos=_checked(cursor_pos),
        timeout=common.seconds(options.get("timeout")),
    )
    answer = await link.unary(lambda c: c.interpreter.Complete, request, idempotent=True)
    return looks.completion(answer, code)


async def inspect(link: Link, context_id: str, code: str, cursor_pos: int | None, options: LookOptions) -> Inspection:
    """Ask for a description of the object at the position."""
    request = api.interpreter.InspectRequest(
        context_id=context_id,
        code=code,
        cursor_pos=_checked(cursor_pos),
        detail_level=_checked(options.get("detail_level", 0)),
        timeout=common.seconds(options.get("timeout")),
    )
    answer = await link.unary(lambda c: c.interpreter.Inspect, request, idempotent=True)
    return looks.inspection(answer)


def _checked(number: int | None) -> int | None:
    if number is not None and not 0 <= number < _MOST:
        raise InvalidArgument(f"cannot look at code: {number} is no position and no level", reason="InvalidArgument")
    return number
