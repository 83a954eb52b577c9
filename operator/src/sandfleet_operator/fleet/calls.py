"""What the servicers read from a call, and how they refuse it."""

from collections.abc import Iterable
from dataclasses import replace
from typing import NoReturn, cast

import grpc
from sandfleet_api.executor.v1.common_pb2 import ErrorDetail

from sandfleet_operator.api.errors import FleetError, Problem
from sandfleet_operator.api.kube import KubeError
from sandfleet_operator.api.reasons import ClaimReason

BEARER = "Bearer "
# Of the detail in the trailing metadata of a refused call.
DETAIL = "sandfleet-error-bin"
# Characters of a refusal's message.
MAX_MESSAGE = 1000

Context = grpc.aio.ServicerContext[object, object]


def problem_of(error: FleetError | KubeError) -> Problem:
    if isinstance(error, FleetError):
        return error.problem
    text = f"cannot serve: the API server answered {error.status} {error.reason}"
    return ClaimReason.API_SERVER_FAILED.problem(text)


async def abort(context: Context, problem: Problem) -> NoReturn:
    # The message may quote the caller; gRPC gives up a call whose answer does not fit its metadata.
    problem = replace(problem, message=problem.message[:MAX_MESSAGE], subject=problem.subject[:MAX_MESSAGE])
    detail = ErrorDetail(
        reason=problem.reason,
        message=problem.message,
        retryable=problem.retryable,
        subject=problem.subject.encode("utf-8", "surrogateescape"),
    )
    await context.abort(grpc.StatusCode[problem.code.name], problem.message, ((DETAIL, detail.SerializeToString()),))
    raise AssertionError("abort never returns")


def metadata(context: Context, name: str) -> str:
    return next((str(value) for key, value in context.invocation_metadata() or () if key == name), "")


def token(context: Context) -> str:
    """The bearer token of the call's only `authorization`; several of them count as none."""
    pairs = cast("Iterable[tuple[str, str | bytes]]", context.invocation_metadata() or ())
    said = [value for key, value in pairs if key == "authorization"]
    text = said[0] if len(said) == 1 and isinstance(said[0], str) else ""
    return text.removeprefix(BEARER) if text.startswith(BEARER) else ""
