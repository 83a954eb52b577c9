"""Values of tools: code and host read and write them alike, with the same text in two distributions."""

import inspect

import pyarrow as pa
import pytest
from sandfleet._wire.convert import columns
from sandfleet.tools import values as host
from sandfleet_executor.worker.tools import values as code


@pytest.mark.parametrize("name", ["_name", "_converted", "_unsendable", "_made", "_index"])
def test_the_code_s_side_converts_as_the_host_s(name):
    assert inspect.getsource(getattr(code, name)) == inspect.getsource(getattr(host, name))


def test_a_class_and_an_object_without_a_form_cannot_be_sent():
    for value in (dict, object(), {"a": {1: 2}}):
        with pytest.raises(TypeError, match="cannot send"):
            code.encode(value)


@pytest.mark.parametrize("name", ["has", "kind_of"])
def test_the_code_s_side_writes_tables_as_the_host_s(name):
    assert inspect.getsource(getattr(code.tables, name)) == inspect.getsource(getattr(host.tables, name))


@pytest.mark.parametrize("name", ["_why_not", "_is_folded", "_is_plain"])
def test_both_sides_let_the_same_columns_through(name):
    assert inspect.getsource(getattr(code.tables, name)) == inspect.getsource(getattr(columns, name))


def test_both_sides_write_the_same_stream_of_a_table():
    table = pa.table({"number": [1, 2], "text": ["a", None]})
    assert code.tables.written(table) == host.tables.written(table)
