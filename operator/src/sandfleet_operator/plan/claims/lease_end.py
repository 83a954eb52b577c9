"""The end of a session's lease as its CodeSandbox keeps it: for the next leader, which asks the executor as well.

The owner of the CodeSandbox may write the annotation, too. It decides nothing but when the fleet asks the executor, and
how long a session lasts whose executor cannot say: at most as long as a lease may be.
"""

import re
from collections.abc import Mapping

from sandfleet_operator.api.kube import Json
from sandfleet_operator.api.validate import MAX_LEASE
from sandfleet_operator.plan.claims.patches import annotation_path
from sandfleet_operator.plan.pods import names

# A renewal that moves the end by more is written down, and one of a session at most each so many seconds.
WORTH_SECONDS = 60.0
EVERY_SECONDS = 60.0

# Seconds since the epoch.
_TEXT = re.compile(r"[0-9]{1,12}")


def lease_end(annotations: Mapping[str, str], now: float) -> float | None:
    """When the lease ends, at most a longest lease from now; None where that was not written, or is unreadable."""
    text = annotations.get(names.LEASE_EXPIRES, "")
    return min(float(text), now + MAX_LEASE) if _TEXT.fullmatch(text) else None


def write_after(end: float, written: float, written_at: float, now: float) -> float | None:
    """Seconds until the end is to be written; None where `written` is close enough to it."""
    if abs(end - written) <= WORTH_SECONDS:
        return None
    return max(0.0, written_at + EVERY_SECONDS - now)


def lease_end_patch(uid: str, end: float) -> list[Json]:
    return [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "add", "path": annotation_path(names.LEASE_EXPIRES), "value": str(int(end))},
    ]
