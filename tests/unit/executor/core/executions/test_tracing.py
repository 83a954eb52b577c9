"""W3C Trace Context, version 00."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_executor.core.executions.tracing import TraceParent, parse_traceparent

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@given(st.binary(min_size=16, max_size=16), st.binary(min_size=8, max_size=8), st.integers(0, 255))
def test_what_is_written_is_read_again(trace_id, span_id, flags):
    parent = TraceParent(trace_id, span_id, flags)
    expected = parent if any(trace_id) and any(span_id) else None
    assert parse_traceparent(str(parent)) == expected


def test_blanks_around_it_do_not_matter():
    assert parse_traceparent(f" 00-{TRACE}-{SPAN}-01 ") == TraceParent(bytes.fromhex(TRACE), bytes.fromhex(SPAN), 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-0g",
        f"00-{TRACE}-{SPAN}-01\nx",
        f"00-{'٣' * 32}-{SPAN}-01",
    ],
)
def test_an_invalid_header_gives_no_trace_parent(text):
    assert parse_traceparent(text) is None
