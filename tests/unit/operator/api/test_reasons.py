"""The words by which the fleet says why: on the wire they never change."""

import re
from pathlib import Path

import pytest
from sandfleet_operator.api.errors import Code
from sandfleet_operator.api.reasons import ClaimReason, EndReason, GatewayReason, QueueReason

SOURCES = Path(__file__).parents[4] / "operator/src/sandfleet_operator"
WORDS = {
    Code.INVALID_ARGUMENT: "InvalidId InvalidLabel InvalidEnvironment InvalidDuration InvalidLimit InvalidIsolation "
    "InvalidSelector InvalidClaim NoCluster InvalidTunnel InvalidSigningRequest",
    Code.UNIMPLEMENTED: "Unimplemented",
    Code.UNAUTHENTICATED: "TokenMissing TokenInvalid",
    Code.PERMISSION_DENIED: "Forbidden",
    Code.NOT_FOUND: "PoolNotFound TemplateNotFound WorkspaceNotFound SandboxNotFound",
    Code.FAILED_PRECONDITION: "WorkspaceBusy WorkspaceEphemeral IsolationUnavailable ContractNotSupported ClaimEnded NoLease",
    Code.RESOURCE_EXHAUSTED: "TooManyWorkspaces QueueFull NamespaceQueueFull SandboxLimit QuotaExceeded TooManyTunnels TooManyWatches",
    Code.DEADLINE_EXCEEDED: "NotBoundInTime StartTimeout",
    Code.INTERNAL: "StartFailed SandboxUnfit",
    Code.UNAVAILABLE: "ReviewFailed ExecutorUnreachable ExecutorGone Recovering StillEnding NotServing ApiServerFailed "
    "CreationForbidden SandboxReplaced RouteUnknown",
}


def test_reasons_and_their_codes_are_the_ones_that_clients_know():
    known = {word: code for code, words in WORDS.items() for word in words.split()}
    assert known.items() <= {one.value: one.code for one in (*ClaimReason, *GatewayReason)}.items()


@pytest.mark.parametrize("reason", [*ClaimReason, *GatewayReason, *QueueReason, *EndReason])
def test_each_reason_is_one_word_with_a_meaning(reason):
    assert re.fullmatch(r"([A-Z][a-z]+)+", reason.value)
    assert re.fullmatch(r"[A-Z].+\.", reason.meaning, re.DOTALL)


@pytest.mark.parametrize("reason", [*ClaimReason, *GatewayReason, *QueueReason])
def test_each_reason_says_what_to_do(reason):
    assert re.fullmatch(r"[A-Z].+\.", reason.remedy, re.DOTALL)


@pytest.mark.parametrize("reason", [*ClaimReason, *GatewayReason])
def test_a_problem_has_the_code_of_its_reason_and_is_retryable_as_the_table_says(reason):
    problem = reason.problem("cannot claim: why", "subject")
    assert (problem.code, problem.reason, problem.message, problem.subject) == (
        reason.code,
        reason.value,
        "cannot claim: why",
        "subject",
    )
    assert problem.retryable == reason.retryable
    assert reason.problem("cannot claim: why", passing=True).retryable


def test_problems_of_calls_take_their_reasons_from_the_table():
    words = "|".join(one.value for one in (*ClaimReason, *GatewayReason))
    bare = re.compile(rf'(Problem\(|invalid\(|_refusal\()[^)]*"({words})"')
    found = {str(path): match[0] for path in SOURCES.rglob("*.py") if (match := bare.search(path.read_text()))}
    assert found == {}
