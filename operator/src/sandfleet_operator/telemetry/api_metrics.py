"""Writes to the API server, by kind: what a session costs the cluster."""

from sandfleet_operator.telemetry.metrics import Counter, Family, Histogram


class ApiMetrics:
    """`code` is the status of the answer; 0 where none came."""

    def __init__(self) -> None:
        self._writes = Counter(
            "sandfleet_api_writes_total",
            "Writes to the API server by kind, verb and status code; code 0 is no answer.",
            ("kind", "verb", "code"),
        )
        self._seconds = Histogram("sandfleet_api_write_seconds", "Duration of these writes.", ("verb",))

    def wrote(self, kind: str, verb: str, code: int, seconds: float) -> None:
        self._writes.add(kind, verb, str(code))
        self._seconds.observe(seconds, verb)

    def families(self) -> list[Family]:
        return [self._writes, self._seconds]
