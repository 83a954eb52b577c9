"""Calls of tools: what waits to be sent to a host is bounded."""

from sandfleet_executor.core.tools.calls import MAX_NOTICES, Acknowledged, Calls, Sent
from sandfleet_executor.core.tools.values import Call, Caller, Tool, Value

TOOL = Tool("search", "", (), "", "{}")


def notices(calls, stream):
    """The ids that are acknowledged on the stream."""
    return [message.call_id for message in iter(lambda: calls.take(stream), None) if isinstance(message, Acknowledged)]


def test_a_host_that_answers_unknown_calls_and_reads_nothing_makes_nothing_grow():
    calls = Calls()
    calls.connect(1, "host", {"search": TOOL})
    calls.ask(Call("real", "search", Value(b"{}"), Caller("e")))
    assert isinstance(calls.take(1), Sent)
    for number in range(MAX_NOTICES + 100):
        assert calls.answer(1, f"unknown-{number}", Value(b"1")) is None
    assert calls.answer(1, "real", Value(b"2")) == ("real", Value(b"2"))
    sent = notices(calls, 1)
    assert (len(sent), sent[-1]) == (MAX_NOTICES + 1, "real")
    # When it has read, its late answers are acknowledged again.
    calls.answer(1, "late", Value(b"3"))
    assert notices(calls, 1) == ["late"]
