"""What a reviewer sees of a request: its exact bytes, and the rest of it as JSON."""

import json
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

import grpc.aio
from google.protobuf.message import Message

from sandfleet_executor.core.requests import DEFAULT_CONTEXT
from sandfleet_executor.core.review.subject import CELL, Subject

# The holder of the token of the call that is being served.
HOLDER: ContextVar[str] = ContextVar("holder", default="")
INTENT_KEY = "sandfleet-intent-bin"
MAX_INTENT_CHARACTERS = 2000
# Of each RPC that waits: its kind in a word, the field with what would run or be written, the field with its name.
PARTS = {
    "InterpreterService/Execute": (CELL, "code", ""),
    "InterpreterService/AnswerInput": ("input", "text", "execution_id"),
    "InterpreterService/CreateContext": ("context", "", ""),
    "InterpreterService/RestoreState": ("state", "", "name"),
    "ProcessService/Start": ("command", "shell", ""),
    "ProcessService/SendInput": ("input", "data", "execution_id"),
    "ServiceManagerService/Apply": ("service", "services", ""),
    "ServiceManagerService/Start": ("service", "names", ""),
    "ServiceManagerService/Restart": ("service", "name", "name"),
    "FilesystemService/Write": ("file", "", "path"),
    "FilesystemService/Extract": ("archive", "", "path"),
    "FilesystemService/MakeDir": ("folder", "", "path"),
    "FilesystemService/Move": ("file", "", "target"),
    "FilesystemService/Remove": ("file", "", "path"),
}
# They name the call, and have no effect on what runs.
IDS = {"InterpreterService/Execute": "execution_id", "ProcessService/Start": "execution_id"}
EDITABLE = {"InterpreterService/Execute", "ProcessService/Start"}
# Fields with paths, and whether a symlink at their end is followed.
PATHS = {
    "FilesystemService/Write": {"path": True},
    "FilesystemService/Extract": {"path": True},
    "FilesystemService/MakeDir": {"path": True},
    "FilesystemService/Move": {"source": False, "target": False},
    "FilesystemService/Remove": {"path": False},
}


def paths_of(method: str, request: Message) -> dict[str, tuple[bytes, bool]]:
    """The paths that the request would change: field → (path, whether a symlink at its end is followed)."""
    return {field: (getattr(request, field), follows) for field, follows in PATHS.get(method, {}).items()}


def subject_of(
    method: str, request: Message, content: bytes = b"", intent: str = "", places: Mapping[str, bytes] | None = None
) -> Subject:
    """What is asked of a reviewer. `method` as "Service/Method"; `content` comes behind the header of an upload.

    `places`: where paths lead that lead elsewhere than they say, by the fields' names.
    """
    kind, field, name = PARTS[method]
    rest = plain(request) | {f"{one}_leads_to": _text(place) for one, place in (places or {}).items()}
    rest.pop(IDS.get(method, ""), None)
    found = getattr(request, field) if field else content
    shown = _content(found, rest.get(field))
    if isinstance(found, str | bytes) and found:
        rest.pop(field, None)
    if method == "ProcessService/Start" and not found:
        # Arguments instead of a line for the shell: they stay in the settings too, which tells the two apart.
        shown = b"\0".join(getattr(request, "argv", ()))
    context_id = getattr(request, "context_id", "") or (DEFAULT_CONTEXT if method.startswith("Interpreter") else "")
    return Subject(
        method=method,
        kind=kind,
        content=shown,
        settings=json.dumps(rest, sort_keys=True, ensure_ascii=False),
        context_id=context_id,
        name=_text(getattr(request, name)) if name else "",
        intent=intent[:MAX_INTENT_CHARACTERS],
        editable=method in EDITABLE and bool(found),
        submitter=HOLDER.get(),
    )


def of_execution(method: str, request: Message, context: "grpc.aio.ServicerContext[Any, Any]") -> Subject:
    """The same of an execution, which waits when its turn has come."""
    return subject_of(method, request, intent=intent_of(context))


def intent_of(context: "grpc.aio.ServicerContext[Any, Any]") -> str:
    """Why the caller wants it, in its own words."""
    for key, value in context.invocation_metadata() or ():
        if key == INTENT_KEY and isinstance(value, bytes):
            return value.decode("utf-8", "replace")
    return ""


def _content(found: Any, plain: Any) -> bytes:
    if isinstance(found, str):
        return found.encode()
    return (
        found if isinstance(found, bytes) else json.dumps(plain, indent=2, sort_keys=True, ensure_ascii=False).encode()
    )


def plain(message: Message) -> dict[str, Any]:
    """All fields that are set: nothing of the request is left out."""
    return {field.name: _value(field, value) for field, value in message.ListFields()}


def _value(field: Any, value: Any) -> Any:
    # First: a message may have a field that is called items.
    if isinstance(value, Message):
        return plain(value)
    if hasattr(value, "items"):
        return {str(key): _value(field, one) for key, one in value.items()}
    if isinstance(value, bytes):
        return _text(value)
    if isinstance(value, str | int | float):
        known = field.enum_type.values_by_number.get(value) if field.enum_type else None
        return known.name if known else value
    return [_value(field, one) for one in value]


def _text(value: str | bytes) -> str:
    """As text, so that different bytes give different texts."""
    if isinstance(value, str):
        return value
    return value.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")
