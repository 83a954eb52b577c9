"""Reviews: what a reviewed sandbox is asked to run, calls of tools, and a reviewer's answers."""

from __future__ import annotations

import ast
import difflib
import io
import tokenize
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeGuard


@dataclass(frozen=True, slots=True)
class Answer:
    """What a reviewer answers. `Review.approve`, `edit` and `deny` make it."""

    verb: Literal["approve", "edit", "deny"]
    content: bytes = b""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Review:
    """A request of a reviewed sandbox, or a call of a tool, that waits for an answer.

    kind             what it is, in a word: cell, command, input, service, file, folder, archive, context, state, tool.
    content          the exact bytes that would run or be written; in a list only their beginning (`content_bytes` says
                     how many there are).
    settings         all else that the request says, as JSON.
    context_id, name the context of a cell; the path of a file, or the name of a state or a tool.
    state            how much the sandbox has let run before: an approval is for this number. Of a call of a tool: how
                     many kinds of content the session has received.
    editable         whether an answer may have other content.
    intent           why the agent wants it, in its own words; "" if it has not said. Of a call of a tool: why the
                     host's policy wants a person asked.
    holder           who has claimed the sandbox.
    approvals        how many reviewers have to approve it.
    approved_by      who has approved it so far; an edit takes earlier approvals away.
    edited           what they let run in its place; None: what was asked for.
    approved_before  what was approved last for the same file or context in this session; None if nothing was.
    """

    sandbox_id: str
    review_id: str
    kind: str
    content: bytes
    content_bytes: int = 0
    settings: str = "{}"
    method: str = ""
    context_id: str = ""
    execution_id: str = ""
    name: str = ""
    digest: bytes = b""
    state: int = 0
    editable: bool = False
    since: datetime | None = None
    intent: str = ""
    holder: str = ""
    approved_before: bytes | None = None
    lease_expires: datetime | None = None
    approvals: int = 1
    approved_by: tuple[str, ...] = ()
    edited: bytes | None = None

    @property
    def code(self) -> str:
        r"""The content as text; bytes that are no UTF-8 as "\xff"."""
        return self.content.decode("utf-8", "backslashreplace")

    @property
    def diff(self) -> str:
        """What differs from the version that was approved before, as a unified diff; "" if there is none.

        A cell that has little in common with the one before it in its context is no version of it.
        """
        if self.approved_before is None:
            return ""
        before = self.approved_before.decode("utf-8", "backslashreplace")
        if self.kind == "cell" and not _are_versions(before, self.code):
            return ""
        lines = difflib.unified_diff(before.splitlines(), self.code.splitlines(), "approved before", "now", lineterm="")
        return "\n".join(lines)

    @property
    def hints(self) -> tuple[str, ...]:
        """What a cell names: imports, files, network, programs, code made as it runs. No proof: code can hide it.

        Of any content: an encoding other than UTF-8 that Python would obey where it reads the file.
        """
        hints = tuple(_hints(self.code)) if self.kind == "cell" else ()
        return (*_encoding(self.content), *hints)

    def approve(self) -> Answer:
        """Let it run once, as it is; where a reviewer has edited it, as `edited` shows it."""
        return Answer("approve")

    def edit(self, content: str | bytes) -> Answer:
        """Let this run in its place, once; the agent is told."""
        return Answer("edit", content=content.encode() if isinstance(content, str) else content)

    def deny(self, reason: str = "") -> Answer:
        """Do not let it run; the agent is told the reason."""
        return Answer("deny", reason=reason)


# Characters of a line that are compared with an earlier one, and the share of them that two versions have in common.
_COMPARED, _ALIKE = 500, 0.75


def _are_versions(before: str, now: str) -> bool:
    """Whether most lines of the shorter text stand in the other one, too; of a single line, most characters."""
    if "\n" not in before.strip() + now.strip():
        return difflib.SequenceMatcher(None, before[:_COMPARED], now[:_COMPARED]).ratio() >= _ALIKE
    first, second = (Counter(filter(None, map(str.strip, text.splitlines()))) for text in (before, now))
    return 2 * (first & second).total() >= min(first.total(), second.total()) > 1


OnReview = Callable[[Review], Answer | Awaitable[Answer | None] | None]


_NETWORK = {"socket", "ssl", "http", "urllib", "requests", "httpx", "aiohttp", "ftplib", "smtplib", "websockets"}
_PROGRAMS = {"subprocess", "pty", "multiprocessing"}
_PROGRAM_CALLS = {"system", "popen", "execv", "execve", "execvp", "fork", "posix_spawn", "spawnv"}
_DYNAMIC = {"eval", "exec", "compile", "__import__", "getattr", "setattr", "globals"}
_FILE_CALLS = {"open", "Path", "read_csv", "read_parquet", "to_csv", "remove", "unlink", "rmtree", "rename", "mkdir"}


def _encoding(content: bytes) -> Iterator[str]:
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content.replace(b"\r", b"\n")).readline)
    except SyntaxError as error:
        encoding = str(error)
    if encoding not in {"utf-8", "utf-8-sig"}:
        yield f"declares another encoding than it is shown in: {encoding}"


def _hints(code: str) -> Iterator[str]:
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        yield "it is no plain Python: magics, or lines for a shell"
        return
    modules = {name.partition(".")[0] for node in ast.walk(tree) for name in _imported(node)}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    called = {_called(node) for node in calls}
    files = {one.value for node in calls if _called(node) in _FILE_CALLS for one in node.args if _is_text(one)}
    for what, names in (
        ("imports", modules),
        ("names files", files),
        ("uses the network", modules & _NETWORK),
        ("starts programs", (modules & _PROGRAMS) | (called & _PROGRAM_CALLS)),
        ("makes code as it runs", called & _DYNAMIC),
    ):
        if names:
            yield f"{what}: {', '.join(sorted(map(str, names)))}"


def _imported(node: ast.AST) -> tuple[str, ...]:
    if isinstance(node, ast.Import):
        return tuple(one.name for one in node.names)
    return (node.module or ".",) if isinstance(node, ast.ImportFrom) else ()


def _called(node: ast.Call) -> str:
    match node.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _is_text(node: ast.expr) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
