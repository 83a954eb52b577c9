"""Pauses between attempts."""

import pytest
from sandfleet._wire.retry import Backoff


def test_pauses_double_from_the_first_to_the_longest() -> None:
    backoff = Backoff(0.5, 3.0, chance=None)
    assert [backoff.after(failures) for failures in range(6)] == [0.0, 0.5, 1.0, 2.0, 3.0, 3.0]


@pytest.mark.parametrize(("chance", "pause"), [(0.0, 0.5), (0.5, 0.75), (1.0, 1.0)])
def test_chance_takes_up_to_half_of_a_pause(chance: float, pause: float) -> None:
    assert Backoff(1.0, 1.0, lambda: chance).after(1) == pause


@pytest.mark.parametrize(
    ("chance", "room", "pause"),
    [(0.0, 60.0, 8.0), (0.5, 60.0, 10.0), (1.0, 60.0, 12.0), (1.0, 10.0, 9.0), (1.0, 8.0, 8.0), (1.0, 2.0, 8.0)],
)
def test_a_told_pause_is_never_shorter_and_by_chance_longer_as_far_as_there_is_room(
    chance: float, room: float, pause: float
) -> None:
    assert Backoff(0.1, 2.0, lambda: chance).told(8.0, 1, room) == pause


def test_a_server_that_says_at_once_gets_the_usual_pauses() -> None:
    backoff = Backoff(0.5, 3.0, chance=None)
    assert [backoff.told(0.0, failures, 60.0) for failures in range(1, 5)] == [0.5, 1.0, 2.0, 3.0]


def test_a_pause_stays_bounded_after_many_failures() -> None:
    assert Backoff(0.1, 2.0, chance=None).after(1_000_000) == 2.0
