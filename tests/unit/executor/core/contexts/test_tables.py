"""Requests for tables, and what an interpreter says of one."""

import pytest
from sandfleet_executor.core.contexts import tables
from sandfleet_executor.core.contexts.frames import BadFrame
from sandfleet_executor.core.contexts.tables import GIVE, TAKE, NoTableError, Table
from sandfleet_executor.core.errors import BadRequest

SAID = {"event": "table", "kind": "pandas", "rows": 2, "columns": 1, "bytes": 16}


def test_a_request_has_the_defaults_where_it_says_nothing():
    asked = tables.check(GIVE, "df", None)
    assert (asked.seconds, asked.most_bytes, asked.kind, asked.verb) == (60, 1 << 30, "pyarrow", "get")
    assert asked.header == {"op": "give", "name": "df", "most_bytes": 1 << 30, "lent": False}
    assert tables.check(TAKE, "ä" * 256, 600, 1, kind="polars").verb == "put"


@pytest.mark.parametrize(
    ("name", "seconds", "most", "kind", "message"),
    [
        ("", None, 0, "", "cannot put ''"),
        ("a b", None, 0, "", "a variable's name is an identifier"),
        ("a" * 257, None, 0, "", "at most 256 characters"),
        ("df", 0.0, 0, "", "above 0"),
        ("df", 601.0, 0, "", "at most 600"),
        ("df", float("nan"), 0, "", "within nan s"),
        ("df", None, (1 << 30) + 1, "", "the most is 1073741824"),
        ("df", None, 0, "numpy", "libraries are pandas, polars, pyarrow"),
    ],
)
def test_a_request_that_is_wrong_is_refused(name, seconds, most, kind, message):
    with pytest.raises(BadRequest, match=message):
        tables.check(TAKE, name, seconds, most, kind=kind)


def test_a_table_that_is_announced_as_too_large_is_refused_before_it_comes():
    assert tables.check(TAKE, "df", None, size=1 << 30).word == {"event": "table", "kind": "pyarrow", "size": 1 << 30}
    with pytest.raises(NoTableError, match="it has 1073741825 bytes") as raised:
        tables.check(TAKE, "df", None, size=(1 << 30) + 1)
    assert raised.value.reason == "TooLarge"


def test_what_an_interpreter_says_of_a_table_is_taken():
    assert tables.parse(SAID) == Table("pandas", 2, 1, 16)


@pytest.mark.parametrize(
    "wrong",
    [
        {"event": "done"},
        {"event": ["table"]},
        {"kind": "numpy"},
        {"kind": ["pandas"]},
        {"rows": -1},
        {"rows": True},
        {"rows": 1.5},
        {"rows": "2"},
        {"rows": 1 << 62},
        {"columns": 1 << 31},
        {"bytes": None},
        {"bytes": 10**400},
        {"event": "refused"},
        {"event": "refused", "reason": "Because"},
        {"event": "refused", "reason": ["NoTable"]},
    ],
)
def test_what_is_not_exactly_right_is_not_believed(wrong):
    with pytest.raises(BadFrame):
        tables.parse(SAID | wrong)


@pytest.mark.parametrize("reason", tables.REASONS)
def test_a_refusal_has_a_reason_that_the_api_knows(reason):
    with pytest.raises(NoTableError, match="why") as raised:
        tables.parse({"event": "refused", "reason": reason, "message": "why"})
    assert (raised.value.reason, raised.value.code) == (reason, tables.REASONS[reason])


@pytest.mark.parametrize("message", ["x" * 100_000, "\ud800", 5, None])
def test_the_words_of_a_refusal_are_bounded_and_text(message):
    with pytest.raises(NoTableError) as raised:
        tables.parse({"event": "refused", "reason": "NoTable", "message": message})
    assert len(str(raised.value).encode()) <= 1000


def test_a_table_that_is_copied_needs_its_memory_twice():
    # 10 of it are there, and 90 are left.
    assert tables.most_for(90, 10, "pyarrow") == 100
    assert tables.most_for(90, 10, "pandas") == tables.most_for(90, 10, "") == 50
    assert tables.most_for(-50, 10, "polars") < 0
