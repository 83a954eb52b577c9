"""The end of a lease on its CodeSandbox: any text is an end or none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_operator.api.validate import MAX_LEASE
from sandfleet_operator.plan.claims.lease_end import (
    EVERY_SECONDS,
    WORTH_SECONDS,
    lease_end,
    lease_end_patch,
    write_after,
)
from sandfleet_operator.plan.pods import names

NOW = 1_800_000_000.0


@given(st.text(max_size=20) | st.integers().map(str) | st.floats().map(str))
def test_any_text_is_no_end_or_one_within_a_longest_lease(text):
    end = lease_end({names.LEASE_EXPIRES: text}, NOW)
    assert end is None or 0 <= end <= NOW + MAX_LEASE


@given(st.floats(NOW, NOW + MAX_LEASE))
def test_an_end_that_was_written_is_read_to_the_second(end):
    (_, add) = lease_end_patch("uid", end)
    assert lease_end({names.LEASE_EXPIRES: add["value"]}, NOW) == pytest.approx(end, abs=1)


@pytest.mark.parametrize(
    ("moved", "since", "seconds"),
    [
        (WORTH_SECONDS, 1000.0, None),
        (-WORTH_SECONDS, 1000.0, None),
        (WORTH_SECONDS + 1, 1000.0, 0.0),
        (-WORTH_SECONDS - 1, 1000.0, 0.0),
        (3600.0, 20.0, EVERY_SECONDS - 20.0),
        (3600.0, EVERY_SECONDS, 0.0),
    ],
)
def test_a_renewal_that_moves_the_end_by_more_than_a_minute_is_written_once_a_minute(moved, since, seconds):
    assert write_after(NOW + moved, NOW, NOW - since, NOW) == seconds
