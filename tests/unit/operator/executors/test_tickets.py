"""Tickets of waiting claims: what one leader signs the next one reads, and nothing else gives a place."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_operator.api.values import RequestKey
from sandfleet_operator.executors.tickets import LIFETIME, TicketError, Tickets
from sandfleet_operator.executors.tokens import KeyRing, TokenKey
from sandfleet_operator.plan.scheduler.claim_queue import Place, StartTags

NOW = 1_800_000_000.0
RING = KeyRing((TokenKey.new(0.0), TokenKey.new(0.0)))
KEY = RequestKey("system:serviceaccount:team:bot", "r1", "team/fast")
PLACE = Place("team/default", NOW - 40.0, StartTags(0.5, 2.0))


def tickets(ring=RING, now=NOW):
    return Tickets(lambda: ring, lambda: now)


def read(ticket, key=KEY, queue="team/default", **changes):
    return tickets(**changes).read(ticket, key, queue)


TICKET = tickets().issue(KEY, PLACE)


def test_the_next_leader_reads_the_place_that_the_last_one_has_signed():
    assert read(TICKET, now=NOW + 60) == PLACE


def test_a_ticket_outlives_the_rotation_of_the_key_that_signed_it():
    assert read(TICKET, ring=RING.rotated(NOW, 0.0)) == PLACE


def test_a_place_is_never_in_the_future_of_the_leader_that_reads_it():
    assert read(TICKET, now=PLACE.asked - 5.0).asked == PLACE.asked - 5.0


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        pytest.param({"key": dataclasses.replace(KEY, holder="mallory")}, "it is of another claim", id="holder"),
        pytest.param({"key": dataclasses.replace(KEY, request_id="r2")}, "it is of another claim", id="request"),
        pytest.param({"key": dataclasses.replace(KEY, pool="team/slow")}, "it is of another claim", id="pool"),
        pytest.param({"queue": "team/urgent"}, "it is of another claim", id="queue"),
        pytest.param({"now": NOW + LIFETIME + 1}, "it is older than 3600 s", id="too old"),
        pytest.param(
            {"ring": KeyRing((TokenKey.new(0.0),))}, "it is not of this fleet, or was altered", id="another fleet"
        ),
    ],
)
def test_a_ticket_of_another_claim_fleet_or_time_gives_no_place(changes, why):
    with pytest.raises(TicketError, match=why):
        read(TICKET, **changes)


@given(st.integers(0, len(TICKET) - 1), st.integers(1, 255))
def test_a_ticket_with_any_byte_altered_gives_no_place(at, by):
    forged = TICKET[:at] + bytes([TICKET[at] ^ by]) + TICKET[at + 1 :]
    with pytest.raises(TicketError, match="was altered"):
        read(forged)


@given(st.binary(max_size=5000))
def test_bytes_that_the_fleet_has_not_signed_give_no_place(forged):
    with pytest.raises(TicketError, match="not of this fleet"):
        read(forged)


def test_a_token_key_itself_signs_no_ticket():
    """The signature is by a key that is derived for tickets: what the fleet signs for others is no ticket."""
    payload = json.dumps([NOW, KEY.holder, "r1", KEY.pool, "team/default", 0.0, 0.0, 0.0]).encode()
    with pytest.raises(TicketError, match="not of this fleet"):
        read(RING.keys[0].private.sign(payload)[:32] + payload)
