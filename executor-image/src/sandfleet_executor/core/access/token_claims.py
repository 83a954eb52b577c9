"""Checks the claims of a capability token whose signature is valid (pure)."""

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ISSUER = "sandfleet"
# Clocks of one cluster differ a little.
LEEWAY_SECONDS = 5.0
# No caller of a claim gets these.
CONTROL_SCOPES = frozenset({"admin", "snapshot"})


class TokenReason(enum.Enum):
    """Why a token was refused; the value is the reason in the API's ErrorDetail."""

    MISSING = "TokenMissing"
    EXPIRED = "TokenExpired"
    INVALID = "TokenInvalid"
    FOREIGN = "TokenForeign"
    SCOPE = "ScopeMissing"


class TokenError(Exception):
    """A token was refused. The message is for the caller and names no secret."""

    def __init__(self, reason: TokenReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls. Times are seconds since the epoch."""

    holder: str
    # The session that the token is for.
    session: str
    scopes: frozenset[str]
    contract: str
    not_before: float
    expires: float


def read_claims(claims: Mapping[str, Any], audience: str, contract: str = "autonomous") -> Caller:
    """The caller that the claims describe, whatever the time is. `contract` is the sandbox's. Raises TokenError."""
    if _text(claims, "iss") != ISSUER:
        raise TokenError(TokenReason.INVALID, f"cannot accept the token: its issuer is not {ISSUER}")
    if _text(claims, "aud") != audience:
        raise TokenError(TokenReason.FOREIGN, "cannot accept the token: it is for another sandbox")
    if _text(claims, "contract") != contract:
        raise TokenError(TokenReason.INVALID, f"cannot accept the token: the contract of this sandbox is {contract}")
    _moment(claims, "iat")
    scopes = frozenset(_text(claims, "scope").split())
    return Caller(
        _text(claims, "sub"), _text(claims, "sid"), scopes, contract, _moment(claims, "nbf"), _moment(claims, "exp")
    )


def check_time(caller: Caller, now: float) -> None:
    """Raises TokenError when the token is not valid at `now` (seconds since the epoch)."""
    if now >= caller.expires + LEEWAY_SECONDS:
        raise TokenError(TokenReason.EXPIRED, "cannot accept the token: it has expired")
    if now < caller.not_before - LEEWAY_SECONDS:
        raise TokenError(TokenReason.INVALID, "cannot accept the token: it is not valid yet")


def check_session(caller: Caller, session: str) -> None:
    """Raises TokenError when the token is for another session than the sandbox serves; "": it serves none yet.

    The control plane's own tokens are for the sandbox, whichever session it gets.
    """
    if session and caller.session != session and not caller.scopes & CONTROL_SCOPES:
        raise TokenError(TokenReason.FOREIGN, "cannot accept the token: it is for another session")


def check_scope(caller: Caller, scope: str) -> None:
    """Raises TokenError when the caller lacks the scope."""
    if scope not in caller.scopes:
        raise TokenError(TokenReason.SCOPE, f"cannot call this method: the token lacks the scope {scope}")


def _text(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not value:
        raise TokenError(TokenReason.INVALID, f"cannot accept the token: its claim {name} is missing or no text")
    return value


def _moment(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    # JSON's NaN would compare as never expired, and true is an int.
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise TokenError(TokenReason.INVALID, f"cannot accept the token: its claim {name} is missing or no number")
    return float(value)
