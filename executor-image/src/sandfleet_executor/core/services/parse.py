"""Services as a configuration has them: JSON. Raises BadRequest with "cannot X: why"."""

import signal
from collections.abc import Mapping
from typing import Any

from sandfleet_executor.core.errors import BadRequest
from sandfleet_executor.core.requests import check_cwd, check_envs, command_payload
from sandfleet_executor.core.services.spec import MAX_SERVICES, Exec, Http, Probe, Restart, ServiceSpec, Tcp, check_set

# Those of a service with their kinds; those of a probe beside its one check.
KINDS: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "command": (str, list),
    "cwd": str,
    "envs": dict,
    "readiness": dict,
    "liveness": dict,
    "restart": str,
    "backoff": (int, float),
    "backoff_cap": (int, float),
    "max_failures": int,
    "after": list,
    "stop_signal": str,
    "grace": (int, float),
}
PROBE_KINDS: dict[str, type | tuple[type, ...]] = {
    "tcp": dict,
    "http": dict,
    "exec": (str, list),
    "interval": (int, float),
    "timeout": (int, float),
    "successes": int,
    "failures": int,
}
CHECKS = ("tcp", "http", "exec")
TCP_KINDS: dict[str, type | tuple[type, ...]] = {"port": int}
HTTP_KINDS: dict[str, type | tuple[type, ...]] = {"port": int, "path": str, "status": int}


def services(values: Any, workspace: str) -> tuple[ServiceSpec, ...]:
    """In the order of their start. `workspace` as user code sees it."""
    if not isinstance(values, list) or len(values) > MAX_SERVICES:
        raise BadRequest(f"cannot declare the services: they have to be a list of at most {MAX_SERVICES}")
    return tuple(check_set(_service(one, workspace) for one in values).values())


def _service(values: Any, workspace: str) -> ServiceSpec:
    found = _checked(values, KINDS, "a service")
    if "name" not in found or "command" not in found:
        raise BadRequest("cannot declare a service: it needs a name and a command")
    payload, shell = _command(found.pop("command"))
    for name in ("readiness", "liveness"):
        if name in found:
            found[name] = _probe(found[name])
    if "restart" in found:
        found["restart"] = _member(found["restart"])
    if "stop_signal" in found:
        found["stop_signal"] = _signal(found["stop_signal"])
    if not all(isinstance(name, str) for name in found.get("after", [])):
        raise BadRequest("cannot declare a service: what it comes after has to be a list of names")
    envs = found.get("envs", {})
    if not all(isinstance(value, str) and _encoded(value) is not None for value in envs.values()):
        raise BadRequest("cannot declare a service: the values of its envs have to be texts")
    return ServiceSpec(
        **found
        | {
            "payload": payload,
            "shell": shell,
            "cwd": check_cwd(_encoded(found.get("cwd", "")), workspace),
            "envs": check_envs(envs),
            "after": tuple(dict.fromkeys(found.get("after", ()))),
        }
    )


def _probe(values: Any) -> Probe:
    found = _checked(values, PROBE_KINDS, "a probe")
    checks = [name for name in CHECKS if name in found]
    if len(checks) != 1:
        raise BadRequest("cannot declare a probe: it needs exactly one of tcp, http and exec")
    name = checks[0]
    value = found.pop(name)
    if name == "exec":
        return Probe(Exec(*_command(value)), **found)
    inner = _checked(value, TCP_KINDS if name == "tcp" else HTTP_KINDS, f"a probe by {name}")
    if "port" not in inner:
        raise BadRequest(f"cannot declare a probe by {name}: it needs a port")
    return Probe(Tcp(**inner) if name == "tcp" else Http(**inner), **found)


def _command(value: str | list[Any]) -> tuple[bytes, bool]:
    if isinstance(value, str):
        return command_payload((), _encoded(value)), True
    if not all(isinstance(word, str) for word in value):
        raise BadRequest("cannot take a command: it is a line or a list of words")
    return command_payload([_encoded(word) for word in value], b""), False


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise BadRequest(f"cannot declare a service: {text[:80]!r} is no text") from None


def _checked(values: Any, kinds: Mapping[str, type | tuple[type, ...]], what: str) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise BadRequest(f"cannot declare {what}: it has to be an object")
    for name, value in values.items():
        if name not in kinds:
            raise BadRequest(f"cannot declare {what}: unknown {str(name)[:80]}")
        if not isinstance(value, kinds[name]) or isinstance(value, bool):
            raise BadRequest(f"cannot declare {what}: {name} is of the wrong kind")
    return dict(values)


def _member(word: str) -> Restart:
    try:
        return Restart(word)
    except ValueError:
        raise BadRequest(f"cannot restart {word[:80]!r}: it is {', '.join(each.value for each in Restart)}") from None


def _signal(name: str) -> int:
    try:
        return int(signal.Signals[name])
    except KeyError:
        raise BadRequest(f"cannot stop with {name[:80]!r}: there is no such signal") from None
