"""What an exported file asks for, and what it gets here. Nothing in the file is trusted."""

import math
from collections.abc import Mapping
from typing import Any

from sandfleet_operator.api.kinds.template import Contract
from sandfleet_operator.plan.snapshots.errors import Reason, SnapshotError

# Contract → the limits of the template that has it.
Offers = Mapping[str, Mapping[str, float]]


def granted(said: Mapping[str, Any], offers: Offers) -> tuple[str, dict[str, float]]:
    """Contract and limits: those that the file names, and never more than the template of that contract has.

    A limit of 0 is none. Raises SnapshotError with the reason Widened.
    """
    contract = said.get("contract")
    if contract == Contract.REVIEWED.value:
        # Its variables are code when they are read, and its services start by themselves.
        why = "what it has would run in a reviewed sandbox before a person has approved it"
        raise SnapshotError(Reason.WIDENED, f"cannot import the file: {why}")
    if not isinstance(contract, str) or contract not in offers:
        why = f"it asks for the contract {str(contract)[:40]!r}, which no template has here"
        raise SnapshotError(Reason.WIDENED, f"cannot import the file: {why}")
    limits = said.get("limits")
    asked = limits if isinstance(limits, dict) else {}
    return contract, {name: _lower(asked.get(name), most) for name, most in offers[contract].items()}


def _lower(asked: object, most: float) -> float:
    if isinstance(asked, bool) or not isinstance(asked, int | float) or not math.isfinite(asked) or asked <= 0:
        return most
    return min(asked, most or asked)
