import io

import pytest
from sandfleet.codeact import AgentRun, End, FinalAnswer, RunCode, Step, Verdict
from sandfleet.codeact.policies.sse import Token
from sandfleet.demo.session import Plan, Report, plans
from sandfleet.demo.stage import Stage
from sandfleet.demo.walk import Walk, shown_first

PLAN = Plan(4, 3, 0)
CODE = Step(1, RunCode("x = 1\n\nprint(x)", intent="compute"), Verdict.OK, "[execution 1] ok\nstdout: 1")
REJECTED = Step(2, FinalAnswer(2, "e"), Verdict.FAILED, "[step 2] ANSWER REJECTED: not in the output")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def walked(*steps: Step, out: io.StringIO | None = None) -> str:
    screen = out or io.StringIO()
    walk = Walk(Stage.on(screen, as_json=False))
    walk.begins(PLAN, "policy scripted")
    for step in steps:
        walk.stepped(PLAN, step)
    walk.ends(Report(PLAN, "a line", "", AgentRun("t", End.ANSWERED, "m", steps), "2"))
    return screen.getvalue()


def test_each_step_shows_intent_code_and_observation_in_turn() -> None:
    lines = walked(CODE, REJECTED).splitlines()
    assert lines[0] == "First one agent, step by step: least squares"
    start = lines.index("step 1: compute")
    assert lines[start : start + 5] == ["step 1: compute", "  │ x = 1", "  │ print(x)", "[execution 1] ok", "stdout: 1"]
    assert "  │ answer: 2" in lines
    assert "solved: 2; the host has checked it in another way" in lines


def test_without_a_terminal_there_are_no_colours() -> None:
    assert "\x1b" not in walked(CODE, REJECTED)


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_a_terminal_gets_colours_unless_no_color_is_set(
    monkeypatch: pytest.MonkeyPatch, no_color: str, coloured: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", no_color)
    shown = walked(CODE, REJECTED, out=Terminal())
    assert ("\x1b[32m[execution 1] ok\x1b[0m" in shown) == coloured
    assert ("\x1b[31m[step 2] ANSWER REJECTED" in shown) == coloured
    assert ("\x1b" in shown) == coloured


def test_what_code_and_output_hold_for_a_terminal_is_not_acted_on() -> None:
    step = Step(1, RunCode("print('\x1b[2J')", intent="a\x07b"), Verdict.OK, "[execution 1] ok\nstdout: \x1b[2J")
    shown = walked(step)
    assert "\x1b" not in shown
    assert "\x07" not in shown


def test_long_code_and_long_output_are_cut() -> None:
    code = "\n".join(f"line_{n} = {'x' * 200}" for n in range(60))
    shown = walked(Step(1, RunCode(code), Verdict.OK, "[execution 1] ok\n" + "out\n" * 60))
    assert "… 46 more lines" in shown
    assert len(shown.splitlines()) < 40
    assert max(len(line) for line in shown.splitlines()) <= 104


def test_what_a_model_says_is_shown_as_it_arrives_instead_of_its_code() -> None:
    out = io.StringIO()
    walk = Walk(Stage.on(out, as_json=False))
    for piece in ("I count.\n```py", "thon\nx = 1", "\n```\x1b[2J"):
        walk.token(Token(piece))
    walk.stepped(PLAN, CODE)
    assert out.getvalue().startswith("\nI count.\n```python\nx = 1\n```\ufffd[2J\n[execution 1] ok\n")
    assert "│" not in out.getvalue()


def test_the_agent_with_short_steps_is_shown_first_where_it_is_among_them() -> None:
    assert shown_first(plans(64, chaos=True)) == PLAN
    assert shown_first(plans(2, chaos=True)).number == 1
