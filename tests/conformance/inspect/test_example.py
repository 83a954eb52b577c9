"""The example runs: an evaluation with a scripted model, in a sandbox that is found by its name."""

from pathlib import Path
from runpy import run_path


def test_the_sample_is_right_and_its_command_ran_in_the_sandbox(tmp_path: Path) -> None:
    log = run_path("examples/agents/inspect_eval.py")["main"](str(tmp_path))
    assert log.status == "success", log.error
    (sample,) = log.samples
    assert sample.scores["includes"].value == "C"
    assert [each.text.strip() for each in sample.messages if each.role == "tool"] == ["42"]
