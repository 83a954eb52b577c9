"""Tools, calls and answers ↔ the messages of the API."""

from collections.abc import Mapping

from sandfleet_api.executor.v1 import tools_pb2 as pb

from sandfleet_executor.core.errors import BadRequest
from sandfleet_executor.core.tools.calls import Cancelled
from sandfleet_executor.core.tools.values import (
    Answer,
    Call,
    Failure,
    Kind,
    Parameter,
    Tool,
    Value,
    checked_answer,
    checked_offer,
)
from sandfleet_executor.effects.tools.broker import Acknowledgements, SentTogether, ToHost

KINDS = {pb.ToolFailureKind.Value(f"TOOL_FAILURE_KIND_{kind.name}"): kind for kind in Kind}


def offer(message: pb.ToolOffer) -> Mapping[str, Tool]:
    """Raises BadRequest."""
    return checked_offer([_tool(each) for each in message.tools])


def _tool(message: pb.ToolSpec) -> Tool:
    parameters = tuple(
        Parameter(
            each.name,
            each.annotation,
            each.default_text if each.HasField("default_text") else None,
            each.keyword_only,
        )
        for each in message.parameters
    )
    return Tool(message.name, message.doc, parameters, message.returns, message.schema_json, message.secret)


def answer(message: pb.ToolAnswer) -> Answer:
    """Raises BadRequest."""
    match message.WhichOneof("outcome"):
        case "value":
            return checked_answer(Value(message.value.json, tuple(message.value.blobs)))
        case "failure" if message.failure.kind in KINDS:
            said = message.failure
            return checked_answer(Failure(KINDS[said.kind], said.reason, said.message, said.may_have_run))
    raise BadRequest(f"cannot take the answer to call {message.call_id[:80]!r}: it has no outcome")


def response(message: ToHost) -> pb.ServeResponse:
    match message:
        case SentTogether(calls):
            first, *more = [_call(each.call, again=each.again) for each in calls]
            return pb.ServeResponse(call=first, more_calls=more)
        case Cancelled(call_id):
            return pb.ServeResponse(cancel=pb.ToolCancel(call_id=call_id))
        case Acknowledgements(call_ids):
            return pb.ServeResponse(acknowledged=pb.ToolAcknowledged(call_ids=call_ids))


def _call(call: Call, *, again: bool) -> pb.ToolCall:
    return pb.ToolCall(
        call_id=call.id,
        tool=call.tool,
        arguments=pb.ToolValue(json=call.arguments.json, blobs=call.arguments.blobs),
        execution_id=call.caller.execution_id,
        context_id=call.caller.context_id,
        service=call.caller.service,
        redelivered=again,
    )
