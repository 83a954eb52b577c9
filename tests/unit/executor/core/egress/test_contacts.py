"""What an executor hears of its session's connections, and what executions tell of it."""

import json

import pytest
from sandfleet_executor.core.egress.contacts import MOST, MOST_DENIED, Contacts, Line, denied


def report(host, reason="", port=443, **more):
    return json.dumps({"host": host, "port": port, "reason": reason, **more}).encode()


def test_a_connection_counts_its_bytes_until_the_next_one_or_its_end():
    line = Line(contacts := Contacts())
    line.sent(9)
    line.hear(report("a.test"), 10)
    line.sent(3)
    line.received(4)
    line.hear(report("b.test"), 20)
    line.received(5)
    first, second = contacts.since(0)
    assert (first.host, first.sent, first.received, first.start, first.end) == ("a.test", 3, 4, 10, 20)
    assert (second.received, second.end) == (5, 0)
    line.end(30)
    assert second.end == 30


def test_an_execution_tells_what_came_while_it_ran():
    line = Line(contacts := Contacts())
    line.hear(report("a.test", "NotListed", denied=True), 1)
    before = contacts.count
    line.hear(report("b.test", "NotListed", denied=True), 2)
    line.hear(report("c.test", "NotListed", 8443, denied=True), 3)
    line.hear(report("b.test", "TooMany", denied=True), 4)
    line.hear(report("d.test", "Unreachable"), 5)
    line.hear(report("e.test"), 6)
    assert denied(contacts.since(before)) == ("b.test", "c.test:8443")
    assert contacts.since(contacts.count) == ()


def test_both_are_bounded():
    line = Line(contacts := Contacts())
    for number in range(MOST + 9):
        line.hear(report(f"h{number}.test", "NotListed", denied=True), number)
    assert len(contacts.since(0)) == MOST
    assert contacts.since(0)[0].host == "h9.test"
    assert len(denied(contacts.since(0))) == MOST_DENIED
    line.hear(report("h" * 999, "N" * 999), 0)
    [last] = contacts.since(contacts.count - 1)
    assert (len(last.host), len(last.reason)) == (253, 64)


@pytest.mark.parametrize("said", [b"[]", b"null"])
def test_what_is_no_report_says_nothing(said):
    Line(contacts := Contacts()).hear(said, 1)
    assert contacts.count == 0
