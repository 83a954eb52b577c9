"""Skills that are WebAssembly: what a library keeps, and the Python that it makes of a manifest."""

import ast
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet import InvalidArgument, SkillLibrary, WasmModule
from sandfleet.skills import wasm
from sandfleet_executor.worker.wasm import manifest as worker

MODULE = b"\0asm\1\0\0\0"
MANIFEST = {"doc": "Words.", "functions": [{"name": "f", "parameters": ["a", "b"], "doc": "Adds."}, {"name": "g"}]}
CODE = """'Words.'

import wasm_skill as _wasm_skill

_skill = _wasm_skill.load(__file__)


def f(a, b):
    'Adds.'
    return _skill.call('f', a=a, b=b)


def g():
    ''
    return _skill.call('g')
"""


def source(**said):
    return wasm.source("s", wasm.checked("s", MODULE, MANIFEST | said))


def test_a_manifest_becomes_functions_of_python():
    assert source() == CODE


def test_a_library_keeps_the_module_with_its_manifest(tmp_path):
    library = SkillLibrary(tmp_path)
    module = wasm.checked("s", MODULE + bytes(range(256)), MANIFEST)
    saved = library.add("s", "", "pass", module=module)
    assert (saved.wasm, saved.code, library.get("s")) == (module, CODE, saved)
    assert saved.stub == "# skills.s: Words.\ndef skills.s.f(a, b): ...\ndef skills.s.g(): ..."
    # A change of what it may use is another version, and the same again is none.
    more = wasm.checked("s", module.module, MANIFEST | {"clock": True})
    assert [library.add("s", "", "pass", module=each).version for each in (module, more, more)] == [1, 2, 2]
    # A skill of Python is kept as before.
    assert "wasm" not in json.loads(
        (tmp_path / "objects" / f"{library.add('p', 'x = 1', 'pass').digest}.json").read_text()
    )


def function(**said):
    return {"functions": [{"name": "f"} | said]}


WRONG = {
    "no functions": {"functions": []},
    "functions that are none": {"functions": {"f": 1}},
    "a function that is a text": {"functions": ["f"]},
    "a name that is code": function(name="f(): pass\nimport os\ndef g"),
    "a name of our own": function(name="_skill"),
    "a keyword": function(name="lambda"),
    "a parameter that is code": function(parameters=["a=__import__('os')"]),
    "a parameter of our own": function(parameters=["_skill"]),
    "parameters that are a text": function(parameters="ab"),
    "a parameter twice": function(parameters=["a", "a"]),
    "a doc that is a number": {"doc": 1},
    "a long doc": {"doc": "x" * 2001},
    "a function with a long doc": function(doc="x" * 2001),
    "a value that is no JSON": {"seconds": float("nan")},
    "bytes": {"doc": b"x"},
    "a large manifest": {"more": ["x" * 1000] * 66},
}


@pytest.mark.parametrize("said", WRONG.values(), ids=WRONG)
def test_a_manifest_of_which_no_python_can_be_made_is_refused(said):
    with pytest.raises(InvalidArgument, match="cannot save the skill s"):
        source(**said)


@pytest.mark.parametrize("module", [b"", b"(module)", b"\0as", MODULE + bytes(2 << 20)])
def test_what_is_no_module_or_too_large_is_refused(module):
    with pytest.raises(InvalidArgument, match="cannot save the skill s"):
        wasm.checked("s", module, MANIFEST)


@given(st.text(max_size=40), st.text(max_size=40))
def test_a_doc_is_a_text_in_the_source_whatever_it_says(doc, inner):
    tree = ast.parse(source(doc=doc, functions=[{"name": "f", "doc": inner}]))
    kinds = [type(node) for node in tree.body]
    assert kinds == [ast.Expr, ast.Import, ast.Assign, ast.FunctionDef]
    assert tree.body[0].value.value == doc
    assert [type(node) for node in tree.body[3].body] == [ast.Expr, ast.Return]
    assert tree.body[3].body[0].value.value == inner


def test_what_is_kept_is_read_again():
    module = WasmModule(bytes(range(256)), "{}")
    assert wasm.read(json.loads(json.dumps(wasm.kept(module)))) == module


def test_library_and_session_have_the_same_limits():
    assert (wasm.LARGEST_MODULE, wasm.LARGEST_MANIFEST) == (worker.LARGEST_MODULE, worker.LARGEST)
