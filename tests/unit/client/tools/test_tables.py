"""Tables of the sandbox: what comes through, and what an executor that lies cannot send."""

import contextlib
import struct
import tracemalloc
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
from sandfleet._wire.convert import columns
from sandfleet.tools.values import Wire, decode, encode
from sandfleet_executor.worker.base import tables as sandbox_tables
from sandfleet_executor.worker.tools import values as code
from sandfleet_rules import tables as rules
from sandfleet_rules.tool_values import READS_TABLES

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


def listed(values):
    """All of them in one list."""
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)


# A byte each, and 4000 where they stand for themselves.
REPEATED = pa.DictionaryArray.from_arrays(pa.array([0] * 10_000, pa.int8()), ["x" * 4000])
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
    "a million structs of nothing": stream(named(listed(pa.array([{}] * 1_000_000, pa.struct([]))))),
    "a million strings of no width": stream(named(listed(pa.array([b""] * 1_000_000, pa.binary(0))))),
    "categories in a list": stream(named(listed(REPEATED))),
    "categories in a struct": stream(named(pa.StructArray.from_arrays([REPEATED], ["a"]))),
    "categories of lists": stream(named(pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), [[1] * 1000]))),
    "the name of an extension": stream(
        pa.table([[1]], schema=pa.schema([pa.field("a", pa.int64(), metadata={rules.EXTENSION: b"polars.object"})]))
    ),
}


# What other libraries of this process may make more of than its bytes, or of which pandas makes objects.
UNFOLDING = ["a million structs of nothing", "categories in a list", "categories in a struct"]


@pytest.mark.parametrize("data", ATTACKS.values(), ids=ATTACKS)
@pytest.mark.parametrize("kind", [*FRAMES, "numpy", None])
def test_a_table_that_is_none_or_may_be_larger_than_its_bytes_is_refused(data, kind):
    with pytest.raises(ValueError, match="cannot read a table"):
        tables.read(data, kind)


def test_a_table_of_fewer_rows_than_were_said_is_none():
    data = stream(named([1, 2]))
    assert len(tables.read(data, "pandas", 2)) == 2
    with pytest.raises(ValueError, match="2 rows came of 3"):
        tables.read(data, "pandas", 3)


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


@contextlib.contextmanager
def peak_memory():
    """Of Python and of Arrow, in bytes; known at the end."""
    before, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(pool)
    tracemalloc.start()
    found = []
    try:
        yield found
    finally:
        found.append(pool.max_memory() + tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        pa.set_memory_pool(before)


@pytest.mark.slow
@pytest.mark.parametrize("name", UNFOLDING)
def test_control_without_the_rule_for_columns_a_few_bytes_fill_the_memory(name):
    data = ATTACKS[name]
    with peak_memory() as peak, pytest.raises(ValueError, match="cannot read a table"):
        tables.read(data, "pandas")
    assert peak[0] < 1 << 20
    with (
        mock.patch.object(tables, "why_not", lambda field: ""),
        mock.patch.object(tables, "BOXES", 1 << 30),
        peak_memory() as peak,
    ):
        assert len(tables.read(data, "pandas"))
    assert peak[0] > 30 << 20


def test_pandas_does_not_make_more_objects_than_the_bytes_are_worth():
    table = named(pa.StructArray.from_arrays([pa.array([True] * 1_000_000)], ["a"]))
    with pytest.raises(tables.TableError, match="pandas makes 2000000 objects of it") as raised:
        tables.read(stream(table), "pandas")
    assert raised.value.reason == "TooLarge"
    # Control: others make none, and a smaller one is as large as it looks.
    assert tables.read(stream(table), "polars").height == 1_000_000
    assert len(tables.read(stream(table.slice(0, 1000)), "pandas")) == 1000


@pytest.mark.parametrize(
    ("values", "boxes"),
    [
        ([1, None], 0),
        (["a", "b"], 2),
        ([[1, 2], [3]], 2),
        ([["a", "b"], ["c"]], 5),
        ([{"a": 1, "b": "x"}], 3),
        ([[{"a": 1}], []], 4),
        (pa.array([[1, 2]], pa.list_(pa.int64(), 2)), 1),
        (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())), 4),
        (pa.array(["x", "x"]).dictionary_encode(), 1),
        (pa.nulls(3), 0),
        (pa.array([1], pa.date32()), 1),
    ],
)
def test_objects_that_pandas_makes_are_counted(values, boxes):
    assert columns.boxes(named(values)) == boxes


def test_a_dictionary_that_is_looked_at_again_with_each_batch_is_refused():
    words = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), [str(each) for each in range(1000)])
    batch = pa.record_batch([words], names=["a"])
    data = stream(pa.Table.from_batches([batch] * 500))
    assert columns.dictionary_values(tables.read(data, "pyarrow")) == 500_000
    with (
        mock.patch.object(tables, "DICTIONARY_VALUES", 1000),
        mock.patch.object(tables, "DICTIONARY_VALUES_PER_BYTE", 1),
        pytest.raises(ValueError, match="too many batches"),
    ):
        tables.read(data, "pandas")


def test_a_table_of_too_many_columns_is_refused():
    data = stream(pa.table({str(each): [each] for each in range(11)}))
    with (
        mock.patch.object(tables, "MAX_COLUMNS", 10),
        pytest.raises(tables.TableError, match="it has 11 columns, and the limit is 10"),
    ):
        tables.read(data, "pandas")
    assert len(tables.read(data, "pandas").columns) == 11


def test_what_may_not_come_is_refused_with_the_name_of_its_column():
    table = pa.table({"good": [1], "bad": pa.array(["x"], pa.string_view())})
    with pytest.raises(tables.TableError, match="its column 'bad' has the type string_view") as raised:
        tables.read(stream(table), "pandas")
    assert raised.value.reason == "UnsupportedColumn"


FIELDS = [
    pa.field("a", kind)
    for kind in (
        *(pa.null(), pa.bool_(), pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.date32(), pa.time64("us")),
        *(pa.timestamp("ns", "UTC"), pa.duration("s"), pa.month_day_nano_interval(), pa.decimal256(60, 2)),
        *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.binary_view(), pa.binary(0), pa.binary(4)),
        *(pa.list_(pa.int8()), pa.list_(pa.null()), pa.list_view(pa.int8()), pa.list_(pa.int8(), 0)),
        *(pa.list_(pa.int8(), 3), pa.large_list(pa.string()), pa.map_(pa.string(), pa.list_(pa.int8()))),
        *(pa.struct([]), pa.struct([("a", pa.int8())]), pa.struct([("a", pa.struct([]))]), pa.uuid(), pa.json_()),
        *(pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int8(), pa.list_(pa.int8()))),
        *(pa.list_(pa.dictionary(pa.int8(), pa.string())), pa.run_end_encoded(pa.int16(), pa.int8())),
        *(pa.dense_union([pa.field("a", pa.int8())]), pa.list_(pa.uuid())),
    )
]
COMES = {
    *("null", "bool", "int8", "uint64", "halffloat", "double", "date32[day]", "time64[us]", "timestamp[ns, tz=UTC]"),
    *("duration[s]", "month_day_nano_interval", "decimal256(60, 2)", "string", "large_string", "binary"),
    *("fixed_size_binary[4]", "list<item: int8>", "fixed_size_list<item: int8>[3]", "large_list<item: string>"),
    *("map<string, list<item: int8>>", "struct<a: int8>", "dictionary<values=string, indices=int8, ordered=0>"),
}


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: str(field.type))
def test_columns_whose_values_unfold_do_not_come_out(field):
    assert (not rules.why_not(field)) == (str(field.type) in COMES)


def deep(depth):
    return pa.field("a", pa.int8()) if depth == 0 else pa.field("a", pa.list_(deep(depth - 1)))


def test_columns_are_nested_as_deeply_as_is_allowed_and_no_deeper():
    assert rules.why_not(deep(rules.MAX_DEPTH)) == ""
    assert rules.why_not(deep(rules.MAX_DEPTH + 1)) == "is nested too deeply"


def test_objects_of_python_do_not_leave_this_process_as_their_addresses():
    secret = object()
    frame = pl.DataFrame({"good": [1], "bad": [secret]})
    # Control: this is what polars makes of them.
    assert frame.to_arrow()["bad"][0].as_py() == id(secret).to_bytes(8, "little")
    with pytest.raises(tables.TableError, match="column 'bad' has objects of Python") as raised:
        tables.as_arrow(frame)
    assert raised.value.reason == "UnsupportedColumn"
    with pytest.raises(ValueError, match="column 'bad' has objects of Python"):
        sandbox_tables.as_arrow(frame)
    assert tables.written(frame) is None
    nested = pl.List(pl.Struct([pl.Field("a", pl.Object)]))
    assert rules._objects_within(nested)
    assert not rules._objects_within(pl.Enum(["Object"]))


@given(st.data())
def test_bytes_that_are_changed_anywhere_are_a_table_or_a_value_error(data):
    good = stream(named(["abc", None, "def"]))
    changed = bytearray(good)
    for place in data.draw(st.lists(st.integers(0, len(good) - 1), min_size=1, max_size=4)):
        changed[place] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError):
        tables.read(bytes(changed), data.draw(st.sampled_from(["pandas", "polars", "pyarrow"])))
