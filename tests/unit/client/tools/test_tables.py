"""Tables of the sandbox: what comes through, and what an executor that lies cannot send."""

import contextlib
import struct
from unittest import mock

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import ipc
from sandfleet import tool
from sandfleet._wire.convert import arrow as tables
from sandfleet.tools.values import READS_TABLES, Wire, decode, encode
from sandfleet_executor.worker.tools import values as code

ROWS = [{"id": 1, "name": "a", "share": 0.5}, {"id": 2, "name": "é", "share": None}]
FRAMES = {
    "pandas": pd.DataFrame(ROWS),
    "polars": pl.DataFrame(ROWS),
    "pyarrow": pa.Table.from_pylist(ROWS),
}


def stream(table, **options):
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, table.schema, options=ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def rows(table):
    return pa.table(table).to_pylist()


def named(column):
    return pa.table({"column": column})


@pytest.mark.parametrize("kind", FRAMES)
def test_a_table_comes_back_as_one_of_its_own_library(kind):
    wire = encode({"table": FRAMES[kind], "more": b"x"}, as_tables=True)
    assert len(wire.blobs) == 2
    for made in (decode(wire), code.decode(wire.json, wire.blobs)):
        assert (type(made["table"]), made["more"]) == (type(FRAMES[kind]), b"x")
        # Where pandas has no number, pyarrow has none either.
        assert rows(made["table"]) == ROWS


@pytest.mark.parametrize("kind", FRAMES)
def test_without_pyarrow_a_table_is_a_list_of_rows(kind):
    with mock.patch.object(tables, "has", lambda library: False):
        wire = encode(FRAMES[kind], as_tables=True)
    assert wire.blobs == ()
    assert [row["name"] for row in decode(wire)] == ["a", "é"]
    assert wire == encode(FRAMES[kind])


def test_a_frame_whose_columns_arrow_does_not_have_is_a_list_of_rows():
    mixed = pd.DataFrame({"a": [1, "x", [2]]})
    assert decode(encode(mixed, as_tables=True)) == [{"a": 1}, {"a": "x"}, {"a": [2]}]


def test_columns_are_no_tables():
    for each in (FRAMES["pandas"]["id"], FRAMES["polars"]["id"], FRAMES["pyarrow"]["id"]):
        assert decode(encode(each, as_tables=True)) == [1, 2]


@pytest.mark.parametrize("wanted", [type(each) for each in FRAMES.values()], ids=FRAMES)
@pytest.mark.parametrize("sent", [*FRAMES.values(), ROWS], ids=[*FRAMES, "rows"])
def test_a_tool_gets_the_table_that_its_annotation_names(wanted, sent):
    def take(table: wanted) -> None: ...

    made = tool(take)
    assert made.schema["properties"]["table"]["format"] == "table"
    got = made.bind({"table": sent})["table"]
    assert (type(got), rows(got)[0]["id"]) == (wanted, 1)
    with pytest.raises(ValueError, match="Input should be a table, or a list of rows"):
        made.bind({"table": 5})


def test_code_sends_as_tables_what_the_tool_takes_as_tables():
    text, blobs = code.encode_arguments({"table": FRAMES["pandas"], "rows": FRAMES["pandas"]}, {"table"})
    read = decode(Wire(text, tuple(blobs)))
    assert (read[READS_TABLES], type(read["table"]), type(read["rows"])) == (True, pd.DataFrame, list)


ATTACKS = {
    "nothing": b"",
    "no Arrow": b"x" * 1000,
    "half a stream": stream(named(list(range(1000))))[:-1000],
    "a compressed body": stream(named([0] * 1_000_000), compression="zstd"),
    "a compressed dictionary": stream(named(pa.array(["x" * 1_000_000]).dictionary_encode()), compression="lz4"),
    "runs": stream(pa.table([pa.RunEndEncodedArray.from_arrays(pa.array([10**9], "int32"), [1])], names=["a"])),
    "nothing, a billion times": stream(named(pa.nulls(10**9))),
    "views of one string": stream(named(pa.array(["x" * 100], pa.string_view()))),
    "objects of an extension": stream(named(pa.array([b"x" * 16], pa.uuid()))),
    "deep": stream(named(pa.nulls(1, pa.list_(pa.struct([("a", pa.list_(pa.null()))]))))),
    "a union": stream(named(pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]))),
}


@pytest.mark.parametrize("data", ATTACKS.values(), ids=ATTACKS)
@pytest.mark.parametrize("kind", [*FRAMES, "numpy", None])
def test_a_table_that_is_none_or_may_be_larger_than_its_bytes_is_refused(data, kind):
    with pytest.raises(ValueError, match="cannot read a table"):
        tables.read(data, kind)


def test_an_offset_beyond_the_data_is_refused():
    data = stream(named(["abc", "def"]))
    wrong = data.replace(struct.pack("<iii", 0, 3, 6), struct.pack("<iii", 0, 3, 1 << 30))
    assert wrong != data
    with pytest.raises(ValueError, match="cannot read a table"):
        tables.read(wrong, "pandas")
    # Control: without the change it is a table.
    assert rows(tables.read(data, "pandas")) == [{"column": "abc"}, {"column": "def"}]


def test_control_what_is_compressed_is_read_where_it_is_not_looked_for():
    data = ATTACKS["a compressed body"]
    with (
        mock.patch.object(tables, "_is_compressed", lambda message: False),
        mock.patch.object(tables, "CELLS_PER_BYTE", 1 << 20),
    ):
        assert tables.read(data, "pyarrow").nbytes > 1000 * len(data)


@given(st.data())
def test_bytes_that_are_changed_anywhere_are_a_table_or_a_value_error(data):
    good = stream(named(["abc", None, "def"]))
    changed = bytearray(good)
    for place in data.draw(st.lists(st.integers(0, len(good) - 1), min_size=1, max_size=4)):
        changed[place] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError):
        tables.read(bytes(changed), data.draw(st.sampled_from(["pandas", "polars", "pyarrow"])))
