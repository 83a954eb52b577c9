"""Tools, calls and answers ↔ the messages of the API."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sandfleet._wire import api
from sandfleet.errors import ProtocolError
from sandfleet.tools.ledger import Answer, Failure, Kind, Received
from sandfleet.tools.outbox import MOST_TOGETHER
from sandfleet.tools.values import Wire

if TYPE_CHECKING:
    from sandfleet.values.tools import Tool

_MESSAGE_CHARACTERS = 16_384
_REASON_CHARACTERS = 64
# Of ids and names in a call.
_NAME_CHARACTERS = 1024


def offer(tools: Sequence[Tool], host_id: str) -> api.tools.ToolOffer:
    """Describe the tools to the executor."""
    return api.tools.ToolOffer(tools=[_spec(tool) for tool in tools], host_id=host_id, takes_many=True)


def _spec(tool: Tool) -> api.tools.ToolSpec:
    return api.tools.ToolSpec(
        name=tool.name,
        doc=tool.doc,
        parameters=[
            api.tools.ToolParameter(
                name=each.name, annotation=each.annotation, default_text=each.default, keyword_only=each.keyword_only
            )
            for each in tool.parameters
        ],
        returns=tool.returns,
        schema_json=json.dumps(tool.schema),
        secret=tool.gives == "secret",
    )


def received(message: api.tools.ToolCall) -> Received:
    """Read a call. Raises ProtocolError for one that no executor sends."""
    names = (message.call_id, message.tool, message.execution_id, message.context_id, message.service)
    if not message.call_id or max(map(len, names)) > _NAME_CHARACTERS:
        raise ProtocolError("cannot take a call: an id or a name in it is empty or too long", reason="BadCall")
    return Received(
        id=message.call_id,
        tool=message.tool,
        arguments=Wire(message.arguments.json, tuple(message.arguments.blobs)),
        execution_id=message.execution_id,
        context_id=message.context_id,
        service=message.service,
        again=message.redelivered,
    )


def checked(more: Sequence[api.tools.ToolCall]) -> Sequence[api.tools.ToolCall]:
    """Return the further calls of a message. Raises ProtocolError for more than an executor sends together."""
    if len(more) >= MOST_TOGETHER:
        raise ProtocolError(f"cannot take {len(more) + 1} calls in one message", reason="BadCall")
    return more


def review(call_id: str, *, over: bool) -> api.tools.ServeRequest:
    """Tell that a person decides about a call, or has decided."""
    return api.tools.ServeRequest(review=api.tools.ToolReview(call_id=call_id, over=over))


def answer(call_id: str, given: Answer) -> api.tools.ToolAnswer:
    """Build the answer to a call."""
    if isinstance(given, Wire):
        return api.tools.ToolAnswer(call_id=call_id, value=api.tools.ToolValue(json=given.json, blobs=given.blobs))
    return api.tools.ToolAnswer(call_id=call_id, failure=_failure(given))


def _failure(given: Failure) -> api.tools.ToolFailure:
    kinds = {
        Kind.ERROR: api.tools.TOOL_FAILURE_KIND_ERROR,
        Kind.DENIED: api.tools.TOOL_FAILURE_KIND_DENIED,
        Kind.TIMEOUT: api.tools.TOOL_FAILURE_KIND_TIMEOUT,
        Kind.UNAVAILABLE: api.tools.TOOL_FAILURE_KIND_UNAVAILABLE,
    }
    return api.tools.ToolFailure(
        kind=kinds[given.kind],
        reason=given.reason[:_REASON_CHARACTERS],
        # Lone surrogates do not fit into a message of the API.
        message=given.message[:_MESSAGE_CHARACTERS].encode("utf-8", "backslashreplace").decode(),
        may_have_run=given.may_have_run,
    )
