"""Saved states: what is decided about them, their file, and the pickles that share a memo."""

import errno
import io
import os
import threading
from dataclasses import replace
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_executor.core import states
from sandfleet_executor.core.requests import BadRequest
from sandfleet_executor.core.states import BadState, Item, Listing, Manifest
from sandfleet_executor.effects import statestore
from sandfleet_executor.effects.statestore import (
    AUTOMATIC,
    NAMED,
    NoSpaceError,
    NoStateDirError,
    StateDamagedError,
    StateMissingError,
    StateStore,
)
from sandfleet_executor.worker import forksafe, packets, pickles, restoring, saving
from sandfleet_executor.worker.frames import FrameError

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
def test_bounds_that_are_none_are_refused(asked):
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
def test_packets_that_are_none_are_refused(data):
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

    monkeypatch.setattr(statestore.os, "write", full)
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


# The pickles


class Memory:
    def __init__(self):
        self.file = io.BytesIO()

    @property
    def written(self):
        return self.file.tell()

    def write(self, data):
        self.file.write(data)

    def back_to(self, size):
        self.file.seek(size)
        self.file.truncate()


def dump(namespace, limit=1 << 30):
    """(bytes, records, memo, why → names)"""
    sink, failed, count = Memory(), {}, 0
    writer = pickles.Writer(namespace, sink, limit)
    for name, value in namespace.items():
        before = sink.written
        try:
            writer.record(name, pickles.VALUE, value)
            count += 1
        except Exception as error:  # noqa: BLE001
            failed[name] = type(error).__name__
            sink.back_to(before)
    return sink.file.getvalue(), count, writer.most, failed


def load(data, count, memo, *, broken=()):
    file, namespace, failed = io.BytesIO(data), {}, {}

    def part(size):
        found = bytearray(file.read(size))
        if len(found) < size:
            raise EOFError
        return found

    pickles.use(namespace)
    reader = pickles.Reader(part, memo)
    for name, _, loader in reader.records(count):
        for word in broken:
            Breaks.broken.add(word)
        try:
            namespace[name] = loader()
        except Exception as error:  # noqa: BLE001
            failed[name] = restoring.reason_of(error)
    Breaks.broken.clear()
    return namespace, failed


class Breaks:
    """Cannot be loaded while its word is among the broken ones."""

    broken: ClassVar[set[str]] = set()

    def __init__(self, word, *held):
        self.word, self.held = word, held

    def __reduce__(self):
        return make_breaks, (self.held, self.word)


def make_breaks(held, word):
    if word in Breaks.broken:
        raise ValueError(word)
    return Breaks(word, *held)


def test_what_cannot_be_loaded_takes_only_what_shares_with_it():
    inner, outer = ["inner"], ["outer"]
    namespace = {
        "first": outer,
        "bad": Breaks("b", inner, outer),
        "lone": [outer, ["x"]],
        "second": inner,
        "third": [outer],
    }
    data, count, memo, failed = dump(namespace)
    assert not failed
    loaded, failed = load(data, count, memo, broken=["b"])
    # The list in `bad` was read before the failure, so it is there; what the failure cut off would not be.
    assert failed.keys() <= {"bad", "second"}
    assert failed["bad"] == "NotRestorable"
    assert loaded["lone"][0] is loaded["first"] is loaded["third"][0]
    assert loaded["lone"][1] == ["x"]


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.booleans()), min_size=1, max_size=12))
def test_whatever_fails_nothing_gets_what_it_did_not_have(parts):
    """Variables share lists at random; some cannot be saved, some cannot be loaded."""
    shared = [[f"shared {number}"] for number in range(5)]
    namespace = {}
    for number, (share, unsavable, unloadable) in enumerate(parts):
        held = [shared[share], [f"own {number}"]]
        namespace[f"v{number}"] = [held, threading.Lock() if unsavable else number] if unsavable else held
        if unloadable and not unsavable:
            namespace[f"v{number}"] = Breaks(f"v{number}", *held)
    data, count, memo, unsaved = dump(namespace)
    assert unsaved.keys() == {f"v{n}" for n, (_, unsavable, _) in enumerate(parts) if unsavable}
    broken = [f"v{n}" for n, (_, unsavable, unloadable) in enumerate(parts) if unloadable and not unsavable]
    loaded, failed = load(data, count, memo, broken=broken)
    assert set(broken) <= failed.keys()
    assert {reason for name, reason in failed.items() if name not in broken} <= {"SharesWithMissing"}
    for name, held in loaded.items():
        number = int(name[1:])
        assert held == [shared[parts[number][0]], [f"own {number}"]]
    for one, first in loaded.items():
        for other, second in loaded.items():
            if parts[int(one[1:])][0] == parts[int(other[1:])][0]:
                assert first[0] is second[0]


def test_large_memory_goes_beside_the_pickle_and_is_writable():
    numpy = pytest.importorskip("numpy")
    array = numpy.arange(1 << 16)
    data, count, memo, _ = dump({"a": array, "b": array, "view": array[::2]})
    loaded, _ = load(data, count, memo)
    assert loaded["a"] is loaded["b"]
    loaded["a"][0] = 5
    assert (loaded["view"] == array[::2]).all()


def test_a_variable_over_its_limit_is_not_in_the_stream():
    data, count, memo, failed = dump({"small": 1, "big": b"x" * 1000, "after": 2}, limit=500)
    assert failed == {"big": "TooLargeError"}
    assert load(data, count, memo)[0] == {"small": 1, "after": 2}


def test_a_changed_byte_is_found_in_the_variable_that_it_belongs_to():
    data, count, memo, _ = dump({"a": "aaaa", "b": "bbbb"})
    loaded, failed = load(data.replace(b"aaaa", b"aXaa"), count, memo)
    assert (loaded, failed) == ({"b": "bbbb"}, {"a": "Damaged"})


def test_more_failures_than_the_memo_budget_end_the_sharing_and_nothing_else(monkeypatch):
    monkeypatch.setattr(pickles, "MEMO_BUDGET", 0)
    shared = [1]
    data, count, memo, failed = dump({"a": shared, "bad": threading.Lock(), "b": shared, "c": [shared]})
    loaded, _ = load(data, count, memo)
    assert failed == {"bad": "TypeError"}
    assert loaded == {"a": [1], "b": [1], "c": [[1]]}
    assert loaded["c"][0] is loaded["b"]


# Small decisions


def test_changes_of_the_environment_are_what_was_set_and_what_was_removed():
    before = {"a": "1", "b": "2", "c": "3"}
    assert saving.changes(before, {"a": "1", "b": "x", "d": "4"}) == {"b": "x", "d": "4", "c": None}


def test_threads_that_nobody_knows_are_unsafe_up_to_a_number():
    assert forksafe.unsafe(["IPythonHistorySavingThread", "mine", "also"]) == ["also", "mine"]
    assert len(forksafe.unsafe([f"t{i}" for i in range(100)])) == forksafe.MAX_NAMES


def test_this_process_s_threads_are_seen():
    done = threading.Event()
    thread = threading.Thread(target=done.wait, name="seen")
    thread.start()
    try:
        assert "seen" in forksafe.unsafe_threads()
    finally:
        done.set()
        thread.join()
    assert "seen" not in forksafe.unsafe_threads()
