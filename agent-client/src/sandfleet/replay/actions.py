"""Does again what a record says, in a sandbox."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from sandfleet.errors import InvalidArgument
from sandfleet.journal.notebook import items, mapping
from sandfleet.resources.files.transfer import unpack
from sandfleet.resources.tables import put

if TYPE_CHECKING:
    from sandfleet.sandbox import AsyncSandbox
    from sandfleet.values.execution import OnInput
    from sandfleet.values.options import CodeOptions, RunOptions

Body = Mapping[str, Any]
_SHELL = "shell"


async def execute(sandbox: AsyncSandbox, body: Body, envs: Mapping[str, str]) -> None:
    """Run a cell or a command under the id that it had."""
    code = mapping(body.get("code")).get("text")
    if body.get("type") == "cell":
        options: CodeOptions = {
            "context": _text(body, "context") or None,
            "envs": envs or None,
            "execution_id": _text(body, "id"),
            "on_failure": "rollback" if body.get("rolls_back") else "keep",
        }
        if (deadline := _deadline(body)) is not None:
            options["timeout"] = deadline
        if body.get("stdin") is not None:
            options["on_input"] = _lines(body)
        if _text(body, "context") in ("", "default", "bash"):
            # The default context of a language is made by its first cell.
            options["language"] = _text(body, "language") or None
            options["context"] = None if _text(body, "context") == "default" else options["context"]
        await sandbox.run_code(str(code), **options)
        return
    argv = [str(each) for each in items(body.get("argv"))]
    asked: RunOptions = {
        "cwd": _text(body, "cwd"),
        "envs": envs or None,
        "execution_id": _text(body, "id"),
        "stdin": _text(mapping(body.get("stdin")), "text") or None,
    }
    if (deadline := _deadline(body)) is not None:
        asked["timeout"] = deadline
    await sandbox.commands.run(argv or str(code), **asked)


def _lines(body: Body) -> OnInput:
    """Give the lines that the cell got; passwords are not recorded, and refused."""
    left = iter(_text(mapping(body.get("stdin")), "text").split("\n")[:-1])
    return lambda asked: None if asked.password else next(left, None)


def _deadline(body: Body) -> float | None:
    found = body.get("deadline")
    return float(found) if isinstance(found, int | float) and 0 < found < 1e9 else None


def _text(body: Body, name: str) -> str:
    found = body.get(name)
    return found if isinstance(found, str) else ""


async def call(sandbox: AsyncSandbox, kind: str, body: Body, envs: Mapping[str, str]) -> None:
    """Do a call of a file, a context or a saved state again. `envs` are a context's. Raises SandfleetError."""
    if (kind, _text(body, "op")) == ("context", "created"):
        await _create(sandbox, body, envs)
        return
    action = _ACTIONS.get((kind, _text(body, "op")))
    if action is None:
        what = f"{kind} {_text(body, 'op')}"
        raise InvalidArgument(f"cannot replay {what}: this release does not know it", reason="UnknownRecord")
    await action(sandbox, body)


async def _write(sandbox: AsyncSandbox, body: Body) -> None:
    mode = body.get("mode")
    content = _content(body)
    await sandbox.files.write(_text(body, "path"), content, mode=mode if isinstance(mode, int) else 0)


async def _extract(sandbox: AsyncSandbox, body: Body) -> None:
    link = sandbox._link  # noqa: SLF001  the client has no call for an archive that is there already
    compression, keep = _text(body, "compression"), bool(body.get("keep_existing"))
    await unpack(link, _content(body), _text(body, "path"), compression=compression, keep_existing=keep)


def _content(body: Body) -> bytes:
    """The bytes of an upload, which have to be those that the executor hashed. Raises InvalidArgument."""
    try:
        content = base64.b64decode(_text(body, "content"), validate=True)
    except ValueError as error:
        raise InvalidArgument("cannot replay the upload: its content is no base64", reason="BadRecord") from error
    if hashlib.sha256(content).hexdigest() != body.get("sha256"):
        raise InvalidArgument("cannot replay the upload: its content has another digest", reason="BadRecord")
    return content


async def _make_dir(sandbox: AsyncSandbox, body: Body) -> None:
    await sandbox.files.make_dir(_text(body, "path"))


async def _move(sandbox: AsyncSandbox, body: Body) -> None:
    await sandbox.files.rename(_text(body, "path"), _text(body, "to"), overwrite=bool(body.get("overwrite")))


async def _remove(sandbox: AsyncSandbox, body: Body) -> None:
    await sandbox.files.remove(_text(body, "path"), recursive=bool(body.get("recursive")))


async def _create(sandbox: AsyncSandbox, body: Body, envs: Mapping[str, str]) -> None:
    language = _text(body, "language") or "python"
    await sandbox.create_context(_text(body, "context"), language=language, cwd=_text(body, "cwd"), envs=envs or None)


async def _fork(sandbox: AsyncSandbox, body: Body) -> None:
    names = [str(each) for each in items(body.get("contexts"))]
    await sandbox.fork_context(_text(body, "parent") or "default", len(names), context_ids=names)


async def _restart(sandbox: AsyncSandbox, body: Body) -> None:
    await sandbox.restart_context(_text(body, "context") or "default")


async def _delete(sandbox: AsyncSandbox, body: Body) -> None:
    await sandbox.delete_context(_text(body, "context"))


async def _interrupt(_sandbox: AsyncSandbox, _body: Body) -> None:
    """The cell that was interrupted has a record of its own, and is not run."""


async def _save(sandbox: AsyncSandbox, body: Body) -> None:
    await sandbox.states.save(_text(body, "name"), context=_text(body, "context") or "default")


async def _restore(sandbox: AsyncSandbox, body: Body) -> None:
    await sandbox.states.restore(_text(body, "name"), context=_text(body, "context") or "default")


async def _put(sandbox: AsyncSandbox, body: Body) -> None:
    context, kind = _text(body, "context") or "default", _text(body, "kind")
    # As the executor has taken it: it is not read here.
    await put(sandbox._link, _text(body, "name"), _content(body), context_id=context, kind=kind)  # noqa: SLF001  as above


async def _forget(sandbox: AsyncSandbox, body: Body) -> None:
    await sandbox.states.delete(_text(body, "name"))


_ACTIONS: dict[tuple[str, str], Callable[[AsyncSandbox, Body], Awaitable[None]]] = {
    ("file", "write"): _write,
    ("file", "extract"): _extract,
    ("file", "mkdir"): _make_dir,
    ("file", "move"): _move,
    ("file", "remove"): _remove,
    ("context", "forked"): _fork,
    ("context", "restarted"): _restart,
    ("context", "deleted"): _delete,
    ("context", "interrupted"): _interrupt,
    ("state", "saved"): _save,
    ("state", "restored"): _restore,
    ("state", "deleted"): _forget,
    ("table", "put"): _put,
}
