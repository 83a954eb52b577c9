"""What claims that wait are told, and how often."""

import math

import pytest
from sandfleet_operator.fleet.claim_watches import AT_MOST, PER_PLACE, ClaimWatch, ClaimWatches
from sandfleet_operator.plan.scheduler.claim_queue import Eta, Queued

SOON = Eta(1.0, 2.0)


def standing(position, *, eta=SOON, reason="QuotaReached"):
    return Queued(position, eta, reason, "why", "team-a/default")


@pytest.mark.parametrize(
    ("told", "after", "news", "at_once"),
    [
        (1000, 0.0, standing(1000), True),
        (1000, 5.0, standing(999), False),
        (1000, 1000 * PER_PLACE, standing(999), True),
        (1000, 0.1, standing(3), True),
        (1000, 0.1, standing(999, reason="QueueStopped"), True),
        (1000, 0.1, standing(999, eta=None), True),
        (100_000, AT_MOST, standing(99_999), True),
        (2, 0.1, standing(1), True),
    ],
)
def test_a_new_reason_is_told_at_once_and_a_new_position_the_later_the_more_claims_are_before(
    told, after, news, at_once
):
    watch = ClaimWatch(lambda _: None)
    assert watch.tell(standing(told), 50.0)
    assert watch.tell(news, 50.0 + after) is at_once


@pytest.mark.slow
async def test_thousands_that_move_on_all_the_time_are_told_some_hundred_times_a_second():
    watches, many, seconds = ClaimWatches(lambda _: None), 10_000, 60
    opened = {number: watches.open(number) for number in range(many)}
    told = 0
    for tick in range(seconds * 2):
        now = tick / 2
        for number, watch in opened.items():
            watches.tell(number, standing(max(1, number + 1 - tick)), now)
            if watch._changed.is_set():
                await watch.next()
                told += 1
    # Of those that are told as often as they move on, and of all others.
    near, most = 1 / PER_PLACE, AT_MOST / PER_PLACE
    bound = 2 * near + math.log(most / near) / PER_PLACE + many / AT_MOST
    assert (told - many) / seconds <= 1.2 * bound


async def test_what_was_held_back_is_told_in_the_end():
    watches = ClaimWatches(lambda _: None)
    watch = watches.open("r")
    assert watches.tell("r", standing(500), 0.0)
    await watch.next()
    assert not watches.tell("r", standing(400), 1.0)
    assert watches.tell("r", standing(400), 1.0 + 400 * PER_PLACE)
    assert (await watch.next()).position == 400
