"""The certificate authority: which requests it signs and which it refuses."""

import datetime as dt
import ipaddress

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from sandfleet_executor.effects.access.identity import Identity
from sandfleet_operator.executors.authority import (
    CA_SECONDS,
    Authority,
    AuthorityError,
    RequestRefusedError,
    self_signed,
)

NOW = 1_800_000_000.0
UID = "6f1c2a52-7f6b-4a56-9d0c-0d4dbd2f7c11"
PEM = serialization.Encoding.PEM
P256 = ec.generate_private_key(ec.SECP256R1())
names = x509.SubjectAlternativeName


@pytest.fixture(scope="module")
def authority():
    return Authority.new(NOW)


def request(*extensions, key=P256, subject=UID):
    builder = x509.CertificateSigningRequestBuilder()
    builder = builder.subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(PEM)


def named(*values):
    return names([x509.DNSName(value) for value in values])


def of(certificate, kind):
    return certificate.extensions.get_extension_for_class(kind).value


def test_the_authority_is_one_level_high_and_lives_for_ten_years(authority):
    root = authority.certificate
    assert of(root, x509.BasicConstraints) == x509.BasicConstraints(ca=True, path_length=0)
    assert of(root, x509.KeyUsage).key_cert_sign
    assert not of(root, x509.KeyUsage).digital_signature
    assert root.not_valid_after_utc == dt.datetime.fromtimestamp(NOW + CA_SECONDS, dt.UTC)


def test_an_executors_own_request_gets_a_certificate_that_the_executor_takes(authority, tmp_path):
    def now():
        return dt.datetime.fromtimestamp(NOW, dt.UTC)

    identity = Identity(tmp_path, UID, now)
    assert not identity.signed
    identity.install(authority.answer(identity.signing_request(), UID, NOW))
    assert identity.signed
    # The control: for another pod it does not.
    with pytest.raises(ValueError, match="its name is not other"):
        Identity(tmp_path, "other", now).install(authority.answer(identity.signing_request(), UID, NOW))


def test_only_the_key_of_a_request_is_used(authority):
    certificate = x509.load_pem_x509_certificate(authority.answer(request(named(UID), subject="admin"), UID, NOW))
    assert certificate.public_key() == P256.public_key()
    assert certificate.subject.rfc4514_string() == f"CN={UID}"
    assert of(certificate, x509.SubjectAlternativeName) == named(UID)
    assert of(certificate, x509.BasicConstraints) == x509.BasicConstraints(ca=False, path_length=None)
    assert list(of(certificate, x509.ExtendedKeyUsage)) == [
        ExtendedKeyUsageOID.SERVER_AUTH,
        ExtendedKeyUsageOID.CLIENT_AUTH,
    ]
    assert not of(certificate, x509.KeyUsage).key_cert_sign
    assert certificate.not_valid_after_utc == authority.certificate.not_valid_after_utc


REFUSED = {
    "another name": request(named("other")),
    "an extra name": request(named(UID, "sandfleet-fleet")),
    "the same name twice": request(named(UID, UID)),
    "an address": request(names([x509.DNSName(UID), x509.IPAddress(ipaddress.ip_address("10.0.0.1"))])),
    "the name as an address of mail": request(names([x509.RFC822Name(UID)])),
    "another case": request(named(UID.upper())),
    "no name": request(),
    "to be an authority": request(named(UID), x509.BasicConstraints(ca=True, path_length=None)),
    "to be a client": request(named(UID), x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_request_for_other_than_exactly_the_name_is_refused(authority, what):
    with pytest.raises(RequestRefusedError, match=f"does not ask for exactly the one name {UID}"):
        authority.answer(REFUSED[what], UID, NOW)


@pytest.mark.parametrize(
    "key",
    [rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP384R1())],
    ids=["RSA", "P-384"],
)
def test_a_request_for_another_kind_of_key_is_refused(authority, key):
    with pytest.raises(RequestRefusedError, match="its key is not a P-256 key"):
        authority.answer(request(named(UID), key=key), UID, NOW)


def test_a_request_not_signed_by_its_own_key_is_refused(authority):
    der = bytearray(x509.load_pem_x509_csr(request(named(UID))).public_bytes(serialization.Encoding.DER))
    der[-1] ^= 1
    forged = x509.load_der_x509_csr(bytes(der)).public_bytes(PEM)
    with pytest.raises(RequestRefusedError, match="not signed by its own key"):
        authority.answer(forged, UID, NOW)


@pytest.mark.parametrize(
    "text", [b"", b"x", b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"]
)
def test_an_unreadable_request_is_refused(authority, text):
    with pytest.raises(RequestRefusedError, match="cannot sign the request"):
        authority.answer(text, UID, NOW)


def test_an_oversized_request_is_not_parsed(authority):
    with pytest.raises(RequestRefusedError, match="larger than 16384 bytes"):
        authority.answer(request(named(UID)) + b" " * (16 << 10), UID, NOW)


def test_the_authority_vouches_for_its_own_valid_certificates_of_exactly_the_name(authority):
    made = x509.load_pem_x509_certificate(authority.answer(request(named(UID)), UID, NOW))
    assert authority.vouches(made, UID, NOW)
    assert not authority.vouches(made, "other", NOW)
    assert not authority.vouches(made, UID, NOW - 3600)
    assert not authority.vouches(made, UID, NOW + CA_SECONDS + 1)
    assert not Authority.new(NOW).vouches(made, UID, NOW)
    assert not self_signed(made, UID)


def test_a_server_certificate_has_all_names(authority):
    _, pem = authority.server(["sandfleet-fleet", "127.0.0.1"], NOW, 3600.0)
    certificate = x509.load_pem_x509_certificate(pem)
    found = of(certificate, x509.SubjectAlternativeName)
    assert found.get_values_for_type(x509.DNSName) == ["sandfleet-fleet"]
    assert found.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("127.0.0.1")]
    assert certificate.not_valid_after_utc == dt.datetime.fromtimestamp(NOW + 3600, dt.UTC)
    assert authority.signed(certificate)


def test_an_authority_is_read_back_and_mismatched_halves_are_refused(authority):
    assert Authority.load(authority.key_pem, authority.pem).certificate == authority.certificate
    for key, certificate in (
        (Authority.new(NOW).key_pem, authority.pem),
        (b"x", authority.pem),
        (authority.key_pem, b"x"),
    ):
        with pytest.raises(AuthorityError):
            Authority.load(key, certificate)
