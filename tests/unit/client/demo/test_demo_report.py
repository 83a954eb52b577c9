import argparse
import io
import json
import sys
from importlib.util import find_spec

import pytest
import show
from sandfleet import cli, demo
from sandfleet.codeact import AgentRun, End, FinalAnswer, RunCode, Step, Verdict
from sandfleet.codeact.evidence import Evidence
from sandfleet.demo import main as demo_main
from sandfleet.demo import task
from sandfleet.demo.progress import Plain, Table, clip, told
from sandfleet.demo.session import AGENTS, Plan, Report
from sandfleet.demo.summary import lines, percentile, summarize
from sandfleet.errors import UnavailableError
from sandfleet.values.execution import Blame, ExecutionError, Outcome
from shows import fork


def run(*steps: Step, end: End = End.ANSWERED) -> AgentRun:
    return AgentRun("task", end, "", steps)


RAISED = Evidence("e1", Outcome.ERROR, Blame.CODE, error=ExecutionError("KeyError", "x"))
FINE = Evidence("e2", Outcome.OK)
KILLED = Evidence("e3", Outcome.KILLED, Blame.CODE, lost=("variables",))
STEPS = (
    Step(1, RunCode("", intent="load"), Verdict.FAILED, "", RAISED, 0.1),
    Step(2, RunCode("", intent="chaos"), Verdict.FAILED, "", KILLED, 0.2),
    Step(3, RunCode("", intent="again"), Verdict.OK, "", FINE, 0.3),
    Step(4, FinalAnswer(1, "e2"), Verdict.FAILED, ""),
    Step(5, FinalAnswer(2, "e2"), Verdict.ACCEPTED, ""),
)
SOLVED = Report(Plan(1, 0, 0), "prices", "", run(*STEPS), "2", "namespace", 0.02, 1.5)
FAILED = Report(Plan(2, 1, 0), "AAPL", "expected 1,\n got 2", run(*STEPS[:1]), "", "namespace", 0.04, 1.0)
BROKEN = Report(Plan(3, 2, 0), "median", "the platform failed: no fleet")


def test_a_summary_counts_what_happened() -> None:
    summary = summarize("scripted", [SOLVED, FAILED, BROKEN], 2.0)
    assert (summary.sessions, summary.solved, summary.failed, summary.steps) == (3, 1, 2, 6)
    assert summary.outcomes == {"error": 2, "killed": 1, "ok": 1}
    assert (summary.repaired, summary.answers_rejected, summary.sessions_that_lost_variables) == (3, 1, 1)
    assert (summary.step_p50, summary.step_p99, summary.claim_p50) == (0.1, 0.3, 0.02)
    assert (summary.isolation, summary.sessions_per_second) == ("namespace", 1.5)
    assert [figures.sessions for figures in summary.agents] == [1, 1, 1, 0, 0]


def test_a_summary_is_json_and_text_that_names_every_trouble_in_one_line() -> None:
    summary = summarize("scripted", [SOLVED, FAILED, BROKEN], 2.0)
    assert json.loads(json.dumps(summary.as_json()))["agents"][0]["solved"] == 1
    text = lines(summary)
    assert text[0] == "1 of 3 sessions solved, each checked by the host"
    assert any("FAILED" in line and "expected 1, got 2" in line for line in text)
    assert any("no fleet" in line for line in text)


def test_a_summary_of_nothing_is_possible() -> None:
    summary = summarize("scripted", [], 0.0)
    assert (summary.step_p50, summary.isolation, summary.sessions_per_second) == (0.0, "unknown", 0.0)


@pytest.mark.parametrize(("percent", "value"), [(50, 5), (95, 10), (99, 10), (10, 1), (1, 1)])
def test_percentiles_are_of_the_nearest_rank(percent: int, value: float) -> None:
    assert percentile(range(1, 11), percent) == value


def test_a_line_for_a_session_tells_its_mishaps_in_order() -> None:
    assert told(SOLVED) == "messy CSV (prices): 2 in 5 steps, 1.5 s [KeyError → killed → answer rejected]"


def test_plain_progress_is_a_line_for_each_session() -> None:
    out = io.StringIO()
    progress = Plain(out, 12)
    for report in (SOLVED, FAILED):
        progress.started(report.plan)
        progress.finished(report)
        progress.draw()
    assert [line[:7] for line in out.getvalue().splitlines()] == ["[ 1/12]", "[ 2/12]"]


def test_the_table_has_a_row_for_each_agent_and_is_drawn_over_itself() -> None:
    out = io.StringIO()
    table = Table(out, 2)
    table.started(SOLVED.plan)
    table.stepped(SOLVED.plan, STEPS[0])
    table.draw()
    assert "load: KeyError" in table.lines()[1]
    table.finished(SOLVED)
    table.draw()
    row = table.lines()[1].split()
    assert row[:7] == ["messy", "CSV", "0", "1", "0", "1", "1"]
    assert f"\x1b[{len(AGENTS) + 2}F" in out.getvalue()
    assert "1/2 sessions done" in table.lines()[-1]


def test_a_line_from_a_sandbox_cannot_steer_the_terminal() -> None:
    assert clip("a\x1b[2Jb\nc\td", 80) == "a [2Jb c d"
    assert clip("x" * 100, 20) == "x" * 18 + "…"


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    demo.add_arguments(parser)
    return parser.parse_args(words)


def test_the_defaults_are_64_sessions_of_scripts_with_chaos() -> None:
    args = parse()
    assert (args.sessions, args.policy, args.chaos, args.json, args.trace) == (64, "scripted", True, False, None)


@pytest.mark.parametrize("words", [("--sessions", "0"), ("--sessions", "x"), ("--concurrency", "-1")])
def test_counts_are_checked(words: tuple[str, ...]) -> None:
    with pytest.raises(argparse.ArgumentError):
        parse(*words)


@pytest.mark.parametrize("policy", ["gpt", "openai", "openai:", "scripted:x"])
def test_an_unknown_policy_is_wrong_usage(policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", "--policy", policy]) == 2
    assert "sandfleet: cannot use the policy" in capsys.readouterr().err


def test_a_model_without_key_and_endpoint_is_refused_also_for_programs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert cli.main(["demo", "--policy", "openai:tiny", "--json"]) == 3
    assert "OPENAI_API_KEY" in json.loads(capsys.readouterr().out)["error"]["message"]


@pytest.mark.parametrize(
    ("words", "missing", "code", "said"),
    [
        (["demo"], "matplotlib", 3, "`pip install matplotlib numpy pandas`"),
        (["demo", "--trace", "spans.jsonl"], "opentelemetry.sdk", 2, "pip install 'sandfleet[otel]'"),
    ],
)
def test_a_package_that_is_missing_is_named_with_how_to_get_it(
    words: list[str],
    missing: str,
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for module in (task, demo_main):
        monkeypatch.setattr(module, "find_spec", lambda name: None if name == missing else find_spec(name))
    assert cli.main(words) == code
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("failure", "code", "said"),
    [
        (UnavailableError("cannot start a fleet: no reason"), 3, "sandfleet: cannot start a fleet: no reason\n"),
        (OSError(28, "No space left on device"), 1, "sandfleet: cannot go on: No space left on device\n"),
        # Its reader, `head` say, has gone.
        (BrokenPipeError(32, "Broken pipe"), 1, ""),
    ],
)
def test_a_show_that_fails_ends_as_other_commands_do(
    failure: Exception, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fails(_stage: object) -> None:
        raise failure

    monkeypatch.setattr(fork, "_run", fails)
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    assert show.main(["fork"]) == code
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(("reports", "code"), [([SOLVED], 0), ([SOLVED, FAILED], 1)])
def test_the_exit_code_says_whether_all_were_solved(
    reports: list[Report], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def ran(*_args: object) -> list[Report]:
        return reports

    monkeypatch.setattr(demo_main, "_run", ran)
    assert demo.run(parse("--json")) == code
    assert json.loads(capsys.readouterr().out)["sessions"] == len(reports)
