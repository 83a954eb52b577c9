"""Paths of requests: one form for each, none for what servers read in two ways, and which patterns mean which."""

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_operator.api.request_paths import canonical_path, matches, pattern


@pytest.mark.parametrize(
    ("path", "canonical"),
    [
        ("/", "/"),
        ("/v1/models", "/v1/models"),
        ("/v1/", "/v1/"),
        ("/%76%31/%6dodels", "/v1/models"),
        ("/a%20b/%c3%a9", "/a%20b/%C3%A9"),
        ("/a[0]", "/a%5B0%5D"),
        ("/v1.2/..a/a..", "/v1.2/..a/a.."),
    ],
)
def test_a_path_has_one_form(path, canonical):
    assert canonical_path(path) == canonical


@pytest.mark.parametrize(
    "path",
    [
        "", "*", "v1", "http://a.test/v1",
        "/v1/../keys", "/v1/..", "/v1/.", "/./v1", "/v1/%2e%2e/keys", "/v1/.%2E/keys", "/v1/..;/keys", "/v1/..;a=b/keys",
        "/v1/.. /keys", "/v1/..%20/keys", "/v1/;/keys", "//v1", "/v1//keys", "/v1//",
        "/v1%2f..%2fkeys", "/v1/%2Fkeys", "/v1%5ckeys", "/v1\\..\\keys", "/v1/%252e%252e/keys", "/v1%252fkeys",
        "/v1/%00", "/v1/%0d%0aX: y", "/v1/%7f", "/v1/%", "/v1/%2", "/v1/%u002e", "/v1/%zz", "/v1/%c0%ae%c0%ae/keys", "/v1/%ff",
        "/v1/x#/keys", "/v1?/keys", "/\u00e9", "/v1/\t",
    ],
)  # fmt: skip
def test_a_path_that_servers_read_in_several_ways_has_none(path):
    assert canonical_path(path) == ""


@pytest.mark.parametrize(
    ("wanted", "path", "meant"),
    [
        ("/v1/models", "/v1/models", True),
        ("/v1/models", "/v1/models/", False),
        ("/v1/models", "/V1/models", False),
        ("/v1/*", "/v1/models/7", True),
        ("/v1/*", "/v1/", True),
        ("/v1/*", "/v1", False),
        ("/v1/*", "/v10/models", False),
        ("/*", "/", True),
        ("/repos/*/issues", "/repos/a/issues", True),
        ("/repos/*/issues", "/repos/a/b/issues", False),
        ("/repos/*/issues", "/repos//issues", False),
        # A pattern within a pattern.
        ("/v1/*", "/v1/*", True),
        ("/v1/*", "/v1/*/x", True),
        ("/*/x", "/v1/*", False),
        ("/v1/x", "/v1/*", False),
        ("/*/x", "/*/x", True),
        ("/v1/*", "", False),
    ],
)
def test_a_pattern_means_paths(wanted, path, meant):
    assert pattern(wanted) == wanted
    # A canonical path has no empty segment in the middle.
    assert (matches(wanted, path) and "//" not in path) is meant


@pytest.mark.parametrize("text", ["", "v1", "/v1*", "/*.html", "/v1/**", "/a?b", "/v1/../x", "/" + "a" * 256])
def test_what_is_no_pattern(text):
    assert pattern(text) == ""


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=5), max_size=4))
def test_the_one_form_stays_and_names_the_same_path(segments):
    path = "/" + "/".join(quote(one, safe="") for one in segments)
    if found := canonical_path(path):
        assert canonical_path(found) == found
        assert [quote(one, safe="") for one in segments] == [
            quote(part, safe="") for part in _decoded(found) if segments
        ]


def _decoded(path):
    from urllib.parse import unquote

    return [unquote(one) for one in path[1:].split("/")]
