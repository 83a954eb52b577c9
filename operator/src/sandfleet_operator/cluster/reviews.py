"""Asks the API server who a caller is and what it may do: TokenReview and SubjectAccessReview."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import jwt

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kube import CODE_SANDBOX, KINDS, Json, Kind, KubeError
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.cluster.kube_api import KubeApi
from sandfleet_operator.cluster.lanes import NoTurnError, Turns
from sandfleet_operator.plan.lanes import Bounds, Party

V = TypeVar("V")

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
# Seconds for which a token that was refused is remembered: a token that has just begun to count waits so long.
REFUSED = 5.0
# TokenReviews under way: of tokens that were accepted before, and of all others, which anyone can send.
BOUNDS = Bounds(total=64, per_namespace=48, per_node=64, waiting=4096)
ACCEPTED, UNKNOWN = Party("accepted"), Party("unknown")
PATIENCE = 10.0


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
        # Tokens that were refused, with the reason.
        self._bad: OrderedDict[bytes, tuple[float, FleetError]] = OrderedDict()
        self._turns = Turns(BOUNDS)
        self._allowed = _Memory(wall_clock)
        # Rights to all of a namespace that the API server refused, of callers that have them for single names.
        self._refused = _Memory(wall_clock)

    async def authenticate(self, token: str) -> Caller:
        """The caller that the token belongs to.

        Raises FleetError: UNAUTHENTICATED, or UNAVAILABLE if the review failed.
        """
        if not token or len(token) > MAX_TOKEN_CHARACTERS:
            raise _unknown("the call has no `authorization: Bearer TOKEN`", ClaimReason.TOKEN_MISSING)
        key = hashlib.sha256(token.encode()).digest()
        if (caller := self._remembered(key)) is not None:
            return caller
        try:
            async with self._turns.turn(ACCEPTED if key in self._known else UNKNOWN, PATIENCE):
                # Others may have asked meanwhile.
                return self._remembered(key) or await self._asked(key, token)
        except NoTurnError as error:
            raise ClaimReason.REVIEW_FAILED.error(f"cannot tell who calls: {error}") from error

    def _remembered(self, key: bytes) -> Caller | None:
        """Raises FleetError for a token that was refused."""
        now = self._clock()
        refused_until, why = self._bad.get(key, (0.0, None))
        # Turning the clock back does not prolong the memory.
        if why is not None and now < refused_until <= now + REFUSED:
            raise FleetError(why.problem)
        until, caller = self._known.get(key, (0.0, None))
        return caller if now < until <= now + REMEMBERED else None

    async def _asked(self, key: bytes, token: str) -> Caller:
        now = self._clock()
        try:
            caller = await self._review(token)
        except FleetError as error:
            if error.problem.reason == ClaimReason.TOKEN_INVALID.value:
                self._known.pop(key, None)
                _put(self._bad, key, (now + REFUSED, error))
            raise
        _put(self._known, key, (min(now + REMEMBERED, _expires(token)), caller))
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

        Without a name it asks for all of the namespace, without a namespace for all namespaces. With one it asks for
        all of the namespace first: Kubernetes' answer to that holds for every name in it, and is remembered for all.
        """
        all_of_them = _Right(caller, verb, kind, namespace, "", subresource)
        if not (name and self._refused.holds(all_of_them.key)) and await self._may(all_of_them):
            return
        if name and await self._may(replace(all_of_them, name=name)):
            self._refused.remember(all_of_them.key)
            return
        where = f"in namespace {namespace}" if namespace else "in all namespaces"
        what = f"{kind.plural}{f'/{subresource}' if subresource else ''}.{kind.group}{f' {name}' if name else ''}"
        why = f"{caller.username} may not {verb} {what} {where}; a RoleBinding can allow it"
        raise ClaimReason.FORBIDDEN.error(f"cannot {verb} sandboxes: {why}")

    async def _may(self, right: "_Right") -> bool:
        """Whether the API server allows it. Raises FleetError if that does not answer."""
        if self._allowed.holds(right.key):
            return True
        status = (await self._ask(_review_of(ACCESS_REVIEW, right.spec()))).get("status", {})
        if status.get("allowed") is not True or status.get("denied"):
            return False
        self._allowed.remember(right.key)
        return True

    async def _ask(self, review: Json) -> Json:
        try:
            return await self._kube.create(review)
        except KubeError as error:
            # Leave out the error's own text, because it may quote the token.
            why = f"the API server answered {error.status} {error.reason} to a {review['kind']}"
            raise ClaimReason.REVIEW_FAILED.error(f"cannot tell who calls: {why}") from error


@dataclass(frozen=True, slots=True)
class _Right:
    """A verb on a kind or a subresource of it. Empty: of all namespaces, of all names."""

    caller: Caller
    verb: str
    kind: Kind
    namespace: str
    name: str
    subresource: str

    @property
    def key(self) -> Hashable:
        caller = self.caller
        where = self.kind, self.namespace, self.name, self.subresource
        # An authorizer may decide by what the authenticator added: the scopes of a token, the node of a pod.
        extra = tuple(sorted(caller.extra.items()))
        return caller.username, caller.uid, caller.groups, extra, self.verb, *where

    def spec(self) -> Json:
        attributes = {"group": self.kind.group, "resource": self.kind.plural, "verb": self.verb}
        narrower = (("namespace", self.namespace), ("name", self.name), ("subresource", self.subresource))
        return {
            "resourceAttributes": attributes | {key: value for key, value in narrower if value},
            "user": self.caller.username,
            "uid": self.caller.uid,
            "groups": list(self.caller.groups),
            "extra": {key: list(values) for key, values in self.caller.extra.items()},
        }


class _Memory:
    """What the API server said, remembered for ALLOWED seconds; MAX_REMEMBERED answers at most."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: OrderedDict[Hashable, float] = OrderedDict()

    def holds(self, key: Hashable) -> bool:
        now = self._clock()
        # Turning the clock back does not prolong the memory.
        return now < self._until.get(key, 0.0) <= now + ALLOWED

    def remember(self, key: Hashable) -> None:
        self._until[key] = self._clock() + ALLOWED
        self._until.move_to_end(key)
        while len(self._until) > MAX_REMEMBERED:
            self._until.popitem(last=False)


def _put(memory: OrderedDict[bytes, V], key: bytes, value: V) -> None:
    memory[key] = value
    memory.move_to_end(key)
    while len(memory) > MAX_REMEMBERED:
        memory.popitem(last=False)


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
