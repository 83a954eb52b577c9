"""Tokens, directories and user ids of a fleet on one machine."""

import base64
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from fleet_builders import NOW
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from sandfleet_operator.effects import telemetry
from sandfleet_operator.effects.statedir import OwnerDir, StateDirError, base_dir, new_owner_dir, remove_tree, sweep
from sandfleet_operator.effects.tokens import MAX_LIFETIME, OVERLAP, FileSigner
from sandfleet_operator.effects.userids import BLOCK, FALLBACK_FIRST, NoUserIdsError, take_block

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

# Tokens.


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
    assert read(issue(signer), tmp_path) == {
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


def test_a_token_lives_for_a_day_at_most(signer, tmp_path):
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
    clock.now += MAX_LIFETIME + OVERLAP
    signer.rotate()
    assert jwt.get_unverified_header(old.text)["kid"] not in public_keys(tmp_path)
    assert read(new, tmp_path)


# Directories.


@pytest.mark.parametrize(
    ("environ", "user_id", "expected"),
    [
        ({"SANDFLEET_STATE": "/a", "XDG_RUNTIME_DIR": "/b", "HOME": "/c"}, 0, "/a"),
        ({"XDG_RUNTIME_DIR": "/b", "HOME": "/c"}, 0, "/b/sandfleet"),
        ({"HOME": "/c"}, 0, "/run/sandfleet"),
        ({"HOME": "/c"}, 1000, "/c/.local/state/sandfleet"),
    ],
)
def test_the_base_is_where_the_environment_says(environ, user_id, expected):
    assert base_dir(environ, user_id) == Path(expected)


def test_an_owners_directory_is_private_and_goes_with_it(tmp_path):
    path = new_owner_dir(tmp_path)
    with OwnerDir(path) as directory:
        found = path.stat()
        assert (stat.S_IMODE(found.st_mode), found.st_uid) == (0o700, os.geteuid())
        directory.workspace("w1").mkdir(parents=True)
    assert not path.exists()


def test_a_directory_that_others_could_enter_is_closed_to_them(tmp_path):
    path = tmp_path / "f-1"
    path.mkdir(mode=0o777)
    path.chmod(0o777)
    with OwnerDir(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_a_directory_behind_a_symlink_is_refused(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "f-1").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateDirError, match="cannot use the state directory"):
        OwnerDir(tmp_path / "f-1")


def test_a_directory_has_one_owner(tmp_path):
    with OwnerDir(tmp_path / "f-1"), pytest.raises(StateDirError, match="another fleet has it"):
        OwnerDir(tmp_path / "f-1")


def test_a_sweep_removes_what_dead_owners_left_and_nothing_of_the_living(tmp_path):
    dead = tmp_path / "f-dead"
    script = "import sys, os, pathlib; from sandfleet_operator.effects.statedir import OwnerDir; OwnerDir(pathlib.Path(sys.argv[1])); os._exit(9)"
    subprocess.run([sys.executable, "-c", script, str(dead)], check=False)
    assert (dead / "lock").exists()
    (tmp_path / "f-old").mkdir()
    os.utime(tmp_path / "f-old", (NOW, NOW))
    (tmp_path / "f-new").mkdir()
    os.utime(tmp_path / "f-new", (NOW + 100, NOW + 100))
    (tmp_path / "other").mkdir()
    for name, file in (("f-letters", "dear.txt"), ("f-locksmith", "lock")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text("somebody else's")
        os.utime(tmp_path / name, (NOW, NOW))
    with OwnerDir(tmp_path / "f-alive"):
        assert sweep(tmp_path, now=NOW + 120) == [dead, tmp_path / "f-old"]
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            "f-alive",
            "f-letters",
            "f-locksmith",
            "f-new",
            "other",
        ]


def test_a_socket_path_that_the_system_cannot_bind_is_refused_early(tmp_path):
    path = tmp_path / ("x" * (90 - len(str(tmp_path)) if len(str(tmp_path)) < 89 else 1)) / "f-1"
    with OwnerDir(path) as directory, pytest.raises(StateDirError, match="107 are possible"):
        directory.socket("0123456789ab")


def test_whatever_user_code_left_is_removed(tmp_path):
    tree = tmp_path / "workspace"
    tree.mkdir()
    (tree / "closed").mkdir()
    (tree / "closed" / "file").write_text("x")
    (tree / "closed").chmod(0)
    (tmp_path / "outside").write_text("stays")
    (tree / "link").symlink_to(tmp_path / "outside")
    here = Path.cwd()
    os.chdir(tree)
    try:
        for _ in range(1500):
            Path("deep").mkdir()
            os.chdir("deep")
    finally:
        os.chdir(here)
    remove_tree(tree)
    assert not tree.exists()
    assert (tmp_path / "outside").read_text() == "stays"
    remove_tree(tree)


# User ids.

WHOLE_MACHINE = "         0          0 4294967295\n"


def test_two_owners_at_once_have_different_user_ids():
    one, other = take_block(WHOLE_MACHINE), take_block(WHOLE_MACHINE)
    try:
        assert abs(one.first - other.first) >= BLOCK
    finally:
        one.close()
        other.close()


def test_a_workspace_keeps_its_user_id_and_no_other_has_it():
    ids = take_block(WHOLE_MACHINE)
    try:
        first = ids.of("w1")
        assert ids.of("w1") == first
        others = {ids.of(f"x{number}") for number in range(BLOCK - 1)}
        assert first not in others
        with pytest.raises(NoUserIdsError, match="all 4096 are in use"):
            ids.of("one too many")
        ids.give_back("w1")
        assert ids.of("w2") == first
    finally:
        ids.close()


def test_user_ids_exist_in_a_small_user_namespace_too():
    ids = take_block("0 100000 65536\n")
    try:
        assert FALLBACK_FIRST <= ids.first <= 65536 - BLOCK
    finally:
        ids.close()


def test_where_no_user_ids_exist_it_is_said():
    with pytest.raises(NoUserIdsError, match="this user namespace has none"):
        take_block("0 1000 1\n")


# Spans.


def test_a_claims_span_continues_the_callers_trace_and_is_what_others_continue(monkeypatch):
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(telemetry, "_TRACER", provider.get_tracer("test"))
    span = telemetry.ClaimSpan(TRACEPARENT, "r1", "python")
    onward = span.traceparent
    span.queued(2, "PoolEmpty")
    span.failed("SandboxLimit", "cannot claim: the limit of sandboxes is reached")
    span.end()
    (ended,) = exporter.get_finished_spans()
    version, trace, parent, flags = TRACEPARENT.split("-")
    assert f"{ended.parent.span_id:016x}" == parent
    assert onward == f"{version}-{trace}-{ended.context.span_id:016x}-{flags}"
    assert ended.attributes["error.type"] == "SandboxLimit"
    assert [event.name for event in ended.events] == ["queued"]


def test_without_an_sdk_the_callers_trace_goes_on_as_it_came():
    span = telemetry.ClaimSpan(TRACEPARENT, "r1", "python")
    assert span.traceparent == TRACEPARENT
    assert telemetry.ClaimSpan("", "r1", "python").traceparent == ""
