"""What a kernel says of one cell, as the frames and the output of a context. Pure; kernels are not trusted."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ..base import frames, parts

# Results of one cell; what is updated is not counted again.
MAX_RESULTS = 1000
MAX_ID_CHARACTERS = 256
MAX_PROMPT_CHARACTERS = 4096
MAX_NAME_CHARACTERS = 200
MAX_VALUE_BYTES, MAX_TRACEBACK_CHARACTERS = 64 << 10, 64 << 10
# Escape sequences of terminals: kernels colour their tracebacks. Help of R is printed twice where it is bold.
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|.\x08")
STREAMS = {"stdout": 1, "stderr": 2}
INTERRUPTED = {"name": "Interrupted", "value": "", "traceback": "", "frames": []}


class Text(NamedTuple):
    """Output for a descriptor."""

    descriptor: int
    data: bytes


class Shown(NamedTuple):
    """A frame with a result."""

    header: dict[str, Any]
    payload: bytes


class Clear(NamedTuple):
    """The cell clears what it has shown and printed; with `wait` when the next output comes."""

    wait: bool


Said = Text | Shown | Clear


class Cell:
    """One execution, from its messages."""

    def __init__(self, message_id: str) -> None:
        self._id = message_id
        # Its code runs, as the kernel says.
        self.begun = False
        self.replied = self._idle = False
        self._error: dict[str, Any] | None = None
        self._ids: set[str] = set()
        self._results = 0
        # Results above the limit; messages of front ends' widgets.
        self.left_out = self.comms = 0
        # The prompt at which input was refused.
        self._refused: str | None = None

    @property
    def over(self) -> bool:
        """Whether the kernel has said all of it."""
        return self.replied and self._idle

    def asks(self, message: Mapping[str, Any]) -> tuple[str, bool] | None:
        """The prompt of a request for input of this cell, and whether what is typed is a password; None for others."""
        if message.get("msg_type") != "input_request" or asked_by(message) != self._id:
            return None
        content = of(message, "content")
        return plain(content.get("prompt", ""))[:MAX_PROMPT_CHARACTERS], content.get("password") is True

    def refuse(self, prompt: str) -> None:
        """Its request for input was refused, which is its error, whatever the kernel makes of it."""
        self._refused = prompt

    def give_up(self) -> None:
        """It is over without the last message."""
        self._idle = True

    def take(self, message: Mapping[str, Any]) -> Iterator[Said]:
        """What a message of the kernel means. What is of another cell, or not as it has to be, is dropped."""
        if asked_by(message) != self._id:
            return
        content = of(message, "content")
        match message.get("msg_type"):
            case "status":
                self._idle = self._idle or content.get("execution_state") == "idle"
            case "execute_reply":
                yield from self._reply(content)
            case kind:
                self.begun = True
                yield from self._output(str(kind), content)

    def _output(self, kind: str, content: Mapping[str, Any]) -> Iterator[Said]:
        match kind:
            case "stream":
                descriptor = STREAMS.get(str(content.get("name")), 2)
                yield Text(descriptor, str(content.get("text", "")).encode("utf-8", "backslashreplace"))
            case "execute_result":
                yield self._shown(content, main=True)
            case "display_data" | "update_display_data":
                yield from self._displayed(content, update=kind == "update_display_data")
            case "clear_output":
                self._results = 0
                self._ids.clear()
                yield Clear(content.get("wait") is True)
            case "error":
                self._error = _error(content)
            case _ if kind.startswith("comm_"):
                self.comms += 1

    def _reply(self, content: Mapping[str, Any]) -> Iterator[Shown]:
        self.replied = self.begun = True
        if content.get("status") != "ok" and self._error is None:
            self._error = _error(content)
        payloads = content.get("payload")
        for each in payloads if isinstance(payloads, list) else ():
            # What a pager would show: help of IPython, and of R.
            if isinstance(each, Mapping) and each.get("source") == "page":
                text = plain(of(each, "data").get("text/plain", ""))
                yield from self._displayed({"data": {"text/plain": text}}, update=False)

    def _displayed(self, content: Mapping[str, Any], *, update: bool) -> Iterator[Shown]:
        name = of(content, "transient").get("display_id")
        display_id = "" if name is None else str(name)[:MAX_ID_CHARACTERS]
        if not (update and display_id in self._ids):
            if self._results >= MAX_RESULTS:
                self.left_out += 1
                return
            self._results += 1
        if display_id:
            self._ids.add(display_id)
        shown = self._shown(content, main=False)
        more = {"display_id": display_id, "update": update} if display_id else {}
        yield Shown(shown.header | more, shown.payload)

    def _shown(self, content: Mapping[str, Any], *, main: bool) -> Shown:
        found, dropped = parts.to_parts(of(content, "data"))
        listed = [{"mime": mime, "size": len(data)} for mime, data in found]
        header = {"event": "result", "main": main, "parts": listed, "dropped": dropped}
        return Shown(header, b"".join(data for _, data in found))

    def notes(self) -> list[str]:
        """What was dropped, in words."""
        dropped = [
            (self.left_out, f"results dropped: the limit is {MAX_RESULTS} a cell"),
            (self.comms, "messages of widgets dropped: there is no front end"),
        ]
        return [f"{count} {words}" for count, words in dropped if count]

    def end(self, *, interrupted: bool) -> tuple[str, dict[str, Any] | None]:
        """The status of the cell, and its error."""
        if self._refused is not None:
            value = f"cannot read input at {self._refused!r}: the caller of this cell gives none"
            return "error", {"name": "StdinNotAvailable", "value": value, "traceback": "", "frames": []}
        if self._error is None:
            return "ok", None
        if interrupted:
            return "interrupted", INTERRUPTED
        return "error", self._error


def report(error: Mapping[str, Any]) -> bytes:
    """The frame of an error."""
    value = str(error["value"]).encode("utf-8", "backslashreplace")[:MAX_VALUE_BYTES]
    return frames.encode({"event": "error", **error, "value": ""}, value)


def plain(text: object) -> str:
    """A text without escape sequences of terminals."""
    return ESCAPES.sub("", str(text))


def _error(content: Mapping[str, Any]) -> dict[str, Any]:
    lines = content.get("traceback")
    traceback = "\n".join(map(plain, lines)) if isinstance(lines, list) else ""
    if content.get("status") == "aborted":
        return {"name": "Aborted", "value": "the kernel did not run the cell", "traceback": "", "frames": []}
    return {
        "name": plain(content.get("ename") or "Error")[:MAX_NAME_CHARACTERS],
        "value": plain(content.get("evalue", "")),
        "traceback": traceback[-MAX_TRACEBACK_CHARACTERS:],
        "frames": [],
    }


def asked_by(message: Mapping[str, Any]) -> Any:
    """The id of the request that a message belongs to."""
    return of(message, "parent_header").get("msg_id")


def of(message: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A part of a message; empty where it has none."""
    found = message.get(name)
    return found if isinstance(found, Mapping) else {}
