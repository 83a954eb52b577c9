"""Errors of cells as data: the frames of the user's own code, and the traceback as Python prints it."""

import linecache
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import IPython

# Programs read the value: it is exact up to this.
MAX_VALUE_BYTES = 8 << 20
MAX_TRACEBACK_BYTES = 64 << 10
MAX_NAME_BYTES = 256
MAX_FRAMES = 32
MAX_FRAME_FIELD_BYTES = 256
# Of an exception with more frames than this, only the innermost ones are read.
MANY_FRAMES = 20_000
FRAMES_OF_MANY = 100
MACHINERY = (f"{Path(__file__).parents[1]}/", f"{Path(IPython.__file__).parent}/")


class Reporter:
    """Describes exceptions. `folders` hold the user's own files, but for the folders `not_under` and the interpreter's.

    The environment of a project may be anywhere, below /tmp too.
    """

    def __init__(self, folders: tuple[str, ...], not_under: tuple[str, ...] = ()) -> None:
        self._folders = tuple(folder.rstrip("/") + "/" for folder in folders)
        kept_out = (*not_under, sys.prefix, sys.base_prefix)
        self._not_under = tuple(folder.rstrip("/") + "/" for folder in kept_out)

    def describe(self, error: BaseException) -> dict[str, Any]:
        """Name, value, traceback and the frames of the user's code, each within a limit, without lone surrogates.

        `left_out` counts the bytes of the value that are missing at its end.
        """
        # First: the traceback module would swallow the interrupt of a __str__ that does not end.
        value, left_out = head(value_of(error), MAX_VALUE_BYTES)
        if isinstance(error, KeyboardInterrupt):
            # The exception that was being handled is left out: it may have such a __str__ too, and the user waits.
            error.__suppress_context__ = True
        try:
            report = _summary(error)
            text = "".join(report.format())
            frames = self._frames(report)
        except KeyboardInterrupt:
            raise
        except BaseException as failure:  # noqa: BLE001 a user's __str__ may raise anything, RecursionError and MemoryError too
            text, frames = f"<cannot format the traceback: {type(failure).__name__}>", []
        return {
            "name": cut(type(error).__name__, MAX_NAME_BYTES),
            "value": value,
            "left_out": left_out,
            "traceback": cut(text, MAX_TRACEBACK_BYTES),
            "frames": frames,
        }

    def _frames(self, report: traceback.TracebackException) -> list[dict[str, Any]]:
        own = [frame for frame in report.stack if self._is_own(frame.filename)]
        if len(own) > MAX_FRAMES:
            own = own[: MAX_FRAMES // 4] + own[-(MAX_FRAMES - MAX_FRAMES // 4) :]
        frames = [_frame(frame.filename, frame.lineno, frame.name, frame.line) for frame in own]
        filename = getattr(report, "filename", None)
        if isinstance(filename, str) and self._is_own(filename):
            # A syntax error has no frame; it names its own line.
            frames.append(_frame(filename, int(report.lineno or 0), "<module>", report.text))
        return frames

    def _is_own(self, filename: str) -> bool:
        if filename.startswith("<"):
            return not filename.startswith(("<frozen ", "<__array_function__"))
        return filename.startswith(self._folders) and not filename.startswith(self._not_under)


def bare(error: BaseException) -> dict[str, Any]:
    """An error described by its name alone."""
    name = type(error).__name__
    return {"name": name, "value": "", "left_out": 0, "traceback": name + "\n", "frames": []}


def value_of(error: BaseException) -> str:
    """str(error), or a substitute if that fails."""
    try:
        # __str__ may return an instance of a subclass of str, whose methods are the user's.
        return str.__str__(str(error))
    except KeyboardInterrupt:
        raise
    except BaseException as failure:  # noqa: BLE001 user code
        return f"<cannot show the value: __str__ raised {type(failure).__name__}>"


def head(text: str, limit: int) -> tuple[str, int]:
    """The first `limit` bytes of a text in UTF-8, at most, and how many more there are."""
    data = text.encode("utf-8", "backslashreplace")
    kept = data[:limit].decode("utf-8", "ignore")
    return kept, len(data) - len(kept.encode()) if len(data) > limit else 0


def cut(text: str, limit: int) -> str:
    """The text in about `limit` bytes of UTF-8; of a longer one the middle is replaced by the count of its bytes."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= limit:
        return data.decode()
    half = limit // 2
    head = data[:half].decode("utf-8", "ignore")
    tail = data[-half:].decode("utf-8", "ignore")
    return f"{head}\n… {len(data) - 2 * half} bytes left out …\n{tail}" if limit > MAX_FRAME_FIELD_BYTES else head + "…"


def print_error(error: BaseException) -> str:
    """The traceback as Python prints it, without the frames of the worker and of IPython."""
    return cut("".join(_summary(error).format()), MAX_TRACEBACK_BYTES)


def _frame(file: str, line: int | None, function: str, source: str | None) -> dict[str, Any]:
    return {
        "file": cut(file, MAX_FRAME_FIELD_BYTES),
        "line": line or 0,
        "function": cut(function, MAX_FRAME_FIELD_BYTES),
        "source": cut((source or "").strip(), MAX_FRAME_FIELD_BYTES),
    }


def _summary(error: BaseException) -> traceback.TracebackException:
    limit = -FRAMES_OF_MANY if _count_frames(error) > MANY_FRAMES else None
    linecache.checkcache()
    report = traceback.TracebackException(type(error), error, error.__traceback__, limit=limit, compact=True)
    for each in _all(report):
        each.stack[:] = _without_machinery(each.stack)
    return report


def _without_machinery(stack: traceback.StackSummary) -> list[traceback.FrameSummary]:
    frames = list(stack)
    if frames and frames[0].filename.startswith(MACHINERY):
        # The frames from the worker down to the cell, with those of the event loop.
        first = next((index for index, frame in enumerate(frames) if frame.filename.startswith("<cell ")), 0)
        frames = frames[first:]
    return [frame for frame in frames if not frame.filename.startswith(MACHINERY)]


def _all(report: traceback.TracebackException) -> Iterator[traceback.TracebackException]:
    seen: set[int] = set()
    waiting: list[traceback.TracebackException | None] = [report]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting += [each.__cause__, each.__context__, *(each.exceptions or ())]


def _count_frames(error: BaseException) -> int:
    count = 0
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting and count <= MANY_FRAMES:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        count += 1 + _depth(each.__traceback__)
        waiting += [each.__cause__, each.__context__]
    return count


def _depth(trace: TracebackType | None) -> int:
    depth = 0
    while trace is not None and depth <= MANY_FRAMES:
        depth += 1
        trace = trace.tb_next
    return depth
