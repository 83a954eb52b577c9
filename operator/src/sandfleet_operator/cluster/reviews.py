"""Asks the API server who a caller is and what it may do: TokenReview and SubjectAccessReview."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jwt

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kube import CODE_SANDBOX, KINDS, Json, Kind, KubeError
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.cluster.kube_api import KubeApi

AUDIENCE = "sandfleet"
TOKEN_REVIEW = Kind("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
ACCESS_REVIEW = Kind("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False)
# The kinds that a client needs in order to ask for reviews.
REVIEW_KINDS = (*KINDS, TOKEN_REVIEW, ACCESS_REVIEW)

MAX_TOKEN_CHARACTERS = 16 << 10
# Seconds for which a permission is remembered.
ALLOWED = 10.0
# Seconds for which an accepted token is remembered. A deleted account stays valid for this long.
REMEMBERED = 60.0
MAX_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller as the API server knows it."""

    username: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class Reviews:
    """`kube` knows REVIEW_KINDS;

    `wall_clock` gives seconds since the epoch. Anything not clearly allowed is refused.
    """

    def __init__(self, kube: KubeApi, wall_clock: Callable[[], float]) -> None:
        self._kube = kube
        self._clock = wall_clock
        # Keyed by hash: the tokens themselves are not kept.
        self._known: OrderedDict[bytes, tuple[float, Caller]] = OrderedDict()
        self._allowed: OrderedDict[tuple[str, str, tuple[str, ...], str], float] = OrderedDict()

    async def authenticate(self, token: str) -> Caller:
        """The caller that the token belongs to.

        Raises FleetError: UNAUTHENTICATED, or UNAVAILABLE if the review failed.
        """
        if not token or len(token) > MAX_TOKEN_CHARACTERS:
            raise _unknown("the call has no `authorization: Bearer TOKEN`", ClaimReason.TOKEN_MISSING)
        now, key = self._clock(), hashlib.sha256(token.encode()).digest()
        until, caller = self._known.get(key, (0.0, None))
        # Turning the clock back does not prolong the memory.
        if caller is not None and now < until <= now + REMEMBERED:
            return caller
        self._known.pop(key, None)
        caller = await self._review(token)
        self._remember(key, min(now + REMEMBERED, _expires(token)), caller)
        return caller

    async def _review(self, token: str) -> Caller:
        spec = {"token": token, "audiences": [AUDIENCE]}
        status = (await self._ask(_review_of(TOKEN_REVIEW, spec))).get("status", {})
        if status.get("authenticated") is not True:
            raise _unknown(str(status.get("error") or "the API server does not accept its token")[:500])
        # An authenticator without support for audiences returns none, and has not checked them.
        if AUDIENCE not in (status.get("audiences") or ()):
            raise _unknown(f"its token is not for the audience {AUDIENCE}")
        return _caller(status.get("user") or {})

    async def authorize(
        self, caller: Caller, verb: str, namespace: str, name: str, subresource: str = "", *, kind: Kind = CODE_SANDBOX
    ) -> None:
        """Checks a verb on a kind or a subresource of it. Raises FleetError unless the caller may use it.

        Without a name it asks for all of the namespace, without a namespace for all namespaces.
        """
        attributes = {"group": kind.group, "resource": kind.plural, "verb": verb}
        attributes |= {
            key: value
            for key, value in (("namespace", namespace), ("name", name), ("subresource", subresource))
            if value
        }
        asked = (caller.username, caller.uid, caller.groups, repr(sorted(attributes.items())))
        now = self._clock()
        if now < self._allowed.get(asked, 0.0) <= now + ALLOWED:
            return
        spec = {
            "resourceAttributes": attributes,
            "user": caller.username,
            "uid": caller.uid,
            "groups": list(caller.groups),
            "extra": {key: list(values) for key, values in caller.extra.items()},
        }
        status = (await self._ask(_review_of(ACCESS_REVIEW, spec))).get("status", {})
        if status.get("allowed") is not True or status.get("denied"):
            where = f"in namespace {namespace}" if namespace else "in all namespaces"
            what = f"{kind.plural}{f'/{subresource}' if subresource else ''}.{kind.group}{f' {name}' if name else ''}"
            why = f"{caller.username} may not {verb} {what} {where}; a RoleBinding can allow it"
            raise ClaimReason.FORBIDDEN.error(f"cannot {verb} sandboxes: {why}")
        self._allowed[asked] = now + ALLOWED
        while len(self._allowed) > MAX_REMEMBERED:
            self._allowed.popitem(last=False)

    async def _ask(self, review: Json) -> Json:
        try:
            return await self._kube.create(review)
        except KubeError as error:
            # Leave out the error's own text, because it may quote the token.
            why = f"the API server answered {error.status} {error.reason} to a {review['kind']}"
            raise ClaimReason.REVIEW_FAILED.error(f"cannot tell who calls: {why}") from error

    def _remember(self, key: bytes, until: float, caller: Caller) -> None:
        self._known[key] = (until, caller)
        while len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)


def _review_of(kind: Kind, spec: Json) -> Json:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {}, "spec": spec}


def _unknown(why: str, reason: ClaimReason = ClaimReason.TOKEN_INVALID) -> FleetError:
    return reason.error(f"cannot tell who calls: {why}")


def _caller(user: Mapping[str, Any]) -> Caller:
    if not user.get("username"):
        raise _unknown("the API server does not say who it is")
    extra = {key: tuple(values) for key, values in (user.get("extra") or {}).items()}
    return Caller(user["username"], user.get("uid", ""), tuple(user.get("groups") or ()), extra)


def _expires(token: str) -> float:
    """When the token expires, as it says itself; the API server has checked it. Infinite if it is not a JWT."""
    try:
        return float(jwt.decode(token, options={"verify_signature": False}).get("exp", float("inf")))
    except (jwt.PyJWTError, ValueError, TypeError):
        return float("inf")
