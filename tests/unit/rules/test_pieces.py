"""What an executor takes apart that the egress process sends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_rules.pieces import (
    END,
    LENGTH_BYTES,
    MOST_REPORT,
    PIECE_BYTES,
    REPORT,
    Kind,
    Pieces,
    piece,
)

MESSAGES = st.lists(
    st.one_of(
        st.binary(min_size=1, max_size=40).map(lambda data: (Kind.BYTES, data)),
        st.binary(max_size=40).map(lambda data: (Kind.REPORT, data)),
        st.just((Kind.END, b"")),
    ),
    max_size=12,
)


def written(kind, data):
    if kind is Kind.REPORT:
        return (len(data) | REPORT).to_bytes(LENGTH_BYTES) + data
    return piece(data) if kind is Kind.BYTES else END


def joined(messages):
    """Bytes that follow one another as one text: where they were cut says nothing."""
    found = []
    for kind, data in messages:
        if kind is Kind.BYTES and found and found[-1][0] is Kind.BYTES:
            found[-1] = kind, found[-1][1] + data
        else:
            found.append((kind, data))
    return found


@given(MESSAGES, st.data())
def test_messages_come_out_as_they_went_in_however_they_are_cut(messages, data):
    stream = b"".join(written(*one) for one in messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces, found = Pieces(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += pieces.feed(stream[start:end])
    assert joined(found) == joined(messages)


@pytest.mark.parametrize("size", [2 * PIECE_BYTES + 1, (MOST_REPORT + 1) | REPORT])
def test_what_is_too_long_is_refused_before_it_is_here(size):
    with pytest.raises(ValueError, match="too long"):
        Pieces().feed(size.to_bytes(LENGTH_BYTES))
