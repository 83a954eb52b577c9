"""Plots of cells in a report: which of them a page may show. Their bytes come from an executor, which is hostile."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

PNG, SVG = "image/png", "image/svg+xml"
# Bytes of one picture and of all of a session; pictures of a session; width times height of one.
MAX_BYTES, MAX_ALL, MAX_PICTURES, MAX_PIXELS = 2 << 20, 16 << 20, 200, 1 << 24
_PNG_START = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
_NOT_KEPT = "not kept: the journal has its digest alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One picture that a cell displayed. `data`: its bytes in base64; where they are not shown, `why` says the reason.

    `size` in bytes, and `sha256` in hex, are what the journal says.
    """

    mime: str
    size: int
    sha256: str
    data: str = ""
    why: str = _NOT_KEPT


def recorded(result: Mapping[str, Any]) -> Picture | None:
    """The picture that a record's result names; None where it is none. Small ones stand in the record itself."""
    mime, size, digest = result.get("mime"), result.get("bytes"), result.get("sha256")
    if mime not in {PNG, SVG} or not isinstance(size, int) or not isinstance(digest, str):
        return None
    found = Picture(mime=mime, size=size, sha256=digest[:64])
    text, coded = result.get("text"), result.get("base64")
    if isinstance(text, str):
        return shown(found, text.encode("utf-8", "replace"))
    try:
        return shown(found, base64.b64decode(coded)) if isinstance(coded, str) else found
    except ValueError:
        return replace(found, why="not shown: its bytes are not those of the journal")


def made(data: bytes) -> Picture:
    """A PNG that this process has itself."""
    return shown(Picture(mime=PNG, size=len(data), sha256=hashlib.sha256(data).hexdigest()), data)


def shown(picture: Picture, data: bytes) -> Picture:
    """The picture with its bytes, if they are those of the record and a browser can show them at no great cost."""
    why = _refusal(picture, data)
    return replace(picture, why=why) if why else replace(picture, data=base64.b64encode(data).decode(), why="")


def filled(wanted: Iterable[Picture], found: Iterable[bytes]) -> tuple[Picture, ...]:
    """The pictures, each with those bytes that have its digest."""
    known = {hashlib.sha256(data).hexdigest(): data for data in found}
    return tuple(shown(one, known[one.sha256]) if not one.data and one.sha256 in known else one for one in wanted)


def _refusal(picture: Picture, data: bytes) -> str:
    if hashlib.sha256(data).hexdigest() != picture.sha256:
        return "not shown: its bytes are not those of the journal"
    if len(data) > MAX_BYTES:
        return f"not shown: it is larger than {MAX_BYTES >> 20} MiB"
    if picture.mime == SVG:
        # A page shows it as an image: no script of it runs. Entities could make a gigabyte of a kilobyte.
        return (
            "not shown: it declares entities" if b"<!" in data.replace(b"<!--", b"").replace(b"<![CDATA[", b"") else ""
        )
    if not data.startswith(_PNG_START) or len(data) < 24:
        return "not shown: it is no PNG"
    width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    return "" if 0 < width * height <= MAX_PIXELS else "not shown: it has too many pixels"


def within_bounds(pictures: Iterable[Picture]) -> list[Picture]:
    """The pictures, the bytes of those that are too many left out."""
    kept: list[Picture] = []
    left = MAX_ALL
    for picture in pictures:
        size = len(picture.data) * 3 // 4
        if picture.data and (size > left or len(kept) >= MAX_PICTURES):
            kept.append(replace(picture, data="", why=f"not shown: a report has {MAX_ALL >> 20} MiB of pictures"))
        else:
            left -= size
            kept.append(picture)
    return kept
