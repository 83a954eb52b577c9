"""What of an execution goes into its record, collected while its events come."""

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sandfleet_executor.core.executions.events import (
    STDERR,
    STDOUT,
    Error,
    Event,
    Files,
    Finished,
    Gap,
    Output,
    Result,
    Started,
)
from sandfleet_executor.core.executions.records import CELL
from sandfleet_executor.core.journal.blobs import CODE_BYTES, SHOWN_BYTES, Digest, blob, path_text, sha256

MAX_RESULTS = 256
MAX_SIGNALS = 256
# All text of results that stands in one record.
RESULT_TEXT_BYTES = 64 << 10
# All pictures that stand in one record: in base64 they take a third more, of a record's 1 MiB.
PICTURE_BYTES = 384 << 10
PICTURE = "image/png"


@dataclass(frozen=True, slots=True)
class FileDigest:
    """A file that an execution changed: its bytes and SHA-256; None where it was not read."""

    size: int | None = None
    sha256: str | None = None


@dataclass(slots=True)
class Transcript:
    """Of one execution. `begun`: seconds since the epoch."""

    id: str
    kind: int
    begun: float
    # What was asked: code or arguments, context, deadline; as it runs, after a review.
    asked: dict[str, Any] = field(default_factory=dict)
    _streams: dict[int, Digest] = field(default_factory=dict)
    _results: list[dict[str, Any]] = field(default_factory=list)
    _omitted: int = 0
    _text: int = 0
    _pictures: int = 0
    _error: dict[str, str] | None = None
    _cell: int = 0
    _stdin: Digest | None = None
    _signals: list[int] = field(default_factory=list)

    def sent(self, data: bytes) -> None:
        """Input that it got."""
        self._stdin = self._stdin or Digest()
        self._stdin.take(data)

    def signalled(self, number: int) -> None:
        """A signal that its caller sent."""
        if len(self._signals) < MAX_SIGNALS:
            self._signals.append(number)

    def see(self, event: Event) -> None:
        """Takes an event in its turn."""
        match event:
            case Output(stream) | Gap(stream) if stream:
                self._streams.setdefault(stream, Digest()).see(event)
            case Result():
                self._take_result(event)
            case Error(name, value):
                shown = value.encode("utf-8", "replace")[:SHOWN_BYTES].decode("utf-8", "ignore")
                self._error = {"name": name[:256], "value": shown}
            case Started(_, _, number):
                self._cell = number

    def _take_result(self, result: Result) -> None:
        for mime, data in result.parts:
            if len(self._results) >= MAX_RESULTS:
                self._omitted += 1
                continue
            one: dict[str, Any] = {"mime": mime[:256], "bytes": len(data), "sha256": sha256(data)}
            one["main"] = result.is_main
            if is_text(mime) and len(data) <= SHOWN_BYTES and self._text + len(data) <= RESULT_TEXT_BYTES:
                one["text"] = data.decode("utf-8", "replace")
                self._text += len(data)
            elif mime == PICTURE and self._pictures + len(data) <= PICTURE_BYTES:
                one["base64"] = base64.b64encode(data).decode()
                self._pictures += len(data)
            self._results.append(one)

    def body(self, end: Finished, files: Mapping[bytes, FileDigest]) -> dict[str, Any]:
        """The body of its record; `files` says of the changed ones what is in them."""
        made: dict[str, Any] = {
            "id": self.id,
            "type": "cell" if self.kind == CELL else "command",
            "begun": round(self.begun, 3),
            "outcome": end.outcome,
            "blame": end.blame,
            "reason": end.reason,
            "exit_code": end.exit_code,
            "seconds": round(end.usage.wall_seconds, 6),
            "error": self._error,
            "results": self._results,
            "files": files_body(end.files, files),
            "rollback": rolled_back(end),
        }
        for name, stream in (("stdout", STDOUT), ("stderr", STDERR)):
            made[name] = self._streams[stream].blob() if stream in self._streams else NOTHING
        if self._stdin:
            made["stdin"] = self._stdin.blob()
        if self._signals:
            made["signals"] = self._signals
        if self._omitted:
            made["results_omitted"] = self._omitted
        if self._cell:
            made["cell"] = self._cell
        if end.lost:
            made["lost"] = list(end.lost)
        if end.denied_hosts:
            made["denied_hosts"] = list(end.denied_hosts)
        return made | self.asked


NOTHING = {"bytes": 0, "sha256": sha256(b""), "text": "", "cut": False}


def is_text(mime: str) -> bool:
    return mime.startswith("text/") or mime in ("application/json", "image/svg+xml")


def rolled_back(end: Finished) -> dict[str, Any] | None:
    """To which cell the context went back, or why it did not; None where nothing asked for it."""
    found = end.rollback
    if found is None:
        return None
    if not found.done:
        return {"done": False, "reason": found.refused}
    return {"done": True, "cell": found.cell_number, "undone": found.cells_undone, "kept": list(found.kept)}


def files_body(files: Files, digests: Mapping[bytes, FileDigest]) -> dict[str, Any]:
    changed = []
    for path in (*files.created, *files.modified):
        known = digests.get(path, FileDigest())
        changed.append({"path": path_text(path), "size": known.size, "sha256": known.sha256})
    return {"changed": changed, "removed": [path_text(path) for path in files.deleted], "complete": files.complete}


def seconds(timeout: float | None) -> float | None:
    """A deadline; None where there is none."""
    return None if timeout is None or math.isinf(timeout) else timeout


def hashed_envs(envs: Mapping[str, str]) -> dict[str, str]:
    """The names of variables with the digests of their values."""
    return {name: sha256(value.encode("utf-8", "surrogateescape")) for name, value in envs.items()}


def cell_asked(
    code: str, context: str, language: str, envs: Mapping[str, str], timeout: float | None, *, on_failure: bool
) -> dict[str, Any]:
    """What a cell is asked."""
    return {
        "code": blob(code.encode("utf-8", "surrogatepass"), CODE_BYTES),
        "context": context,
        "language": language,
        "env": hashed_envs(envs),
        "deadline": seconds(timeout),
        "rolls_back": on_failure,
    }
