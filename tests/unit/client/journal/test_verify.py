"""A journal's file: any change of it is found, and named by the record."""

import json
import tracemalloc

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sandfleet.journal.headfile import Exported, Heads
from sandfleet.journal.heads import KeptHead
from sandfleet.journal.records import MAX_RECORD_BYTES, NO_HASH, Head
from sandfleet.journal.verify import MAX_FAULTS, FaultKind, verify
from sandfleet_executor.core.journal import records as executors

POD = "pod-1"
TEXT = st.text(max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
BODIES = st.lists(st.dictionaries(TEXT, VALUES, max_size=3), min_size=2, max_size=8)


def journal(bodies):
    """Lines as the executor writes them; the first says whose journal it is."""
    lines, head = [], executors.Head()
    for number, body in enumerate(bodies):
        kind = "execution" if number else "opened"
        line, head = executors.follow(head, kind, body if number else {"pod": POD, **body}, 1000.0 + number)
        lines.append(line)
    return lines, Head(head.number, head.hash)


def kept(*heads):
    return Heads(kept=[KeptHead(POD, head) for head in heads])


def check(data, *heads):
    return verify([data], kept(*heads))


def head_at(lines, number):
    return Head(number, executors.hash_of(lines[number - 1][:-1]))


def named(found):
    """All numbers that the faults name."""
    return {number for one in found.faults for number in range(one.number, max(one.number, one.last) + 1)}


@given(BODIES, st.integers(1, 50))
def test_what_the_executor_writes_is_whole(bodies, size):
    lines, head = journal(bodies)
    data = b"".join(lines)
    found = verify([data[at : at + size] for at in range(0, len(data), size)], kept(head))
    assert found.ok
    assert (found.first, found.head, found.count, found.kept) == (1, head, len(bodies), head.number)
    assert found.ends_known
    assert found.pod_uid == POD


@given(BODIES, st.data())
def test_a_changed_byte_is_found_and_names_its_record(bodies, data):
    lines, head = journal(bodies)
    whole = bytearray(b"".join(lines))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    number = next(n for n in range(1, len(lines) + 1) if at < len(b"".join(lines[:n])))
    found = check(bytes(whole), head)
    assert not found.ok
    # What follows the changed record may be found with it, since one byte may have joined or cut two lines.
    assert named(found) & {number, number + 1}
    assert found.proved < number


@given(BODIES, st.data())
def test_an_inserted_byte_is_found_and_names_its_record(bodies, data):
    lines, head = journal(bodies)
    whole = b"".join(lines)
    at = data.draw(st.integers(0, len(whole)))
    byte = data.draw(st.binary(min_size=1, max_size=1))
    changed = whole[:at] + byte + whole[at:]
    assume(changed != whole)
    number = next((n for n in range(1, len(lines) + 1) if at < len(b"".join(lines[:n]))), len(lines))
    found = check(changed, head)
    assert not found.ok
    assert named(found) & {number, number + 1}


@given(BODIES, st.data())
def test_a_removed_byte_is_found_and_names_its_record(bodies, data):
    lines, head = journal(bodies)
    whole = b"".join(lines)
    at = data.draw(st.integers(0, len(whole) - 1))
    number = next(n for n in range(1, len(lines) + 1) if at < len(b"".join(lines[:n])))
    found = check(whole[:at] + whole[at + 1 :], head)
    assert not found.ok
    assert named(found) & {number, number + 1}


@given(BODIES, st.data())
def test_a_dropped_record_is_named(bodies, data):
    lines, head = journal(bodies)
    at = data.draw(st.integers(0, len(lines) - 1))
    found = check(b"".join(lines[:at] + lines[at + 1 :]), head)
    assert at + 1 in named(found)
    assert FaultKind.MISSING in {one.kind for one in found.faults}


@pytest.mark.slow
@given(BODIES, st.data())
def test_swapped_records_are_named(bodies, data):
    lines, head = journal(bodies)
    one, other = sorted(data.draw(st.lists(st.integers(0, len(lines) - 1), min_size=2, max_size=2, unique=True)))
    swapped = list(lines)
    swapped[one], swapped[other] = swapped[other], swapped[one]
    assert one + 1 in named(check(b"".join(swapped), head))


@given(BODIES, st.data())
def test_a_repeated_record_is_named(bodies, data):
    lines, head = journal(bodies)
    at = data.draw(st.integers(0, len(lines) - 1))
    found = check(b"".join([*lines[: at + 1], *lines[at:]]), head)
    assert {(one.kind, one.number) for one in found.faults} >= {(FaultKind.REPEATED, at + 1)}


@pytest.mark.slow
@given(BODIES, st.data())
def test_an_invented_record_is_named(bodies, data):
    """It follows the record before as a true one does."""
    lines, head = journal(bodies)
    at = data.draw(st.integers(0, len(lines)))
    before = executors.Head(at, executors.hash_of(lines[at - 1][:-1])) if at else executors.Head()
    invented, _ = executors.follow(before, "execution", {"invented": True}, 5.0)
    found = check(b"".join([*lines[:at], invented, *lines[at:]]), head)
    if at == len(lines):
        # Behind the newest head: only the executor vouches for it, and the proof says so.
        assert (found.proved, found.head.number) == (at, at + 1)
        assert not found.ends_known
    else:
        assert at + 1 in named(found)


@given(BODIES, st.data())
def test_a_cut_tail_is_told_from_an_intact_one(bodies, data):
    lines, head = journal(bodies)
    whole = b"".join(lines)
    cut = data.draw(st.integers(0, len(whole) - 1))
    found = check(whole[:cut], head)
    last = sum(1 for n in range(1, len(lines) + 1) if len(b"".join(lines[:n])) <= cut)
    assert set(range(last + 1, len(lines) + 1)) <= named(found)
    assert (FaultKind.CUT in {one.kind for one in found.faults}) is not (whole[:cut] == b"".join(lines[:last]))
    # The control: without the head a cut between two records cannot be seen, and the answer says so.
    assert not check(b"".join(lines[:last])).ends_known


@given(BODIES, st.data())
def test_two_honest_journals_that_share_a_past_agree_on_it(bodies, data):
    lines, _ = journal(bodies)
    shared = data.draw(st.integers(1, len(lines)))
    head = head_at(lines, shared)
    before = executors.Head(shared, head.hash)
    other, _ = executors.follow(before, "execution", {"branch": 2}, 9.0)
    for each in (lines, [*lines[:shared], other]):
        found = check(b"".join(each), head)
        assert found.ok
        assert found.proved == shared


@given(BODIES, st.data())
def test_a_past_that_was_rewritten_before_a_kept_head_is_found(bodies, data):
    """An executor that was taken over writes a whole new chain: nothing in it is broken."""
    lines, _ = journal(bodies)
    changed = data.draw(st.integers(0, len(lines) - 1))
    told = data.draw(st.integers(1, len(lines)))
    again = [*bodies[:changed], {"rewritten": True}, *bodies[changed + 1 :]]
    rewritten, _ = journal(again)
    assume(rewritten != lines)
    head = head_at(lines, told)
    found = check(b"".join(rewritten), head)
    if changed < told:
        assert {(one.kind, one.number) for one in found.faults} == {(FaultKind.REPLACED, told)}
        assert found.proved == 0
    else:
        # Written after the head: the control, and what `proved` says of it.
        assert found.ok
        assert found.proved == told <= changed
    # The other control: without a head the forgery holds.
    assert check(b"".join(rewritten)).ok


def test_two_heads_of_one_number_contradict_each_other():
    lines, head = journal([{}, {}])
    other = Head(2, "1" * 64)
    assert FaultKind.CONTRADICTED in {one.kind for one in check(b"".join(lines), head, other).faults}


def test_a_journal_whose_older_records_the_executor_dropped_is_whole_if_the_export_says_so():
    lines, head = journal([{}, {}, {}, {}])
    rest = b"".join(lines[2:])
    about = Exported(sandbox="s", pod_uid=POD, head=head, anchor=head_at(lines, 2))
    found = verify([rest], Heads(exported=about))
    assert found.ok
    assert any("dropped" in note for note in found.notes)
    # The controls: no word of the export, and another anchor.
    assert named(verify([rest], kept(head))) == {1, 2}
    lie = Exported(sandbox="s", pod_uid=POD, head=head, anchor=Head(2, NO_HASH))
    assert named(verify([rest], Heads(exported=lie))) == {1, 2}


def test_heads_of_other_pods_prove_nothing():
    lines, head = journal([{}, {}])
    found = verify([b"".join(lines)], Heads(kept=[KeptHead("pod-2", head)]))
    assert (found.ok, found.proved) == (True, 0)
    assert found.notes == ("1 heads are of other pods",)


HOSTILE = {
    "a line without end": b"x" * (3 * MAX_RECORD_BYTES),
    "a record over the limit": json.dumps({"a": "x" * MAX_RECORD_BYTES}).encode() + b"\n",
    "nothing but ends of lines": b"\n" * 5000,
    "deep nesting": b"[" * 100_000 + b"\n",
    "a number of many digits": b'{"at":1,"body":{},"kind":"x","n":' + b"9" * 5000 + b',"prev":"' + b"0" * 64 + b'"}\n',
    "NaN": b'{"at":NaN,"body":{},"kind":"x","n":1,"prev":"' + b"0" * 64 + b'"}\n',
    "infinity": b'{"at":1e999,"body":{},"kind":"x","n":1,"prev":"' + b"0" * 64 + b'"}\n',
    "bytes that are no text": bytes(range(256)) * 10 + b"\n",
    "true for a number": b'{"at":1,"body":{},"kind":"x","n":true,"prev":"' + b"0" * 64 + b'"}\n',
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_is_a_fault_and_no_failure(data):
    found = check(data)
    assert not found.ok
    assert found.count == 0
    assert len(found.faults) <= MAX_FAULTS


@given(st.binary(max_size=2000))
def test_any_file_has_an_answer(data):
    found = check(data)
    assert found.ok == (not found.faults)


def test_gaps_of_any_width_cost_no_memory():
    tracemalloc.start()
    lines = []
    for number in (1, 1 << 40, 1 << 62):
        line, _ = executors.follow(executors.Head(number - 1), "execution", {}, 1.0)
        lines.append(line)
    found = check(b"".join(lines))
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
    assert {one.kind for one in found.faults} == {FaultKind.MISSING}
