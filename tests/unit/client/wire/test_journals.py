"""What an executor and a fleet say of journals is checked before it is used."""

import pytest
from sandfleet._wire import api
from sandfleet._wire.convert import journals
from sandfleet.errors import ProtocolError
from sandfleet.journal.records import NO_HASH

GOOD = {"number": 3, "hash": "a" * 64, "anchor_number": 0, "anchor_hash": NO_HASH}
SIGNED = {"session": "s", "pod_uid": "p", "number": 3, "hash": "a" * 64, "time_ms": 5, "key_id": "k"}


def test_a_status_is_read():
    found = journals.status(api.journal.HeadResponse(**GOOD, pod_uid="p" * 9999, missed_records=2, lasting=True))
    assert (found.head.number, found.missed, found.lasting, len(found.pod_uid)) == (3, 2, True, 512)


@pytest.mark.parametrize(
    "wrong",
    [
        {"hash": ""},
        {"hash": "A" * 64},
        {"hash": "a" * 63 + "\n"},
        {"number": 1 << 63},
        {"number": 0},
        {"anchor_hash": "x"},
        {"anchor_number": 0, "anchor_hash": "a" * 64},
    ],
)
def test_a_status_that_is_none_is_refused(wrong):
    with pytest.raises(ProtocolError):
        journals.status(api.journal.HeadResponse(**GOOD | wrong))


@pytest.mark.parametrize(
    "wrong",
    [
        {"number": 0},
        {"number": 1 << 63},
        {"hash": "x"},
        {"time_ms": 0},
        {"session": "s" * 600},
        {"key_id": "k" * 600},
        {"signature": b"x" * 300},
        {"public_key": b"x" * 300},
    ],
)
def test_signed_heads_that_are_none_are_left_out_and_their_number_is_bounded(wrong):
    good = api.fleet.JournalHead(**SIGNED)
    assert len(journals.signed([good, api.fleet.JournalHead(**SIGNED | wrong)])) == 1
    assert len(journals.signed([good] * 1000)) == 64
