"""The typed escape that leaves a terminal, and output without escape sequences, or with colours alone. Pure."""

from __future__ import annotations

import enum
import re

_ENTER, _TILDE, _DOT = ord("\r"), ord("~"), ord(".")
_NEWLINE, _TAB, _ESCAPE, _BELL, _DELETE, _BACKSLASH = 0x0A, 0x09, 0x1B, 0x07, 0x7F, 0x5C
# What begins a title, a device string, …: ] P X ^ _
_STRINGS = tuple(b"]PX^_")
_CANCELS = (0x18, 0x1A)
# What the text of a terminal has but shown characters. A carriage return begins a line again: bars of progress.
_ACTS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
# Colours and styles (SGR) as programs write them; private ones (`<`, `=`, `>`, `?`) set other things.
_COLOUR = re.compile(r"[0-9;:]{0,64}m")


class Leaving:
    """Finds `~.` at the beginning of a line, as ssh does; `~~` there is one ~."""

    def __init__(self) -> None:
        self.left = False
        self._fresh = True
        self._held = False

    def feed(self, data: bytes) -> bytes:
        """Return the part of typed input to send. Input after `left` is dropped."""
        sent = bytearray()
        for byte in data:
            if self._held:
                self._held = False
                if byte == _DOT:
                    self.left = True
                    return bytes(sent)
                sent.append(_TILDE)
                if byte == _TILDE:
                    self._fresh = False
                    continue
            elif self._fresh and byte == _TILDE:
                self._held = True
                continue
            sent.append(byte)
            self._fresh = byte in (_ENTER, _NEWLINE)
        return bytes(sent)


class _State(enum.Enum):
    TEXT = enum.auto()
    ESCAPED = enum.auto()
    # Between the escape and its last byte: "ESC ( B", "ESC [ 1 ; 2 m".
    SHORT = enum.auto()
    CONTROL = enum.auto()
    # A title, a device string, up to BEL or ST.
    STRING = enum.auto()
    STRING_ESCAPED = enum.auto()


class Plain:
    """Drops escape sequences (ECMA-48) and control characters but line feeds and tabs, also across chunks."""

    def __init__(self) -> None:
        self._state = _State.TEXT

    def feed(self, data: bytes) -> bytes:
        """Return the text in a chunk."""
        return bytes(byte for byte in data if self.feed_code(byte))

    @property
    def in_text(self) -> bool:
        """Whether no sequence is open."""
        return self._state is _State.TEXT

    @property
    def in_control(self) -> bool:
        """Whether a control sequence ("ESC [ …") is open."""
        return self._state is _State.CONTROL

    def feed_code(self, byte: int) -> bool:
        """Return whether a byte, or a character, is text."""
        if byte in _CANCELS:
            self._state = _State.TEXT
            return False
        if self._state is _State.TEXT and byte != _ESCAPE:
            return byte in (_NEWLINE, _TAB) or (byte >= 0x20 and byte != _DELETE)
        self._state = self._next(byte)
        return False

    def _next(self, byte: int) -> _State:
        """Return the state after a byte that is not text."""
        match self._state:
            case _State.STRING:
                return _State.TEXT if byte == _BELL else _State.STRING_ESCAPED if byte == _ESCAPE else _State.STRING
            case _State.STRING_ESCAPED if byte != _BACKSLASH:
                # Another sequence begins in the middle of the string, and ends it.
                return self._after_escape(byte)
            case _State.STRING_ESCAPED:
                return _State.TEXT
            case _ if byte == _ESCAPE:
                return _State.ESCAPED
            case _State.ESCAPED:
                return self._after_escape(byte)
            case _State.SHORT:
                return _State.SHORT if 0x20 <= byte <= 0x2F else _State.TEXT
            case _State.CONTROL:
                return _State.TEXT if 0x40 <= byte <= 0x7E else _State.CONTROL
        return _State.TEXT

    @staticmethod
    def _after_escape(byte: int) -> _State:
        if byte == ord("["):
            return _State.CONTROL
        if byte in _STRINGS:
            return _State.STRING
        return _State.SHORT if 0x20 <= byte <= 0x2F else _State.TEXT


class Coloured:
    """Text for a terminal: shown characters, line ends, tabs and colours, also across chunks; no other sequence.

    Where it goes on, the screen may be coloured: `end` returns what sets it back.
    """

    def __init__(self, *, colours: bool) -> None:
        self._plain = Plain()
        self._sequence: str | None = None
        self._colours = colours
        self._coloured = False

    def feed(self, text: str) -> str:
        """Return what of a chunk is shown."""
        if self._plain.in_text and not _ACTS.search(text):
            return text
        return "".join(map(self._shown, text))

    def end(self) -> str:
        """Return what sets colours back, if any were passed."""
        return "\x1b[0m" if self._coloured else ""

    def _shown(self, letter: str) -> str:
        if letter == "\r" and self._plain.in_text:
            return letter
        if self._plain.feed_code(ord(letter)):
            self._sequence = None
            return "" if _ACTS.match(letter) else letter
        return self._colour(letter) if self._colours else ""

    def _colour(self, letter: str) -> str:
        """Gather a control sequence; return it whole at its last character if it is a colour."""
        if self._plain.in_control:
            # The first is the bracket itself.
            self._sequence = "" if self._sequence is None else self._sequence + letter
            return ""
        sequence, self._sequence = self._sequence, None
        if sequence is None or not _COLOUR.fullmatch(sequence + letter):
            return ""
        self._coloured = True
        return f"\x1b[{sequence}{letter}"
