"""The status of a CodeSandbox that an earlier release wrote is read, and written back unchanged."""

import json
from pathlib import Path

from sandfleet_operator.api.kinds.sandbox import code_sandbox, status_json

GOLDEN = json.loads((Path(__file__).parent / "golden" / "status.json").read_text())


def test_an_earlier_releases_status_is_read_and_written_back_unchanged() -> None:
    meta = {"namespace": "team-a", "name": "demo", "uid": "u", "creationTimestamp": "2026-11-21T10:00:00Z"}
    read = code_sandbox({"metadata": meta, "spec": {"templateRef": {"name": "python"}}, "status": GOLDEN})
    assert (read.status.pod_uid, read.status.crashes, read.status.fencing) == ("uid-1", 1, 7)
    # A later release has written none of its own fields.
    later = ("templateRevision", "observedAdmissionTime", "restoresFrom")
    assert status_json(read.status) == {**GOLDEN, **dict.fromkeys(later)}
