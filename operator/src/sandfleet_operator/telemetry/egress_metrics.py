"""What a fleet measures of connections to hosts by name. No label comes from a sandbox; the audit log has the hosts."""

from collections.abc import Mapping
from typing import Any

from sandfleet_operator.telemetry.metrics import Counter, Family


class EgressMetrics:
    def __init__(self) -> None:
        self._connections = Counter(
            "sandfleet_egress_connections_total",
            "Connections of sandboxes to hosts by name: reached, or why they were refused.",
            ("reason",),
        )
        self._bytes = Counter("sandfleet_egress_bytes_total", "Data of these connections.", ("direction",))

    def heard(self, row: Mapping[str, Any]) -> None:
        """What has come about one host since the last row."""
        if row["connections"]:
            self._connections.add(row["reason"] or "Reached", amount=row["connections"])
        for direction in ("sent", "received"):
            if row[direction]:
                self._bytes.add(direction, amount=row[direction])

    def families(self) -> list[Family]:
        return [self._connections, self._bytes]
