"""The record of a claim, which pods keep across upgrades."""

import json
import math
from pathlib import Path

from sandfleet_operator.api.limits import Limits
from sandfleet_operator.plan.claims.record import Record, read_record, record_text

# Written by the release before the fields of the custom resources were renamed: one with every field, one with the
# least.
GOLDEN = Path(__file__).parent / "golden/records.json"


def test_records_of_an_earlier_release_are_read_and_written_unchanged():
    full, least = json.loads(GOLDEN.read_text())
    assert read_record(full) == Record(
        object="claim-1",
        request="r1",
        holder="alice",
        fencing=7,
        at=1795255200.5,
        lease=300.0,
        idle=60.0,
        labels={"app": "x"},
        envs={"A": "b"},
        contract="autonomous",
        egress=False,
        keep=True,
        workspace="workspace-one",
        limits=Limits(
            memory_bytes=1 << 29,
            tmp_bytes=1 << 26,
            processes=64,
            output_bytes=1 << 20,
            executions=4,
            max_timeout=60.0,
            default_timeout=10.0,
            open_files=128,
            disk_bytes=1 << 30,
        ),
        uid="u-1",
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        keeper=9,
    )
    assert read_record(least) == Record(object="claim-2", request="r2", holder="bob", fencing=1, at=1.0, lease=math.inf)
    # A later fleet tests for the text that an earlier one wrote.
    assert [record_text(read_record(text)) for text in (full, least)] == [full, least]
