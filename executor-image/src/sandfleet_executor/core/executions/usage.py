"""What executions have used together (pure)."""

from dataclasses import dataclass

from sandfleet_executor.core.executions.events import Usage

# Interpreters say what they wrote: however often one lies, the sum fits into its field.
MOST_BYTES = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums since the start, and the highest of what only has a highest. Seconds and bytes."""

    executions: int = 0
    cpu_seconds: float = 0.0
    written_bytes: int = 0
    peak_memory_bytes: int = 0
    peak_processes: int = 0

    def plus(self, usage: Usage) -> "Totals":
        """With one more execution that ended."""
        return self.with_running(usage, ended=1)

    def with_running(self, usage: Usage, *, ended: int = 0) -> "Totals":
        """With the usage so far of a running execution."""
        return Totals(
            executions=self.executions + ended,
            cpu_seconds=self.cpu_seconds + usage.cpu_seconds,
            written_bytes=min(self.written_bytes + (usage.written_bytes or 0), MOST_BYTES),
            peak_memory_bytes=max(self.peak_memory_bytes, usage.peak_memory_bytes),
            peak_processes=max(self.peak_processes, usage.peak_processes),
        )
