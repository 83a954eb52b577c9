"""The records of calls: (kind, body) of a request and its answer. Docs: ADR 0049."""

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf.message import Message

from sandfleet_executor import __version__
from sandfleet_executor.core.journal.blobs import CODE_BYTES, blob, path_text
from sandfleet_executor.core.journal.transcript import hashed_envs, seconds
from sandfleet_executor.core.requests import DEFAULT_CONTEXT
from sandfleet_executor.core.rpcs import Rpc
from sandfleet_executor.core.session import bwrap
from sandfleet_executor.effects.session.session import Session
from sandfleet_executor.servicers.convert.subjects import plain

Body = dict[str, Any]


def record(rpc: Rpc, request: Any, response: Any, content: Mapping[str, Any] | None = None) -> tuple[str, Body]:
    """(kind, body). No response where the call failed; `content` is an upload's."""
    if rpc.kind == "call":
        return rpc.kind, {"method": rpc.name, "request": _asked(request)}
    body: Body = {"op": rpc.operation} if rpc.operation else {}
    body |= _BODIES[rpc.kind](rpc.operation, request, response)
    return rpc.kind, {**body, **(content or {})}


def opened(session: Session) -> Body:
    """What the first record says of a session."""
    config, envs = session.config, session.environment({})
    return {
        "session": session.session_id,
        "sandbox": config.sandbox_id,
        "pod": config.sandbox_uid,
        "contract": config.contract,
        "isolation": config.isolation,
        "network": config.network,
        "mounts": dict(session.mounts.told()),
        "limits": dataclasses.asdict(session.limits),
        "environment": {name: envs[name] for name in bwrap.FIXED if name in envs},
        "envs": hashed_envs(session.given_envs),
        "packages": list(config.packages),
        "executor": __version__,
        "kernel": os.uname().release,
    }


def _context(operation: str, request: Any, response: Any) -> Body:
    name = request.context_id or DEFAULT_CONTEXT
    body: Body = {"context": name, "language": None, "parent": None}
    if operation == "forked":
        return body | {"parent": name, "context": None, "contexts": list(request.new_context_ids)}
    if operation == "interrupted":
        return body | {"execution": request.execution_id, "interrupted": response.interrupted}
    if operation == "created":
        body |= {"cwd": request.cwd, "env": hashed_envs(request.envs), "resumed": response.HasField("resumed")}
    if response is not None and operation in ("created", "restarted"):
        body["language"] = response.context.language
    return body


def _look(_operation: str, request: Any, _response: Any) -> Body:
    return {"context": request.context_id or DEFAULT_CONTEXT, "code": blob(request.code.encode())}


def _table(_operation: str, request: Any, response: Any) -> Body:
    context = request.context_id or DEFAULT_CONTEXT
    return {"context": context, "name": request.name, "kind": request.kind, "answer": _answer(response)}


def _state(operation: str, request: Any, response: Any) -> Body:
    if operation == "deleted":
        return {"name": request.name}
    context = request.context_id or DEFAULT_CONTEXT
    return {"context": context, "name": request.name or context, "answer": _answer(response)}


def _service(operation: str, request: Any, response: Any) -> Body:
    if operation == "applied":
        return {"spec": _asked(request), "answer": _answer(response)}
    return {"name": request.name} if operation == "restarted" else {"names": list(request.names)}


def _file(operation: str, request: Any, _response: Any) -> Body:
    body: Body = {"path": path_text(request.target if operation == "move" else request.path)}
    match operation:
        case "move":
            body = {"path": path_text(request.source), "to": path_text(request.target)}
            body["overwrite"] = request.overwrite
        case "write":
            body["mode"] = request.mode
        case "remove":
            body["recursive"] = request.recursive
        case "extract":
            body |= {"compression": plain(request).get("compression"), "keep_existing": request.keep_existing}
    return body


def _session(_operation: str, request: Any, response: Any) -> Body:
    return {"reason": "", "request": _asked(request), "answer": _answer(response)}


def _asked(request: Message) -> Any:
    """All of a request, but of the values of variables only digests."""
    return _without_values(plain(request))


def _without_values(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            name: hashed_envs(each) if name == "envs" and isinstance(each, Mapping) else _without_values(each)
            for name, each in value.items()
        }
    return [_without_values(each) for each in value] if isinstance(value, list) else value


def _answer(response: Message | None) -> Body | None:
    return None if response is None else plain(response)


_BODIES: dict[str, Callable[[str, Any, Any], Body]] = {
    "context": _context,
    "look": _look,
    "state": _state,
    "table": _table,
    "service": _service,
    "file": _file,
    "suspended": _session,
    "resumed": _session,
}


def command_asked(request: Any, cwd: bytes, timeout: float) -> Body:
    """What a command is asked; of its variables those of the request."""
    argv = [path_text(each) for each in request.argv]
    return {
        "argv": argv or None,
        "code": blob(request.shell, CODE_BYTES) if request.shell else None,
        "language": "shell" if request.shell else None,
        "context": None,
        "cwd": path_text(cwd),
        "env": hashed_envs(request.envs),
        "deadline": seconds(timeout),
        "terminal": plain(request.pty) if request.HasField("pty") else None,
    }
