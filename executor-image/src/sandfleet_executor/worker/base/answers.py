"""The packets that answer a look at a context: completions and inspections, within limits."""

from collections.abc import Iterable

from . import packets

MAX_MATCH_CHARACTERS = 256
MAX_ANSWER_BYTES = 48 << 10


def completed(texts: Iterable[str], start: int, end: int) -> bytes:
    """The matches that fit, for the characters from `start` to `end`; the others are counted."""
    found = list(dict.fromkeys(texts))
    matches: list[str] = []
    room = MAX_ANSWER_BYTES
    for text in found:
        # As JSON's ASCII at its longest.
        room -= 6 * len(text) + 3
        if room < 0:
            break
        if len(text) <= MAX_MATCH_CHARACTERS:
            matches.append(text)
    omitted = len(found) - len(matches)
    return packets.encode({"event": "completed", "matches": matches, "start": start, "end": end, "omitted": omitted})


def inspected(text: str, *, found: bool) -> bytes:
    """The description of an object; what is longer than allowed is cut."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) > MAX_ANSWER_BYTES:
        left = len(data) - MAX_ANSWER_BYTES
        data = data[:MAX_ANSWER_BYTES].decode("utf-8", "ignore").encode() + f"\n… {left} bytes left out …".encode()
    return packets.encode({"event": "inspected", "found": found}, data)
