"""The binding as it stands in the status of a CodeSandbox."""

from dataclasses import replace

from sandfleet_operator.api.kinds.meta import Meta
from sandfleet_operator.api.kinds.sandbox import CodeSandbox, SandboxSpec, SandboxStatus
from sandfleet_operator.plan.claims.record import Record, read_record, record_text
from sandfleet_operator.plan.sandbox.binding import MAX_CLAIM, Binding, settled_binding

MOUNTS = {"/app": "ü" * 120, "/logs": ""}
SHORT = Record(object="claim-1", request="r", holder="h", fencing=1, at=1.0, lease=60.0, mounts=MOUNTS)
LONG = replace(SHORT, envs={f"V{number}": "x" * 1000 for number in range(64)})


def written(record):
    """A CodeSandbox with the binding of a record that was read from a pod."""
    binding = Binding("pod", "uid", read_record(record_text(record)))
    return CodeSandbox(
        meta=Meta(namespace="team", name="claim-1", uid="u-1"),
        spec=SandboxSpec(template="python", envs=record.envs, mounts=record.mounts),
        status=SandboxStatus(binding=binding.status),
    )


def test_a_binding_is_read_from_the_status_as_it_was_written_there():
    for record in (SHORT, LONG):
        assert settled_binding(written(record)).record == record


def test_beside_a_long_environment_the_status_has_only_what_the_spec_has_not():
    assert len(record_text(LONG)) > MAX_CLAIM
    claim = written(LONG).status.binding.claim
    assert len(claim) <= MAX_CLAIM
    assert (read_record(claim).envs, read_record(claim).mounts) == ({}, {})
    assert read_record(written(SHORT).status.binding.claim) == SHORT
