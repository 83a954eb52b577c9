"""Paths of requests of HTTP in one form, and patterns of them: `/v1/models`, `/v1/*`, `/repos/*/issues` (pure)."""

import re
from urllib.parse import quote, unquote_to_bytes

MAX_PATTERN = 256
# One segment between others; at the end, all that follows.
STAR = "*"
# Printable characters but # ? and the backslash; each % begins an escape.
_PATH = re.compile(r"/(?:[!\"$&->@-\[\]-~]|%[0-9A-Fa-f]{2})*")
_KEPT = "!$&'()*+,;=:@-._~"
# An escape within an escape: servers behind others decode twice.
_ESCAPE = re.compile(rb"%[0-9A-Fa-f]{2}")
_SEPARATORS = re.compile(rb"[\x00-\x1f\x7f/\\]")


def canonical_path(path: str) -> str:
    """The path as all servers read it; empty where they read it in several ways.

    Those are paths with a `.` or `..` segment, an empty segment before the last one, an escaped slash or backslash, an
    escape of an escape, and bytes that are no UTF-8.
    """
    if not _PATH.fullmatch(path):
        return ""
    *segments, last = (_segment(one) for one in path[1:].split("/"))
    if last is None or not all(segments):
        return ""
    return "/" + "/".join([*map(str, segments), last])


def _segment(text: str) -> str | None:
    raw = unquote_to_bytes(text)
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return None
    if _SEPARATORS.search(raw) or _ESCAPE.search(raw):
        return None
    # Some servers drop what follows a semicolon, and spaces and dots at the end.
    if raw and not raw.partition(b";")[0].strip(b". "):
        return None
    return quote(raw, safe=_KEPT)


def pattern(text: str) -> str:
    """The canonical form of a pattern; empty where it is none."""
    found = canonical_path(text) if len(text) <= MAX_PATTERN else ""
    return found if all(STAR not in one or one == STAR for one in found.split("/")) else ""


def matches(wanted: str, path: str) -> bool:
    """Whether the pattern means the canonical path, or all paths that another pattern means."""
    parts, found = wanted.split("/"), path.split("/")
    if parts[-1] == STAR:
        parts.pop()
        if len(found) <= len(parts):
            return False
        found = found[: len(parts)]
    return len(parts) == len(found) and all(one in (STAR, other) for one, other in zip(parts, found, strict=True))
