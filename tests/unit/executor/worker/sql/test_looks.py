"""Completion and inspection of SQL, from a catalogue."""

import duckdb
import pytest
from sandfleet_executor.worker.base import packets
from sandfleet_executor.worker.sql import looks


@pytest.fixture(scope="module")
def con():
    with duckdb.connect() as made:
        made.execute('CREATE TABLE sales (region TEXT, amount INT); CREATE TABLE "odd name" (a INT)')
        yield made


@pytest.mark.parametrize(
    ("code", "matches", "begun"),
    [
        ("sel", ["SELECT"], 3),
        ("FROM sal", ["sales"], 3),
        ("FROM odd", ['"odd name"'], 3),
        ("FROM sales AS s SELECT s.am", ["amount"], 2),
        ("FROM sales SELECT amou", ["amount"], 4),
        ("SELECT date_tr", ["date_trunc"], 7),
        ("SELECT nothing.at", [], 2),
        ('SELECT "é"; sel', ["SELECT"], 3),
    ],
)
def test_code_is_completed_from_the_catalogue(con, code, matches, begun):
    found = packets.decode(looks.look(con, "complete", code, len(code), 60)).header
    assert set(matches) <= set(found["matches"])
    assert bool(matches) == bool(found["matches"])
    assert (found["start"], found["end"]) == (len(code) - begun, len(code))


@pytest.mark.parametrize(
    ("code", "cursor", "text"),
    [
        ("FROM sales", 7, "table sales\n  region VARCHAR\n  amount INTEGER"),
        ("SELECT amount FROM sales", 8, "sales.amount INTEGER"),
        ("SELECT date_trunc(", 10, "date_trunc(part VARCHAR, timestamp DATE) -> TIMESTAMP"),
        ("SELECT nope", 8, ""),
        ("SELECT ", 7, ""),
    ],
)
def test_names_are_described(con, code, cursor, text):
    found = packets.decode(looks.look(con, "inspect", code, cursor, 60))
    assert text in found.payload.decode()
    assert found.header["found"] is bool(text)


def test_a_transaction_that_has_failed_finds_nothing():
    with duckdb.connect() as con:
        con.execute("BEGIN")
        with pytest.raises(duckdb.Error):
            con.execute("SELECT 1 / CAST('x' AS INT)")
        assert packets.decode(looks.look(con, "complete", "sel", 3, 60)).header["matches"] in ([], ["SELECT"])
