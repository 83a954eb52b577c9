"""The ring of events against a model that forgets nothing."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sandfleet_executor.core.executions.event_log import EventLog
from sandfleet_executor.core.executions.events import STDOUT, Error, Finished, Frame, Gap, Output, Result


class Model(RuleBasedStateMachine):
    """One reader that reads now and then, and gives free what it has read."""

    @initialize(capacity=st.integers(1, 500))
    def start(self, capacity):
        self.log = EventLog(capacity)
        self.all = []
        self.position, self.seen = 1, 0
        self.read, self.told = [], 0

    @rule(
        event=st.one_of(
            st.builds(Output, st.just(STDOUT), st.binary(max_size=60)), st.builds(Result, st.just(()), st.booleans())
        )
    )
    def append(self, event):
        self.all.append(event)
        assert self.log.append(event) == len(self.all)

    @rule(count=st.integers(1, 5))
    def take(self, count):
        for number, event in self.log.read(self.position, self.seen)[:count]:
            if isinstance(event, Gap):
                missed = self.all[self.position - 1 : number]
                assert event == Gap(0, _bytes_of(missed), len(missed))
                self.told += event.dropped_bytes
                self.seen += event.dropped_bytes
            else:
                assert number == self.position
                assert event == self.all[number - 1]
                self.read.append(event)
                self.seen += _bytes_of([event])
            self.position = number + 1
            self.log.discard_before(self.position)

    @invariant()
    def holds_no_more_than_it_may(self):
        if hasattr(self, "log") and self.all:
            assert self.log.size <= max(self.log.capacity, self.all[-1].size)
            assert self.log.next == len(self.all) + 1

    def teardown(self):
        while hasattr(self, "log") and self.position < self.log.next:
            self.take(5)
        if hasattr(self, "log"):
            assert _bytes_of(self.read) + self.told == _bytes_of(self.all)


def _bytes_of(events):
    return sum(len(event.data) for event in events if isinstance(event, Output))


TestEventLog = Model.TestCase


def test_the_last_event_stays_however_large_it_is():
    log = EventLog(1)
    log.append(Output(STDOUT, b"x" * 1000))
    log.append(Finished("ok"))
    assert [event for _, event in log.read(1, 0)] == [Gap(0, 1000, 1), Finished("ok")]


def test_a_gap_has_the_number_of_the_last_event_that_is_missing():
    log = EventLog(2 * Output(STDOUT, b"x" * 10).size)
    for _ in range(10):
        log.append(Output(STDOUT, b"x" * 10))
    numbers = [number for number, _ in log.read(1, 0)]
    assert numbers == [8, 9, 10]


def test_two_gaps_of_one_reader_do_not_count_the_same_bytes_twice():
    log, seen, position, told = EventLog(Output(STDOUT, b"x" * 10).size), 0, 1, []
    for _ in range(2):
        for _ in range(3):
            log.append(Output(STDOUT, b"x" * 10))
        for number, event in log.read(position, seen):
            seen += event.dropped_bytes if isinstance(event, Gap) else len(event.data)
            told += [event.dropped_bytes] if isinstance(event, Gap) else []
            position = number + 1
            log.discard_before(position)
    assert told == [20, 20]
    assert seen == 60


@given(st.integers(1, 20))
def test_a_raised_capacity_keeps_what_would_have_been_forgotten(count):
    log = EventLog(1)
    log.capacity += count * Output(STDOUT, b"x" * 10).size
    for _ in range(count):
        log.append(Output(STDOUT, b"x" * 10))
    assert [number for number, _ in log.read(1, 0)] == list(range(1, count + 1))


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda n: Output(1, b"%d" % n),
        lambda n: Result((("text/plain", b"%d" % n), ("text/html", b"<p>%d" % n)), is_main=True),
        lambda n: Error(f"E{n}", f"v{n}", "", tuple(Frame(f"f{n}{k}", k, f"g{n}{k}", f"s{n}{k}") for k in range(20))),
        lambda n: Error(f"E{n}", chr(0x1F600) * 100, chr(0x100) * 100 + str(n)),
    ],
    ids=["output", "results", "frames", "characters"],
)
def test_what_a_ring_holds_in_truth_is_not_more_than_it_counts(make):
    """However small each event is: else a flood of tiny ones would take many times the bound."""
    log = EventLog(1 << 20)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for n in range(2_000):
        log.append(make(n))
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    # Forgotten places and what the allocator rounds up come on top.
    assert held < 2 * log.size + (64 << 10)
