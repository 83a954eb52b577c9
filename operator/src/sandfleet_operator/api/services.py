"""Services that a template declares: read, checked, and as the executor is told them."""

import json
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from sandfleet_operator.api.errors import FleetError, invalid
from sandfleet_operator.api.fields import Fields
from sandfleet_operator.api.validate import check_envs

NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
HTTP_PATH = re.compile(r"/[\x21-\x7e]*")
# The executor gets them in one variable with everything else that it is told, and that has 128 KiB.
MAX_JSON = 20 << 10
CHECKS = ("tcp", "http", "exec")

# As core/services/parse.py of the executor reads them.
Service = Mapping[str, Any]


class Restart(Enum):
    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"


RESTARTS = {Restart.ALWAYS: "always", Restart.ON_FAILURE: "on-failure", Restart.NEVER: "never"}


def read(spec: Fields) -> tuple[Service, ...]:
    """Raises FleetError."""
    return tuple(_service(one) for one in spec.items("services"))


def _service(fields: Fields) -> Service:
    found: dict[str, Any] = {
        "name": fields.required_text("name"),
        "command": _command(fields),
        "cwd": fields.text("workingDir"),
        "envs": {one.required_text("name"): one.text("value") for one in fields.items("env")},
        "restart": RESTARTS[fields.choice("restart", Restart) or Restart.ON_FAILURE],
        "after": list(fields.texts("after")),
        "stop_signal": fields.text("stopSignal", "SIGTERM"),
        "grace": fields.integer("graceSeconds", 5),
    }
    probes = {name: _probe(fields.inner(name)) for name in ("readiness", "liveness") if fields.has(name)}
    return found | probes


def _command(fields: Fields) -> list[str]:
    return list(fields.texts("command"))


def _probe(fields: Fields) -> dict[str, Any]:
    found: dict[str, Any] = {
        "interval": fields.integer("intervalSeconds", 1),
        "timeout": fields.integer("timeoutSeconds", 1),
        "successes": fields.integer("successThreshold", 1),
        "failures": fields.integer("failureThreshold", 3),
    }
    for name in CHECKS:
        if not fields.has(name):
            continue
        inner = fields.inner(name)
        match name:
            case "tcp":
                found[name] = {"port": inner.required_integer("port")}
            case "http":
                port = inner.required_integer("port")
                found[name] = {"port": port, "path": inner.text("path", "/"), "status": inner.integer("status")}
            case _:
                found[name] = _command(inner)
    return found


def check(services: Sequence[Service]) -> None:
    """Raises FleetError for what an executor would not take."""
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
        raise _refusal(f"{name} comes after {unknown[0][:80]}, which is none of them")


def _check_probe(probe: Mapping[str, Any] | None, what: str) -> None:
    if probe is None:
        return
    if sum(name in probe for name in CHECKS) != 1:
        raise _refusal(f"{what} needs exactly one of tcp, http and exec")
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
