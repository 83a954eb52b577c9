"""Times as Kubernetes writes them (RFC 3339, in UTC) to seconds since the epoch, and back."""

import re
from datetime import UTC, datetime, timedelta

from sandfleet_operator.api.errors import invalid

RFC3339 = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_time(text: str, what: str) -> float:
    """Seconds since the epoch, to the microsecond. Raises FleetError."""
    moment = _moment(text) if RFC3339.fullmatch(text) else None
    if moment is None:
        why = f"{text[:40]!r} is no time; write it like 2006-01-02T15:04:05Z"
        raise invalid("InvalidTime", f"cannot read {what}: {why}", what)
    return (moment - EPOCH).total_seconds()


def _moment(text: str) -> datetime | None:
    """None for the 31st of February, and for a time that is before the year 1 or after 9999 in UTC."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def time_text(seconds: float) -> str:
    """The fraction of a second only where there is one, at most six digits."""
    moment = EPOCH + timedelta(seconds=seconds)
    fraction = f".{moment.microsecond:06d}".rstrip("0") if moment.microsecond else ""
    return f"{moment.isoformat()[:19]}{fraction}Z"
