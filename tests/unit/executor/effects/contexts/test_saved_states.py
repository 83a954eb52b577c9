"""Saved states: what is decided about them, their file, and the pickles that share a memo."""

import asyncio
import contextvars
import errno
import os
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_executor.core.contexts import states
from sandfleet_executor.core.contexts.states import BadState, Item, Listing, Manifest
from sandfleet_executor.core.errors import BadRequest
from sandfleet_executor.effects.contexts import reviewed_states, state_store
from sandfleet_executor.effects.contexts.state_store import (
    AUTOMATIC,
    NAMED,
    NoSpaceError,
    NoStateDirError,
    StateDamagedError,
    StateMissingError,
    StateReplacedError,
    StateStore,
)
from sandfleet_executor.worker.base import packets
from sandfleet_executor.worker.base.frames import FrameError

MANIFEST = Manifest("c", 1, 2, size=3, records=1, memo=4, saved=(Item("x"),), unsaved=(Item("y", reason="TooLarge"),))


def names_of_any_length():
    return st.lists(st.text(min_size=1, max_size=300), min_size=1, max_size=200)


@given(names_of_any_length())
def test_the_words_for_lost_variables_always_fit(names):
    (words,) = states.still_lost(names, 3, 3)
    assert len(words) <= states.LOST_CHARACTERS


@pytest.mark.parametrize(
    ("missing", "saved_at", "last", "words"),
    [
        ([], 3, 3, ()),
        (["a", "b"], 3, 3, ("variables: a, b",)),
        ([], 3, 5, ("variables since cell 3",)),
        (["a"], 0, 5, ("variables: a", "variables since cell 0")),
        ([f"name_{i}" for i in range(9)], 1, 1, ("variables: name_0, name_1, name_2, name_3, name_4 and 4 more",)),
        (["x" * 300], 1, 1, ("variables: 1",)),
    ],
)
def test_what_a_state_does_not_bring_back_is_said_in_few_words(missing, saved_at, last, words):
    assert states.still_lost(missing, saved_at, last) == words


@pytest.mark.parametrize(
    ("asked", "bounds"),
    [
        ((0, 0, None), states.Bounds()),
        ((5, 0, None), states.Bounds(5, 5)),
        ((5, 9, 2.0), states.Bounds(5, 5, 2.0)),
        ((9, 5, 2.0), states.Bounds(9, 5, 2.0)),
    ],
)
def test_bounds_have_defaults_and_one_variable_has_no_more_than_all(asked, bounds):
    assert states.check_bounds(*asked) == bounds


@pytest.mark.parametrize(
    "asked", [(1 << 40, 0, None), (0, 1 << 40, None), (0, 0, 0.0), (0, 0, 1e9), (0, 0, float("nan"))]
)
def test_invalid_bounds_are_refused(asked):
    with pytest.raises(BadRequest):
        states.check_bounds(*asked)


def test_a_listing_counts_what_it_has_no_room_for():
    listing = Listing()
    for _ in range(20_000):
        listing.add(Item("x" * 250))
    assert listing.omitted > 0
    assert len(listing.items) + listing.omitted == 20_000


@pytest.mark.parametrize(
    "word",
    [{}, {"name": 1, "kind": "value"}, {"name": "a", "kind": "root"}, {"name": "a", "kind": "value", "size": True}],
)
def test_words_of_an_interpreter_that_are_not_right_are_refused(word):
    with pytest.raises(BadState):
        states.item_of(word)


def test_an_item_without_a_reason_is_not_missing():
    with pytest.raises(BadState):
        states.missing_of({"name": "a", "kind": "value"})


@pytest.mark.parametrize("data", [b"", b"abc", packets.PREFIX.pack(9) + b"{}", packets.PREFIX.pack(2) + b"[]"])
def test_invalid_packets_are_refused(data):
    with pytest.raises(FrameError):
        packets.decode(data)


# The file


def written(folder, name="s", data=b"abc", kind=NAMED):
    store = StateStore(folder)
    draft = store.begin(kind, name, 1 << 20)
    draft.write(data)
    draft.commit(replace(MANIFEST, size=len(data)))
    return store


def test_a_state_is_read_as_it_was_written(tmp_path):
    manifest, fd = written(tmp_path).read(NAMED, "s")
    assert os.read(fd, 3) == b"abc"
    os.close(fd)
    assert manifest == MANIFEST


def test_automatic_and_named_states_have_names_of_their_own(tmp_path):
    store = written(tmp_path, kind=AUTOMATIC)
    assert list(store.list()) == []
    with pytest.raises(StateMissingError):
        store.read(NAMED, "s")


def damages(path):
    whole = path.read_bytes()
    yield from (whole[:size] for size in range(0, len(whole), 7))
    yield whole + b"x"
    yield b"abcd" + whole[3:]
    for at in (len(whole) - 1, len(whole) - 20, len(whole) - 10):
        yield whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]


def test_a_torn_state_is_known_as_such(tmp_path):
    store = written(tmp_path)
    (path,) = tmp_path.glob("*/*/s.state")
    for damaged in list(damages(path)):
        path.write_bytes(damaged)
        with pytest.raises(StateDamagedError):
            store.read(NAMED, "s")


def test_what_was_not_committed_leaves_the_older_state_and_no_file(tmp_path):
    store = written(tmp_path)
    draft = store.begin(NAMED, "s", 1 << 20)
    draft.write(b"newer")
    draft.discard()
    _, fd = store.read(NAMED, "s")
    assert os.read(fd, 3) == b"abc"
    os.close(fd)
    assert len(list(tmp_path.glob("*/*/*"))) == 1


def test_what_an_executor_before_left_unfinished_is_removed(tmp_path):
    store = written(tmp_path)
    store.begin(NAMED, "s", 1 << 20)
    assert len(list(tmp_path.glob("*/*/*"))) == 2
    StateStore(tmp_path).open()
    assert [path.name for path in tmp_path.glob("*/*/*")] == ["s.state"]


def test_a_full_disk_is_an_error_of_its_own_and_the_older_state_is_whole(tmp_path, monkeypatch):
    store = written(tmp_path)
    draft = store.begin(NAMED, "s", 1 << 20)

    def full(fd, data):
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(state_store.os, "write", full)
    with pytest.raises(NoSpaceError):
        draft.write(b"x")
    monkeypatch.undo()
    draft.discard()
    _, fd = store.read(NAMED, "s")
    assert os.read(fd, 3) == b"abc"
    os.close(fd)


def test_without_a_folder_there_are_no_states():
    store = StateStore(None)
    store.open()
    store.delete(NAMED, "s")
    with pytest.raises(NoStateDirError):
        store.begin(NAMED, "s", 1)


def test_a_state_that_took_the_place_of_the_approved_one_is_not_restored(tmp_path):
    store = StateStore(tmp_path)

    def save(data):
        draft = store.begin(NAMED, "kept", 100)
        draft.write(data)
        draft.commit(replace(MANIFEST, size=len(data)))

    def reads():
        """Whether the state of the name passes, as a restore of a named state checks it."""
        _, fd = store.read(NAMED, "kept")
        try:
            reviewed_states.check_approved(fd, "kept")
            return os.read(fd, 3)
        finally:
            os.close(fd)

    def approved():
        save(b"one")
        shown = asyncio.run(reviewed_states.StoredStates(store).shown("kept"))
        assert shown.sha256 in shown.content.decode()
        reviewed_states.APPROVED.set(shown.sha256)
        assert reads() == b"one"
        save(b"two")
        with pytest.raises(StateReplacedError):
            reads()
        # Control: where no reviewer is needed, the newest one is restored.
        reviewed_states.APPROVED.set(None)
        assert reads() == b"two"

    contextvars.copy_context().run(approved)
