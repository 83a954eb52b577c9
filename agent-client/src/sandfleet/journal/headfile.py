"""The file of heads beside an exported journal: what the client has kept, and what the fleet has signed.

Each line is JSON. Lines of the control plane's audit log are read as well: an auditor then needs nothing of a client.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sandfleet.journal.heads import KeptHead, SignedHead
from sandfleet.journal.records import NO_HEAD, Head, is_hash, is_number, loads
from sandfleet.journal.statements import base64url, unbase64

SUFFIX = ".heads"
MAX_FILE_BYTES, MAX_LINE_BYTES = 64 << 20, 64 << 10
# Of each kind; of more, the last ones count.
MAX_HEADS = 4096
_MAX_NAME = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What a journal was when it was exported.

    sandbox   the session's id; `pod_uid` the pod whose executor wrote the journal.
    template, contract  of the sandbox; "" where the client did not know them.
    head      the newest record then; `anchor` the newest one that the executor had dropped for room.
    """

    sandbox: str
    pod_uid: str
    template: str = ""
    contract: str = ""
    head: Head = NO_HEAD
    anchor: Head = NO_HEAD


@dataclass(slots=True)
class Heads:
    """Heads that were read of files."""

    exported: Exported | None = None
    kept: list[KeptHead] = field(default_factory=list)
    signed: list[SignedHead] = field(default_factory=list)
    # Lines that could not be read.
    unreadable: int = 0


def dump(exported: Exported, kept: Iterable[KeptHead], signed: Iterable[SignedHead]) -> bytes:
    """Write them as lines."""
    said: list[dict[str, Any]] = [
        {
            "kind": "exported",
            "sandbox": exported.sandbox,
            "pod_uid": exported.pod_uid,
            "template": exported.template,
            "contract": exported.contract,
            "number": exported.head.number,
            "hash": exported.head.hash,
            "anchor_number": exported.anchor.number,
            "anchor_hash": exported.anchor.hash,
        }
    ]
    said += [{"kind": "kept", "pod_uid": one.pod_uid, "number": one.head.number, "hash": one.head.hash} for one in kept]
    said += map(_signed_line, signed)
    return b"".join(json.dumps(line).encode("ascii") + b"\n" for line in said)


def _signed_line(one: SignedHead) -> dict[str, Any]:
    return {
        "kind": "signed",
        "session": one.session,
        "pod_uid": one.pod_uid,
        "number": one.head.number,
        "hash": one.head.hash,
        "time": one.time,
        "key_id": one.key_id,
        "signature": base64url(one.signature),
        "public_key": base64url(one.public_key),
        "vouched": base64url(one.vouched),
    }


def load(data: bytes, into: Heads | None = None) -> Heads:
    """Read lines of heads, or of an audit log. Lines of other kinds are left out, unreadable ones counted."""
    heads = into or Heads()
    for line in data.splitlines():
        if not line.strip():
            continue
        try:
            if len(line) > MAX_LINE_BYTES:
                raise ValueError("it is too long")  # noqa: TRY301  counted as the others are
            _take(heads, loads(line))
        except (ValueError, KeyError, TypeError):
            heads.unreadable += 1
    del heads.kept[:-MAX_HEADS], heads.signed[:-MAX_HEADS]
    return heads


def _take(heads: Heads, said: Any) -> None:
    if not isinstance(said, dict):
        raise TypeError("it is no object")
    if said.get("decision") == "journal":
        if said["verdict"] == "allowed":
            heads.signed.append(_audited(said))
        return
    match said.get("kind"):
        case "exported":
            heads.exported = Exported(
                sandbox=_name(said["sandbox"]),
                pod_uid=_name(said["pod_uid"]),
                template=_name(said["template"]),
                contract=_name(said["contract"]),
                head=_head(said["number"], said["hash"], least=0),
                anchor=_head(said["anchor_number"], said["anchor_hash"], least=0),
            )
        case "kept":
            heads.kept.append(KeptHead(_name(said["pod_uid"]), _head(said["number"], said["hash"])))
        case "signed":
            heads.signed.append(_signed(said, said["session"], unbase64(said["public_key"]), unbase64(said["vouched"])))


def _audited(said: Any) -> SignedHead:
    details = said["details"]
    session = f"{said['namespace']}/{said['sandbox']}" if said["namespace"] else said["sandbox"]
    named = {"pod_uid": details["sandbox_uid"], **{name: details[name] for name in ("number", "hash", "time")}}
    public = unbase64(details["public_key"])
    # Records of earlier releases, and of fleets on one machine, have no signature of the key.
    vouched = unbase64(details.get("key_signature", ""))
    return _signed({**named, "key_id": details["key_id"], "signature": details["signature"]}, session, public, vouched)


def _signed(said: Any, session: object, public: bytes, vouched: bytes) -> SignedHead:
    if not is_number(said["time"]):
        raise ValueError("the time is no number")
    return SignedHead(
        session=_name(session),
        pod_uid=_name(said["pod_uid"]),
        head=_head(said["number"], said["hash"]),
        time=said["time"],
        key_id=_name(said["key_id"]),
        signature=unbase64(said["signature"]),
        public_key=public,
        vouched=vouched,
    )


def _head(number: object, digest: object, least: int = 1) -> Head:
    if not is_number(number, least) or not is_hash(digest):
        raise ValueError("it is no head")
    assert isinstance(number, int)
    assert isinstance(digest, str)
    return Head(number, digest)


def _name(text: object) -> str:
    if not isinstance(text, str) or len(text) > _MAX_NAME:
        raise ValueError("it is no name")
    return text
