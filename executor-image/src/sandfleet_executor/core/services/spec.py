"""A declared service, checked. Raises BadRequest with "cannot X: why" for what cannot be."""

import re
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from sandfleet_executor.core.errors import BadRequest

NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
MAX_SERVICES = 64
# argv and environment of all of them: they are held for as long as they are declared.
MAX_TOTAL_BYTES = 8 << 20
MAX_SECONDS = 3600.0
MAX_THRESHOLD = 100
MAX_FAILURES = 1000
MAX_PATH = 2048
LEAST_INTERVAL = 0.05
# Who crashes at once keeps PID 1 busy with starting it.
LEAST_BACKOFF = 0.1
# Printable ASCII without blanks: nothing that could end the line of a request.
HTTP_PATH = re.compile(r"/[\x21-\x7e]*")
UNCATCHABLE = (signal.SIGKILL, signal.SIGSTOP)


class UnknownServiceError(BadRequest, code="INVALID_ARGUMENT", reason="UnknownService"):
    """`after` names a service that does not exist."""


class CycleError(BadRequest, code="INVALID_ARGUMENT", reason="ServiceCycle"):
    """Services wait for each other."""


class Restart(Enum):
    ALWAYS = "always"
    ON_FAILURE = "on-failure"
    NEVER = "never"


@dataclass(frozen=True)
class Tcp:
    port: int

    def __post_init__(self) -> None:
        check_port(self.port)


@dataclass(frozen=True)
class Http:
    port: int
    path: str = "/"
    # 0: any from 200 to 399.
    status: int = 0

    def __post_init__(self) -> None:
        check_port(self.port)
        if not HTTP_PATH.fullmatch(self.path) or len(self.path) > MAX_PATH:
            raise BadRequest(f"cannot ask for {self.path[:80]!r}: a path begins with / and has no blanks")
        if self.status and not 100 <= self.status <= 599:
            raise BadRequest(f"cannot expect the status {self.status}: it is one of 100 to 599")


@dataclass(frozen=True)
class Exec:
    # As command.run takes it: argv joined by NUL, or the shell's line.
    payload: bytes
    shell: bool


@dataclass(frozen=True)
class Probe:
    """Times in seconds."""

    check: Tcp | Http | Exec
    interval: float = 1.0
    timeout: float = 1.0
    successes: int = 1
    failures: int = 3

    def __post_init__(self) -> None:
        check_seconds("an interval", self.interval, least=LEAST_INTERVAL)
        check_seconds("a timeout", self.timeout)
        for count in (self.successes, self.failures):
            if not 1 <= count <= MAX_THRESHOLD:
                raise BadRequest(f"cannot take the threshold {count}: it is 1 to {MAX_THRESHOLD}")


@dataclass(frozen=True)
class ServiceSpec:
    """Times in seconds. `payload` as command.run takes it."""

    name: str
    payload: bytes
    shell: bool
    cwd: bytes = b""
    envs: Mapping[str, str] = field(default_factory=dict)
    readiness: Probe | None = None
    liveness: Probe | None = None
    restart: Restart = Restart.ON_FAILURE
    backoff: float = 0.5
    backoff_cap: float = 30.0
    max_failures: int = 10
    after: tuple[str, ...] = ()
    stop_signal: int = signal.SIGTERM
    grace: float = 5.0

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise BadRequest(
                f"cannot declare a service {self.name[:80]!r}: a name is 1 to 64 of A-Z a-z 0-9 . _ -, "
                "and begins with no dot"
            )
        check_seconds("a back-off", self.backoff, least=LEAST_BACKOFF)
        check_seconds("a back-off's cap", self.backoff_cap, least=self.backoff)
        check_seconds("a grace", self.grace, least=0.0)
        if not 1 <= self.max_failures <= MAX_FAILURES:
            raise BadRequest(f"cannot allow {self.max_failures} failures: it is 1 to {MAX_FAILURES}")
        if self.stop_signal not in signal.valid_signals() or self.stop_signal in UNCATCHABLE:
            raise BadRequest(f"cannot stop {self.name} with signal {self.stop_signal}: no program can act on that")

    @property
    def size(self) -> int:
        """Bytes that it holds."""
        probes = [
            probe.check.payload for probe in (self.readiness, self.liveness) if probe and isinstance(probe.check, Exec)
        ]
        texts = sum(len(name.encode()) + len(value.encode()) for name, value in self.envs.items())
        return len(self.payload) + len(self.cwd) + texts + sum(map(len, probes))


def check_port(port: int) -> None:
    if not 0 < port < 65536:
        raise BadRequest(f"cannot probe port {port}: ports are 1 to 65535")


def check_seconds(what: str, seconds: float, *, least: float | None = None) -> None:
    """`least` None: above 0. Also not for what is no number."""
    low_enough = seconds > 0 if least is None else seconds >= least
    if not (low_enough and seconds <= MAX_SECONDS):
        bound = "above 0" if least is None else f"at least {least:g}"
        raise BadRequest(f"cannot take {what} of {seconds:g} s: it has to be {bound} and at most {MAX_SECONDS:g}")


def check_set(specs: Iterable[ServiceSpec]) -> dict[str, ServiceSpec]:
    """All that are to be there together, by name, in the order of their start.

    Raises BadRequest, UnknownServiceError and CycleError.
    """
    by_name: dict[str, ServiceSpec] = {}
    for spec in specs:
        if spec.name in by_name:
            raise BadRequest(f"cannot declare {spec.name} twice")
        by_name[spec.name] = spec
    for spec in by_name.values():
        if unknown := [name for name in spec.after if name not in by_name]:
            raise UnknownServiceError(f"cannot start {spec.name} after {unknown[0][:80]}: there is no such service")
    if sum(spec.size for spec in by_name.values()) > MAX_TOTAL_BYTES:
        raise BadRequest(f"cannot declare the services: together they are larger than {MAX_TOTAL_BYTES} bytes")
    return {name: by_name[name] for name in in_order({name: spec.after for name, spec in by_name.items()})}


def in_order(after: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Each name behind those that it comes after, else as they were given. Raises CycleError."""
    done: dict[str, None] = {}
    while len(done) < len(after):
        free = [name for name, before in after.items() if name not in done and all(one in done for one in before)]
        if not free:
            raise CycleError(f"cannot start the services: {' → '.join(cycle(after, done))} wait for each other")
        done.update(dict.fromkeys(free))
    return list(done)


def cycle(after: Mapping[str, tuple[str, ...]], done: Mapping[str, None]) -> list[str]:
    """One of the cycles among those that are not done; its first name stands at its end again."""
    way = [next(name for name in after if name not in done)]
    while True:
        following = next(name for name in after[way[-1]] if name not in done)
        if following in way:
            return [*way[way.index(following) :], following]
        way.append(following)
