"""`sandfleet cp SOURCE… TARGET`: copy files between this machine and a sandbox (ID:PATH)."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from sandfleet import Sandbox
from sandfleet.cli import FAILED, OK, USAGE, print_json, refuse, report, table, what
from sandfleet.errors import FileError, FileNotFound, InvalidArgument, ProtocolError
from sandfleet.values.files import OnProgress, Progress, Transfer

# A local name with a colon is written ./name, as for scp.
_REMOTE = re.compile(r"(?P<sandbox>[A-Za-z0-9][A-Za-z0-9._/-]*):(?P<path>.*)", re.DOTALL)
_PATTERN = re.compile(r"[*?\[]")
_REDRAW_SECONDS = 0.1
_MEGA = 1e6


@dataclass(frozen=True, slots=True)
class _Place:
    path: str
    # Empty: on this machine.
    sandbox: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument(
        "sources",
        metavar="SOURCE",
        nargs="+",
        help="file or directory; in a sandbox ID:PATH, where PATH may be a quoted pattern",
    )
    parser.add_argument(
        "target", metavar="TARGET", help="target path; the source keeps its name in an existing directory"
    )
    parser.add_argument("-r", "--recursive", action="store_true", help="copy directories with their contents")
    parser.add_argument("--json", action="store_true", help="print only one JSON object, at the end")


def run(options: argparse.Namespace) -> int:
    """Copy; return 0 if all was copied, 1 if not, 2 for wrong usage."""
    sources, target = [_place(word) for word in options.sources], _place(options.target)
    sides = {bool(place.sandbox) for place in sources}
    if len({place.sandbox for place in sources}) > 1 or sides == {bool(target.sandbox)}:
        refuse("cannot copy: one side has to be ID:PATH of one sandbox, the other a local path", as_json=options.json)
        return USAGE
    if not all(place.path for place in (*sources, target)):
        refuse("cannot copy: a name is empty", as_json=options.json)
        return USAGE
    sandbox = Sandbox.connect(target.sandbox or sources[0].sandbox)
    made: list[Transfer] = []
    here = ""
    try:
        for source, to in _pairs(sandbox, sources, target):
            here = f"read {source}" if target.sandbox else f"write {to}"
            with _bar(shown=not options.json and sys.stderr.isatty()) as on_progress:
                copy = _upload if target.sandbox else _download
                made.append(copy(sandbox, source, to, on_progress, recursive=options.recursive))
    except (FileError, InvalidArgument) as error:
        report(error, as_json=options.json)
        return FAILED
    except OSError as error:
        refuse(f"cannot {here}: {what(error)}", error, as_json=options.json)
        return FAILED
    return _say(made, as_json=options.json)


def _place(word: str) -> _Place:
    match = _REMOTE.fullmatch(word)
    return _Place(match["path"] or ".", match["sandbox"]) if match else _Place(word)


def _pairs(sandbox: Sandbox, sources: Sequence[_Place], target: _Place) -> Iterator[tuple[str, str]]:
    """Each source with its own target. Raises FileNotFound, InvalidArgument."""
    found = [path for place in sources for path in (_expand(sandbox, place.path) if place.sandbox else [place.path])]
    into = _is_directory(sandbox, target)
    if len(found) > 1 and not into:
        raise InvalidArgument(f"cannot copy {len(found)} things to {target.path!r}: it is not a directory")
    for path in found:
        name = path.rstrip("/").rpartition("/")[2]
        inside = into and name not in ("", ".", "..")
        yield path, f"{target.path.rstrip('/')}/{name}" if inside else target.path


def _expand(sandbox: Sandbox, path: str) -> list[str]:
    """Find the paths of a pattern; the name of an existing file stands for itself."""
    if not _PATTERN.search(path) or sandbox.files.exists(path):
        return [path]
    # The part before the first pattern is the directory to search.
    names = path.split("/")
    fixed = next(number for number, name in enumerate(names) if _PATTERN.search(name))
    top = "/".join(names[:fixed]) or ("/" if path.startswith("/") else ".")
    found = [info.path for info in sandbox.files.glob("/".join(names[fixed:]), top, max_matches=10_000)]
    check_names(found, names[-1])
    if not found:
        raise FileNotFound(f"cannot copy {path!r}: nothing matches", reason="FileNotFound", subject=path)
    return found


def check_names(found: Sequence[str], pattern: str) -> None:
    """Check that found paths match the pattern: local files get their names. Raises ProtocolError."""
    for path in found:
        name = path.rpartition("/")[2]
        matches = pattern == "**" or fnmatchcase(name, pattern)
        if not matches or name in ("", ".", "..") or "\0" in name:
            raise ProtocolError(f"cannot copy {path!r}: the sandbox named it, but it does not match {pattern!r}")


def _is_directory(sandbox: Sandbox, place: _Place) -> bool:
    if not place.sandbox:
        return Path(place.path).is_dir()
    try:
        # Unlike `get_info`, it follows symlinks.
        sandbox.files.glob("*", place.path, max_matches=1)
    except FileError:
        return False
    return True


def _upload(sandbox: Sandbox, source: str, to: str, on_progress: OnProgress | None, *, recursive: bool) -> Transfer:
    _check_recursive(source, is_directory=Path(source).is_dir(), recursive=recursive)
    return sandbox.files.upload(source, to, on_progress=on_progress)


def _download(sandbox: Sandbox, source: str, to: str, on_progress: OnProgress | None, *, recursive: bool) -> Transfer:
    is_directory = _is_directory(sandbox, _Place(source, "there"))
    _check_recursive(source, is_directory=is_directory, recursive=recursive)
    return sandbox.files.download(source, to, on_progress=on_progress)


def _check_recursive(source: str, *, is_directory: bool, recursive: bool) -> None:
    if is_directory and not recursive:
        raise InvalidArgument(f"cannot copy {source!r}: it is a directory; use -r")


@contextmanager
def _bar(*, shown: bool) -> Iterator[OnProgress | None]:
    """Show the progress on a terminal, in one line that is removed at the end."""
    if not shown:
        yield None
        return
    start = time.monotonic()
    drawn = [0.0]

    def draw(progress: Progress) -> None:
        now = time.monotonic()
        if now - drawn[0] >= _REDRAW_SECONDS:
            drawn[0] = now
            rate = progress.bytes / _MEGA / max(now - start, 1e-3)
            text = f"{table.count(progress.files, 'file')}  {progress.bytes / _MEGA:,.1f} MB  {rate:,.1f} MB/s"
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    try:
        yield draw
    finally:
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def _say(made: Sequence[Transfer], *, as_json: bool) -> int:
    whole = Transfer(
        files=sum(transfer.files for transfer in made),
        directories=sum(transfer.directories for transfer in made),
        links=sum(transfer.links for transfer in made),
        bytes=sum(transfer.bytes for transfer in made),
        skipped=tuple(skipped for transfer in made for skipped in transfer.skipped),
        skipped_count=sum(transfer.skipped_count for transfer in made),
    )
    if as_json:
        print_json(whole)
    else:
        for skipped in whole.skipped:
            print(f"sandfleet: skipped {skipped.path!r}: {skipped.reason}", file=sys.stderr)
        if unlisted := whole.skipped_count - len(whole.skipped):
            print(f"sandfleet: skipped {unlisted} more", file=sys.stderr)
    return OK if whole.complete else FAILED
