"""Values of tools: what cannot be sent, and that code and host write the same stream of a table."""

import pyarrow as pa
import pytest
from sandfleet.tools import values as host
from sandfleet_executor.worker.tools import values as code


def test_a_class_and_an_object_without_a_form_cannot_be_sent():
    for value in (dict, object(), {"a": {1: 2}}):
        with pytest.raises(TypeError, match="cannot send"):
            code.encode(value)


def test_both_sides_write_the_same_stream_of_a_table():
    table = pa.table({"number": [1, 2], "text": ["a", None]})
    assert code.tables.written(table) == host.arrow.written(table)
