"""Code of a Python cell asks its caller for a line of input."""

import pytest

pytestmark = pytest.mark.process

pytest_plugins = ("support.executor.worker_contexts",)


def giving(context, *lines):
    """Answers with these lines, one after the other; None refuses."""
    left = iter(lines)
    return lambda asked: context.answer(asked, next(left))


def test_standard_input_has_the_lines_that_are_answered_up_to_its_end(context):
    code = "import sys\nfirst = sys.stdin.readline()\nfirst, input(), sys.stdin.read(), sys.stdin.fileno()"
    outcome = context.run(code, on_input=giving(context, "a é", "b", "c", "d", None))
    assert outcome.text == "('a é\\n', 'b', 'c\\nd\\n', 0)"
    # Its end is that of this cell.
    assert context.run("list(sys.stdin)", on_input=giving(context, "e", None)).text == "['e\\n']"
    assert context.run("list(sys.stdin)").text == "[]"


def test_input_and_getpass_are_answered(context):
    code = "import getpass\nfirst = input('who? ')\nfirst, getpass.getpass('word: '), input(7)"
    outcome = context.run(code, on_input=giving(context, "ann é", "secret", ""))
    assert (outcome.text, outcome.out) == ("('ann é', 'secret', '')", "")
    assert outcome.asked == [("who? ", False), ("word: ", True), ("7", False)]


def test_a_refusal_is_an_error_and_so_is_a_cell_without_answers(context):
    outcome = context.run("input('x')", on_input=giving(context, None))
    assert (outcome.error["name"], "has refused it" in outcome.error["value"]) == ("StdinNotAvailable", True)
    assert context.run("input('x')").error["name"] == "StdinNotAvailable"
    assert context.run("try: input()\nexcept EOFError: ok = 1\nok", on_input=giving(context, None)).text == "1"


def test_an_interrupt_ends_the_wait_and_a_late_answer_reaches_no_code(context):
    late = []

    def interrupt(asked):
        late.append(asked)
        context.interrupt()

    outcome = context.run("kept = 1\ninput('x')", on_input=interrupt)
    assert (outcome.status, outcome.error["name"]) == ("interrupted", "KeyboardInterrupt")
    context.answer(late[0], "late")
    code = "from IPython.display import clear_output\nprint(kept)\nclear_output()\ninput('y')"
    outcome = context.run(code, on_input=giving(context, "new"))
    assert (outcome.text, outcome.cleared) == ("'new'", [False])


def test_code_that_swallows_an_interrupt_and_asks_again_gets_the_newer_answer(context):
    asked = []

    def answer(request):
        asked.append(request)
        if len(asked) == 1:
            context.interrupt()
        else:
            for each, line in zip(asked, ("first", "second"), strict=True):
                context.answer(each, line)

    code = "try: input('a')\nexcept KeyboardInterrupt: pass\ninput('b')"
    assert context.run(code, on_input=answer).text == "'second'"


def test_results_of_a_cell_come_while_it_waits_and_after(context):
    code = "display(1)\ninput('x')\ndisplay(2)\n3"
    outcome = context.run(code, on_input=giving(context, "x"))
    assert outcome.events == ["result", "input", "result", "result", "done"]


THREAD = """
import threading
def ask():
    try: input()
    except EOFError as error: print(error)
one = threading.Thread(target=ask); one.start(); one.join()
"""
CHILD = """
import os
if os.fork() == 0:
    try: input()
    except EOFError as error: print(error, flush=True)
    os._exit(0)
os.wait()[1]
"""


@pytest.mark.parametrize(("code", "words"), [(THREAD, "only the main thread"), (CHILD, "no keyboard")])
def test_threads_and_children_cannot_ask(context, code, words):
    outcome = context.run(code, on_input=lambda _: None)
    assert (words in outcome.out, outcome.asked) == (True, [])


def test_a_variable_that_held_input_is_found_under_its_former_name(context):
    code = "import pickle, sys\nname = input.__module__\ngetattr(sys.modules[name], 'refuse_input') is input"
    assert context.run(code).text == "True"
    assert context.run("pickle.loads(pickle.dumps(input)) is input").text == "True"
