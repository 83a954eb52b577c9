"""Tools that answer from a journal: code in the fresh sandbox gets what it got before."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sandfleet.errors import SandfleetError
from sandfleet.journal.notebook import items, mapping
from sandfleet.journal.records import Record, loads
from sandfleet.values.tools import Decision, Tool, ToolCall, ToolParameter, ToolSession

# Of the messages of a failed tool.
_FAILED = " has failed: "
_MAX_TOOLS, _MAX_PARAMETERS = 512, 64


class NoAnswerError(SandfleetError):
    """The record has no answer to a call."""


class RecordedTools:
    """The tools of a recorded session. `own` are functions of this process for those whose answers are secret."""

    def __init__(self, records: Iterable[Record], own: Sequence[Tool] = ()) -> None:
        self._own = {tool.name: tool for tool in own}
        self._calls: dict[str, list[Mapping[str, Any]]] = {}
        self._waiting: list[Mapping[str, Any]] = []
        self._parameters: dict[str, dict[str, None]] = {}
        # What was asked and had no answer in the record, since the last step began.
        self.unanswered: list[str] = []
        for record in records:
            if record.kind == "tool_call":
                self._take(record.body)

    def _take(self, body: Mapping[str, Any]) -> None:
        name = body.get("tool")
        if not isinstance(name, str) or not name.isidentifier():
            return
        self._calls.setdefault(str(body.get("execution")), []).append(body)
        known = self._parameters.setdefault(name, {})
        if len(self._parameters) > _MAX_TOOLS:
            del self._parameters[name]
            return
        arguments = _arguments(body)
        if isinstance(arguments, dict):
            known |= dict.fromkeys(each for each in list(arguments)[:_MAX_PARAMETERS] if each.isidentifier())

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools to offer, with the parameters that the recorded calls show."""
        names = {**self._parameters, **dict.fromkeys(self._own)}
        return tuple(
            self._own.get(name) or self._tool(name) for name in names if name in self._own or name in self._parameters
        )

    def begin(self, execution_id: str) -> None:
        """Answer from the calls of this execution from now on."""
        self._waiting = list(self._calls.get(execution_id, ()))
        self.unanswered.clear()

    def rest(self) -> list[str]:
        """The calls of the execution that the record has and the code did not make."""
        return [str(each.get("tool")) for each in self._waiting if each.get("tool") not in self._own]

    async def decide(self, call: ToolCall, _session: ToolSession) -> Decision:
        """Refuse what was refused before; the call is answered with it."""
        found = self._find(call.tool, call.arguments)
        error = mapping(found.get("error")) if found else {}
        if found is not None and error.get("kind") == "denied":
            self._waiting.remove(found)
            return Decision(False, str(error.get("message")))
        return Decision(True)

    def _tool(self, name: str) -> Tool:
        async def answer(**arguments: Any) -> Any:
            return self._answer(name, arguments)

        parameters = tuple(ToolParameter(each, default="...") for each in self._parameters[name])
        return Tool(
            name=name,
            doc="Answers from a journal.",
            function=answer,
            bind=dict,
            parameters=parameters,
            schema={"type": "object"},
        )

    def _answer(self, name: str, arguments: Mapping[str, Any]) -> Any:
        found = self._find(name, arguments)
        if found is None:
            return self._refuse(f"{name}: the record has no call with these arguments here")
        self._waiting.remove(found)
        if found.get("secret"):
            return self._refuse(
                f"{name}: the answer is secret, and the record has only its digest: give the tool itself"
            )
        error = mapping(found.get("error"))
        if error:
            message = str(error.get("message")).removeprefix(f"{name}{_FAILED}")
            raise _as_before(str(error.get("reason")), message)
        said = mapping(found.get("answer"))
        if said.get("cut") or items(said.get("blobs")) or not isinstance(said.get("text"), str):
            return self._refuse(f"{name}: the record does not have the whole answer")
        return _decoded(said)

    def _refuse(self, why: str) -> Any:
        self.unanswered.append(why)
        raise NoAnswerError(f"cannot answer {why}", reason="NoAnswer")

    def _find(self, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
        wanted = json.dumps(arguments, sort_keys=True, default=str)
        for each in self._waiting:
            if each.get("tool") != name:
                continue
            given = _arguments(each)
            # Of secret arguments, and of tables, the record has only digests: then the order decides.
            if given is None or json.dumps(given, sort_keys=True) == wanted:
                return each
        return None


def _arguments(body: Mapping[str, Any]) -> Any:
    """The arguments of a call, without what the sandbox adds of itself."""
    found = _decoded(body.get("arguments"))
    return {name: value for name, value in found.items() if name[:1] != "$"} if isinstance(found, dict) else found


def _decoded(value: object) -> Any:
    """The JSON of a value of a record; None where the record does not have it as a whole."""
    found = mapping(value)
    text = found.get("text")
    if found.get("cut") or not isinstance(text, str):
        return None
    try:
        return loads(text)
    except ValueError:
        return None


def _as_before(reason: str, message: str) -> Exception:
    """An exception of the same name as the one that the tool raised."""
    name = reason if reason.isidentifier() else "Exception"
    kind: type[Exception] = type(name, (Exception,), {})
    return kind(message)
