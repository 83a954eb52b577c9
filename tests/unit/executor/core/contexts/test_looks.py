"""What may be asked about code, and what a hostile interpreter may answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_executor.core.contexts import looks
from sandfleet_executor.core.contexts.frames import BadFrame
from sandfleet_executor.core.contexts.looks import Completion, Inspection, Look
from sandfleet_executor.core.errors import BadRequest

ASKED = Look(looks.COMPLETE, "os.pa", 5, 2.0)


@pytest.mark.parametrize(
    ("options", "cursor", "seconds"),
    [({"cursor": None, "seconds": None}, 5, 2.0), ({"cursor": 0, "seconds": 10.0}, 0, 10.0)],
)
def test_the_end_of_the_code_and_two_seconds_are_what_is_usual(options, cursor, seconds):
    asked = looks.check(looks.COMPLETE, "os.pé", **options)
    assert (asked.cursor, asked.seconds) == (cursor, seconds)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"cursor": 6, "seconds": None}, "the position 6 is behind the code's 5 characters"),
        ({"cursor": 0, "seconds": 0.0}, "within 0 s"),
        ({"cursor": 0, "seconds": 10.5}, "at most 10"),
        ({"cursor": 0, "seconds": float("nan")}, "within nan s"),
        ({"cursor": 0, "seconds": None, "detail_level": 2}, "detail level 2"),
    ],
)
def test_what_cannot_be_asked_is_refused(options, why):
    with pytest.raises(BadRequest, match=why):
        looks.check(looks.INSPECT, "os.pa", **options)


def test_a_completion_is_read():
    said = {"event": "completed", "matches": [".path", "\ud800"], "start": 2, "end": 5, "omitted": 3}
    assert looks.completion(said, ASKED) == Completion((".path", "?"), 2, 5, 3)
    assert looks.inspection({"event": "inspected", "found": True}, b"\xff") == Inspection(found=True, text="\ufffd")


@pytest.mark.parametrize(
    "wrong",
    [
        {"event": "inspected"},
        {"start": 4, "end": 3},
        {"end": 6},
        {"start": -1},
        {"omitted": 1 << 31},
        {"omitted": "x"},
        {"matches": [1]},
        {"matches": None},
        {"start": None},
        {"start": float("inf")},
    ],
)
def test_a_completion_that_is_none_is_refused(wrong):
    said = {"event": "completed", "matches": [], "start": 2, "end": 5, "omitted": 0}
    with pytest.raises(BadFrame):
        looks.completion(said | wrong, ASKED)


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["event", "matches", "start", "end"]), inner),
)


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(["event", "matches", "start", "end", "omitted", "found"]), json), st.binary())
def test_any_answer_is_read_or_refused(header, payload):
    for read in (lambda: looks.completion(header, ASKED), lambda: looks.inspection(header, payload)):
        try:
            read()
        except BadFrame:
            continue
