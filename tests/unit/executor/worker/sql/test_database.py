"""Tables into a database and out of it: what is refused names the column, and changes nothing."""

import decimal
import socket
import threading

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from sandfleet_executor.worker.base import frames
from sandfleet_executor.worker.sql import context, database

ASKED = {"name": "t", "most_bytes": 1 << 30}


@pytest.fixture
def db():
    made = database.Database(0)
    made._con.execute("CREATE TABLE t AS SELECT 'old' AS a")
    return made


def taken(db, table, name="t"):
    """What the database answers to a table that is put."""
    ours, theirs = socket.socketpair()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    with ours, theirs:
        frames.send(ours, {"event": "table", "kind": "pandas"})
        ours.sendall(sink.getvalue())
        ours.shutdown(socket.SHUT_WR)
        db.take(ASKED | {"name": name}, theirs)
        return frames.receive(ours).header


def given(db, name="t", most=1 << 30):
    """What the database answers where a table is got, and the table."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        db.give({"name": name, "most_bytes": most}, theirs)
        theirs.shutdown(socket.SHUT_WR)
        said = frames.receive(ours).header
        rest = b"".join(iter(lambda: ours.recv(1 << 20), b""))
    return said, pa.ipc.open_stream(rest).read_all().to_pylist() if rest else None


def old(db):
    return db._con.execute("FROM t").fetchall() == [("old",)]


def test_a_table_is_put_and_got(db):
    said = taken(db, pa.table({"a": [1, 2], "b": [["x"], []]}))
    assert (said["event"], said["rows"], said["kind"]) == ("table", 2, "pyarrow")
    assert given(db)[1] == [{"a": 1, "b": ["x"]}, {"a": 2, "b": []}]


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array([np.float16(1)]), "halffloat"),
        (pa.array([decimal.Decimal("1" * 50)], pa.decimal256(60, 0)), "decimal256"),
        (pa.array([{"x": np.float16(1)}], pa.struct([("x", pa.float16())])), "struct<x: halffloat>"),
    ],
)
def test_a_column_that_sql_has_not_is_named_and_the_table_of_before_stays(db, column, kind):
    said = taken(db, pa.table({"good": [1], "bad": column}))
    assert (said["event"], said["reason"]) == ("refused", "UnsupportedColumn")
    assert "cannot put t: SQL has no column 'bad' of " + kind in said["message"]
    assert old(db)
    # Nothing is left that would be in the way of the next.
    assert taken(db, pa.table({"good": [1]}))["event"] == "table"


def test_what_the_database_does_not_take_for_other_reasons_says_why(db):
    db._con.execute("CREATE VIEW v AS SELECT 1 AS a")
    for table, name, words in (
        (pa.table({"a": [1]}), "v", "of type View"),
        (pa.table({}), "t", "at least one column"),
    ):
        said = taken(db, table, name)
        assert (said["reason"], words in said["message"]) == ("NotTaken", True)
    db._con.execute("BEGIN")
    with pytest.raises(duckdb.Error):
        db._con.execute("SELECT nope")
    assert "aborted" in taken(db, pa.table({"a": [1]}))["message"]
    db._con.execute("ROLLBACK")
    assert old(db)


def test_the_name_that_a_table_has_on_its_way_is_free_for_the_user(db):
    db._con.execute("CREATE TABLE _came AS SELECT 99 AS mine")
    assert taken(db, pa.table({"a": [1]}))["event"] == "table"
    assert db._con.execute("FROM _came").fetchall() == [(99,)]
    assert taken(db, pa.table({"a": [2]}), "_came")["event"] == "table"
    assert given(db, "_came")[1] == [{"a": 2}]


@pytest.mark.parametrize(
    ("code", "name", "reason", "words"),
    [
        ("", "nothing", "NoTable", "there is no table of that name"),
        ("", "last", "NoTable", "no statement has had rows yet"),
        ("CREATE VIEW v AS SELECT CAST(a AS INT) FROM (VALUES ('x')) t(a)", "v", "NotATable", "convert string 'x'"),
        ("CREATE TABLE u AS SELECT union_value(n := 2) AS bad", "u", "UnsupportedColumn", "column 'bad' has the type"),
        ("CREATE TABLE big AS SELECT repeat('x', 100) AS a FROM range(1000)", "big", "TooLarge", "limit of 10000"),
    ],
)
def test_what_cannot_be_got_says_why(db, code, name, reason, words):
    db._con.execute(code or "SELECT 1")
    said, rows = given(db, name, most=10_000)
    assert (said["event"], said["reason"], rows) == ("refused", reason, None)
    assert words in said["message"]


# Interrupts


class Db:
    """Counts its interrupts."""

    def __init__(self):
        self.interrupted = threading.Event()
        self.count = 0

    def interrupt(self):
        self.count += 1
        self.interrupted.set()


@pytest.fixture
def stop(monkeypatch):
    """As in a context, where only the handler of the signal is missing; `come` is the signal."""
    monkeypatch.setattr(context.signal, "signal", lambda *_: None)
    written = []
    monkeypatch.setattr(context.signal, "set_wakeup_fd", lambda fd, **_: written.append(fd))
    made = context.Stop(Db())
    made.come = lambda: context.os.write(written[0], bytes([context.signal.SIGINT]))
    return made


def test_an_interrupt_reaches_the_cell_that_runs(stop):
    with stop.cell():
        stop.come()
        assert stop._db.interrupted.wait(30)
        with pytest.raises(context.StoppedError):
            stop.check()


def test_an_interrupt_between_two_cells_does_not_reach_the_next(stop):
    stop.come()
    with stop.cell():
        stop.check()
        assert not stop._db.interrupted.wait(4 * context.AGAIN_SECONDS)
        stop.check()
        # Control: the one after that does.
        stop.come()
        assert stop._db.interrupted.wait(30)


def test_an_interrupt_of_a_cell_ends_with_it_however_soon_the_next_begins(stop):
    with stop.cell():
        stop.come()
        assert stop._db.interrupted.wait(30)
    count = stop._db.count
    with stop.cell():
        stop._db.interrupted.clear()
        # It was repeated for as long as the first cell ran.
        assert not stop._db.interrupted.wait(4 * context.AGAIN_SECONDS)
        stop.check()
    assert stop._db.count == count


def test_a_socket_that_is_read_is_shut_down(stop):
    ours, theirs = socket.socketpair()
    with ours, theirs, stop.cell(), stop.reading(theirs):
        stop.come()
        assert theirs.recv(1) == b""
