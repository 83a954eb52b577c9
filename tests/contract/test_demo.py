"""The demo on real sandboxes of the embedded fleet."""

import argparse
import json
from pathlib import Path

import pytest
from sandfleet import demo
from sandfleet.demo.tasks import least_squares
from support.client.chat_endpoint import Endpoint


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    demo.add_arguments(parser)
    return demo.run(parser.parse_args(words))


@pytest.mark.timeout(300)
def test_every_agent_solves_its_task_and_one_survives_its_accident(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.jsonl"
    code = run("--sessions", "5", "--json", "--trace", str(trace), "--output", str(tmp_path / "plots"))
    summary = json.loads(capsys.readouterr().out)
    assert (code, summary["solved"], summary["troubles"]) == (0, 5, [])
    assert (summary["sessions_rolled_back"], summary["sessions_that_lost_variables"]) == (1, 0)
    assert summary["answers_rejected"] == 1
    assert summary["repaired"] > 5
    assert summary["isolation"] == "namespace"
    assert all(agent["solved"] == 1 for agent in summary["agents"])
    assert (tmp_path / "plots" / "002-returns.png").read_bytes().startswith(b"\x89PNG")
    check_trace(trace)


def check_trace(trace: Path) -> None:
    spans = [json.loads(line) for line in trace.read_text().splitlines()]
    sessions = {span["context"]["trace_id"] for span in spans if span["name"] == "task"}
    assert len(sessions) == 5
    of_steps = [span for span in spans if span["name"].startswith(("step ", "execute_tool "))]
    assert of_steps
    assert {span["context"]["trace_id"] for span in of_steps} <= sessions
    # What the agents wrote and saw stays out of the trace.
    text = trace.read_text()
    assert not any(secret in text for secret in ("import pandas", "orders.csv", "slope 0.6", "Invalid isoformat"))


def test_one_agent_is_shown_step_by_step_before_the_many(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--sessions", "4") == 0
    out = capsys.readouterr().out
    parts = (
        "First one agent, step by step: least squares",
        "step 1: compute the slope",
        "  │ n = len(x)",
        "stdout: slope 0.6",
        "ANSWER REJECTED: not in the output of the execution that it names: '1.8'",
        "ANSWER ACCEPTED",
        "4 sessions in all",
        "[1/4] least squares",
        "[4/4] ",
        "4 of 4 sessions solved",
    )
    places = [out.find(part) for part in parts]
    assert -1 not in places
    assert places == sorted(places)


def test_a_session_that_is_not_solved_is_an_exit_code_of_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sandfleet.demo.tasks.csv_import.price_mean", lambda _data, _column: 1.0)
    assert run("--sessions", "1") == 1
    out = capsys.readouterr().out
    assert "0 of 1 sessions solved" in out
    assert "FAILED       session 1, messy CSV (prices, Open): expected 1, got 26.7749" in out
    assert "\x1b" not in out


def test_a_model_behind_an_endpoint_drives_a_session(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sandfleet.demo.session.AGENTS", (least_squares,))
    monkeypatch.setattr("sandfleet.demo.summary.AGENTS", (least_squares,))
    monkeypatch.setattr("sandfleet.demo.progress.AGENTS", (least_squares,))
    with Endpoint() as endpoint:
        monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        endpoint.say("FINAL ANSWER (execution 1): 0.6; 2.2")
        code = "import statistics\nline = statistics.linear_regression([1, 2, 3, 4, 5], [2, 4, 5, 4, 5])"
        endpoint.say(f"Then I compute it.\n```python\n{code}\nline\n```")
        endpoint.say("FINAL ANSWER (execution 2): slope = 0.600; intercept = 2.200")
        assert run("--sessions", "1", "--policy", "openai:tiny") == 0
    out = capsys.readouterr().out
    assert "1 answer rejected" in out
    # The first session is shown with the model's own words as they arrive, and what came of them.
    assert out.index("Then I compute it.\n```python") < out.index("[execution 2] ok") < out.index("ANSWER ACCEPTED")
    assert endpoint.requests[0][2]["stream"] is True
    assert "no execution 'execution 1'" in endpoint.requests[1][2]["messages"][-1]["content"]
    assert "[execution 2] ok" in endpoint.requests[2][2]["messages"][-1]["content"]
