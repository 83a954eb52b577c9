"""What is known of a sandbox's way out: frozen values, free of gRPC and protobuf."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

# The reason while the fleet still finds out.
_ASKING = "Asking"


class EgressState(StrEnum):
    """Whether a sandbox reaches what its template allows it to reach."""

    UNKNOWN = "unknown"
    # Nothing, and nothing is meant to be.
    DENIED = "denied"
    # Asked for. Until the cluster's network has applied it, nothing can be reached.
    OPENING = "opening"
    # Known to work.
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class EgressInfo:
    """What the fleet knows of a sandbox's way out, and how.

    reason   one word. DENIED: NothingAllowed, NoNetwork (on one machine). OPENING: Asking; NotProbeable and NoAnswer, which stay
             until executor or template change. OPEN: Answered. UNKNOWN: MachinesNetwork, or "" where nobody asks.
    message  for people.
    since    when the fleet found it so; None where it has not looked yet.
    """

    state: EgressState = EgressState.UNKNOWN
    reason: str = ""
    message: str = ""
    since: datetime | None = None

    @property
    def is_settled(self) -> bool:
        """Whether more is not going to be known by waiting."""
        return self.reason not in ("", _ASKING)
