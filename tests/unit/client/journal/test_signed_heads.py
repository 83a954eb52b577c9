"""Heads that the fleet has signed: its statement, the signatures, and what they prove."""

import dataclasses
import json

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from sandfleet.journal import headfile, signatures, statements
from sandfleet.journal.headfile import Exported, Heads
from sandfleet.journal.heads import MAX_HEADS, MAX_PODS, KeptHead, KeptHeads, SignedHead
from sandfleet.journal.records import Head
from sandfleet.journal.statements import Keys
from sandfleet.journal.verify import FaultKind, verify
from sandfleet_executor.core.journal import records as executors
from sandfleet_operator.executors.tokens import KeyRing, TokenKey, public_jwk
from sandfleet_operator.plan import witness
from support.examples import examples

POD = "pod-1"
KEY = TokenKey("k1", Ed25519PrivateKey.from_private_bytes(b"1" * 32), 0.0)
OTHER = TokenKey("k1", Ed25519PrivateKey.from_private_bytes(b"2" * 32), 0.0)


def journal(count, word="x"):
    lines, head = [], executors.Head()
    for number in range(count):
        kind, body = ("execution", {word: number}) if number else ("opened", {"pod": POD})
        line, head = executors.follow(head, kind, body, float(number))
        lines.append(line)
    return lines


def head_at(lines, number):
    return Head(number, executors.hash_of(lines[number - 1][:-1]))


def signed(head, key=KEY, pod=POD):
    """As the fleet makes it."""
    said = witness.statement("team/s", pod, witness.Head(head.number, head.hash), 5)
    return SignedHead(
        session="team/s",
        pod_uid=pod,
        head=head,
        time=5,
        key_id=key.kid,
        signature=key.private.sign(said),
        public_key=key.private.public_key().public_bytes_raw(),
    )


@given(st.text(max_size=20), st.text(max_size=20), st.integers(1, 2**62), st.integers(1, 2**50))
def test_client_and_fleet_make_the_same_statement(session, pod, number, time):
    one = SignedHead(
        session=session, pod_uid=pod, head=Head(number, "a" * 64), time=time, key_id="k", signature=b"", public_key=b""
    )
    assert statements.statement(one) == witness.statement(session, pod, witness.Head(number, "a" * 64), time)


@settings(max_examples=examples(30), deadline=None)
@given(st.binary(min_size=32, max_size=32), st.binary(max_size=200), st.data())
def test_signatures_are_checked_as_the_library_does(seed, message, data):
    private = Ed25519PrivateKey.from_private_bytes(seed)
    public, signature = private.public_key().public_bytes_raw(), private.sign(message)
    assert signatures.fleet_signed(public, message, signature)
    bit = data.draw(st.integers(0, 511))
    broken = bytearray(signature)
    broken[bit // 8] ^= 1 << bit % 8
    assert not signatures.fleet_signed(public, message, bytes(broken))
    assert not signatures.fleet_signed(public, message + b"x", signature)


# Of RFC 8032, 7.1: public key, message, signature.
RFC = (
    (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
)


@pytest.mark.parametrize(("public", "message", "signature"), RFC)
def test_the_signatures_of_the_standard_hold(public, message, signature):
    public, message, signature = map(bytes.fromhex, (public, message, signature))
    assert signatures.fleet_signed(public, message, signature)
    order = 2**252 + 27742317777372353535851937790883648493
    factor = int.from_bytes(signature[32:], "little") + order
    # The same signature in another form: it would hold without the check of its factor.
    assert not signatures.fleet_signed(public, message, signature[:32] + factor.to_bytes(32, "little"))


@pytest.mark.parametrize("public", [b"", b"\xff" * 32, b"\x02" + b"\0" * 31, b"\x01" + b"\0" * 30 + b"\x80"])
def test_a_malformed_key_signs_nothing(public):
    assert not signatures.fleet_signed(public, b"", bytes(64))


def test_a_signed_head_proves_the_records_up_to_it():
    lines = journal(6)
    found = verify([b"".join(lines)], Heads(signed=[signed(head_at(lines, 4))]))
    assert (found.ok, found.signed, found.kept, found.head.number) == (True, 4, 0, 6)


def test_a_past_that_is_rewritten_after_a_countersignature_is_found_and_before_it_is_not():
    """The executor was taken over. What it does before the fleet looks is its word; what it does later is found."""
    true, forged = journal(6), journal(6, "forged")
    late = verify([b"".join(forged)], Heads(signed=[signed(head_at(true, 4))]))
    assert [(one.kind, one.number) for one in late.faults] == [(FaultKind.REPLACED, 4)]
    early = verify([b"".join(forged)], Heads(signed=[signed(head_at(forged, 4))]))
    assert (early.ok, early.signed) == (True, 4)


def test_a_client_that_reports_old_heads_proves_less():
    lines = journal(6)
    forged = [*lines[:3], *journal(6, "forged")[3:]]
    rewritten, head = lines[:3], executors.Head(3, executors.hash_of(lines[2][:-1]))
    for number in range(3, 6):
        line, head = executors.follow(head, "execution", {"forged": number}, float(number))
        rewritten.append(line)
    old = Heads(kept=[KeptHead(POD, head_at(lines, 2))])
    found = verify([b"".join(rewritten)], old)
    # It cannot make the forgery look proved: only the records up to its old head are.
    assert (found.ok, found.proved, found.head.number) == (True, 2, 6)
    with_fleet = verify([b"".join(rewritten)], dataclasses.replace(old, signed=[signed(head_at(lines, 5))]))
    assert [(one.kind, one.number) for one in with_fleet.faults] == [(FaultKind.REPLACED, 5)]
    assert not verify([b"".join(forged)], old).ok


@pytest.mark.parametrize(
    ("keys", "key", "counts"),
    [
        (None, KEY, True),
        (Keys({"k1": KEY.private.public_key().public_bytes_raw()}), KEY, True),
        # A forger brings a key of its own, under the name of the fleet's.
        (Keys({"k1": KEY.private.public_key().public_bytes_raw()}), OTHER, False),
        (Keys({}), KEY, False),
    ],
)
def test_only_the_keys_that_the_reader_names_count(keys, key, counts):
    lines = journal(3)
    found = verify([b"".join(lines)], Heads(signed=[signed(head_at(lines, 3), key)]), keys)
    assert found.signed == (3 if counts else 0)
    assert found.is_pinned is (keys is not None)
    assert bool(found.notes) is not counts


@pytest.mark.parametrize("field", ["session", "pod_uid", "head", "time", "key_id"])
def test_a_signature_holds_for_what_was_signed_alone(field):
    one = signed(Head(3, "a" * 64))
    keys = Keys({"k1": one.public_key})
    assert keys.holds(one)
    other = {"session": "team/t", "pod_uid": "pod-2", "head": Head(4, "a" * 64), "time": 6, "key_id": "k2"}[field]
    assert not keys.holds(dataclasses.replace(one, **{field: other}))


def test_heads_are_read_as_they_were_written():
    one = signed(Head(3, "a" * 64))
    about = Exported(sandbox="team/s", pod_uid=POD, template="python", contract="autonomous", head=Head(3, "a" * 64))
    kept = [KeptHead(POD, Head(number, "b" * 64)) for number in (1, 2)]
    found = headfile.load(headfile.dump(about, kept, [one]))
    assert (found.exported, found.kept, found.signed, found.unreadable) == (about, kept, [one], 0)


def test_an_audit_log_is_a_file_of_heads():
    one = signed(Head(3, "a" * 64))
    details = {
        "sandbox_uid": POD,
        "number": 3,
        "hash": "a" * 64,
        "time": 5,
        "key_id": "k1",
        "public_key": statements.base64url(one.public_key),
        "signature": statements.base64url(one.signature),
    }
    line = {"decision": "journal", "verdict": "allowed", "namespace": "team", "sandbox": "s", "details": details}
    others = [{"decision": "claim", "verdict": "allowed"}, {**line, "verdict": "refused", "details": {}}]
    found = headfile.load(b"".join(json.dumps(each).encode() + b"\n" for each in (line, *others)))
    assert found.signed == [one]
    assert found.unreadable == 0


@given(st.binary(max_size=500) | st.text(max_size=200).map(lambda text: json.dumps({"kind": text}).encode()))
def test_any_file_of_heads_has_an_answer(data):
    found = headfile.load(data)
    assert not found.signed


@pytest.mark.parametrize("name", ["pod_uid", "number", "hash", "time", "key_id", "signature", "session"])
@pytest.mark.parametrize("value", [None, [], {}, -1, 2**64, "é" * 600, True])
def test_a_malformed_head_is_counted_and_not_used(name, value):
    about = Exported(sandbox="s", pod_uid=POD)
    _, line = headfile.dump(about, [], [signed(Head(3, "a" * 64))]).splitlines()
    broken = json.dumps({**json.loads(line), name: value}).encode()
    found = headfile.load(broken)
    assert (found.signed, found.unreadable) == ([], 1)


def test_the_fleets_keys_are_read_of_its_jwks():
    ring = KeyRing((KEY, dataclasses.replace(OTHER, kid="k2")))
    assert set(statements.read_keys(ring.public().encode()).given) == {"k1", "k2"}
    for broken in (b"", b"[]", b'{"keys": 1}', b'{"keys": [{"crv": "P-256"}]}', b'{"keys": [' + b"{}," * 100 + b"{}]}"):
        with pytest.raises(ValueError, match="cannot read the fleet's keys"):
            statements.read_keys(broken)
    assert public_jwk("k1", KEY.private.public_key())["kid"] == "k1"


def test_kept_heads_are_bounded_and_the_newest_stay():
    kept = KeptHeads()
    for number in range(1, 5 * MAX_HEADS):
        kept.keep(POD, Head(number, "a" * 64))
    assert len(kept.all) <= MAX_HEADS
    assert kept.newest == KeptHead(POD, Head(5 * MAX_HEADS - 1, "a" * 64))
    for number in range(3 * MAX_PODS):
        kept.keep(f"pod-{number}", Head(1, "a" * 64))
    assert len({one.pod_uid for one in kept.all}) <= MAX_PODS


@pytest.mark.parametrize(
    "text", ["", "0:" + "0" * 64, "1", "1:xyz", "-1:" + "a" * 64, "9" * 30 + ":" + "a" * 64, "²:" + "a" * 64]
)
def test_text_that_is_no_head_is_not_kept(text):
    kept = KeptHeads()
    kept.told(POD, text)
    assert kept.newest is None


def test_an_executor_that_tells_another_head_of_one_number_is_noted():
    kept = KeptHeads()
    kept.told(POD, "3:" + "a" * 64)
    kept.told(POD, "2:" + "b" * 64)
    assert kept.contradictions == ()
    kept.told(POD, "3:" + "c" * 64)
    (one,) = kept.contradictions
    assert (one.kept.hash, one.told.hash) == ("a" * 64, "c" * 64)
