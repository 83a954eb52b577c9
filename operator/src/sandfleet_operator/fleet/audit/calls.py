"""Writes the audit records of calls as they are answered, and of what the scheduler does."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import grpc

from sandfleet_operator.api.errors import Problem
from sandfleet_operator.cluster.reviews import Caller
from sandfleet_operator.fleet.audit.rules import EGRESS_RULES, RULES, SNAPSHOT_RULES, Details, Rule, named, of_action
from sandfleet_operator.plan.audit import Actor, Record, Verdict
from sandfleet_operator.plan.scheduler.actions import Action

SERVICE = "sandfleet_api.fleet.v1.FleetService"
RULES_OF = {
    SERVICE: RULES,
    "sandfleet_api.fleet.v1.SnapshotService": SNAPSHOT_RULES,
    "sandfleet_api.fleet.v1.EgressService": EGRESS_RULES,
}
TRACEPARENT = "traceparent"
# A traceparent is version, trace, span and flags; the trace has so many digits.
TRACE_PARTS, TRACE_DIGITS = 4, 32
# The reason where the fleet itself failed.
INTERNAL = "Internal"

Write = Callable[[Record], None]


@dataclass
class Call:
    """What is learned of a call while it is served."""

    caller: Caller | None = None
    problem: Problem | None = None


_CALL: ContextVar[Call | None] = ContextVar("audited_call", default=None)


def is_from(caller: Caller) -> None:
    """The call that is being served has this caller."""
    if (call := _CALL.get()) is not None:
        call.caller = caller


def is_refused(problem: Problem) -> None:
    """The call that is being served ends with this problem."""
    if (call := _CALL.get()) is not None:
        call.problem = problem


class _Recorded:
    """One call, of which exactly one record is written."""

    def __init__(self, rule: Rule, request: Any, trace_id: str, write: Write) -> None:
        self.call = Call()
        self._rule, self._request, self._trace_id, self._write = rule, request, trace_id, write
        self._done = not rule.applies(request)

    def allowed(self, answer: Any) -> None:
        if self._rule.quiet:
            self._done = True
        else:
            self._settle(Verdict.ALLOWED, "", self._rule.given(answer), answer)

    def is_answer(self, message: Any) -> bool:
        return not self._done and self._rule.answers(message)

    def over(self) -> None:
        """It has ended without an answer, unless one was recorded."""
        problem = self.call.problem
        verdict = Verdict.WITHDRAWN if problem is None else Verdict.REFUSED
        self._settle(verdict, "" if problem is None else problem.reason, {}, None)

    def failed(self) -> None:
        """A defect of the fleet, unless the call was refused."""
        if self.call.problem is not None:
            self.over()
        else:
            self._settle(Verdict.REFUSED, INTERNAL, {}, None)

    def _settle(self, verdict: Verdict, reason: str, details: Details, answer: Any) -> None:
        if self._done:
            return
        self._done = True
        caller = self.call.caller
        namespace, sandbox = named(self._rule.about(self._request, answer))
        self._write(
            Record(
                decision=self._rule.decision,
                verdict=verdict,
                reason=reason,
                actor=Actor(caller.username, caller.uid) if caller is not None else Actor(),
                namespace=namespace,
                sandbox=sandbox,
                trace_id=self._trace_id,
                details={**self._rule.asked(self._request), **details},
            )
        )


class AuditInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg] # generic in the stubs alone
    """Writes a record of each call that decides something, before its answer goes out."""

    def __init__(self, write: Write) -> None:
        self._write = write

    async def intercept_service(self, continuation: Callable[..., Awaitable[Any]], details: Any) -> Any:
        handler = await continuation(details)
        service, _, name = details.method.strip("/").partition("/")
        rule = RULES_OF.get(service, {}).get(name)
        if handler is None or rule is None:
            return handler
        trace_id = _trace_id(details.invocation_metadata)

        def recorded(request: Any) -> _Recorded:
            one = _Recorded(rule, request, trace_id, self._write)
            _CALL.set(one.call)
            return one

        kept = {name: getattr(handler, name) for name in ("request_deserializer", "response_serializer")}
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(_stream(handler.unary_stream, recorded), **kept)
        if handler.request_streaming:
            return grpc.stream_unary_rpc_method_handler(_unary(handler.stream_unary, recorded), **kept)
        return grpc.unary_unary_rpc_method_handler(_unary(handler.unary_unary, recorded), **kept)


def _unary(serve: Callable[..., Awaitable[Any]], recorded: Callable[[Any], _Recorded]) -> Callable[..., Any]:
    async def served(request: Any, context: Any) -> Any:
        one = recorded(request)
        try:
            answer = await serve(request, context)
        except Exception:  # It goes on to the caller, whatever it is.
            one.failed()
            raise
        except BaseException:  # A cancellation, which is no failure.
            one.over()
            raise
        one.allowed(answer)
        return answer

    return served


def _stream(serve: Callable[..., AsyncIterator[Any]], recorded: Callable[[Any], _Recorded]) -> Callable[..., Any]:
    async def served(request: Any, context: Any) -> AsyncIterator[Any]:
        one = recorded(request)
        # However the stream ends: gRPC may never ask the generator again.
        context.add_done_callback(lambda _: one.over())
        try:
            async for message in serve(request, context):
                if one.is_answer(message):
                    one.allowed(message)
                yield message
        except Exception:  # It goes on to the caller, whatever it is.
            one.failed()
            raise

    return served


def noting(write: Write) -> Callable[[Action], None]:
    """For a FleetDriver: writes the records of its scheduler's decisions."""

    def note(action: Action) -> None:
        if (record := of_action(action)) is not None:
            write(record)

    return note


def _trace_id(metadata: Any) -> str:
    said = next((str(value) for key, value in metadata or () if key == TRACEPARENT), "").split("-")
    return said[1] if len(said) == TRACE_PARTS and len(said[1]) == TRACE_DIGITS else ""
