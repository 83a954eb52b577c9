"""Pickles of variables that share a memo."""

import io
import threading
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_executor.worker.python.state import pickles, restore, save


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
    return sink.file.getvalue(), count, writer.max_memo, failed


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
            failed[name] = restore.reason_of(error)
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


def test_a_failed_variable_costs_only_those_that_share_with_it():
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
def test_no_variable_gets_a_wrong_object_after_failures(parts):
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


def test_large_arrays_are_stored_beside_the_pickle_and_stay_writable():
    numpy = pytest.importorskip("numpy")
    array = numpy.arange(1 << 16)
    data, count, memo, _ = dump({"a": array, "b": array, "view": array[::2]})
    loaded, _ = load(data, count, memo)
    assert loaded["a"] is loaded["b"]
    loaded["a"][0] = 5
    assert (loaded["view"] == array[::2]).all()


def test_a_variable_above_its_limit_is_not_in_the_stream():
    data, count, memo, failed = dump({"small": 1, "big": b"x" * 1000, "after": 2}, limit=500)
    assert failed == {"big": "TooLargeError"}
    assert load(data, count, memo)[0] == {"small": 1, "after": 2}


def test_a_changed_byte_damages_only_its_variable():
    data, count, memo, _ = dump({"a": "aaaa", "b": "bbbb"})
    loaded, failed = load(data.replace(b"aaaa", b"aXaa"), count, memo)
    assert (loaded, failed) == ({"b": "bbbb"}, {"a": "Damaged"})


def test_failures_above_the_memo_budget_end_only_the_sharing(monkeypatch):
    monkeypatch.setattr(pickles, "MEMO_BUDGET", 0)
    shared = [1]
    data, count, memo, failed = dump({"a": shared, "bad": threading.Lock(), "b": shared, "c": [shared]})
    loaded, _ = load(data, count, memo)
    assert failed == {"bad": "TypeError"}
    assert loaded == {"a": [1], "b": [1], "c": [[1]]}
    assert loaded["c"][0] is loaded["b"]


def test_changes_of_the_environment_are_set_and_removed_variables():
    before = {"a": "1", "b": "2", "c": "3"}
    assert save.changes(before, {"a": "1", "b": "x", "d": "4"}) == {"b": "x", "d": "4", "c": None}
