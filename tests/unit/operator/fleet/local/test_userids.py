"""The user ids of a fleet on one machine."""

import pytest
from sandfleet_operator.fleet.local.userids import BLOCK, FALLBACK_FIRST, NoUserIdsError, take_block

pytestmark = pytest.mark.process

WHOLE_MACHINE = "         0          0 4294967295\n"


def test_two_owners_at_once_have_different_user_ids():
    one, other = take_block(WHOLE_MACHINE), take_block(WHOLE_MACHINE)
    try:
        assert abs(one.first - other.first) >= BLOCK
    finally:
        one.close()
        other.close()


def test_a_workspace_keeps_its_user_id_and_no_other_has_it():
    ids = take_block(WHOLE_MACHINE)
    try:
        first = ids.of("w1")
        assert ids.of("w1") == first
        others = {ids.of(f"x{number}") for number in range(BLOCK - 1)}
        assert first not in others
        with pytest.raises(NoUserIdsError, match="all 4096 are in use"):
            ids.of("one too many")
        ids.give_back("w1")
        assert ids.of("w2") == first
    finally:
        ids.close()


def test_user_ids_exist_in_a_small_user_namespace_too():
    ids = take_block("0 100000 65536\n")
    try:
        assert FALLBACK_FIRST <= ids.first <= 65536 - BLOCK
    finally:
        ids.close()


def test_a_machine_without_free_user_ids_is_an_error():
    with pytest.raises(NoUserIdsError, match="this user namespace has none"):
        take_block("0 1000 1\n")
