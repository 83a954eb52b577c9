"""Heads of journals: from the API's messages, which an executor may have made up."""

from __future__ import annotations

from collections.abc import Iterable

from sandfleet._wire import api
from sandfleet.errors import ProtocolError
from sandfleet.journal.heads import SignedHead
from sandfleet.journal.records import NO_HASH, Head, is_hash, is_number
from sandfleet.journal.status import JournalStatus

_MAX_NAME, _MAX_SIGNED, _MAX_KEY = 512, 64, 256


def head(number: int, digest: str) -> Head:
    """Read a head. Raises ProtocolError."""
    if not is_number(number, least=0) or not is_hash(digest) or (number == 0 and digest != NO_HASH):
        raise ProtocolError("cannot read the journal's head: it is no number with a hash", reason="BadHead")
    return Head(number, digest)


def status(said: api.journal.HeadResponse) -> JournalStatus:
    """Read what an executor says of its journal. Raises ProtocolError."""
    return JournalStatus(
        head=head(said.number, said.hash),
        anchor=head(said.anchor_number, said.anchor_hash),
        pod_uid=said.pod_uid[:_MAX_NAME],
        session=said.session[:_MAX_NAME],
        missed=said.missed_records,
        missed_reason=said.missed_reason[:100],
        lasting=said.lasting,
    )


def signed(heads: Iterable[api.fleet.JournalHead]) -> tuple[SignedHead, ...]:
    """Read heads that the fleet has signed; malformed ones are left out."""
    return tuple(_signed(one) for one, _ in zip(heads, range(_MAX_SIGNED), strict=False) if _is_well_formed(one))


def _is_well_formed(said: api.fleet.JournalHead) -> bool:
    names = (said.session, said.pod_uid, said.key_id)
    parts = (said.signature, said.public_key, said.key_signature)
    numbers = is_number(said.number) and is_number(said.time_ms)
    short = all(len(one) <= _MAX_NAME for one in names) and all(len(one) <= _MAX_KEY for one in parts)
    return numbers and is_hash(said.hash) and short


def _signed(said: api.fleet.JournalHead) -> SignedHead:
    return SignedHead(
        session=said.session,
        pod_uid=said.pod_uid,
        head=Head(said.number, said.hash),
        time=said.time_ms,
        key_id=said.key_id,
        signature=said.signature,
        public_key=said.public_key,
        vouched=said.key_signature,
    )
