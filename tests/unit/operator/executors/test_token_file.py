"""Tokens that a fleet on one machine signs with keys in a file."""

import base64
import json

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from sandfleet_operator.executors import tokens
from sandfleet_operator.executors.tokens import MAX_LIFETIME, OVERLAP, TRANSFER_LIFETIME, FileSigner
from support.fleet.builders import NOW


class Clock:
    def __init__(self):
        self.now = NOW + 0.25

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def signer(tmp_path, clock):
    return FileSigner(tmp_path / "keys.json", clock)


def issue(signer, **changes):
    wish = {
        "sandbox_id": "s1",
        "sandbox_uid": "u1",
        "holder": "uid:7",
        "scopes": ("session", "admin"),
        "lifetime": 60.0,
    }
    return signer.issue(**(wish | changes))


def public_keys(path):
    keys = json.loads((path / "keys.json").read_text())["keys"]
    assert {(key["kty"], key["crv"]) for key in keys} == {("OKP", "Ed25519")}
    return {key["kid"]: Ed25519PublicKey.from_public_bytes(base64.urlsafe_b64decode(key["x"] + "=")) for key in keys}


def read(token, path):
    key = public_keys(path)[jwt.get_unverified_header(token.text)["kid"]]
    return jwt.decode(
        token.text,
        key,
        algorithms=["EdDSA"],
        audience="u1",
        options={"verify_exp": False, "verify_iat": False, "verify_nbf": False},
    )


def test_a_token_says_what_an_executor_checks_and_verifies_with_the_public_file(signer, tmp_path):
    claims, other = read(issue(signer), tmp_path), read(issue(signer), tmp_path)
    assert len(claims.pop("jti")) == len(other.pop("jti")) == 16
    assert claims == {
        "iss": "sandfleet",
        "aud": "u1",
        "sub": "uid:7",
        "sid": "s1",
        "scope": "session admin",
        "contract": "autonomous",
        "iat": int(NOW),
        "nbf": int(NOW),
        "exp": int(NOW) + 61,
    }


def test_a_token_lives_for_a_quarter_of_an_hour_at_most(signer, tmp_path):
    token = issue(signer, lifetime=30 * 86400.0)
    assert read(token, tmp_path)["exp"] == token.expires == int(NOW) + MAX_LIFETIME + 1


def test_the_private_key_is_in_no_file(signer, tmp_path):
    assert [path.name for path in tmp_path.iterdir()] == ["keys.json"]
    assert all("d" not in key for key in json.loads((tmp_path / "keys.json").read_text())["keys"])


def test_an_old_key_stays_public_until_its_tokens_are_over(signer, clock, tmp_path):
    old = issue(signer, lifetime=100.0)
    signer.rotate()
    new = issue(signer, lifetime=1000.0)
    assert jwt.get_unverified_header(old.text) != jwt.get_unverified_header(new.text)
    assert read(old, tmp_path)["exp"] < read(new, tmp_path)["exp"]
    clock.now += TRANSFER_LIFETIME + OVERLAP
    signer.rotate()
    assert jwt.get_unverified_header(old.text)["kid"] not in public_keys(tmp_path)
    assert read(new, tmp_path)


def test_a_token_as_long_as_a_lease_is_found_without_the_mend(signer, tmp_path, monkeypatch):
    """42.6."""
    monkeypatch.setattr(tokens, "MAX_LIFETIME", 86400.0)
    with pytest.raises(AssertionError):
        test_a_token_lives_for_a_quarter_of_an_hour_at_most(signer, tmp_path)
