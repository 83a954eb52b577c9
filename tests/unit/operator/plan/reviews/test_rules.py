"""Rules that approve by themselves: what they take, and above all what they leave to people."""

import json

import pytest
from sandfleet_operator.plan.reviews.record import Request, SessionRecord, bound_names
from sandfleet_operator.plan.reviews.rules import Rule, approving, is_pure_expression

KNOWN = frozenset({"x", "total", "rows"})
PURE = ["1 + 1", "x", "total / 2", "rows[0]", "rows[1:3]", "len(rows)", "sum(rows) / len(rows)", "(x, -total)", "{1: x}",
        "x if total > 3 else None", "not x and total in rows", "'a' 'b'", "max(rows) ", "# why\nx"]  # fmt: skip
NOT_PURE = {
    "an unknown name": "unknown",
    "an attribute": "x.y",
    "a call of a method": "x.pop()",
    "a call of an own function": "x()",
    "a call with a star": "max(*rows)",
    "a call with a key function": "sorted(rows, key=x)",
    "a walrus": "(x := 1)",
    "a comprehension": "[y for y in rows]",
    "a lambda": "lambda: x",
    "an f-string": "f'{x}'",
    "a power": "x ** 9 ** 9",
    "a shift": "1 << x",
    "an await": "await x",
    "a statement": "x = 1",
    "two of them": "x\nx",
    "a magic": "%cd /",
    "a line for the shell": "!ls",
    "help": "x?",
    "an import": "__import__('os')",
    "eval": "eval('1')",
    "nothing": "",
    "an indented one": " x",
    "another encoding": "# coding: unicode_escape\n1 # \\\nx()",
    "a long one": f"{'1 + ' * 1000}1",
    "no UTF-8": "\udcff",
}


def cell(code, *, digest=b"", context="default", **settings):
    said = {"context_id": context, **settings}
    return Request(
        "cell", code.encode("utf-8", "surrogateescape"), digest or code.encode(), context, "", json.dumps(said)
    )


@pytest.mark.parametrize("code", PURE)
def test_pure_expressions_over_known_names_are_approved(code):
    assert is_pure_expression(code.encode(), KNOWN)


@pytest.mark.parametrize("kind", NOT_PURE)
def test_all_else_is_left_to_people(kind):
    assert not is_pure_expression(NOT_PURE[kind].encode("utf-8", "surrogateescape"), KNOWN)


def test_a_harmless_call_whose_name_the_session_has_bound_is_left_to_people():
    assert is_pure_expression(b"len(rows)", KNOWN)
    assert not is_pure_expression(b"len(rows)", KNOWN | {"len"})


def test_names_are_known_once_a_cell_that_binds_them_is_approved():
    record = SessionRecord()
    assert approving(cell("x + 1"), record) is None
    record.approved(cell("x = 1\nimport os as system\ndef f(): pass\na, (b, c) = 1, (2, 3)"))
    assert approving(cell("x + 1"), record) is Rule.PURE_EXPRESSION
    assert record.names["default"] == {"x", "system", "f", "a", "b", "c"}


def test_an_edit_counts_as_what_it_made_of_the_cell():
    record = SessionRecord()
    record.approved(cell("x = 1"), edited=b"y = 1")
    assert approving(cell("y"), record) is Rule.PURE_EXPRESSION
    assert approving(cell("x"), record) is None
    # What was asked for has never run.
    assert approving(cell("x = 1"), record) is None


@pytest.mark.parametrize("code", ["del x", "exec('del x')", "globals().clear()", "%reset -f", "def f():\n  del x"])
def test_a_cell_that_may_unbind_names_ends_what_is_known(code):
    record = SessionRecord()
    record.approved(cell("x = 1"))
    record.approved(cell(code))
    record.approved(cell("x = 2"))
    assert approving(cell("x"), record) is None
    assert bound_names(code.encode()) is None


@pytest.mark.parametrize(
    ("other", "approved"),
    [
        ({}, True),
        ({"timeout": {"seconds": 1}}, True),
        ({"envs": {"A": "b"}}, False),
        ({"autosave": {}}, False),
    ],
)
def test_an_expression_with_settings_of_its_own_is_left_to_people(other, approved):
    record = SessionRecord()
    record.approved(cell("x = 1"))
    assert (approving(cell("x", **other), record) is Rule.PURE_EXPRESSION) == approved


def test_names_of_one_context_are_unknown_in_another():
    record = SessionRecord()
    record.approved(cell("x = 1"))
    record.approved(Request("context", b"", b"1", "other", "", json.dumps({"language": "python"})))
    record.approved(Request("context", b"", b"2", "shell", "", json.dumps({"language": "bash"})))
    assert approving(cell("x", context="other"), record) is None
    record.approved(cell("x = 1", context="other"))
    assert approving(cell("x", context="other"), record) is Rule.PURE_EXPRESSION
    # In a shell a name is a program.
    record.approved(cell("reboot = 1", context="shell"))
    assert approving(cell("reboot", context="shell"), record) is None


def test_an_identical_cell_is_approved_again_and_nothing_else_is():
    record = SessionRecord()
    record.approved(cell("open('a')", digest=b"d1"))
    assert approving(cell("open('a')", digest=b"d1"), record) is Rule.SAME_CELL
    assert approving(cell("open('a')", digest=b"d2"), record) is None
    command = Request("command", b"open('a')", b"d1")
    assert approving(command, record) is None


def test_without_rules_all_is_left_to_people():
    record = SessionRecord()
    record.approved(cell("x = 1"))
    assert approving(cell("x = 1"), record, ()) is None
    assert approving(cell("x"), record, ()) is None


def test_the_version_before_is_that_of_the_same_file_or_context():
    record = SessionRecord()
    record.approved(Request("file", b"old", b"1", "", "a.py"))
    assert record.before(Request("file", b"new", b"2", "", "a.py")) == b"old"
    assert record.before(Request("file", b"new", b"2", "", "b.py")) is None
