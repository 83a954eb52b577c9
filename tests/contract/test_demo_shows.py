"""The short shows of `sandfleet demo NAME`, on real sandboxes of the embedded fleet."""

import argparse
import json

import pytest
from sandfleet import demo


@pytest.mark.timeout(120)
def test_resume_loses_nothing_and_runs_nothing_twice(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    demo.add_arguments(parser)
    assert demo.run(parser.parse_args(["resume", "--json"])) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["well"]
    assert told["connections"] > 5
    assert told["lost_reason"] == "ExecutorRestarted"
    assert told["shown_before_the_kill"] >= 30
