"""Tables over a socket, as the two sides of it see them."""

import socket
import sys
import threading
from unittest import mock

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sandfleet_executor.worker.base import frames, tables
from sandfleet_executor.worker.python.state import tables as variables
from sandfleet_rules import tables as rules

FRAME = pd.DataFrame({"a": range(1000), "b": ["x"] * 1000})
ASKED = {"name": "df", "most_bytes": 1 << 20}


def stream(table):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=100)
    return sink.getvalue().to_pybytes()


def sent(work):
    """All that `work` sends: the header of the first frame, and what follows it."""
    ours, theirs = socket.socketpair()
    with ours:
        thread = threading.Thread(target=lambda: (work(theirs), theirs.close()))
        thread.start()
        frame = frames.receive(ours)
        rest = b""
        while data := ours.recv(1 << 20):
            rest += data
        thread.join()
    return frame.header, rest


def offered(data, said=None):
    """A socket with this to read, and its other end."""
    ours, theirs = socket.socketpair()

    def offer():
        frames.send(ours, {"event": "table", "kind": "pandas", **(said or {})})
        ours.sendall(data)
        ours.shutdown(socket.SHUT_WR)

    threading.Thread(target=offer, daemon=True).start()
    return theirs, ours


@pytest.mark.parametrize("made", [FRAME, pl.from_pandas(FRAME), pa.table(FRAME)], ids=rules.LIBRARIES)
def test_a_table_is_sent_with_what_it_is_and_read_again(made):
    said, data = sent(lambda sock: tables.send(sock, ASKED, made))
    assert (said["event"], said["kind"], said["rows"], said["columns"]) == ("table", rules.kind_of(made), 1000, 2)
    assert data.endswith(tables.END)
    theirs, ours = offered(data, said)
    with theirs, ours:
        table, value = tables.take(theirs, "df")
    assert table.num_rows == 1000
    assert type(value) is type(made)


@pytest.mark.parametrize(
    ("value", "reason", "message"),
    [
        (5, "NotATable", "cannot get df: it is no table, but a int"),
        (pl.DataFrame({"bad": [object()]}), "UnsupportedColumn", "column 'bad' has objects of Python"),
        (pd.DataFrame({"bad": [1j]}), "UnsupportedColumn", "Unsupported numpy type"),
        (pa.table({"bad": pa.array([b"x" * 16], pa.uuid())}), "UnsupportedColumn", "its column 'bad' has the ext"),
        (pd.DataFrame({"a": range(1 << 18)}), "TooLarge", "2097152 bytes, and the limit is 1048576"),
    ],
)
def test_what_is_not_sent_is_refused_with_the_reason(value, reason, message):
    said, rest = sent(lambda sock: tables.send(sock, ASKED, value))
    assert (said["event"], said["reason"], rest) == ("refused", reason, b"")
    assert message in said["message"]


def test_a_column_of_several_types_comes_as_text_and_a_second_name_with_a_number():
    frame = pd.DataFrame([[1, "x", 1, None], ["y", "z", 2, 0.5]], columns=["a", "a", "b", "a.1"])
    with pytest.raises(ValueError, match="Duplicate column names"):
        # Control: Arrow has no such columns.
        tables.as_arrow(frame)
    said, data = sent(lambda sock: tables.send(sock, ASKED, frame))
    assert (said["event"], said["columns"]) == ("table", 4)
    table = tables.read_arrow(data)
    assert table.to_pylist() == [
        {"a": "1", "a.1": "x", "b": 1, "a.1.1": None},
        {"a": "y", "a.1": "z", "b": 2, "a.1.1": 0.5},
    ]
    changes = {field.name: (field.metadata or {}).get(rules.CHANGED) for field in table.schema}
    assert changes == {"a": b"text", "a.1": b"renamed", "b": None, "a.1.1": b"renamed"}
    assert list(frame.columns) == ["a", "a", "b", "a.1"]


def test_what_another_context_reads_may_have_columns_that_a_caller_may_not():
    table = pa.table({"a": pa.array(["x"], pa.string_view())})
    said, _ = sent(lambda sock: tables.send(sock, ASKED, table))
    assert said["reason"] == "UnsupportedColumn"
    said, _ = sent(lambda sock: tables.send(sock, ASKED | {"lent": True}, table))
    assert said["rows"] == 1


def test_a_table_of_many_pieces_is_put_together_before_it_is_sent():
    whole = pa.table({"a": range(5000)})
    splinters = pa.concat_tables([whole.slice(each, 1) for each in range(5000)])
    _, data = sent(lambda sock: tables.send(sock, ASKED, splinters))
    assert len(data) < 2 * len(stream(whole))
    # Control: each piece has a head of its own, larger than itself.
    assert len(stream(splinters)) > 10 * len(data)
    assert pa.ipc.open_stream(data).read_all() == whole


def test_what_has_no_room_in_memory_is_refused_and_not_called_a_wrong_column():
    with mock.patch.object(pa, "table", side_effect=pa.ArrowMemoryError("malloc of size 9 failed")):
        said, _ = sent(lambda sock: tables.send(sock, ASKED, FRAME))
    assert said["reason"] == "OutOfMemory"
    theirs, ours = offered(stream(pa.table(FRAME)))
    with theirs, ours, mock.patch.object(tables, "made", side_effect=MemoryError):
        with pytest.raises(tables.RefusedError) as raised:
            tables.take(theirs, "df")
        assert raised.value.reason == "OutOfMemory"


DATA = stream(pa.table(FRAME))
BATCHES = [place for place in range(len(DATA)) if DATA.startswith(b"\xff\xff\xff\xff", place)]


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"no arrow", DATA[:-1], DATA[: len(DATA) // 2]),
        # Between two batches: what a reader of Arrow takes for a table of fewer rows.
        DATA[: BATCHES[3]],
        DATA + b"more",
    ],
)
def test_a_stream_that_breaks_off_anywhere_makes_no_variable(data):
    namespace = {"df": "old"}
    theirs, ours = offered(data)
    with ours:
        variables.take(namespace, {"name": "df"}, theirs.detach())
        said = frames.receive(ours).header
    assert (said["event"], said["reason"]) == ("refused", "NotArrow")
    assert namespace == {"df": "old"}


def test_control_without_its_end_half_a_table_is_read_as_a_whole_one():
    assert 0 < tables.read_arrow(DATA[: BATCHES[3]]).num_rows < 1000
    namespace = {"df": "old"}
    theirs, ours = offered(DATA)
    with ours:
        variables.take(namespace, {"name": "df"}, theirs.detach())
        assert frames.receive(ours).header["rows"] == 1000
    pd.testing.assert_frame_equal(namespace["df"], FRAME, check_dtype=False)


@pytest.mark.parametrize("size", [0, 1, len(DATA), len(DATA) + 1, 10 * len(DATA)])
def test_a_stream_is_read_whole_whatever_was_said_of_its_size(size):
    with mock.patch.object(tables, "BUFFER_BYTES", 8):
        theirs, ours = offered(DATA, {"size": size})
        with theirs, ours:
            assert tables.receive(theirs)[0].num_rows == 1000


def test_fewer_rows_than_were_said_are_no_table():
    theirs, ours = offered(DATA, {"rows": 1001})
    with theirs, ours, pytest.raises(ValueError, match="ended too early"):
        tables.receive(theirs)


def test_a_library_that_cannot_have_a_table_says_so():
    twice = pa.table([[1], [2]], names=["a", "a"])
    theirs, ours = offered(stream(twice), {"kind": "polars"})
    with theirs, ours, pytest.raises(tables.RefusedError, match="polars cannot have it") as raised:
        tables.take(theirs, "df")
    assert raised.value.reason == "UnsupportedColumn"


def test_a_library_that_was_installed_meanwhile_is_found(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    assert not rules.has("just_installed")
    (tmp_path / "just_installed.py").write_text("")
    sys.path_importer_cache.clear()
    assert rules.has("just_installed")
