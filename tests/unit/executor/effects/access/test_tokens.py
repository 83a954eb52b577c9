"""Capability tokens: what is accepted, what is refused and why, and how keys change."""

import base64
import json
import os
from dataclasses import dataclass, field
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sandfleet_executor.core.access.token_claims import TokenError, TokenReason
from sandfleet_executor.core.errors import ConfigError
from sandfleet_executor.effects.access.tokens import MAX_CACHED_TOKENS, TokenVerifier, read_authority, read_keys
from sandfleet_operator.executors.authority import Authority
from sandfleet_operator.executors.tokens import public_jwk

NOW = 1_800_000_000.0
END = int(NOW) + 3600
CLAIMS = {
    "iss": "sandfleet",
    "aud": "uid-1",
    "sub": "uid:0",
    "sid": "sb-1",
    "scope": "interpreter filesystem",
    "contract": "autonomous",
    "iat": NOW,
    "nbf": NOW,
    "exp": NOW + 60,
}


def jwk(kid, key):
    x = base64.urlsafe_b64encode(key.public_key().public_bytes_raw()).rstrip(b"=").decode()
    return {"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": x}


@dataclass
class World:
    """A keys file with one key, a clock to be set, and the verifier that reads both."""

    folder: Path
    now: float = NOW
    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)

    def __post_init__(self):
        self.file = self.folder / "keys.json"
        self.publish(k1=self.key)
        self.verifier = TokenVerifier(self.file, "uid-1", lambda: self.now)

    def publish(self, **keys):
        self.replace(json.dumps({"keys": [jwk(kid, key) for kid, key in keys.items()]}))

    def replace(self, text):
        fresh = self.folder / "keys.new"
        fresh.write_text(text)
        fresh.replace(self.file)

    def token(self, kid="k1", key=None, algorithm="EdDSA", **claims):
        return jwt.encode({**CLAIMS, **claims}, key or self.key, algorithm=algorithm, headers={"kid": kid})

    def refusal(self, token, scope="interpreter"):
        with pytest.raises(TokenError) as caught:
            self.verifier.verify(token, scope)
        return caught.value.reason


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_a_good_token_says_who_calls(world):
    caller = world.verifier.verify(world.token(), "filesystem")
    assert (caller.holder, caller.contract, caller.expires) == ("uid:0", "autonomous", NOW + 60)
    assert caller.scopes == {"interpreter", "filesystem"}


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"aud": "uid-2"}, TokenReason.FOREIGN),
        ({"aud": ["uid-1", "uid-2"]}, TokenReason.INVALID),
        ({"iss": "a-stranger"}, TokenReason.INVALID),
        ({"exp": NOW - 6}, TokenReason.EXPIRED),
        ({"exp": float("nan")}, TokenReason.INVALID),
        ({"exp": True}, TokenReason.INVALID),
        ({"exp": "2100"}, TokenReason.INVALID),
        ({"nbf": NOW + 6}, TokenReason.INVALID),
        ({"contract": "reviewed"}, TokenReason.INVALID),
        ({"sub": ""}, TokenReason.INVALID),
        ({"scope": ["interpreter"]}, TokenReason.INVALID),
        ({"scope": "process"}, TokenReason.SCOPE),
        ({"scope": "interpreterx"}, TokenReason.SCOPE),
    ],
)
def test_a_wrong_claim_is_refused_with_its_reason(world, claims, reason):
    assert world.refusal(world.token(**claims)) is reason


def test_a_token_of_another_session_is_refused_once_one_is_open(world):
    stolen = world.token(sid="another")
    # Control: before a session is open it counts, as all tokens for this sandbox do.
    assert world.verifier.verify(stolen, "interpreter").session == "another"
    world.verifier.session = lambda: "sb-1"
    assert world.refusal(stolen) is TokenReason.FOREIGN
    assert world.verifier.verify(world.token(), "interpreter")
    # The control plane's own token is for the sandbox, whichever session it gets.
    assert world.verifier.verify(world.token(sid="another", scope="session admin"), "session")


@pytest.mark.parametrize("missing", sorted(CLAIMS))
def test_each_claim_is_required(world, missing):
    claims = {name: value for name, value in CLAIMS.items() if name != missing}
    token = jwt.encode(claims, world.key, algorithm="EdDSA", headers={"kid": "k1"})
    assert world.refusal(token) is TokenReason.INVALID


@pytest.mark.parametrize("claims", [{"exp": NOW - 4}, {"nbf": NOW + 4}])
def test_clocks_may_differ_by_less_than_five_seconds(world, claims):
    assert world.verifier.verify(world.token(**claims), "interpreter").holder == "uid:0"


def test_a_token_signed_by_another_key_is_refused(world):
    assert world.refusal(world.token(key=Ed25519PrivateKey.generate())) is TokenReason.INVALID


def test_a_token_without_a_signature_is_refused(world):
    unsigned = jwt.encode(CLAIMS, None, algorithm="none", headers={"kid": "k1"})
    assert world.refusal(unsigned) is TokenReason.INVALID


def test_a_token_signed_with_the_public_key_as_a_password_is_refused(world):
    public = world.key.public_key().public_bytes_raw()
    assert world.refusal(world.token(key=public, algorithm="HS256")) is TokenReason.INVALID


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "….….…", "e30.e30.", "\x00", "[" * 3000, "x" * 5000])
def test_a_malformed_token_is_refused(world, token):
    assert world.refusal(token) is TokenReason.INVALID


def test_a_changed_byte_anywhere_breaks_a_token(world):
    token = world.token()
    for position in range(0, len(token) - 1, 7):
        other = "A" if token[position] != "A" else "B"
        assert world.refusal(token[:position] + other + token[position + 1 :]) is TokenReason.INVALID


def test_a_token_that_was_accepted_is_refused_once_it_has_expired(world):
    token = world.token()
    world.verifier.verify(token, "interpreter")
    world.now = NOW + 65
    assert world.refusal(token) is TokenReason.EXPIRED


def test_a_token_that_was_accepted_is_refused_when_the_clock_jumps_back(world):
    token = world.token()
    world.verifier.verify(token, "interpreter")
    world.now = NOW - 60
    assert world.refusal(token) is TokenReason.INVALID


def test_the_scope_is_checked_for_a_token_that_was_accepted_before(world):
    token = world.token()
    world.verifier.verify(token, "interpreter")
    assert world.refusal(token, "admin") is TokenReason.SCOPE


def test_a_new_key_is_found_when_the_file_changed(world):
    fresh = Ed25519PrivateKey.generate()
    world.publish(k1=world.key, k2=fresh)
    assert world.verifier.verify(world.token("k2", fresh), "interpreter").holder == "uid:0"


def test_a_key_that_was_taken_away_takes_its_accepted_tokens_with_it(world):
    token = world.token()
    world.verifier.verify(token, "interpreter")
    world.publish(k2=Ed25519PrivateKey.generate())
    assert world.refusal(token) is TokenReason.INVALID


def test_a_key_that_was_exchanged_under_its_kid_takes_its_accepted_tokens_with_it(world):
    token = world.token()
    world.verifier.verify(token, "interpreter")
    world.publish(k1=Ed25519PrivateKey.generate())
    assert world.refusal(token) is TokenReason.INVALID


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"keys": 1}', '{"keys": [{"crv": "Ed25519"}]}', "[" * 60_000, "x" * 70_000]
    + [f'{{"keys": [{{"crv": "Ed25519", "kid": "k1", "x": "{x}"}}]}}' for x in ("*", "AAAA", "A" * 43 + "AAAA")],
)
def test_a_broken_keys_file_leaves_the_keys_as_they_were(world, text):
    world.replace(text)
    assert world.verifier.verify(world.token(), "interpreter").holder == "uid:0"


def test_a_keys_file_that_is_gone_leaves_the_keys_as_they_were(world):
    world.file.unlink()
    assert world.verifier.verify(world.token(), "interpreter").holder == "uid:0"


def test_without_any_keys_every_token_is_refused(world, tmp_path):
    verifier = TokenVerifier(tmp_path / "absent", "uid-1", lambda: NOW)
    with pytest.raises(TokenError) as caught:
        verifier.verify(world.token(), "interpreter")
    assert caught.value.reason is TokenReason.INVALID


def test_keys_of_other_kinds_are_left_out(world):
    world.replace(json.dumps({"keys": [{"kty": "RSA", "kid": "r"}, "junk", jwk("k1", world.key)]}))
    assert list(read_keys(world.file)) == ["k1"]


def test_an_unknown_kid_reads_the_file_again_although_nothing_shows_but_not_each_time(world, monkeypatch):
    # The same size, inode and time: what a quick rewrite in place on a coarse clock looks like.
    before = world.file.stat()
    fresh = Ed25519PrivateKey.generate()
    world.file.write_text(json.dumps({"keys": [jwk("k2", fresh)]}))
    os.utime(world.file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert world.file.stat().st_size == before.st_size
    assert world.verifier.verify(world.token("k2", fresh), "interpreter").holder == "uid:0"
    reads = []
    monkeypatch.setattr("sandfleet_executor.effects.access.tokens.read_keys", lambda *file: reads.append(file) or {})
    for moment in range(30):
        world.now = NOW + 2 + moment / 10
        world.refusal(world.token("k3", fresh))
    assert len(reads) == 3


def test_the_cache_of_accepted_tokens_is_bounded(world):
    for number in range(MAX_CACHED_TOKENS + 20):
        world.verifier.verify(world.token(sub=f"uid:{number}"), "interpreter")
    assert len(world.verifier._cache) == MAX_CACHED_TOKENS


# Keys that an authority has signed.


@pytest.fixture
def authority():
    return Authority.new(NOW)


@pytest.fixture
def strict(world, authority):
    """The world's verifier takes only keys that the authority has signed."""
    world.publish_signed = lambda **keys: world.replace(
        json.dumps({"keys": [public_jwk(kid, key.public_key(), authority.sign, END) for kid, key in keys.items()]})
    )
    world.publish_signed(k1=world.key)
    trusted = read_authority(authority.public_text)
    world.verifier = TokenVerifier(world.file, "uid-1", lambda: world.now, authority=trusted)
    return world


def test_a_key_that_the_authority_has_signed_counts(strict):
    assert strict.verifier.verify(strict.token(), "interpreter").holder == "uid:0"


def test_a_key_that_a_tenant_has_added_counts_only_without_an_authority(strict, tmp_path):
    mine = Ed25519PrivateKey.generate()
    published = json.loads(strict.file.read_text())["keys"]
    strict.replace(json.dumps({"keys": [*published, jwk("mine", mine)]}))
    token = strict.token("mine", mine)
    assert strict.refusal(token) is TokenReason.INVALID
    assert strict.verifier.verify(strict.token(), "interpreter"), "the control plane's own go on to count"
    control = TokenVerifier(strict.file, "uid-1", lambda: strict.now)
    assert control.verify(token, "interpreter")


@pytest.mark.parametrize(
    "forged",
    [
        {"x": "other"},
        {"kid": "k2"},
        {"sandfleet_dated_signature": ""},
        {"sandfleet_dated_signature": "!"},
        {"sandfleet_dated_signature": None},
        {"sandfleet_dated_signature": 7},
        {"sandfleet_end": int(NOW) + 7200},
        {"sandfleet_end": None},
        {"sandfleet_end": f"{int(NOW) + 3600}"},
    ],
)
def test_a_signature_is_for_this_key_and_this_kid(strict, forged):
    mine = Ed25519PrivateKey.generate()
    (signed,) = json.loads(strict.file.read_text())["keys"]
    changed = {**signed, **forged}
    if "x" in forged:
        changed["x"] = jwk("k1", mine)["x"]
    strict.replace(json.dumps({"keys": [changed]}))
    key = mine if "x" in forged else strict.key
    assert strict.refusal(strict.token(changed["kid"], key)) is TokenReason.INVALID


def test_a_key_that_was_replaced_counts_until_its_end_though_its_signature_is_put_back(strict, authority):
    """Its private key is in a thief's hands, who has kept what the ConfigMap said of it."""
    kept = strict.file.read_text()
    token = strict.token(exp=NOW + 1e6)
    assert strict.verifier.verify(token, "interpreter"), "it is remembered from now on"
    strict.publish_signed(k2=Ed25519PrivateKey.generate())
    assert strict.refusal(token) is TokenReason.INVALID
    strict.replace(kept)
    # Control: before its end the key counts again.
    assert strict.verifier.verify(token, "interpreter")
    strict.now = END + 6
    assert strict.refusal(token) is TokenReason.EXPIRED, "no token counts longer than its key"
    assert strict.refusal(strict.token(exp=NOW + 2e6)) is TokenReason.INVALID
    # Control: the same without an end, as on one machine.
    undated = TokenVerifier(strict.file, "uid-1", lambda: strict.now)
    assert undated.verify(token, "interpreter")


def test_a_key_that_another_authority_has_signed_does_not_count(strict):
    other = Authority.new(NOW)
    strict.replace(json.dumps({"keys": [public_jwk("k1", strict.key.public_key(), other.sign, END)]}))
    assert strict.refusal(strict.token()) is TokenReason.INVALID


def test_a_rotated_key_is_signed_again_and_counts(strict):
    young = Ed25519PrivateKey.generate()
    strict.publish_signed(k1=strict.key, k2=young)
    assert strict.verifier.verify(strict.token("k2", young), "interpreter")


@pytest.mark.parametrize("text", ["", "!", "AAAA", base64.b64encode(b"x" * 91).decode()])
def test_an_authority_that_is_none_ends_the_start(text):
    with pytest.raises(ConfigError, match="cannot take keys_authority"):
        read_authority(text)
