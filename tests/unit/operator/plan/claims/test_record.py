"""The record of a claim, which pods keep across upgrades."""

import bisect
import json
import math
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.limits import Limits
from sandfleet_operator.api.table import table
from sandfleet_operator.api.validate import check_claim
from sandfleet_operator.api.values import Claim, RequestKey, Template
from sandfleet_operator.plan.claims.record import (
    MAX_FENCING,
    MAX_RECORD,
    MAX_TIME,
    Record,
    checked_size,
    claim_of,
    read_record,
    record_of,
    record_text,
)
from sandfleet_operator.plan.claims.sandbox_object import code_sandbox

# Written by the release before the fields of the custom resources were renamed: one with every field, one with the
# least.
GOLDEN = Path(__file__).parent / "golden/records.json"
FULL = json.loads(json.loads(GOLDEN.read_text())[0])
HIGHEST = Limits(**dict.fromkeys((one.name for one in fields(Limits)), 1 << 63))


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


# Fields that this release does not know.
UNKNOWN = st.text(max_size=8).filter(lambda name: name not in {one.at.word for one in table(Record)})


@given(st.dictionaries(UNKNOWN, st.integers() | st.text(max_size=4) | st.lists(st.booleans())), st.booleans())
def test_a_takeover_changes_the_keeper_and_keeps_all_else_as_another_release_wrote_it(more, spaced):
    text = json.dumps({**more, **FULL}, indent=1 if spaced else None)
    record = read_record(text)
    # Patches test this text: how this release would spell it does not matter.
    assert record_text(record) == text
    kept = record.kept_by(12)
    assert json.loads(record_text(kept)) == {**more, **FULL, "keeper": 12}
    assert read_record(record_text(kept)) == kept
    assert (kept.number, kept.version) == (12, 1)


def test_a_record_that_is_made_here_has_no_text_of_another():
    made = Record(object="claim-1", request="r1", holder="alice", fencing=1, at=1.0)
    assert "text" not in json.loads(record_text(made))
    assert "version" not in json.loads(record_text(made.kept_by(3)))
    assert json.loads(record_text(replace(made, version=2)))["version"] == 2
    assert read_record(record_text(made.kept_by(3))).keeper == 3


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=1 << 1024, max_value=1 << 1025)
    | st.floats()
    | st.text(st.characters(codec=None, exclude_categories=()), max_size=8)
    | st.sampled_from(["h", "autonomous", "claim-1", "x" * 300, "\ud800", "a/b", ".."]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(name=st.sampled_from(sorted(FULL)), value=JSON)
@example("holder", ["h"])
@example("fencing", "x")
@example("fencing", True)
@example("fencing", 1 << 40)
@example("lease", math.nan)
@example("lease", math.inf)
@example("lease", -1)
@example("at", 1 << 1024)
@example("idle", math.nan)
@example("object", "../secrets")
@example("labels", {"app": 1})
@example("labels", {"app": "\ud800"})
@example("envs", {"A": "\ud800"})
@example("mounts", {"/app": ""})
@example("mounts", {"/app": 1})
@example("mounts", {"/etc": ""})
@example("limits", {"processes": "many"})
@example("limits", {"max_timeout": math.nan})
@example("contract", "whatever")
def test_a_record_with_any_value_in_a_field_is_unreadable_or_has_the_types_of_a_record(name, value):
    record = read_record(json.dumps({**FULL, name: value}))
    if record is not None:
        assert read_record(record_text(record)) == record
        check_claim(claim_of(record, "team/fast"), Template(limits=HIGHEST))
        json.dumps(code_sandbox("team", "p", "u", record, template="t", pool="", memory_reserve=0)).encode()
        assert record.fencing + record.keeper >= 0
        assert record.holder + record.request + record.uid + record.workspace


@given(st.text() | JSON.map(json.dumps))
@example("[" * 100_000)
@example('{"a":' * 20_000)
@example("1" * 5000)
def test_any_text_is_a_record_or_none(text):
    assert read_record(text) is None or isinstance(read_record(text), Record)


def test_what_a_caller_may_claim_can_be_read_back():
    claim = Claim(
        key=RequestKey("u" * 256, "r" * 64, "n" * 63),
        labels={"app": "x"},
        envs={"A": "\u2028\x00"[:1]},
        lease=math.inf,
        object_uid="u-1",
        traceparent="x" * 5000,
        mounts={"/app": "", "/logs": "out/logs"},
    )
    record = record_of(claim, 1, 1.0)
    assert record.traceparent == ""
    assert claim_of(record, "team/fast").mounts == claim.mounts
    assert read_record(record_text(record)) == record


@pytest.mark.parametrize("sign", ["x", "ü", "😀"])
def test_a_claim_is_refused_where_no_fleet_could_read_its_record(sign):
    """One bound for who writes and who reads, in bytes."""

    def claim(many):
        return Claim(key=RequestKey("u", "r", "n"), envs={"A": sign * many})

    most = bisect.bisect_left(range(MAX_RECORD), 1, key=lambda many: is_refused(claim(many))) - 1
    text = record_text(record_of(checked_size(claim(most)), MAX_FENCING, MAX_TIME))
    assert MAX_RECORD - 12 < len(text.encode()) <= MAX_RECORD
    assert read_record(text) is not None
    with pytest.raises(FleetError, match="larger than 196608"):
        checked_size(claim(most + 1))
    assert read_record(record_text(record_of(claim(most + 1), MAX_FENCING, MAX_TIME))) is None


def is_refused(claim):
    try:
        checked_size(claim)
    except FleetError:
        return True
    return False
