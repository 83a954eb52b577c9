"""Services: their declarations, states, exits and logs. All times are seconds."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Literal

from sandfleet.values import _show
from sandfleet.values.options import FileText

RestartPolicy = Literal["always", "on-failure", "never"]


@dataclass(frozen=True, slots=True)
class Probe:
    """A check whether a service is ready, or alive: make one with `tcp`, `http` or `exec_`.

    interval   between two checks; shorter until the service is ready for the first time.
    timeout    of one check.
    successes  passing checks in a row until the probe counts as passed; `failures`: failing checks until it counts as
               failed.
    """

    kind: Literal["tcp", "http", "exec"]
    port: int = 0
    path: str = "/"
    status: int = 0
    command: FileText | Sequence[FileText | bytes] = ""
    interval: float = 1.0
    timeout: float = 1.0
    successes: int = 1
    failures: int = 3


def tcp(port: int, *, interval: float = 1.0, timeout: float = 1.0, successes: int = 1, failures: int = 3) -> Probe:
    """Make a probe that connects to a port."""
    return Probe("tcp", port=port, interval=interval, timeout=timeout, successes=successes, failures=failures)


def http(
    port: int,
    path: str = "/",
    *,
    status: int = 0,
    interval: float = 1.0,
    timeout: float = 1.0,
    successes: int = 1,
    failures: int = 3,
) -> Probe:
    """Make a probe that asks by HTTP; `status` 0 takes any from 200 to 399."""
    return Probe(
        "http",
        port=port,
        path=path,
        status=status,
        interval=interval,
        timeout=timeout,
        successes=successes,
        failures=failures,
    )


def exec_(
    command: FileText | Sequence[FileText | bytes],
    *,
    interval: float = 1.0,
    timeout: float = 1.0,
    successes: int = 1,
    failures: int = 3,
) -> Probe:
    """Make a probe that runs a command, a line for bash or words: exit code 0 passes."""
    return Probe("exec", command=command, interval=interval, timeout=timeout, successes=successes, failures=failures)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSpec:
    """A declared service. None means the sandbox's default.

    cmd           the program, in the foreground: a str is a line for bash, a sequence the program and its arguments.
    cwd           relative to /workspace.
    ready         when it counts as ready; None means once it has run for half a second.
    live          checked after the service was ready; a failing service is stopped, which counts as a failure.
    restart       "always", "on-failure" or "never".
    backoff       pause before the first restart in a row, doubled each time up to `backoff_cap`.
    max_failures  after so many quick ends in a row the service has failed for good.
    after         names of services that have to be ready first.
    stop_signal   asks the service to stop; after `grace` seconds it is killed with all its processes.
    """

    name: str
    cmd: FileText | Sequence[FileText | bytes]
    cwd: FileText = ""
    envs: Mapping[str, str] = field(default_factory=dict)
    ready: Probe | None = None
    live: Probe | None = None
    restart: RestartPolicy = "on-failure"
    backoff: float | None = None
    backoff_cap: float | None = None
    max_failures: int | None = None
    after: Sequence[str] = ()
    stop_signal: int = signal.SIGTERM
    grace: float | None = None


class ServiceState(StrEnum):
    """The state of a service. `COMPLETED`, `FAILED` and `STOPPED` last until the next start, restart or apply."""

    UNKNOWN = "unknown"
    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    READY = "ready"
    STOPPING = "stopping"
    RESTARTING = "restarting"
    FAILING = "failing"
    BACK_OFF = "back-off"
    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ServiceExit:
    """How a run of a service ended. `exit_code` is a shell's: 128+n when signal n ended it."""

    exit_code: int = 0
    signal: str = ""
    reason: str = ""
    message: str = ""
    leftover_processes_killed: int = 0
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Service:
    """A service at a moment.

    reason, message  why it is in its state: a word for programs, a sentence for people; "" if the state says it all.
    pid              of its program in the sandbox; 0 while none runs.
    restarts         starts after the first, since it was declared.
    ports            TCP ports that its processes listen on; None if they are not known.
    log_path         its log, relative to /workspace; `log_problem` says why the log cannot be written.
    """

    name: str
    state: ServiceState
    reason: str = ""
    message: str = ""
    pid: int = 0
    started: datetime | None = None
    restarts: int = 0
    last_exit: ServiceExit | None = None
    ports: tuple[int, ...] | None = None
    from_template: bool = False
    log_path: str = ""
    log_problem: str = ""

    @property
    def is_ready(self) -> bool:
        """Whether the service is ready."""
        return self.state is ServiceState.READY

    def __repr__(self) -> str:
        return _show.short("Service", self.name, self.state, self.message)


@dataclass(frozen=True, slots=True)
class Applied:
    """The names of the services that a declaration changed."""

    started: tuple[str, ...] = ()
    restarted: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LogPiece:
    """A part of a service's log, or (`dropped_bytes`) a part that the sandbox no longer stores.

    offset  of its first byte, in bytes since the service was declared. To continue after it, call
            `logs(offset=piece.end)`.
    """

    offset: int
    data: bytes = b""
    dropped_bytes: int = 0

    @property
    def end(self) -> int:
        """Offset of the next piece."""
        return self.offset + len(self.data) + self.dropped_bytes

    @property
    def text(self) -> str:
        """The piece as text; a character may be split between two pieces."""
        return self.data.decode("utf-8", "replace")
