"""The short shows of `examples/show.py`, on real sandboxes of the embedded fleet."""

import json

import pytest
import show


@pytest.mark.timeout(120)
def test_resume_loses_nothing_and_runs_nothing_twice(capsys: pytest.CaptureFixture[str]) -> None:
    assert show.main(["resume", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["well"]
    assert told["connections"] > 5
    assert told["lost_reason"] == "ExecutorRestarted"
    assert told["shown_before_the_kill"] >= 30


@pytest.mark.timeout(120)
def test_tools_are_composed_in_one_step_and_an_injection_is_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    assert show.main(["tools", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["code_turns"], told["json_turns"], told["calls"]) == (1, 12, 12)
    assert (told["injection_stopped"], told["injection_without_labels"]) == (True, True), "with its control"
    assert (told["mcp_stock"], told["answer_is_right"], told["well"]) == (12, True, True)
    assert told["characters"] > 5_000_000
    assert told["pieces"] >= 50


@pytest.mark.timeout(120)
def test_tools_print_no_colours_where_no_terminal_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert show.main(["tools"]) == 0
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert "labels off: sent to https://evil.example: the attack works" in said
