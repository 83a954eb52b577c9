"""What a fleet measures of its snapshots. The jobs and their ends are few, and no label comes from a caller."""

from typing import Any

from sandfleet_operator.telemetry.metrics import Counter, Family, Histogram

# What is counted: calls that only look are not.
JOBS = frozenset({"save", "restore", "delete", "export", "import"})
# Seconds: a small session takes a fraction of one, a large one minutes.
BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)


class SnapshotMetrics:
    def __init__(self) -> None:
        self._jobs = Counter(
            "sandfleet_snapshot_jobs_total",
            "Snapshots that were saved, restored, deleted, exported or imported, by their end: done, failed, or left by "
            "the caller.",
            ("job", "end"),
        )
        self._seconds = Histogram(
            "sandfleet_snapshot_seconds", "Duration of the jobs that were done.", ("job",), bounds=BOUNDS
        )
        self._bytes = Counter(
            "sandfleet_snapshot_bytes_total", "Data of the files and variables of jobs that were done.", ("job",)
        )
        self._new = Counter(
            "sandfleet_snapshot_new_bytes_total", "Of saved and imported data, what no earlier snapshot had."
        )
        self._stored = Counter("sandfleet_snapshot_stored_bytes_total", "What was added to the store.")

    def ended(self, job: str, end: str, seconds: float, snapshot: dict[str, Any] | None) -> None:
        """`end`: done, failed or left; `snapshot`: what the snapshotter said of it."""
        if job not in JOBS:
            return
        self._jobs.add(job, end)
        if end != "done":
            return
        self._seconds.observe(seconds, job)
        if snapshot is not None:
            self._bytes.add(job, amount=snapshot["bytes"])
            if job in {"save", "import"}:
                self._new.add(amount=snapshot["new_bytes"])
                self._stored.add(amount=snapshot["stored_bytes"])

    def families(self) -> list[Family]:
        return [self._jobs, self._seconds, self._bytes, self._new, self._stored]
