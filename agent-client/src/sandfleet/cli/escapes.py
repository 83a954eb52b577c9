"""The typed escape that leaves a terminal, and terminal output without escape sequences. Pure."""

from __future__ import annotations

import enum

_ENTER, _TILDE, _DOT = ord("\r"), ord("~"), ord(".")
_NEWLINE, _TAB, _ESCAPE, _BELL, _DELETE = 0x0A, 0x09, 0x1B, 0x07, 0x7F
_CANCELS = (0x18, 0x1A)


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
        return bytes(byte for byte in data if self._is_text(byte))

    def _is_text(self, byte: int) -> bool:
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
            case _State.STRING_ESCAPED if byte not in b"\\":
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
        if byte in b"]PX^_":
            return _State.STRING
        return _State.SHORT if 0x20 <= byte <= 0x2F else _State.TEXT
