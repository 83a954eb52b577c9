"""What a call costs, where the tool learns it only while it runs."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from sandfleet.tools.ledger import Failure, Ledger, denied

if TYPE_CHECKING:
    from sandfleet.values.tools import Tool


class Settling:
    """What the call that runs has been charged with, to be corrected. It may be called later than the call ends."""

    def __init__(self, spend: Callable[[float], None], charged: float) -> None:
        """`spend` takes what is to be added to the costs, which may be less than 0."""
        self._spend = spend
        self._charged = charged

    def __call__(self, cost: float) -> None:
        """Say what the call has cost in all, in the place of what was said before. Raises ValueError below 0."""
        if not 0 <= cost < math.inf:
            raise ValueError(f"cannot charge a cost of {cost}: it is a number of at least 0")
        more, self._charged = cost - self._charged, cost
        self._spend(more)


def _nothing(_amount: float) -> None:
    """For a call without a budget."""


_log = logging.getLogger("sandfleet")
SETTLING: ContextVar[Settling] = ContextVar("sandfleet_tool_settling")


def settling() -> Settling:
    """Of the call that runs here: what it is told, by a call with the cost, is charged to the tool's budget.

    The function of a tool asks for it when it begins: `settle = settling()`, and later `settle(12.5)`. The tool's
    `cost` says before the call what is charged at first. Where the tool has no budget, nothing is charged.
    """
    return SETTLING.get(None) or Settling(_nothing, 0.0)


def charged(ledger: Ledger, tool: Tool, arguments: Mapping[str, Any]) -> Failure | None:
    """Why the tool's budget does not let the call run; None: it does. A cost that cannot be told allows nothing."""
    if tool.limits.budget is None:
        return None
    try:
        cost = 1.0 if tool.cost is None else float(tool.cost(arguments))
    except Exception as error:  # noqa: BLE001  closed where it fails
        _log.exception("the cost of a call of tool %s cannot be told", tool.name)
        return denied(tool.name, "Budget", f"its cost cannot be told ({type(error).__name__})")
    if (refusal := ledger.charge(tool, cost)) is None:
        SETTLING.set(Settling(_spender(ledger, tool.name), cost))
    return refusal


def _spender(ledger: Ledger, tool: str) -> Callable[[float], None]:
    """Takes corrections of what a call costs, from any thread, also after the call."""
    loop, here = asyncio.get_running_loop(), threading.get_ident()

    def spend(amount: float) -> None:
        if threading.get_ident() == here:
            ledger.spend(tool, amount)
        else:
            loop.call_soon_threadsafe(ledger.spend, tool, amount)

    return spend
