"""What the programs of a session have reached, and what they were refused, by host (pure)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sandfleet_operator.plan.audit import Decision, Record, Verdict

# Hosts of one session; of more, those that were used last.
MOST = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReport:
    """Connections to one host; `reason` is empty, or why they were refused."""

    host: str
    port: int
    reason: str
    address: str = ""
    connections: int = 0
    open: int = 0
    sent: int = 0
    received: int = 0
    first: float = 0.0
    last: float = 0.0


class Reports:
    """Of one session. Rows come from the egress process, which counts since its row before."""

    def __init__(self) -> None:
        self._hosts: dict[tuple[str, int, str], HostReport] = {}

    def add(self, row: Mapping[str, Any], now: float) -> HostReport:
        """The report with the row in it."""
        key = (str(row["host"]), int(row["port"]), str(row["reason"]))
        before = self._hosts.pop(key, None) or HostReport(host=key[0], port=key[1], reason=key[2], first=now)
        counts = {name: getattr(before, name) + int(row[name]) for name in ("connections", "open", "sent", "received")}
        found = replace(before, address=str(row["address"]) or before.address, last=now, **counts)
        # The last used is the last.
        self._hosts[key] = found
        while len(self._hosts) > MOST:
            del self._hosts[next(iter(self._hosts))]
        return found

    def closed(self) -> None:
        """The egress process is another one: none of its connections is open."""
        self._hosts = {key: replace(one, open=0) for key, one in self._hosts.items()}

    def all(self) -> tuple[HostReport, ...]:
        return tuple(self._hosts.values())


def connection_record(sandbox: str, row: Mapping[str, Any], namespace: str = "") -> Record:
    """What the audit log says of connections to one host."""
    details = {name: row[name] for name in ("host", "port", "address", "connections") if row[name]}
    return Record(
        decision=Decision.CONNECTION,
        verdict=Verdict.REFUSED if row["reason"] else Verdict.ALLOWED,
        reason=row["reason"],
        namespace=namespace,
        sandbox=sandbox,
        details=details,
    )
