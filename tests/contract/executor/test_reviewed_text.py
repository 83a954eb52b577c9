"""One text for rule, reviewer and interpreter: a rule reads a cell as the worker compiles it."""

import ast

import pytest
from contract.executor.reviewer import asked, done, refused
from hypothesis import example, given
from hypothesis import strategies as st
from sandfleet_executor.core.errors import BadRequest
from sandfleet_executor.core.review.text import check_text
from sandfleet_executor.worker.python.cells import Compiler
from sandfleet_executor.worker.python.shell import Shell
from sandfleet_operator.plan.reviews.program import program
from sandfleet_operator.plan.reviews.rules import is_pure_expression

KNOWN = frozenset({"x", "rows", "In"})
OWNED = "/workspace/owned"
# To Python, which obeys the cookie of bytes, the escape is a line end: the rest of the line is a comment of `1`.
COOKIE = f"# coding: unicode_escape\n1 # \\\nopen({OWNED!r}, 'w').close()"
COOKIES = {
    "an escape": COOKIE,
    "another encoding": "# -*- coding: utf-7 -*-\n1",
    "the second line": "#!/usr/bin/python\n# vim: set fileencoding=utf-16 :\n1",
    "a carriage return": "# a\r# coding: latin-1\r1",
    "no encoding at all": "# coding: mojibake\n1",
    "a byte order mark": "\ufeff1",
}
LINES = [
    *("# coding: unicode_escape", "# coding: utf-7", "# coding: utf-8", "1 # \\", "1", "x", "rows[0]", "In [1]: x"),
    *("%ls", "!ls", "?x", ">>> x", "+ADEA-", "x;", " x", "(x,", ")", "'''", "\\", "# a", "In [1]", "x if rows else 2"),
]
ENDS = ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\ufeff", " "]
TEXTS = st.lists(st.tuples(st.sampled_from(LINES), st.sampled_from(ENDS)), max_size=5).map(
    lambda pairs: "".join(line + end for line, end in pairs)
)


@pytest.fixture(scope="module")
def compiler():
    shell = Shell()
    # As in a reviewed sandbox.
    shell.automagic = False
    return Compiler(shell)


@pytest.mark.filterwarnings("ignore:`make_tokens_by_line`:UserWarning")
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@given(code=TEXTS)
@example(code=COOKIE)
@example(code="x # \u2028!touch owned")
@example(code="In [1]\n")
def test_a_rule_approves_the_program_that_the_worker_compiles(compiler, code):
    if is_pure_expression(code.encode(), KNOWN):
        tree, _ = compiler._parse(code, "<cell>")
        assert ast.dump(program(code.encode())) == ast.dump(tree)


@pytest.mark.attack("hides another program behind a coding cookie", "no rule approves it", control="in it")
def test_the_rule_reads_no_cookie():
    assert not is_pure_expression(COOKIE.encode(), KNOWN)
    # Control: parsed as bytes, it is the constant 1.
    assert ast.dump(ast.parse(COOKIE.encode())) == ast.dump(ast.parse("1"))


@pytest.mark.parametrize("kind", COOKIES)
def test_a_cell_in_another_encoding_is_refused(kind):
    with pytest.raises(BadRequest, match="cannot review the cell"):
        check_text(COOKIES[kind].encode())


@pytest.mark.parametrize(
    "code", ["# coding: utf-8\nx", "# coding: utf8\nx", "x = '# coding: latin-1'", "a\n\n# coding: b", "# ü"]
)
def test_a_cell_in_utf_8_is_shown_to_reviewers(code):
    check_text(code.encode())


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.attack("declares another encoding", "refused before a reviewer is asked", control="in it")
async def test_a_cell_with_a_cookie_is_shown_to_no_reviewer_and_does_not_run(reviewed, reviewer, executor):
    denied = await reviewed.sandbox.run_code(COOKIE)
    assert (denied.outcome, denied.reason) == ("denied", "NotReviewable")
    assert "declares the encoding unicode_escape" in denied.message
    assert await reviewer.pending() == []
    async with asked(reviewed.sandbox.run_code("1")) as task:
        review = await reviewer.next()
        assert await refused(reviewer.edit(review, COOKIE.encode())) == ("PERMISSION_DENIED", "ApprovalInvalid")
        await reviewer.deny(review)
        await task
    assert not await reviewed.sandbox.files.exists("owned")
    # Control: where no reviewer looks, the interpreter ignores the cookie and runs what stands there.
    assert (await executor.sandbox.run_code(COOKIE)).outcome == "ok"
    assert await executor.sandbox.files.exists("owned")
    await executor.sandbox.files.remove("owned")
    # Control: the cookie that says UTF-8 is no reason to refuse.
    assert (await done(reviewer, reviewed.sandbox.run_code("# coding: utf-8\n1"))).outcome == "ok"
