"""A list is read part by part, and gives what json.loads gives."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_operator.cluster import kube
from sandfleet_operator.cluster.kube import ListText

WORDS = st.text(max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.lists(st.dictionaries(WORDS, VALUES, max_size=3), max_size=7)


def read(text: str, many: int = 2):
    page = ListText(text.encode())
    parts = list(page.parts(many))
    return [obj for part in parts for obj in part], page.resource_version, page.following, parts


@given(OBJECTS, st.booleans(), st.sampled_from([None, 1]), st.booleans())
def test_parts_together_are_the_list_however_it_is_written(objects, is_custom, indent, escaped):
    # The API server's own kinds name their metadata first, custom resources after the items.
    said = {"kind": "List", "metadata": {"resourceVersion": "7", "continue": "next"}}
    whole = {"items": objects, **said} if is_custom else {**said, "items": objects}
    found, version, following, _ = read(json.dumps(whole, indent=indent, ensure_ascii=escaped))
    assert (found, version, following) == (objects, "7", "next")


def test_no_part_is_longer_than_asked_for_and_the_version_is_known_at_the_end():
    text = '{"items":[{"a":1},{"a":2},{"a":3}],"metadata":{"resourceVersion":"7"}}'
    page = ListText(text.encode())
    seen = [(len(part), page.resource_version) for part in page.parts(2)]
    assert seen == [(2, ""), (1, "7"), (0, "7")]


def test_an_object_is_read_when_it_is_asked_for(monkeypatch):
    """Otherwise a page as a whole would be in the way of everything else."""
    decoded = []

    def decode(text, at):
        value, end = json.JSONDecoder().raw_decode(text, at)
        decoded.append(value)
        return value, end

    monkeypatch.setattr(kube, "_decode", decode)
    page = ListText(b'{"metadata":{"resourceVersion":"7"},"items":[{"a":1},{"a":2},{"a":3}]}')
    next(page.parts(1))
    assert [one for one in decoded if isinstance(one, dict) and "a" in one] == [{"a": 1}]


@pytest.mark.parametrize("items", ["null", "[]"])
def test_a_list_may_be_empty(items):
    assert read(f'{{"metadata":{{"resourceVersion":"7"}},"items":{items}}}')[:3] == ([], "7", "")


BROKEN = {
    "nothing": "",
    "no object": "[]",
    "an empty object": "{}",
    "no version": '{"items":[{}]}',
    "an item that is no object": '{"metadata":{"resourceVersion":"7"},"items":[1]}',
    "items without a comma": '{"metadata":{"resourceVersion":"7"},"items":[{}{}]}',
    "an end within an item": '{"metadata":{"resourceVersion":"7"},"items":[{"a":',
    "an end after an item": '{"metadata":{"resourceVersion":"7"},"items":[{}',
    "a page of a gateway": "<html>hello</html>",
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_no_list_is_refused(what):
    with pytest.raises(ValueError, match=r"Expecting|has a resource version"):
        read(BROKEN[what])


def test_what_is_no_text_is_refused():
    with pytest.raises(ValueError, match="decode"):
        ListText(b"\xff\xfe")
