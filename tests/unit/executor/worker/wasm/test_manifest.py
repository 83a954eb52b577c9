"""What a skill may do: what a manifest grants, and what is refused as none."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_executor.worker.wasm import manifest
from sandfleet_executor.worker.wasm.manifest import Folder, Function, Manifest, ManifestError

F = {"name": "f"}


def parse(**said):
    return manifest.parse(json.dumps({"functions": [F], **said}).encode())


def test_a_manifest_that_grants_nothing_has_a_function_and_the_usual_limits():
    assert parse() == Manifest((Function("f"),), (), frozenset(), False, False, 64, 10.0, 0)


def test_a_manifest_grants_what_it_names():
    said = parse(
        functions=[F, {"name": "g", "parameters": ["a", "b"], "numbers": True, "doc": "Adds."}],
        folders=[{"path": "data"}, {"path": "out/new", "mode": "write"}, {"path": "."}],
        tools=["customer"],
        clock=True,
        random=True,
        memory_mb=1,
        seconds=0.5,
        fuel=100,
        doc="Words.",
    )
    assert said.function("g") == Function("g", ("a", "b"), numbers=True)
    assert said.function("h") is None
    assert said.folders == (Folder("data"), Folder("out/new", may_write=True), Folder("."))
    assert (said.tools, said.clock, said.random) == ({"customer"}, True, True)
    assert (said.memory_mb, said.seconds, said.fuel) == (1, 0.5, 100)


WRONG = {
    "an unknown grant": {"network": True},
    "a misspelt limit": {"memory": 1},
    "no functions": {"functions": []},
    "functions that are none": {"functions": "f"},
    "a function that is a text": {"functions": ["f"]},
    "a function without a name": {"functions": [{}]},
    "a function named by a keyword": {"functions": [{"name": "def"}]},
    "a function named by code": {"functions": [{"name": "f(); g"}]},
    "a function named by another alphabet": {"functions": [{"name": "ƒ"}]},
    "a function named at length": {"functions": [{"name": "f" * 65}]},
    "a function twice": {"functions": [F, F]},
    "51 functions": {"functions": [{"name": f"f{n}"} for n in range(51)]},
    "a parameter twice": {"functions": [F | {"parameters": ["a", "a"]}]},
    "a parameter that is code": {"functions": [F | {"parameters": ["a=1"]}]},
    "33 parameters": {"functions": [F | {"parameters": [f"p{n}" for n in range(33)]}]},
    "a function with a grant": {"functions": [F | {"tools": ["x"]}]},
    "numbers that are a word": {"functions": [F | {"numbers": "yes"}]},
    "a folder that is a text": {"folders": ["data"]},
    "a folder with another mode": {"folders": [{"path": "data", "mode": "rw"}]},
    "a folder above": {"folders": [{"path": ".."}]},
    "a folder by way of another": {"folders": [{"path": "a/../b"}]},
    "an absolute folder": {"folders": [{"path": "/etc"}]},
    "a folder with a null byte": {"folders": [{"path": "a\0b"}]},
    "a folder with a slash behind": {"folders": [{"path": "a/"}]},
    "no folder": {"folders": [{}]},
    "a folder twice": {"folders": [{"path": "a"}, {"path": "a", "mode": "write"}]},
    "the workspace for writing": {"folders": [{"path": ".", "mode": "write"}]},
    "skills for writing": {"folders": [{"path": "skills/x", "mode": "write"}]},
    "settings for writing": {"folders": [{"path": "a/.b", "mode": "write"}]},
    "17 folders": {"folders": [{"path": f"f{n}"} for n in range(17)]},
    "a tool that is no name": {"tools": ["a b"]},
    "tools that are a text": {"tools": "customer"},
    "65 tools": {"tools": [f"t{n}" for n in range(65)]},
    "a clock that is a number": {"clock": 1},
    "random that is a text": {"random": "true"},
    "no memory": {"memory_mb": 0},
    "too much memory": {"memory_mb": 1025},
    "half a mebibyte": {"memory_mb": 0.5},
    "memory that is a flag": {"memory_mb": True},
    "no time": {"seconds": 0},
    "too much time": {"seconds": 601},
    "time that is no number": {"seconds": float("nan")},
    "time without end": {"seconds": float("inf")},
    "negative fuel": {"fuel": -1},
    "too much fuel": {"fuel": 10**16},
}


@pytest.mark.parametrize("said", WRONG.values(), ids=WRONG)
def test_what_is_no_manifest_is_refused(said):
    with pytest.raises(ManifestError):
        parse(**said)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b" " * 65_537, b'{"functions": [{"name": "f"}]} x']
)
def test_what_is_no_object_is_refused(text):
    with pytest.raises(ManifestError):
        manifest.parse(text)


def test_hidden_folders_may_be_read():
    assert parse(folders=[{"path": "skills"}, {"path": ".config"}]).folders == (Folder("skills"), Folder(".config"))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from([*Manifest._fields, "doc", "name", "path", "mode", "parameters", "numbers"])


@given(st.dictionaries(KEYS, VALUES | st.lists(st.dictionaries(KEYS, VALUES, max_size=4), max_size=2), max_size=6))
def test_any_object_is_a_manifest_within_the_limits_or_refused(said):
    try:
        read = manifest.parse(json.dumps(said).encode())
    except ManifestError:
        return
    assert 1 <= read.memory_mb <= manifest.MOST_MEMORY_MB
    assert 0 < read.seconds <= manifest.MOST_SECONDS
    assert all(not folder.path.startswith("/") and ".." not in folder.path.split("/") for folder in read.folders)
