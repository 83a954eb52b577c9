"""What the session says is installed is checked: it was looked at beside user code."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_api.executor.v1 import session_pb2
from sandfleet_executor.core.packages.manifest import MAX_PACKAGES, MAX_TEXT, BadManifest, Package, parse

GOOD = {
    "languages": {"bash": "5.2"},
    "packages": [["b", "2", "workspace"], ["a", "1", "image"]],
    "left_out": 0,
    "declared": [],
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10) | st.sampled_from(["image"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def said(**change):
    return json.dumps({**GOOD, **change}).encode()


def test_a_manifest_is_in_order_with_its_origins():
    found = parse(said(), {"TZ": "UTC"})
    assert found.packages == (Package("a", "1", "image"), Package("b", "2", "workspace"))
    assert (found.languages, found.fixed_envs) == ((("bash", "5.2"),), {"TZ": "UTC"})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b"[" * 100_000,
        b"{}",
        said(languages=[]),
        said(languages={"bash": 5}),
        said(packages={"a": 1}),
        said(packages=[["a", "1"]]),
        said(packages=[["a", "1", "root"]]),
        said(packages=[["a", 1, "image"]]),
        said(packages=[["x" * (MAX_TEXT + 1), "1", "image"]]),
        said(left_out="many"),
        said(left_out=1e400),
    ],
)
def test_an_invalid_manifest_is_refused(data):
    with pytest.raises(BadManifest, match="cannot read what is installed"):
        parse(data, {})


def test_more_than_it_holds_is_refused_and_never_cut():
    many = [[f"p{n}", "1", "image"] for n in range(MAX_PACKAGES + 1)]
    for data in (said(packages=many), said(left_out=1)):
        with pytest.raises(BadManifest, match=f"more than {MAX_PACKAGES} packages"):
            parse(data, {})


@given(st.fixed_dictionaries({}, optional={"languages": JSON, "packages": JSON, "left_out": JSON}))
def test_any_json_is_a_manifest_that_fits_the_api_or_is_refused(change):
    try:
        found = parse(said(**change), {})
    except BadManifest:
        return
    for each in found.packages:
        session_pb2.Package(name=each.name, version=each.version)
    for name, version in found.languages:
        session_pb2.LanguageVersion(language=name, version=version)
