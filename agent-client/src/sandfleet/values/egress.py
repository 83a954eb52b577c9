"""Egress: whether a sandbox reaches what its template allows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

# The reason while the fleet is still probing.
_ASKING = "Asking"


class EgressState(StrEnum):
    """Whether a sandbox reaches what its template allows it to reach."""

    UNKNOWN = "unknown"
    # The sandbox reaches nothing, as its template says.
    DENIED = "denied"
    # The cluster's network has not yet applied the policy: the sandbox reaches nothing.
    OPENING = "opening"
    # A probe has reached an allowed address.
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class EgressInfo:
    """What the fleet knows of a sandbox's egress.

    reason   one word. DENIED: NothingAllowed, NoNetwork (on one machine). OPENING: Asking; NotProbeable and NoAnswer,
             which last until the executor or the template changes. OPEN: Answered. UNKNOWN: MachinesNetwork, or "" when
             the fleet does not probe.
    message  one sentence for people.
    since    when the fleet found the state; None before its first probe.
    """

    state: EgressState = EgressState.UNKNOWN
    reason: str = ""
    message: str = ""
    since: datetime | None = None

    @property
    def is_settled(self) -> bool:
        """Whether the state is final: waiting will not change it."""
        return self.reason not in ("", _ASKING)
