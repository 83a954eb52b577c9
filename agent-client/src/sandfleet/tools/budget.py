"""What a call costs, where the tool learns it only while it runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextvars import ContextVar


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


SETTLING: ContextVar[Settling] = ContextVar("sandfleet_tool_settling")


def settling() -> Settling:
    """Of the call that runs here: what it is told, by a call with the cost, is charged to the tool's budget.

    The function of a tool asks for it when it begins: `settle = settling()`, and later `settle(12.5)`. The tool's
    `cost` says before the call what is charged at first. Where the tool has no budget, nothing is charged.
    """
    return SETTLING.get(None) or Settling(_nothing, 0.0)
