"""Modules that are loaded ahead: which may be named, and what becomes of each."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_executor.core.errors import BadRequest
from sandfleet_executor.core.packages import preload
from sandfleet_executor.core.packages.preload import Preloads, State


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ("pandas", "have to be a list"),
        (["m"] * 33, "at most 32"),
        (["a", "a"], "named twice"),
        ([""], "no name of a module"),
        (["a b"], "no name of a module"),
        (["a."], "no name of a module"),
        (["1a"], "no name of a module"),
        (["é"], "no name of a module"),
        (["os; import evil"], "no name of a module"),
        (["a\n"], "no name of a module"),
        (["m" * 101], "no name of a module"),
        ([1], "no name of a module"),
    ],
)
def test_what_is_no_list_of_modules_is_refused(names, why):
    with pytest.raises(BadRequest, match=why):
        preload.check(names)


def test_names_with_dots_are_taken_in_their_order():
    assert preload.check(["matplotlib.pyplot", "_a.b1"]) == ("matplotlib.pyplot", "_a.b1")


def states(status):
    return [(each.name, each.state.value, each.problem) for each in status.modules]


def test_each_module_is_loaded_or_has_failed_in_the_end():
    status = Preloads.of(["a", "b"])
    assert (status.settled, status.wanted) == (False, ["a", "b"])
    for said in (
        {"event": "preloading", "module": "a"},
        {"event": "preloaded", "module": "a", "problem": ""},
        {"event": "preloading", "module": "b"},
        {"event": "preloaded", "module": "b", "problem": "ImportError: why"},
    ):
        assert not status.settled
        status = status.heard(said)
    assert status.settled
    assert states(status) == [("a", "loaded", ""), ("b", "failed", "ImportError: why")]
    assert status.wanted == ["a"]


def test_a_module_that_ends_the_process_is_left_out_and_the_others_are_loaded_again():
    status = Preloads.of(["a", "b", "c"])
    for said in (
        {"event": "preloading", "module": "a"},
        {"event": "preloaded", "module": "a", "problem": ""},
        {"event": "preloading", "module": "b"},
    ):
        status = status.heard(said)
    status = status.ended()
    assert status.wanted == ["a", "c"]
    assert [state for _, state, _ in states(status)] == ["waiting", "failed", "waiting"]


def test_what_is_given_up_keeps_the_reasons_that_are_known():
    status = Preloads.of(["a", "b"]).heard({"event": "preloaded", "module": "a", "problem": "why"}).given_up("too slow")
    assert states(status) == [("a", "failed", "why"), ("b", "failed", "too slow")]
    assert preload.told(status.failed) == "cannot preload a (why); b (too slow)"


words = st.sampled_from(["a", "b", "event", "preloading", "preloaded", "", "\ud800"]) | st.none() | st.integers()


@given(st.lists(st.dictionaries(st.sampled_from(["event", "module", "problem"]), words)))
def test_whatever_the_spawner_says_the_modules_stay_the_same(said):
    status = Preloads.of(["a", "b"])
    for each in said:
        status = status.heard(each)
    assert [each.name for each in status.modules] == ["a", "b"]
    assert all(each.state in State for each in status.modules)
    preload.told(status.failed).encode()
