"""Notebooks: which cells are run, and what their outputs become."""

import base64
import json

import pytest
from sandfleet.jupyter import notebook
from sandfleet.values.execution import Cleared, Result


def pages(*cells, **metadata):
    return {"nbformat": 4, "metadata": metadata, "cells": list(cells)}


def code(source):
    return {"cell_type": "code", "source": source, "outputs": []}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("no json", "it is no JSON"),
        ("[" * 100_000, "it is no JSON"),
        ("[]", "nbformat 4"),
        ('{"nbformat": 3, "cells": []}', "nbformat 4"),
        ('{"nbformat": 4, "cells": [1]}', "nbformat 4"),
        (json.dumps(pages(kernelspec={"language": "R", "name": "a/b"})), "its language is 'r'"),
    ],
)
def test_what_cannot_be_run_is_refused_with_the_reason(text, why):
    with pytest.raises(notebook.NotebookError, match=why):
        notebook.read(text)


def test_cells_of_code_are_run_in_their_language():
    read = pages(
        code(["a = 1\n", "a"]), code(" "), {"cell_type": "raw", "source": "x"}, code("%%sql\nSELECT 1"), kernelspec=3
    )
    assert [each[1:] for each in notebook.cells(read)] == [("a = 1\na", "python"), ("SELECT 1", "sql")]
    assert [each[2] for each in notebook.cells(pages(code("ls"), language_info={"name": "Bash"}))] == ["bash"]
    others = pages(code("x"), kernelspec={"language": "R", "name": "ir"})
    assert [each[2] for each in notebook.cells(notebook.read(json.dumps(others)))] == ["jupyter-ir"]


def test_outputs_keep_their_order_their_updates_and_their_bytes():
    outputs = notebook.Outputs(3)
    outputs.stdout("gone")
    outputs.clear(Cleared(wait=False))
    outputs.stdout("a")
    outputs.stdout("b\n")
    outputs.result(Result({"text/plain": "10 %"}, display_id="bar"))
    outputs.result(Result({"image/png": b"\x89", "application/json": "[1]"}, is_main_result=True))
    outputs.result(Result({"text/plain": "100 %"}, display_id="bar", is_update=True))
    assert outputs.shown[0] == {"output_type": "stream", "name": "stdout", "text": "ab\n"}
    assert [each.get("data") for each in outputs.shown[1:]] == [
        {"text/plain": "100 %"},
        {"image/png": base64.b64encode(b"\x89").decode(), "application/json": [1]},
    ]
    assert outputs.shown[2]["execution_count"] == 3
