"""What is asked of a context, and of one of its cells."""

from dataclasses import dataclass

from sandfleet_executor.core.states import Bounds
from sandfleet_executor.core.tracing import TraceParent


@dataclass(frozen=True)
class Keeps:
    """What of a context outlives its interpreter: the bounds of automatic saves, and whether it goes on from the newest."""

    autosave: Bounds | None = None
    resume: bool = False


NOTHING = Keeps()


@dataclass(frozen=True)
class CellRequest:
    code: str
    # Seconds.
    timeout: float
    envs: dict[str, str]
    traceparent: TraceParent | None
    # Bytes; only to say it when it was reached.
    memory_limit: int
    disk_limit: int
    # Whether a cell that raises is rolled back as one that is killed.
    rolls_back: bool = False
    # Of the context, where this makes it.
    keeps: Keeps = NOTHING
