"""Who a caller is and what it may do, as the API server says: TokenReview and SubjectAccessReview."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jwt

from sandfleet_operator.api.errors import Code, FleetError, Problem
from sandfleet_operator.api.kube import CODE_SANDBOX, KINDS, Json, Kind, KubeError
from sandfleet_operator.effects.kubeapi import KubeApi

AUDIENCE = "sandfleet"
TOKEN_REVIEW = Kind("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
ACCESS_REVIEW = Kind("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False)
# What a client needs to know to ask for reviews.
REVIEW_KINDS = (*KINDS, TOKEN_REVIEW, ACCESS_REVIEW)

MAX_TOKEN_CHARACTERS = 16 << 10
# The same for what was allowed.
ALLOWED = 10.0
# Seconds for which a token that was accepted is not asked about again: so long does a deleted account live on.
REMEMBERED = 60.0
MAX_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class Caller:
    """As the API server knows it."""

    username: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class Reviews:
    """`kube` knows REVIEW_KINDS; `wall_clock` gives seconds since the epoch. Whatever is not clearly allowed is refused."""

    def __init__(self, kube: KubeApi, wall_clock: Callable[[], float]) -> None:
        self._kube = kube
        self._clock = wall_clock
        # By hash: the tokens themselves are not kept.
        self._known: OrderedDict[bytes, tuple[float, Caller]] = OrderedDict()
        self._allowed: OrderedDict[tuple[str, str, tuple[str, ...], str], float] = OrderedDict()

    async def authenticate(self, token: str) -> Caller:
        """Raises FleetError: UNAUTHENTICATED, or UNAVAILABLE where nobody can tell."""
        if not token or len(token) > MAX_TOKEN_CHARACTERS:
            raise _unknown("the call has no `authorization: Bearer TOKEN`", "TokenMissing")
        now, key = self._clock(), hashlib.sha256(token.encode()).digest()
        until, caller = self._known.get(key, (0.0, None))
        # A clock that was set back prolongs nothing.
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
        # An authenticator that knows no audiences says none, and has not looked at them.
        if AUDIENCE not in (status.get("audiences") or ()):
            raise _unknown(f"its token is not for the audience {AUDIENCE}")
        return _caller(status.get("user") or {})

    async def authorize(self, caller: Caller, verb: str, namespace: str, name: str, subresource: str = "") -> None:
        """For CodeSandboxes, or a subresource of them; without a name for all of the namespace, without a namespace for all. Raises FleetError."""
        attributes = {"group": CODE_SANDBOX.group, "resource": CODE_SANDBOX.plural, "verb": verb}
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
            kind = f"{CODE_SANDBOX.plural}{f'/{subresource}' if subresource else ''}.{CODE_SANDBOX.group}"
            what = f"{verb} {kind}{f' {name}' if name else ''} {where}"
            why = f"{caller.username} may not {what}; a RoleBinding can allow it"
            raise FleetError(Problem(Code.PERMISSION_DENIED, "Forbidden", f"cannot {verb} sandboxes: {why}"))
        self._allowed[asked] = now + ALLOWED
        while len(self._allowed) > MAX_REMEMBERED:
            self._allowed.popitem(last=False)

    async def _ask(self, review: Json) -> Json:
        try:
            return await self._kube.create(review)
        except KubeError as error:
            # Not the error's own text: it may quote what was sent.
            why = f"the API server answered {error.status} {error.reason} to a {review['kind']}"
            raise FleetError(Problem(Code.UNAVAILABLE, "ReviewFailed", f"cannot tell who calls: {why}")) from error

    def _remember(self, key: bytes, until: float, caller: Caller) -> None:
        self._known[key] = (until, caller)
        while len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)


def _review_of(kind: Kind, spec: Json) -> Json:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {}, "spec": spec}


def _unknown(why: str, reason: str = "TokenInvalid") -> FleetError:
    return FleetError(Problem(Code.UNAUTHENTICATED, reason, f"cannot tell who calls: {why}"))


def _caller(user: Mapping[str, Any]) -> Caller:
    if not user.get("username"):
        raise _unknown("the API server does not say who it is")
    extra = {key: tuple(values) for key, values in (user.get("extra") or {}).items()}
    return Caller(user["username"], user.get("uid", ""), tuple(user.get("groups") or ()), extra)


def _expires(token: str) -> float:
    """When it says that it ends; the API server has checked it. Infinite for one that is no JWT."""
    try:
        return float(jwt.decode(token, options={"verify_signature": False}).get("exp", float("inf")))
    except (jwt.PyJWTError, ValueError, TypeError):
        return float("inf")
