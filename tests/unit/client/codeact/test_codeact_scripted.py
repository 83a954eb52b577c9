import pytest
from sandfleet.codeact import Conversation, FinalAnswer, GiveUp, RunCode, Step, Verdict
from sandfleet.codeact.evidence import Evidence
from sandfleet.codeact.policies.scripted import Move, ScriptedPolicy, When, answer_from
from sandfleet.values.execution import ExecutionError, Outcome

LOAD, PATCH, REPEAT = RunCode("load"), RunCode("patch"), RunCode("repeat")


def step(number: int = 1, text: str = "", error: str = "", lost: tuple[str, ...] = ()) -> Step:
    outcome = Outcome.ERROR if error else Outcome.OK
    raised = ExecutionError(error, "bad value") if error else None
    seen = Evidence(f"e{number}", outcome, error=raised, stdout=text, lost=lost)
    return Step(number, LOAD, Verdict.OK, "", seen)


REJECTED = Step(2, FinalAnswer(1, "e"), Verdict.FAILED, "ANSWER REJECTED: not there")


@pytest.mark.parametrize(
    ("when", "last", "fits"),
    [
        (When(first=True), None, True),
        (When(first=True), step(), False),
        (When(), None, False),
        (When(), step(), True),
        (When(error="ValueError"), step(error="ValueError"), True),
        (When(error="ValueError"), step(error="UnicodeValueError"), False),
        (When(error="ValueError"), step(text="ValueError"), False),
        (When(text=r"^\d+ rows$"), step(text="12 rows"), True),
        (When(text="bad value"), step(error="ValueError"), True),
        (When(error="ValueError", text="other"), step(error="ValueError"), False),
        (When(outcome=Outcome.OK), step(), True),
        (When(outcome=Outcome.OK), step(error="E"), False),
        (When(lost="variables"), step(lost=("variables",)), True),
        (When(lost="variables"), step(), False),
        (When(text="REJECTED"), REJECTED, True),
        (When(error="ValueError"), REJECTED, False),
    ],
)
def test_when_a_move_fits(when: When, last: Step | None, fits: bool) -> None:
    assert when.fits(last) is fits


POLICY = ScriptedPolicy(
    "import",
    (
        Move(When(first=True), LOAD),
        Move(When(error="ValueError"), PATCH),
        Move(When(error="ValueError"), REPEAT, times=2),
        Move(When(text="rows"), answer_from(r"(\d+) rows in (\d+)", "two numbers")),
    ),
)


async def test_a_script_branches_on_what_really_happened() -> None:
    assert await POLICY(Conversation("t")) is LOAD
    assert await POLICY(Conversation("t", (step(error="ValueError"),))) is PATCH
    answer = await POLICY(Conversation("t", (step(7, text="12 rows in 3"),)))
    assert answer == FinalAnswer(("12", "3"), "e7", "two numbers")


async def test_a_move_is_made_once_and_then_the_next_that_fits() -> None:
    failing = tuple(step(number, error="ValueError") for number in range(1, 6))
    made = [await POLICY(Conversation("t", failing[:count])) for count in range(5)]
    assert made[:4] == [LOAD, PATCH, REPEAT, REPEAT]
    assert isinstance(made[4], GiveUp)


async def test_one_policy_serves_many_runs() -> None:
    one = Conversation("t", (step(error="ValueError"),))
    assert [await POLICY(one), await POLICY(one)] == [PATCH, PATCH]


async def test_a_script_without_a_move_says_what_it_did_not_expect() -> None:
    surprise = Step(1, LOAD, Verdict.FAILED, "ERROR: ZeroDivisionError", step(error="ZeroDivisionError").evidence)
    action = await POLICY(Conversation("t", (surprise,)))
    assert isinstance(action, GiveUp)
    assert "no move for: ERROR: ZeroDivisionError" in action.reason


async def test_an_answer_that_is_not_in_the_output_is_not_made_up() -> None:
    assert isinstance(await POLICY(Conversation("t", (step(text="rows"),))), GiveUp)


def test_a_script_says_that_it_is_one() -> None:
    assert "scripted" in POLICY.summary
    assert "no model" in POLICY.summary
