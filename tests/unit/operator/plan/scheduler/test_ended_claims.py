"""Requests that have ended, for this leader and the next."""

import pytest
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.api.values import RequestKey
from sandfleet_operator.plan.scheduler.ended_claims import CHUNKS, IN_CHUNK, NEXT, EndedClaims

WHY = ClaimReason.CLAIM_ENDED.problem("cannot claim: it ended: Released")


def key(number):
    return RequestKey("alice", f"r{number}", "team/fast")


def test_the_next_leader_knows_what_was_written_and_goes_on_from_there():
    first, second, written = EndedClaims(), EndedClaims(), {}
    for number in range(IN_CHUNK + 1):
        first.put(key(number), WHY)
        first.put(key(number), WHY)
    assert first.get(key(0)) == WHY
    written |= first.take_changed()
    assert sorted(written) == ["00", "01", NEXT]
    assert first.take_changed() == {}
    second.recall(written)
    assert second.get(key(0)).reason == second.get(key(IN_CHUNK)).reason == "ClaimEnded"
    assert second.get(key(-1)) is None
    second.put(key(-1), WHY)
    changed = second.take_changed()
    # Only the chunk that has changed is written.
    assert sorted(changed) == ["01", NEXT]
    second.untake(changed)
    assert second.take_changed() == changed


def test_the_oldest_are_forgotten_and_what_is_written_is_bounded():
    ended, written = EndedClaims(), {}
    for number in range(IN_CHUNK * (CHUNKS + 2)):
        ended.put(key(number), WHY)
    written |= ended.take_changed()
    assert sum(map(len, written.values())) < 190_000
    other = EndedClaims()
    other.recall(written)
    assert other.get(key(0)) is None
    assert other.get(key(IN_CHUNK * (CHUNKS + 2) - 1)) is not None
    assert len(other._digests) <= IN_CHUNK * CHUNKS


@pytest.mark.parametrize("told", [{"00": "no base64!"}, {"00": "AAAA", NEXT: "x"}, {NEXT: "9" * 100}, {"77": "AAAA"}])
def test_what_cannot_be_read_is_left_out(told):
    ended = EndedClaims()
    ended.recall(told)
    assert ended.get(key(0)) is None
    ended.put(key(0), WHY)
    assert ended.get(key(0)) == WHY
