import pytest
from sandfleet.codeact.conversation import Conversation, End, FinalAnswer, RunCode, Step, Verdict
from sandfleet.codeact.decide import Bounds, Progress, advance, objection_to, stop_after, verdict_on
from sandfleet.codeact.evidence import Evidence
from sandfleet.values.execution import Blame, Outcome

BOUNDS = Bounds(max_steps=5, max_failures=2, max_losses=2)


@pytest.mark.parametrize(
    ("outcome", "blame", "lost", "verdict"),
    [
        (Outcome.OK, None, (), Verdict.OK),
        (Outcome.ERROR, Blame.CODE, (), Verdict.FAILED),
        (Outcome.TIMEOUT, Blame.LIMIT, (), Verdict.FAILED),
        (Outcome.MEMORY, Blame.LIMIT, ("variables",), Verdict.FAILED),
        (Outcome.KILLED, Blame.CODE, ("variables",), Verdict.FAILED),
        (Outcome.DENIED, Blame.POLICY, (), Verdict.FAILED),
        (Outcome.INTERRUPTED, Blame.PLATFORM, (), Verdict.LOST),
        (Outcome.LOST, Blame.PLATFORM, ("variables", "processes", "tmp"), Verdict.LOST),
        # A NameError in an executor that came in place of another one.
        (Outcome.ERROR, Blame.CODE, ("variables", "processes", "tmp"), Verdict.LOST),
    ],
)
def test_the_platforms_failures_are_never_the_codes(
    outcome: Outcome, blame: Blame | None, lost: tuple[str, ...], verdict: Verdict
) -> None:
    assert verdict_on(Evidence("e", outcome, blame, lost=lost)) is verdict


def after(*verdicts: Verdict) -> tuple[Progress, End | None]:
    progress, stop = Progress(), None
    for number, verdict in enumerate(verdicts, 1):
        assert stop is None, "the run had ended before"
        progress = advance(progress, verdict)
        stop = stop_after(BOUNDS, progress, Step(number, RunCode(""), verdict, ""))
    return progress, stop.end if stop else None


OK, FAILED, LOST = Verdict.OK, Verdict.FAILED, Verdict.LOST


@pytest.mark.parametrize(
    ("verdicts", "end"),
    [
        ((OK,), None),
        ((FAILED,), None),
        ((FAILED, FAILED), End.GAVE_UP),
        ((FAILED, OK, FAILED), None),
        ((FAILED, LOST, FAILED), End.GAVE_UP),
        ((LOST, LOST), End.PLATFORM_FAILURE),
        ((LOST, FAILED, LOST), None),
        ((LOST, OK, LOST), None),
        ((OK, OK, OK, OK, OK), End.OUT_OF_STEPS),
        ((OK, OK, OK, OK, Verdict.ACCEPTED), End.ANSWERED),
        ((FAILED, Verdict.ACCEPTED), End.ANSWERED),
        ((Verdict.GAVE_UP,), End.GAVE_UP),
    ],
)
def test_what_follows_a_step(verdicts: tuple[Verdict, ...], end: End | None) -> None:
    assert after(*verdicts)[1] is end


@pytest.mark.parametrize("field", ["max_steps", "max_failures", "max_losses"])
def test_a_bound_below_one_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Bounds(**{"max_steps": 1, "max_failures": 1, "max_losses": 1, field: 0})


def conversation(**evidence: object) -> Conversation:
    seen = Evidence("e1", **{"outcome": Outcome.OK, "stdout": "mean 2.5\n", **evidence})
    return Conversation("task", (Step(1, RunCode("x"), Verdict.OK, "", seen),))


def test_an_answer_that_stands_in_the_output_it_names_meets_no_objection() -> None:
    assert objection_to(FinalAnswer(2.5, "e1"), conversation()) is None


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (FinalAnswer(2.5, ""), "names no execution"),
        (FinalAnswer(2.5, "e2"), "no execution 'e2'"),
        (FinalAnswer("", "e1"), "empty"),
        (FinalAnswer((), "e1"), "empty"),
        (FinalAnswer(2.6, "e1"), "not in the output of the execution that it names: '2.6'"),
    ],
)
def test_an_answer_without_its_evidence_is_objected_to(answer: FinalAnswer, why: str) -> None:
    assert why in (objection_to(answer, conversation()) or "")


def test_an_answer_cannot_rest_on_an_execution_that_failed() -> None:
    objection = objection_to(FinalAnswer(2.5, "e1"), conversation(outcome=Outcome.ERROR))
    assert objection is not None
    assert "outcome error" in objection


def test_an_objection_says_when_a_part_of_the_output_was_dropped() -> None:
    assert "was dropped" in (objection_to(FinalAnswer(9, "e1"), conversation(dropped_bytes=5)) or "")


def test_an_objection_to_a_hundred_values_is_short() -> None:
    objection = objection_to(FinalAnswer(tuple(range(100, 200)), "e1"), conversation())
    assert objection is not None
    assert "and 95 more" in objection
    assert len(objection) < 500
