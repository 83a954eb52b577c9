"""W3C Trace Context, version 00."""

import re
from dataclasses import dataclass

TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


@dataclass(frozen=True)
class TraceParent:
    trace_id: bytes
    span_id: bytes
    flags: int

    def __str__(self) -> str:
        return f"00-{self.trace_id.hex()}-{self.span_id.hex()}-{self.flags:02x}"


def parse_traceparent(text: str) -> TraceParent | None:
    """None for anything that is not valid: such a header is to be ignored."""
    match = TRACEPARENT.fullmatch(text.strip())
    if not match:
        return None
    found = TraceParent(bytes.fromhex(match[1]), bytes.fromhex(match[2]), int(match[3], 16))
    return found if any(found.trace_id) and any(found.span_id) else None
