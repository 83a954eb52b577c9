"""The report of a run: what it says, and that it stays small."""

import json

import pytest
from sandfleet.codeact import RunCode
from sandfleet.codeact.conversation import AgentRun, End, FinalAnswer, Step, Verdict
from sandfleet.codeact.evidence import Evidence, Image
from sandfleet.driver import report as reports
from sandfleet.driver.report import RunReport, line_of, step_of, steps_of
from sandfleet.driver.result import Spent, TaskEnd, TaskResult
from sandfleet.errors import InvalidArgument
from sandfleet.observe.report import pictures
from sandfleet.values.execution import Blame, ExecutionError, Outcome

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (8).to_bytes(4, "big") * 2 + b"rest"


def written(path, results, now=1_000.0):
    report = RunReport(path, "agents.py", lambda: now)
    for result in results:
        report.add(result)
    report.write()
    return json.loads(path.read_text().partition("id='data'>")[2].partition("</script>")[0])


def a_run():
    failed = Evidence("e1", Outcome.ERROR, Blame.CODE, "it failed", ExecutionError("KeyError", "'x'", "", ()))
    plotted = Evidence("e2", Outcome.OK, stdout="42\n", images=(Image("image/png", PNG),))
    steps = (
        Step(1, RunCode("d['x']", intent="look"), Verdict.FAILED, "seen", failed, 1.0),
        Step(2, RunCode("plot()"), Verdict.OK, "seen", plotted, 2.0),
        Step(3, FinalAnswer(42, "e2"), Verdict.ACCEPTED, "accepted"),
    )
    return AgentRun("How many?", End.ANSWERED, "", steps, FinalAnswer(42, "e2"))


def test_a_run_has_its_tasks_with_their_steps_plots_and_answers(tmp_path):
    spent = Spent(claim_seconds=2.0, seconds=8.0, parks=1, input_tokens=1200)
    results = [
        TaskResult("good", TaskEnd.ANSWERED, answer=("42",), steps=3, failures=1, spent=spent, run=a_run()),
        TaskResult("lost", TaskEnd.PLATFORM_FAILURE, "no sandbox: none is free", attempts=3),
        TaskResult("old", TaskEnd.ANSWERED, is_stored=True, steps=4, failures=4),
    ]
    found = written(tmp_path / "run.html", results)
    good, lost, old = found["sessions"]
    assert (good["task"], good["answer"], good["tokens"], good["began"], good["failures"]) == (
        "How many?",
        "42",
        1200,
        990.0,
        1,
    )
    assert [step["is_failed"] for step in good["steps"]] == [True, False, False]
    assert [step["output"] for step in good["steps"]] == ["", "42\n", "42"]
    assert [step["start"] for step in good["steps"]] == [0.0, 1.0, 3.0]
    assert (good["steps"][0]["exception"], good["steps"][0]["intent"]) == ("KeyError: 'x'", "look")
    assert good["steps"][1]["pictures"][0]["data"]
    assert (lost["is_failed"], lost["blame"], lost["message"]) == (True, "platform", "no sandbox: none is free")
    assert (old["count"], old["failures"], old["began"]) == (4, 4, 0.0)
    assert found["facts"] == [
        "1 task from the checkpoint: this run has not worked on it.",
        "1 task took more than one session.",
        "1 task gave the sandbox back for a while.",
    ]


def test_it_is_bounded_however_many_tasks_there_are(tmp_path, monkeypatch):
    monkeypatch.setattr(reports.model, "MAX_TEXTS", 40)
    monkeypatch.setattr(pictures, "MAX_ALL", 60)
    results = [TaskResult(f"t{n:02}", TaskEnd.ANSWERED, run=a_run()) for n in range(20)]
    results += [TaskResult("x", TaskEnd.WRONG, run=a_run())]
    found = written(tmp_path / "run.html", results)["sessions"]
    # Tasks that went well leave half of the room to the others.
    assert [bool(one["steps"]) for one in found] == [True, *[False] * 19, True]
    assert sum(bool(step["pictures"]) for one in found for step in one["steps"]) == 1


def test_steps_stay_in_a_checkpoint_without_their_plots():
    for number, step in enumerate(steps_of(a_run()), 1):
        again = step_of(line_of(step), number)
        assert (again.code, again.output, again.exception, again.number) == (
            step.code,
            step.output,
            step.exception,
            number,
        )
        assert again.pictures == ()
    with pytest.raises(ValueError, match="cannot read a step"):
        step_of('{"step": {"of": "another version"}}', 1)


def test_a_folder_that_is_not_there_is_said_before_the_run(tmp_path):
    with pytest.raises(InvalidArgument, match="its folder does not exist"):
        RunReport(tmp_path / "none" / "run.html", "Run", lambda: 0.0)
