"""What the servicers read from a call, and how they refuse it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any, Generic, NoReturn, Protocol, TypeVar, cast

import grpc
from sandfleet_api.executor.v1.common_pb2 import ErrorDetail, RetryInfo, RpcStatus

from sandfleet_operator.api.errors import FleetError, Problem
from sandfleet_operator.api.kube import KubeError
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.cluster.reviews import Caller
from sandfleet_operator.executors.calls import duration
from sandfleet_operator.fleet.audit.calls import is_from, is_refused

BEARER = "Bearer "
# Of the detail in the trailing metadata of a refused call.
DETAIL = "sandfleet-error-bin"
# Of the standard google.rpc.Status there, and the type of the detail in it that says when to come back.
STATUS_DETAILS, RETRY_INFO = "grpc-status-details-bin", "type.googleapis.com/google.rpc.RetryInfo"
# Characters of a refusal's message.
MAX_MESSAGE = 1000

Context = grpc.aio.ServicerContext[object, object]


class Authenticates(Protocol):
    async def authenticate(self, token: str) -> Caller:
        """Who calls. `token` is the call's bearer token, empty without one. Raises FleetError, KubeError."""
        ...


A = TypeVar("A", bound=Authenticates)
Q = TypeVar("Q")
R = TypeVar("R")
Request_contra = TypeVar("Request_contra", contravariant=True)
Response_co = TypeVar("Response_co", covariant=True)


class Rpc(Protocol[Request_contra, Response_co]):
    """A unary RPC of a servicer, as gRPC calls it."""

    def __call__(self, request: Request_contra, context: Context) -> Awaitable[Response_co]: ...


class Answers(Generic[A]):
    """A servicer: callers are authenticated before `api` does anything for them, and failures become status codes."""

    def __init__(self, api: A) -> None:
        self.api = api

    async def authenticated(self, context: Context) -> Caller:
        caller = await self.api.authenticate(token(context))
        is_from(caller)
        return caller

    async def answer(self, context: Context, work: Callable[[Caller], Awaitable[R]]) -> R:
        try:
            return await work(await self.authenticated(context))
        except (FleetError, KubeError) as error:
            await abort(context, problem_of(error))

    async def stream(self, context: Context, work: Callable[[Caller], AsyncIterator[R]]) -> AsyncIterator[R]:
        try:
            async for response in work(await self.authenticated(context)):
                yield response
        except (FleetError, KubeError) as error:
            await abort(context, problem_of(error))


S = TypeVar("S", bound=Answers[Any])


def unary(method: Callable[[A, Caller, Q], Awaitable[R]]) -> Rpc[Q, R]:
    """Return the RPC of a servicer that this method of its api answers."""
    name = method.__name__

    async def rpc(self: Answers[A], request: Q, context: Context) -> R:
        work: Callable[[Caller, Q], Awaitable[R]] = getattr(self.api, name)
        return await self.answer(context, lambda caller: work(caller, request))

    return cast("Rpc[Q, R]", rpc)


def own(method: Callable[[S, Caller, Q], Awaitable[R]]) -> Rpc[Q, R]:
    """Return the RPC of a servicer that this method of its own answers."""

    async def rpc(self: S, request: Q, context: Context) -> R:
        return await self.answer(context, lambda caller: method(self, caller, request))

    return cast("Rpc[Q, R]", rpc)


def problem_of(error: FleetError | KubeError) -> Problem:
    if isinstance(error, FleetError):
        return error.problem
    text = f"cannot serve: the API server answered {error.status} {error.reason}"
    return ClaimReason.API_SERVER_FAILED.problem(text)


async def abort(context: Context, problem: Problem) -> NoReturn:
    is_refused(problem)
    # The message may quote the caller; gRPC gives up a call whose answer does not fit its metadata.
    problem = replace(problem, message=problem.message[:MAX_MESSAGE], subject=problem.subject[:MAX_MESSAGE])
    detail = ErrorDetail(
        reason=problem.reason,
        message=problem.message,
        retryable=problem.retryable,
        subject=problem.subject.encode("utf-8", "surrogateescape"),
        retry_after=None if problem.retry_after is None else duration(problem.retry_after),
    )
    code, trailing = grpc.StatusCode[problem.code.name], [(DETAIL, detail.SerializeToString())]
    if problem.retry_after is not None:
        trailing.append((STATUS_DETAILS, _status(code.value[0], problem, problem.retry_after).SerializeToString()))
    await context.abort(code, problem.message, tuple(trailing))
    raise AssertionError("abort never returns")


def _status(code: int, problem: Problem, retry_after: float) -> RpcStatus:
    """The failure as clients of any language read it: with the standard detail that says when to come back."""
    status = RpcStatus(code=code, message=problem.message)
    status.details.add(type_url=RETRY_INFO, value=RetryInfo(retry_delay=duration(retry_after)).SerializeToString())
    return status


def metadata(context: Context, name: str) -> str:
    return next((str(value) for key, value in context.invocation_metadata() or () if key == name), "")


def token(context: Context) -> str:
    """The bearer token of the call's only `authorization`; several of them count as none."""
    pairs = cast("Iterable[tuple[str, str | bytes]]", context.invocation_metadata() or ())
    said = [value for key, value in pairs if key == "authorization"]
    text = said[0] if len(said) == 1 and isinstance(said[0], str) else ""
    return text.removeprefix(BEARER) if text.startswith(BEARER) else ""
