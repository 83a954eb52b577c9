"""The audit log of a real fleet with real executors: each decision has its record, and no secret is in any of them."""

import json
import os
import shutil

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from sandfleet import Fleet, Sandbox
from sandfleet.errors import InvalidArgument
from sandfleet_api.fleet.v1 import fleet_pb2 as pb
from support.fleet.process import PATIENCE, a_fleet

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
CANARY = "canary-7d1f0c"


@pytest.fixture
def log(tmp_path, monkeypatch):
    path = tmp_path / "audit.jsonl"
    monkeypatch.setenv("SANDFLEET_AUDIT", str(path))
    return path


def records(log):
    return [json.loads(line) for line in log.read_text().splitlines()]


@pytest.mark.smoke
def test_a_session_is_recorded_from_its_claim_to_its_end(log, tmp_path):
    with a_fleet(tmp_path / "f") as fleet:
        bound = fleet.claim("r1")
        sandbox_id = bound.sandbox.sandbox_id
        fleet.access(sandbox_id)
        with pytest.raises(grpc.RpcError):
            fleet.claim("r2", lease=Duration(seconds=-5))
        fleet.stub.Suspend(pb.SuspendRequest(sandbox_id=sandbox_id, force=True), timeout=PATIENCE)
        list(fleet.stub.Resume(pb.ResumeRequest(sandbox_id=sandbox_id), timeout=PATIENCE))
        fleet.release(sandbox_id)
        with pytest.raises(grpc.RpcError):
            fleet.access(sandbox_id)
    said = records(log)
    assert [one["number"] for one in said] == list(range(1, len(said) + 1))
    assert {one["actor"]["username"] for one in said if one["decision"] not in ("end", "journal")} == {
        f"uid:{os.geteuid()}"
    }
    told = [(one["decision"], one["verdict"], one["reason"]) for one in said]
    assert sorted(told) == sorted(
        [
            ("claim", "allowed", ""),
            ("access", "allowed", ""),
            ("claim", "refused", "InvalidDuration"),
            ("suspension", "allowed", ""),
            ("resumption", "allowed", ""),
            # Of the journal, before the session ends.
            ("journal", "allowed", ""),
            ("release", "allowed", ""),
            ("end", "allowed", "Released"),
            ("access", "refused", "SandboxNotFound"),
        ]
    )
    assert [one["sandbox"] for one in said if one["decision"] == "end"] == [sandbox_id]


def test_no_secret_of_a_session_is_in_its_records(log, tmp_path):
    """Each place where a caller can put one: environment, labels, code, commands, files, denials and refusals."""

    def deny(review):
        return review.deny(f"it shows {CANARY}")

    with a_fleet(tmp_path / "f") as process, Fleet.connect(f"unix:{process.state_dir}/fleet.sock") as fleet:
        with Sandbox.create(fleet=fleet, envs={"API_KEY": CANARY}, labels={"note": CANARY}) as sandbox:
            assert sandbox.run_code(f"key = {CANARY!r}; print(key)").outcome == "ok"
            assert sandbox.commands.run(f"echo {CANARY}").stdout.strip() == CANARY
            sandbox.files.write("secret.txt", CANARY)
            token = process.access(sandbox.sandbox_id).access.token
        with Sandbox.create(fleet=fleet, contract="reviewed", on_review=deny) as sandbox:
            assert sandbox.run_code(f"open({CANARY!r})").outcome == "denied"
        with pytest.raises(InvalidArgument):
            Sandbox.create(fleet=fleet, envs={f"BAD {CANARY}": "x"})
        reviewers = (process.state_dir / "reviewer.token").read_text()
    text, said = log.read_text(), records(log)
    assert {("review", "allowed"), ("claim", "refused")} <= {(one["decision"], one["verdict"]) for one in said}
    assert [one["details"]["answer"] for one in said if one["decision"] == "review"] == ["deny"]
    for secret in (CANARY, token, reviewers):
        assert len(secret) > 10
        assert secret not in text


def test_a_log_that_cannot_be_opened_ends_the_start_with_its_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("SANDFLEET_AUDIT", str(tmp_path / "missing" / "audit.jsonl"))
    with (
        pytest.raises(AssertionError, match="failed: cannot write audit records"),
        a_fleet(tmp_path / "f"),
    ):
        pass
