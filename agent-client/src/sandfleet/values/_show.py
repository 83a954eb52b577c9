"""How values show themselves: a short repr, and MIME bundles for Jupyter."""

from __future__ import annotations

import base64
import dataclasses
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from html import escape

_WIDTH = 80
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
# Numbers from here on are written without a fraction.
_ROUND = 100


def visible(text: str, *, kept: str = "\n\t") -> str:
    """Write what a terminal would act on, or would not show, as Python writes it in a string; `kept` stays as it is."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        letter if letter in kept or _is_shown(letter) else letter.encode("unicode_escape").decode() for letter in text
    )


def _is_shown(letter: str) -> bool:
    # Cf has the marks that turn the direction of writing, and letters without a width.
    return letter.isprintable() and unicodedata.category(letter) != "Cf"


def short(name: str, *parts: str) -> str:
    """Put the parts that say something between brackets, each on one line and cut."""
    lines = (visible(" ".join(part.split())) for part in parts if part)
    return f"{name}({', '.join(line if len(line) <= _WIDTH else line[: _WIDTH - 1] + '…' for line in lines)})"


def size(number: float) -> str:
    """Write a number of bytes as people do: "4 GiB"."""
    unit = 0
    while number >= 1024 and unit < len(_UNITS) - 1:
        number /= 1024
        unit += 1
    return f"{number:.0f} {_UNITS[unit]}" if number >= _ROUND else f"{number:.3g} {_UNITS[unit]}"


def clip(line: str, width: int) -> str:
    """Cut a text to one line of a terminal, without control characters."""
    flat = "".join(char if char.isprintable() else " " for char in line)
    return flat if len(flat) < width else flat[: max(1, width - 2)] + "…"


def _plain(value: object) -> object:
    """Turn bytes and times into text; leave the rest."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, datetime) else value


def jupyter_bundle(parts: Mapping[str, str | bytes]) -> dict[str, str]:
    """Turn parts into what Jupyter takes: binary types as base64."""
    return {mime: base64.b64encode(part).decode() if isinstance(part, bytes) else part for mime, part in parts.items()}


def bundle(texts: Sequence[str], pictures: Sequence[bytes]) -> dict[str, str]:
    """Show texts and PNGs as text and as HTML. All text is escaped."""
    html = [f"<pre>{escape(text)}</pre>" for text in texts]
    html += [f'<img alt="" src="data:image/png;base64,{base64.b64encode(png).decode()}">' for png in pictures]
    return {"text/plain": "\n".join(text.rstrip("\n") for text in texts), "text/html": "\n".join(html)}


def to_json(value: object) -> object:
    """Turn a value of `sandfleet.values` into what `json.dumps` takes; bytes become base64."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {part.name: to_json(getattr(value, part.name)) for part in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_json(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    return _plain(value)
