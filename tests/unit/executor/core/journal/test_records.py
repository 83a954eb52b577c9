"""Records and their chain: any change of a journal is found."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_executor.core.journal import records, segments
from sandfleet_executor.core.journal.blobs import blob
from sandfleet_executor.core.journal.records import BadRecordError, Head

TEXT = st.text(max_size=30)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
BODIES = st.lists(
    st.tuples(st.text(min_size=1, max_size=10), st.dictionaries(TEXT, VALUES, max_size=4)), min_size=2, max_size=8
)


def journal(bodies):
    lines, head = [], Head()
    for number, (kind, body) in enumerate(bodies):
        line, head = records.follow(head, kind, body, 1000.0 + number)
        lines.append(line)
    return lines, head


def holds(data, head):
    """Whether the bytes are a whole journal from its first record on to this head."""
    scan = segments.scan(data)
    return scan is not None and scan.before == Head() and scan.head == head and scan.size == len(data)


@pytest.mark.slow
@given(BODIES)
def test_what_is_written_is_read_as_it_was(bodies):
    lines, head = journal(bodies)
    assert holds(b"".join(lines), head)
    for line, (kind, body) in zip(lines, bodies, strict=True):
        found = records.read(line[:-1])
        assert (found.kind, found.body) == (kind, body)
        assert line.isascii()
        assert line.count(b"\n") == 1


@pytest.mark.slow
@given(BODIES, st.data())
def test_a_changed_byte_is_found(bodies, data):
    lines, head = journal(bodies)
    whole = bytearray(b"".join(lines))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    assert not holds(bytes(whole), head)


@pytest.mark.slow
@given(BODIES, st.data())
def test_a_dropped_repeated_swapped_or_invented_record_is_found(bodies, data):
    lines, head = journal(bodies)
    at = data.draw(st.integers(0, len(lines) - 1))
    other = data.draw(st.integers(0, len(lines) - 1))
    invented, _ = records.follow(Head(at, "1" * 64), "execution", {}, 5.0)
    changed = [lines[:at] + lines[at + 1 :], [*lines[: at + 1], *lines[at:]], [*lines[:at], invented, *lines[at:]]]
    if at != other:
        swapped = list(lines)
        swapped[at], swapped[other] = swapped[other], swapped[at]
        changed.append(swapped)
    assert not any(holds(b"".join(each), head) for each in changed)


@pytest.mark.slow
@given(BODIES, st.data())
def test_a_line_that_was_cut_off_is_told_from_one_that_was_changed(bodies, data):
    lines, _ = journal(bodies)
    whole = b"".join(lines)
    cut = data.draw(st.integers(len(lines[0]), len(whole) - 1))
    scan = segments.scan(whole[:cut])
    assert scan is not None
    assert not scan.damaged
    kept = [line for end, line in enumerate(lines, 1) if len(b"".join(lines[:end])) <= cut]
    assert scan.size == len(b"".join(kept))
    assert scan.head.number == len(kept)


def test_a_record_over_its_bound_is_cut_to_digests():
    data = b"x" * (records.MAX_RECORD_BYTES + 1)
    line, head = records.follow(Head(), "execution", {"id": "e", "code": blob(data, len(data))}, 1.0)
    body = records.read(line[:-1]).body
    assert body["code"] == {"bytes": len(data), "sha256": records.hash_of(data), "cut": True}
    assert len(line) < 1000
    many = {"id": "e", "files": ["x" * 100] * 20_000}
    line, _ = records.follow(head, "execution", many, 1.0)
    whole = records.encode(many)
    assert records.read(line[:-1]).body == {
        "id": "e",
        "cut_record": {"bytes": len(whole), "sha256": records.hash_of(whole)},
    }


def test_what_is_no_record_is_refused():
    line, _ = records.follow(Head(), "a", {}, 1.0)
    good = json.loads(line)
    for bad in (
        {},
        {**good, "x": 1},
        {**good, "n": 0},
        {**good, "n": True},
        {**good, "prev": "0"},
        {**good, "body": []},
    ):
        try:
            records.read(records.encode(bad))
        except BadRecordError:
            continue
        raise AssertionError(bad)


def test_whole_segments_go_and_the_newest_stays():
    kept = [segments.Segment(1, first, 10) for first in (1, 5, 9)]
    assert segments.surplus(kept, 25) == kept[:1]
    assert segments.surplus(kept, 5) == kept[:2]
    assert segments.surplus(kept, 30) == []
