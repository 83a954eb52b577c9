"""Services that a template declares: read, checked, and written as in the executor's configuration."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Annotated, Any

from sandfleet_operator.api.errors import FleetError, invalid
from sandfleet_operator.api.table import at, listed, reader, variables
from sandfleet_operator.api.validate import check_envs

NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
HTTP_PATH = re.compile(r"/[\x21-\x7e]*")
# The executor reads them from one environment variable with the rest of its configuration, at most 128 KiB.
MAX_JSON = 20 << 10
# As core/services/parse.py of the executor reads them.
Service = Mapping[str, Any]


class Restart(Enum):
    """Restart policies; the values are the executor's words."""

    ALWAYS = "always"
    ON_FAILURE = "on-failure"
    NEVER = "never"

    @property
    def word(self) -> str:
        """As the custom resources write it: OnFailure."""
        return "".join(part.capitalize() for part in self.value.split("-"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tcp:
    port: Annotated[int, at("port", required=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Http:
    port: Annotated[int, at("port", required=True)]
    path: Annotated[str, at("path")] = "/"
    status: Annotated[int, at("status")] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A probe. Its attributes have the executor's names, as those of Declared."""

    tcp: Annotated[Tcp | None, at("tcpSocket")] = None
    http: Annotated[Http | None, at("httpGet")] = None
    exec: Annotated[tuple[str, ...] | None, at("exec.command")] = None
    interval: Annotated[int, at("periodSeconds")] = 1
    timeout: Annotated[int, at("timeoutSeconds")] = 1
    successes: Annotated[int, at("successThreshold")] = 1
    failures: Annotated[int, at("failureThreshold")] = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    name: Annotated[str, at("name", required=True)]
    command: Annotated[tuple[str, ...], at("command")] = ()
    cwd: Annotated[str, at("workingDir")] = ""
    envs: Annotated[Mapping[str, str], at("env", variables)] = field(default_factory=dict)
    restart: Annotated[Restart, at("restartPolicy")] = Restart.ON_FAILURE
    after: Annotated[tuple[str, ...], at("after")] = ()
    stop_signal: Annotated[str, at("stopSignal")] = "SIGTERM"
    grace: Annotated[int, at("terminationGracePeriodSeconds")] = 5
    readiness: Annotated[Probe | None, at("readinessProbe")] = None
    liveness: Annotated[Probe | None, at("livenessProbe")] = None


CHECKS = ("tcp", "http", "exec")


def read(value: object, path: str) -> tuple[Service, ...]:
    """The services as in the executor's configuration. Raises FleetError."""
    return tuple(_told(one) for one in listed(reader(Declared))(value, path))


def _told(value: Any) -> Any:
    """As JSON; an absent probe or check is left out."""
    if is_dataclass(value):
        given = {one.name: getattr(value, one.name) for one in fields(value)}
        return {name: _told(inner) for name, inner in given.items() if inner is not None}
    if isinstance(value, Enum):
        return value.value
    return list(value) if isinstance(value, tuple) else value


def check(services: Sequence[Service]) -> None:
    """Raises FleetError for services that an executor would refuse."""
    names = [one["name"] for one in services]
    for one in services:
        _check_one(one, names)
    _check_order({one["name"]: one["after"] for one in services})
    if len(json.dumps(services)) > MAX_JSON:
        raise _refusal(f"as JSON they are more than {MAX_JSON} bytes")


def _check_one(one: Service, names: Sequence[str]) -> None:
    name = one["name"]
    if not NAME.fullmatch(name):
        raise _refusal(f"{name[:80]!r} is no name: letters, digits, dots, _ and -, with no dot first")
    if names.count(name) > 1:
        raise _refusal(f"{name} is there twice")
    check_envs(one["envs"], doing=f"declare service {name}")
    if not any(one["command"][:1]):
        raise _refusal(f"{name} has no program in its command")
    if any("\0" in text for text in (*one["command"], one["cwd"])):
        raise _refusal(f"the command of {name} or its folder has a NUL byte")
    for kind in ("readiness", "liveness"):
        _check_probe(one.get(kind), f"the {kind} of {name}")
    if unknown := [other for other in one["after"] if other not in names]:
        raise _refusal(f"{name} comes after {unknown[0][:80]!r}, which is none of them")


def _check_probe(probe: Mapping[str, Any] | None, what: str) -> None:
    if probe is None:
        return
    if sum(word in probe for word in CHECKS) != 1:
        raise _refusal(f"{what} needs exactly one of tcpSocket, httpGet and exec")
    if "exec" in probe and (not any(probe["exec"][:1]) or any("\0" in word for word in probe["exec"])):
        raise _refusal(f"{what} has no program in its command, or a NUL byte")
    if http := probe.get("http"):
        if not HTTP_PATH.fullmatch(http["path"]):
            raise _refusal(f"{what} asks for a path that begins with no / or has blanks")
        if http["status"] and http["status"] < 100:
            raise _refusal(f"{what} expects the status {http['status']}, which is none")


def _check_order(after: Mapping[str, Sequence[str]]) -> None:
    done: set[str] = set()
    while len(done) < len(after):
        free = {name for name, before in after.items() if name not in done and done.issuperset(before)}
        if not free:
            raise _refusal(f"{', '.join(sorted(after.keys() - done))} wait for each other")
        done |= free


def _refusal(why: str) -> FleetError:
    return invalid("InvalidSpec", f"cannot declare the services: {why}")
