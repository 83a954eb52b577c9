"""In a reviewed sandbox, calls that run or plant code wait for approval: the table is core/rpcs.py."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
from google.protobuf.message import Message

from sandfleet_executor.core.requests import DEFAULT_CONTEXT, check_id
from sandfleet_executor.core.review import verdicts
from sandfleet_executor.core.review.subject import MAX_CONTENT_BYTES
from sandfleet_executor.core.rpcs import Gate, Rpc
from sandfleet_executor.effects.contexts.reviewed_states import APPROVED, Shown, StoredStates
from sandfleet_executor.effects.review.places import Places
from sandfleet_executor.effects.review.reviews import Reviews
from sandfleet_executor.servicers.convert import subjects
from sandfleet_executor.servicers.errors import ApiError, about, drain
from sandfleet_executor.servicers.handlers import Behaviour, Handler, behaving, behaviour_of, is_upload

Code = grpc.StatusCode


class ReviewGate:
    """The layer that lets calls wait. Its refusals are ApiErrors."""

    def __init__(self, reviews: Reviews, places: Places, states: StoredStates) -> None:
        self._reviews = reviews
        self._places = places
        self._states = states

    def gated(self, handler: Handler, rpc: Rpc) -> Handler:
        """Where no review is required, each call passes."""
        if not self._reviews.required or rpc.gate in (Gate.FREE, Gate.EXECUTION):
            return handler
        behaviour = behaviour_of(handler)
        if rpc.gate is Gate.COUNTED and not handler.response_streaming:
            return behaving(handler, self._counted(behaviour))
        if rpc.gate is Gate.CALL and handler.unary_unary:
            return behaving(handler, self._call(behaviour, rpc.name))
        if rpc.gate is Gate.CALL and is_upload(handler):
            return behaving(handler, self._upload(behaviour, rpc.name))
        return _refused(handler, rpc.name)

    def _call(self, behaviour: Behaviour, method: str) -> Behaviour:
        async def waiting(request: Any, context: Any) -> Any:
            await self._wait(method, request, b"", subjects.intent_of(context))
            return await behaviour(request, context)

        return waiting

    def _upload(self, behaviour: Behaviour, method: str) -> Behaviour:
        async def waiting(requests: AsyncIterator[Any], context: Any) -> Any:
            taken, content = await _whole(requests)
            if not taken or taken[0].WhichOneof("part") != "header":
                # As the servicer says it.
                return await behaviour(_again(taken), context)
            await self._wait(method, taken[0].header, content, subjects.intent_of(context))
            return await behaviour(_again(taken), context)

        return waiting

    def _counted(self, behaviour: Behaviour) -> Behaviour:
        async def counting(request: Any, context: Any) -> Any:
            with self._reviews.changing():
                return await behaviour(request, context)

        return counting

    async def _wait(self, method: str, request: Message, content: bytes, intent: str) -> None:
        """Asks again where the request leads elsewhere by now. Raises ApiError where it may not run."""
        seen: tuple[dict[str, bytes], Shown | None] | None = None
        while (now := (await self._leads_to(method, request), await self._state(method, request))) != seen:
            seen = places, state = now
            subject = subjects.subject_of(method, request, state.content if state else content, intent, places)
            with about(subject.name):
                decision = await self._reviews.decide(subject)
            if not decision.allowed:
                what = f"cannot let the {subject.kind} through: {verdicts.refusal(decision)}"
                raise ApiError(Code.PERMISSION_DENIED, verdicts.DENIED, what, subject=subject.name.encode())

        if state is not None:
            APPROVED.set(state.sha256)

    async def _state(self, method: str, request: Any) -> Shown | None:
        """The saved state that the request would restore; None: it restores none. Raises ApiError."""
        if method != "InterpreterService/RestoreState":
            return None
        name = check_id("the name of a state", request.name or request.context_id or DEFAULT_CONTEXT)
        return await self._states.shown(name)

    async def _leads_to(self, method: str, request: Message) -> dict[str, bytes]:
        return await self._places.of(subjects.paths_of(method, request))


async def _whole(requests: AsyncIterator[Any]) -> tuple[list[Any], bytes]:
    """All messages of an upload, up to the one that ends it, and its data. Raises ApiError where it is too long."""
    taken, parts, size = [], [], 0
    async for request in requests:
        taken.append(request)
        match request.WhichOneof("part"):
            case "data":
                size += len(request.data)
                parts.append(request.data)
            case "end":
                break
        if size > MAX_CONTENT_BYTES:
            why = f"cannot review an upload of more than {MAX_CONTENT_BYTES} bytes"
            raise ApiError(Code.INVALID_ARGUMENT, "InvalidArgument", why)
    return taken, b"".join(parts)


async def _again(taken: list[Any]) -> AsyncIterator[Any]:
    for request in taken:
        yield request


def _refused(handler: Handler, method: str) -> Handler:
    why = f"cannot serve {method} in a reviewed sandbox: what it carries cannot be shown to a reviewer before it has effect"
    refusal = ApiError(Code.FAILED_PRECONDITION, "NotReviewable", why)

    async def refuse(request: Any, _context: Any) -> AsyncIterator[Any]:
        if handler.request_streaming:
            await drain(request, most=1)
        raise refusal
        yield

    kind = grpc.stream_stream_rpc_method_handler if handler.request_streaming else grpc.unary_stream_rpc_method_handler
    # On the wire a failure without an answer is the same for a stream of answers and for one.
    return kind(refuse, handler.request_deserializer, handler.response_serializer)
