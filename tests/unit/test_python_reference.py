"""The reference of the Python API has every public name, and says what the docstrings say."""

import re

import pytest
import sandfleet
import sandfleet.codeact
from chart.helm_chart import ROOT, loaded

script = loaded(ROOT / "scripts/python_reference.py")
PAGES = {path: path.read_text() for path in (script.PAGE, *script.PARTS.glob("*.md"))}
PAGE = "\n".join(PAGES.values())
NAMES = [*(name for name in sandfleet.__all__ if not name.startswith(("Async", "__"))), *sandfleet.codeact.__all__]


@pytest.mark.parametrize("name", NAMES)
def test_each_public_name_has_its_place(name: str) -> None:
    heading = rf"(?m)^##+ `?{name}`?$"
    in_the_tree_of_errors = rf"(?m)^[│├└─ ]*{name}\b"
    shown = {"Sandbox": "sandbox", "Fleet": "fleet"}.get(name, name)
    assert re.search(heading.replace(name, shown), PAGE) or re.search(in_the_tree_of_errors, PAGE)


@pytest.mark.process
def test_the_pages_are_what_the_source_says() -> None:
    assert script.pages() == PAGES


DOCSTRING = """\
Ask for it.

path         where, below
             the workspace.
size, limit  in bytes.

Three ways:
- one
  more;
- two.

Root
├── Leaf
"""


def test_a_docstring_becomes_paragraphs_lists_and_drawings() -> None:
    assert script.prose(DOCSTRING) == [
        "Ask for it.",
        "",
        "- `path`: where, below the workspace.",
        "- `size`, `limit`: in bytes.",
        "",
        "Three ways:",
        "",
        "- one more;",
        "- two.",
        "",
        "```text",
        "Root",
        "├── Leaf",
        "```",
        "",
    ]


def test_what_a_table_says_is_not_said_twice() -> None:
    known = script.meanings(DOCSTRING)
    assert known == {"path": "where, below the workspace.", "size": "in bytes.", "limit": "in bytes."}
    assert "in bytes." not in "\n".join(script.prose(DOCSTRING, known))


def test_columns_without_any_text_are_left_out() -> None:
    assert script.table(("a", "b", "c"), [("1", "", "x|y"), ("2", "", "")]) == [
        "| a | c |",
        "| --- | --- |",
        "| 1 | x\\|y |",
        "| 2 |  |",
        "",
    ]
    assert script.table(("a",), []) == []
