"""Who signed the key: a journal is checked with nothing but the certificate of the cluster's authority."""

import datetime as dt
import json
from dataclasses import replace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st
from sandfleet import cli
from sandfleet.journal import headfile, signatures, statements
from sandfleet.journal.headfile import Exported
from sandfleet.journal.heads import SignedHead
from sandfleet.journal.records import Head
from sandfleet.journal.statements import Keys
from sandfleet_executor.core.journal import records as executors
from sandfleet_operator.executors.authority import Authority
from sandfleet_operator.executors.tokens import TokenKey, public_bytes, public_jwk, vouched_by
from support.examples import examples

AUTHORITY, OTHER = Authority.new(1e9), Authority.new(1e9)


def signed_head(key, head, authority=AUTHORITY):
    one = SignedHead(
        session="team/s",
        pod_uid="pod",
        head=head,
        time=5,
        key_id=key.kid,
        signature=b"",
        public_key=public_bytes(key),
        vouched=vouched_by(key, authority.sign) if authority else b"",
    )
    return replace(one, signature=key.private.sign(statements.statement(one)))


@pytest.fixture
def journal(tmp_path):
    """Writes a journal, and beside it a head that is signed with a key for which this authority vouches."""

    def write(authority=AUTHORITY, key=None):
        lines, head = [], executors.Head()
        for kind, body in (("opened", {"pod": "pod", "session": "s"}), ("execution", {"outcome": "ok"})):
            line, head = executors.follow(head, kind, body, 5.0)
            lines.append(line)
        path = tmp_path / "s.journal"
        path.write_bytes(b"".join(lines))
        one = signed_head(key or TokenKey.new(0.0), Head(head.number, head.hash), authority)
        about = Exported(sandbox="team/s", pod_uid="pod")
        path.with_name("s.journal.heads").write_bytes(headfile.dump(about, [], [one]))
        return path

    return write


def verified(capsys, path, *words):
    assert cli.main(["journal", "verify", str(path), "--json", *words]) == cli.OK
    return json.loads(capsys.readouterr().out)


def test_only_a_key_counts_that_the_authority_has_signed(journal, tmp_path, capsys):
    trusted, other = tmp_path / "ca.crt", tmp_path / "other.crt"
    trusted.write_bytes(AUTHORITY.pem)
    other.write_bytes(OTHER.pem)
    path = journal()
    found = verified(capsys, path, "--ca", str(trusted))
    assert (found["signed"], found["is_pinned"], found["notes"]) == (2, True, [])
    # A forger's head is signed with a key that came along, and its word counts only without a named authority.
    assert verified(capsys, path, "--ca", str(other))["signed"] == 0
    for authority in (OTHER, None):
        forged = journal(authority)
        assert verified(capsys, forged)["signed"] == 2
        found = verified(capsys, forged, "--ca", str(trusted))
        assert (found["signed"], found["only_executor_from"]) == (0, 1)
        assert "none of the named keys" in found["notes"][0]
    # After a rotation the file has both.
    trusted.write_bytes(OTHER.pem + AUTHORITY.pem)
    assert verified(capsys, journal(), "--ca", str(trusted))["signed"] == 2


def test_the_named_keys_have_to_be_the_authoritys_too(journal, tmp_path, capsys):
    ca, jwks = tmp_path / "ca.crt", tmp_path / "keys.json"
    ca.write_bytes(AUTHORITY.pem)
    key = TokenKey.new(0.0)
    path = journal(key=key)
    for authority, signed in ((AUTHORITY, 2), (OTHER, 0)):
        jwk = public_jwk(key.kid, key.private.public_key(), authority.sign)
        jwks.write_text(json.dumps({"keys": [jwk]}))
        assert verified(capsys, path, "--ca", str(ca), "--keys", str(jwks))["signed"] == signed
        # The control: without the authority the reader's own list of keys counts.
        assert verified(capsys, path, "--keys", str(jwks))["signed"] == 2


def test_without_the_library_no_signed_head_counts_and_named_keys_are_refused(journal, tmp_path, capsys, monkeypatch):
    ca = tmp_path / "ca.crt"
    ca.write_bytes(AUTHORITY.pem)
    path = journal()
    with monkeypatch.context() as patched:
        patched.setattr(signatures, "find_spec", lambda name: None)
        found = verified(capsys, path)
        assert (found["signed"], found["notes"]) == (0, [f"1 signed heads do not count: {signatures.MISSING}"])
        assert cli.main(["journal", "verify", str(path), "--ca", str(ca)]) != cli.OK
        assert "sandfleet[verify]" in capsys.readouterr().err
    assert verified(capsys, path, "--ca", str(ca))["signed"] == 2


def test_a_key_that_only_stands_somewhere_in_a_certificate_is_not_its_key():
    """The certificate is of another curve; a search would take the key in its extension."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    planted = AUTHORITY.key.public_key().public_bytes(serialization.Encoding.DER, form)
    key = ec.generate_private_key(ec.SECP384R1())
    name = x509.Name([])
    extension = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), planted)
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now).add_extension(
        extension, critical=False
    )
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    assert planted in builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)
    with pytest.raises(ValueError, match="no key of P-256"):
        signatures.read_authorities(certificate)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"no certificate",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
        b"-----BEGIN CERTIFICATE-----\nA\n-----END CERTIFICATE-----",
        AUTHORITY.pem * (signatures.MAX_AUTHORITIES + 1),
        AUTHORITY.key_pem,
    ],
)
def test_what_is_no_authority_is_wrong_usage(journal, tmp_path, capsys, text):
    (tmp_path / "ca.crt").write_bytes(text)
    assert cli.main(["journal", "verify", str(journal()), "--ca", str(tmp_path / "ca.crt")]) == cli.USAGE
    assert "cannot read the authority" in capsys.readouterr().err


def test_a_public_key_in_pem_is_an_authority_too():
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    pem = AUTHORITY.key.public_key().public_bytes(serialization.Encoding.PEM, form)
    assert signatures.read_authorities(pem) == signatures.read_authorities(AUTHORITY.pem)


def test_a_key_of_another_curve_is_no_authority():
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    other = ec.generate_private_key(ec.SECP384R1()).public_key().public_bytes(serialization.Encoding.PEM, form)
    with pytest.raises(ValueError, match="no key of P-256"):
        signatures.read_authorities(other)


(KEY,) = signatures.read_authorities(AUTHORITY.pem)


@settings(max_examples=examples(25), deadline=None)
@given(st.binary(max_size=100), st.integers(0, 71), st.integers(1, 255))
def test_a_signature_holds_for_its_message_and_no_change_of_it_does(message, place, change):
    signature = AUTHORITY.key.sign(message, ec.ECDSA(hashes.SHA256()))
    assert signatures.authority_signed(KEY, message, signature)
    assert not signatures.authority_signed(KEY, message + b"x", signature)
    changed = bytearray(signature)
    changed[place % len(changed)] ^= change
    assert not signatures.authority_signed(KEY, message, bytes(changed))


@given(st.binary(max_size=80))
def test_what_is_no_signature_does_not_hold(signature):
    assert not signatures.authority_signed(KEY, b"message", signature)


def test_heads_of_the_audit_log_bring_the_authoritys_signature():
    key = TokenKey.new(0.0)
    one = signed_head(key, Head(2, "a" * 64))
    details = {"sandbox_uid": "pod", "number": 2, "hash": "a" * 64, "time": 5, "key_id": key.kid}
    marks = {"public_key": one.public_key, "signature": one.signature, "key_signature": one.vouched}
    details |= {name: statements.base64url(mark) for name, mark in marks.items()}
    line = {"decision": "journal", "verdict": "allowed", "namespace": "team", "sandbox": "s", "details": details}
    (read,) = headfile.load(json.dumps(line).encode()).signed
    assert read == one
    assert Keys(None, [KEY]).holds(read)
    # Of an earlier release, which did not write it down.
    del details["key_signature"]
    (older,) = headfile.load(json.dumps(line).encode()).signed
    assert Keys().holds(older)
    assert not Keys(None, [KEY]).holds(older)
