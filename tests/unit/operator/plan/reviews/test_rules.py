"""Rules that approve by themselves: what they take, and above all what they leave to people."""

import json
from functools import partial

import pytest
from sandfleet_operator.api.kinds.template import ReviewRule as Rule
from sandfleet_operator.plan.reviews.record import Request, SessionRecord, bound_names
from sandfleet_operator.plan.reviews.rules import approving as approving_by
from sandfleet_operator.plan.reviews.rules import is_pure_expression

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


approving = partial(approving_by, rules=tuple(Rule))


def cell(code, *, digest=b"", context="default", at=("python", "first", 1), **settings):
    """`at`: the language of its context, the name of its interpreter, and how many cells have begun in that."""
    said = {"context_id": context, **settings}
    content = code.encode("utf-8", "surrogateescape")
    return Request("cell", content, digest or code.encode(), context, "", json.dumps(said), *at)


FRESH = ("python", "first", 0)


def having(code):
    """A session in which this was the first cell of its interpreter."""
    record = SessionRecord()
    record.approved(cell(code, at=FRESH))
    return record


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
    assert approving(cell("x + 1", at=FRESH), record) is None
    record.approved(cell("x = 1\nimport os as system\ndef f(): pass\na, (b, c) = 1, (2, 3)", at=FRESH))
    assert approving(cell("x + 1"), record) is Rule.PURE_EXPRESSION
    assert record.names["first"] == {"x", "system", "f", "a", "b", "c"}


def test_an_edit_counts_as_what_it_made_of_the_cell():
    record = SessionRecord()
    record.approved(cell("x = 1", at=FRESH), edited=b"y = 1")
    assert approving(cell("y"), record) is Rule.PURE_EXPRESSION
    assert approving(cell("x"), record) is None
    # What was asked for has never run.
    assert approving(cell("x = 1"), record) is None


@pytest.mark.parametrize("code", ["del x", "exec('del x')", "globals().clear()", "%reset -f", "def f():\n  del x"])
def test_a_cell_that_may_unbind_names_ends_what_is_known(code):
    record = having("x = 1")
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
    record = having("x = 1")
    assert (approving(cell("x", **other), record) is Rule.PURE_EXPRESSION) == approved


def test_names_of_one_interpreter_are_unknown_in_another():
    record = having("x = 1")
    assert approving(cell("x", context="other", at=("python", "second", 0)), record) is None
    record.approved(cell("x = 1", context="other", at=("python", "second", 0)))
    assert approving(cell("x", context="other", at=("python", "second", 1)), record) is Rule.PURE_EXPRESSION


@pytest.mark.parametrize(
    ("at", "approved"),
    [
        (("python", "first", 1), True),
        # A context of the same name that was deleted and made again: in a shell a constant is a command.
        (("bash", "first", 1), False),
        (("bash", "second", 0), False),
        (("", "first", 1), False),
        # Another interpreter of the same language: it has other variables, `len` perhaps among them.
        (("python", "second", 1), False),
        # An interpreter with variables from a copy or a save.
        (("python", "", 1), False),
    ],
)
def test_a_rule_fires_for_python_and_the_interpreter_that_it_knows(at, approved):
    record = having("x = 1")
    assert (approving(cell("'bash' '-c'", at=at), record) is Rule.PURE_EXPRESSION) == approved
    assert (approving(cell("x", at=at), record) is Rule.PURE_EXPRESSION) == approved


def test_a_fleet_that_has_not_seen_the_first_cell_knows_no_names():
    assert approving(cell("1 + 1"), SessionRecord()) is None
    assert approving(cell("1 + 1", at=FRESH), SessionRecord()) is Rule.PURE_EXPRESSION


def test_an_identical_cell_of_another_interpreter_without_a_name_is_left_to_people():
    record = having("x = 1")
    assert approving(cell("x = 1", at=("python", "", 3)), record) is None


def test_an_identical_cell_is_approved_again_and_nothing_else_is():
    record = SessionRecord()
    record.approved(cell("open('a')", digest=b"d1"))
    assert approving(cell("open('a')", digest=b"d1"), record) is Rule.SAME_CELL
    assert approving(cell("open('a')", digest=b"d2"), record) is None
    command = Request("command", b"open('a')", b"d1")
    assert approving(command, record) is None


def test_without_rules_all_is_left_to_people():
    record = having("x = 1")
    assert approving(cell("x = 1"), record, rules=()) is None
    assert approving(cell("x"), record, rules=()) is None


def test_the_version_before_is_that_of_the_same_file_or_context():
    record = SessionRecord()
    record.approved(Request("file", b"old", b"1", "", "a.py"))
    assert record.before(Request("file", b"new", b"2", "", "a.py")) == b"old"
    assert record.before(Request("file", b"new", b"2", "", "b.py")) is None
