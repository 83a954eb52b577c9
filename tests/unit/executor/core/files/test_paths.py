"""What a path means before any file system is asked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_executor.core.files.paths import (
    InvalidPath,
    Root,
    Steps,
    decode_cursor,
    encode_cursor,
    follow,
    join,
    parse,
    root_of,
)


@pytest.mark.parametrize(
    ("path", "names", "directory"),
    [
        (b"a", (b"workspace", b"a"), False),
        (b"./a//b", (b"workspace", b"a", b"b"), False),
        (b"a/", (b"workspace", b"a"), True),
        (b"a/.", (b"workspace", b"a"), True),
        (b".", (b"workspace",), True),
        (b"/workspace/a", (b"workspace", b"a"), False),
        (b"//tmp/a", (b"tmp", b"a"), False),
        (b"../tmp", (b"workspace", b"..", b"tmp"), False),
        (b"/", (), True),
        (b"\xff\x01 ", (b"workspace", b"\xff\x01 "), False),
    ],
)
def test_a_path_is_steps_from_the_root(path, names, directory):
    assert parse(path) == Steps(names, absolute=True, directory=directory)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (b"", "empty"),
        (b"a\0b", "NUL"),
        (b"a/" * 2500, "4096"),
        (b"a" * 256, "255"),
    ],
)
def test_a_malformed_path_is_invalid_and_says_why(path, why):
    with pytest.raises(InvalidPath, match=why):
        parse(path)


@pytest.mark.parametrize("path", [b"a/" * 2048, b"a" * 255, b"a/" * 2047 + b"ab"])
def test_a_path_at_its_limits_is_valid(path):
    assert parse(path).names[0] == b"workspace"


def test_a_link_s_text_is_relative_to_the_link_or_absolute():
    assert follow(b"../x") == Steps((b"..", b"x"), absolute=False, directory=False)
    assert follow(b"/etc/passwd").absolute


@pytest.mark.parametrize("name", [b"etc", b"Workspace", b"tmp2", b"proc2"])
def test_what_is_neither_workspace_nor_tmp_belongs_to_the_system(name):
    assert root_of(b"tmp") is Root.TMP
    assert root_of(name) is Root.SYSTEM
    assert join(Root.SYSTEM, (name, b"x")) == b"/" + name + b"/x"


@pytest.mark.parametrize("name", [b"proc", b"sys", b"dev"])
def test_the_kernel_s_own_trees_hold_no_files(name):
    with pytest.raises(InvalidPath, match="outside of files"):
        root_of(name)


names = st.binary(min_size=1, max_size=20).map(lambda name: name.replace(b"/", b"_").replace(b"\0", b"_"))


@given(st.lists(names.filter(lambda name: name not in (b".", b"..")), max_size=6).map(tuple))
def test_what_is_joined_is_parsed_to_the_same_names(parts):
    assert parse(join(Root.TMP, parts)).names == (b"tmp", *parts)


@given(st.lists(names, max_size=32).map(tuple))
def test_a_cursor_comes_back_from_its_token(cursor):
    assert decode_cursor(encode_cursor(cursor)) == cursor


def test_a_token_beyond_any_cursor_is_refused():
    with pytest.raises(InvalidPath):
        decode_cursor(b"x" * 20_000)


@given(st.binary(max_size=5000))
def test_any_bytes_are_a_path_or_invalid(path):
    try:
        steps = parse(path)
    except InvalidPath:
        return
    assert all(name and b"/" not in name and b"\0" not in name and name != b"." for name in steps.names)
