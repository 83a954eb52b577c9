"""What a report says: frozen values, which the page draws and any program can read (`--json`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from sandfleet.observe.report.frames import Frame
from sandfleet.observe.report.pictures import Picture

# Of one page.
MAX_SESSIONS, MAX_BARS = 20_000, 200_000
# Characters of all texts of a page.
MAX_TEXTS = 64_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One turn of an agent, or one execution where no agent was traced. Times in seconds from the session's start."""

    number: int
    kind: str
    # How it ended in a word, why in another, and whose failure it was; empty where all is well.
    end: str
    reason: str = ""
    blame: str = ""
    # The class of the exception that the code raised, where it is one of Python's own; from a journal its message, too.
    exception: str = ""
    is_failed: bool = False
    start: float
    seconds: float
    intent: str = ""
    code: str = ""
    output: str = ""
    frames: tuple[Frame, ...] = ()
    pictures: tuple[Picture, ...] = ()
    # "done", or "refused: WHY".
    rollback: str = ""
    lost: str = ""
    files: tuple[str, ...] = ()
    changed: int = 0
    # Hosts by name that programs reached or were refused, with the verdict.
    hosts: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    # Answers of reviewers, and the seconds that it waited for them.
    reviews: tuple[str, ...] = ()
    review: float = 0.0
    cpu: float = 0.0
    memory: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One session. `bars`: depth, title, service, start and length in milliseconds, and whether it went wrong."""

    key: str
    trace_id: str = ""
    sandbox: str = ""
    end: str
    is_failed: bool
    message: str = ""
    task: str = ""
    answer: str = ""
    # Seconds since the epoch; 0 where it is not known.
    began: float = 0.0
    seconds: float
    # In the queue; None where no claim was traced.
    wait: float | None = None
    tokens: int = 0
    cpu: float = 0.0
    # How many steps it took and how many of them failed, also where the steps themselves are not known.
    count: int = 0
    failures: int = 0
    # Whose failure the end is, where the driver of a run says so.
    blame: str = ""
    steps: tuple[Step, ...] = ()
    bars: tuple[tuple[int, str, str, float, float, bool], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task of a run, from its driver. `end` is empty while the agent works; `steps` may be fewer than `count`."""

    key: str
    end: str = ""
    is_failed: bool = False
    blame: str = ""
    message: str = ""
    prompt: str = ""
    answer: str = ""
    trace_id: str = ""
    sandbox: str = ""
    began: float = 0.0
    seconds: float = 0.0
    wait: float = 0.0
    tokens: int = 0
    cpu: float = 0.0
    count: int = 0
    failures: int = 0
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A session or a run. `missing`: what would tell more, and `facts` about all of it, one sentence each."""

    name: str
    sessions: tuple[Session, ...]
    missing: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    # The run that it is compared with.
    other: Report | None = field(default=None)
