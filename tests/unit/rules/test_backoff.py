"""Pauses between attempts."""

import pytest
from sandfleet_rules.backoff import Backoff


@pytest.mark.parametrize(
    ("failures", "pause"), [(0, 0.5), (1, 0.5), (2, 1.0), (3, 2.0), (5, 8.0), (6, 10.0), (100, 10.0), (5000, 10.0)]
)
def test_pauses_double_from_the_first_to_the_longest(failures, pause):
    assert Backoff(0.5, 10.0).after(failures) == pause


def test_a_pause_is_never_longer_than_the_longest():
    assert Backoff(60.0, 30.0).after(1) == 30.0
