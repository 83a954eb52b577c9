"""What the host offers, and what goes between code and host. The executor passes values on without reading them."""

import keyword
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from sandfleet_executor.core.errors import BadRequest

MAX_TOOLS = 512
# Of all tools together, in characters.
MAX_OFFER = 4 << 20
# What a parameter costs of them beside its text.
PARAMETER_SIZE = 64
# Of the arguments of one call, and of one result, in bytes.
MAX_VALUE = 16 << 20
MAX_BLOBS = 1024
MAX_REASON = 64
MAX_MESSAGE = 64 << 10


@dataclass(frozen=True, slots=True)
class Value:
    """JSON, and the byte strings that it refers to."""

    json: bytes
    blobs: tuple[bytes, ...] = ()

    @property
    def size(self) -> int:
        return len(self.json) + sum(map(len, self.blobs))


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    annotation: str
    # As Python writes it; None: the parameter is required.
    default: str | None
    keyword_only: bool


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    doc: str
    parameters: tuple[Parameter, ...]
    returns: str
    # JSON Schema of the arguments.
    schema: str
    # The journal has no values of its calls.
    secret: bool = False

    @property
    def size(self) -> int:
        """Characters."""
        texts = [self.name, self.doc, self.returns, self.schema]
        for each in self.parameters:
            texts += [each.name, each.annotation, each.default or ""]
        return sum(map(len, texts)) + PARAMETER_SIZE * len(self.parameters)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls: an execution, in its context if it is a cell, or a service."""

    execution_id: str = ""
    context_id: str = ""
    service: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    id: str
    tool: str
    arguments: Value
    caller: Caller


class Kind(StrEnum):
    """Why a call has no result."""

    ERROR = "error"
    DENIED = "denied"
    TIMEOUT = "timeout"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class Failure:
    """`may_have_run`: the tool may have run although no host says so."""

    kind: Kind
    reason: str
    message: str
    may_have_run: bool = False


Answer = Value | Failure


def checked_offer(tools: Sequence[Tool]) -> dict[str, Tool]:
    """The tools by name. Raises BadRequest."""
    if len(tools) > MAX_TOOLS:
        raise BadRequest(f"cannot offer {len(tools)} tools: the most is {MAX_TOOLS}")
    size = sum(tool.size for tool in tools)
    if size > MAX_OFFER:
        raise BadRequest(f"cannot offer tools that are described in {size} characters: the most is {MAX_OFFER}")
    found = {tool.name: tool for tool in tools}
    if len(found) != len(tools):
        raise BadRequest("cannot offer the tools: two have the same name")
    for tool in tools:
        for name in (tool.name, *(each.name for each in tool.parameters)):
            if not name.isidentifier() or keyword.iskeyword(name):
                raise BadRequest(f"cannot offer tool {tool.name[:80]!r}: {name[:80]!r} is no name in Python")
    return found


def checked_answer(answer: Answer) -> Answer:
    """The answer of a host, within the limits of this executor."""
    if isinstance(answer, Failure):
        return replace(answer, reason=answer.reason[:MAX_REASON], message=answer.message[:MAX_MESSAGE])
    if answer.size > MAX_VALUE or len(answer.blobs) > MAX_BLOBS:
        message = f"cannot take the result: it has {answer.size} bytes, and the most is {MAX_VALUE}"
        return Failure(Kind.DENIED, "ResultTooLarge", message)
    return answer
