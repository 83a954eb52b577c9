"""The output limit: head and tail are the true ends of the stream, and what is missing is counted exactly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_executor.core.executions.output import MAX_TAIL_BYTES, HeadAndTail

CHUNKS = st.lists(st.binary(max_size=40), max_size=30)


def fed(limiter, chunks):
    """(what was passed on at once, bytes dropped, what came at the end)"""
    head = b"".join(limiter.feed(chunk) for chunk in chunks)
    dropped, tail = limiter.finish()
    return head, dropped, b"".join(tail)


@given(chunks=CHUNKS, limit=st.integers(0, 200))
def test_head_dropped_and_tail_together_are_the_stream(chunks, limit):
    limiter, whole = HeadAndTail(limit), b"".join(chunks)
    head, dropped, tail = fed(limiter, chunks)
    assert limiter.total == len(whole) == len(head) + dropped + len(tail)
    assert whole.startswith(head)
    assert whole.endswith(tail)
    assert len(head) + len(tail) == min(limit, len(whole))


@given(chunks=CHUNKS, limit=st.integers(0, 200))
def test_what_is_kept_does_not_depend_on_how_it_was_cut(chunks, limit):
    assert fed(HeadAndTail(limit), chunks) == fed(HeadAndTail(limit), [b"".join(chunks)])


@given(chunks=CHUNKS, limit=st.integers(1, 200))
def test_with_the_tail_alone_nothing_is_passed_on_at_once(chunks, limit):
    whole = b"".join(chunks)
    head, dropped, tail = fed(HeadAndTail(limit, tail_only=True), chunks)
    assert (head, tail, dropped) == (b"", whole[-limit:], max(0, len(whole) - limit))


def test_the_tail_has_a_bound_of_its_own():
    limiter = HeadAndTail(4 * MAX_TAIL_BYTES)
    head, dropped, tail = fed(limiter, [b"x" * MAX_TAIL_BYTES] * 6)
    assert (len(head), dropped, len(tail)) == (3 * MAX_TAIL_BYTES, 2 * MAX_TAIL_BYTES, MAX_TAIL_BYTES)


@pytest.mark.parametrize("limit", [0, 1, 2, 3])
def test_tiny_limits_are_exact(limit):
    head, dropped, tail = fed(HeadAndTail(limit), [b"ab", b"cdef"])
    assert (len(head) + len(tail), dropped) == (limit, 6 - limit)


def test_finishing_empties_it():
    limiter = HeadAndTail(4)
    limiter.feed(b"abcdefgh")
    assert limiter.finish() == (4, [b"gh"])
    assert limiter.finish()[1] == []
