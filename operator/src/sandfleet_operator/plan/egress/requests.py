"""Which requests a host may get, where the list names methods or paths (pure)."""

from collections.abc import Sequence

from sandfleet_operator.api.egress import Name
from sandfleet_operator.api.request_paths import canonical_path
from sandfleet_operator.plan.egress.credentials import Headers
from sandfleet_operator.plan.egress.refusals import Place, RefusedError, Why

# Headers by which some servers and frameworks take a request for another one.
OVERRIDES = frozenset(
    b"x-http-method x-http-method-override x-method-override x-original-url x-original-uri x-rewrite-url".split()
)


def check(rules: Sequence[Name], place: Place, method: str, target: str, headers: Headers) -> None:
    """`target` is a path, with a query or without, which is not looked at. Raises RefusedError."""
    if not rules:
        return
    path = target.partition("?")[0]
    found = canonical_path(path)
    if not found or any(name in OVERRIDES for name, _ in headers):
        raise RefusedError(Why.AMBIGUOUS, place)
    if not any(name.permits(method, found) for name in rules):
        raise RefusedError(Why.REQUEST, place, f"{method} {path}")
