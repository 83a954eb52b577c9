"""The show `services`, on real sandboxes of the embedded fleet."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import show
from shows import guestbook
from support.fleet.process import PATIENCE, descendants, eventually, is_running

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(180)


def run(*words):
    return show.main(["services", *words])


def test_the_agent_repairs_what_it_broke_and_no_row_is_lost(capsys):
    assert run("--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ok"]
    assert all(told["checks"].values())
    assert (told["failures"], told["missing_column"]) == (["CrashLoop"], "mood")
    assert "DatabaseError: no such column: mood" in told["log"]
    assert any("ALTER TABLE" in line for line in told["repair"])
    ends = {part: {name: trail[-1] for name, trail in states.items()} for part, states in told["states"].items()}
    both = {"db": "ready", "web": "ready"}
    assert ends == {"build": both, "break": {**both, "web": "failed"}, "repair": both, "restart": both, "kill": both}


def test_a_database_that_keeps_nothing_is_found_out(monkeypatch, capsys):
    monkeypatch.setattr(guestbook, "DB", guestbook.DB.replace('"guests.db"', '":memory:"'))
    assert run() == 1
    out = capsys.readouterr().out
    assert "✔ rows outlive a restart of the web service" in out
    assert "✘ rows outlive a kill of the database" in out
    assert "✔ nothing is left" in out
    assert "\x1b" not in out


def test_an_agent_that_finds_nothing_in_the_log_repairs_nothing(monkeypatch, capsys):
    monkeypatch.setattr(guestbook, "missing_column", lambda _log: "")
    assert run() == 1
    out = capsys.readouterr().out
    assert "✔ the new code failed" in out
    assert "✘ the repair works" in out
    assert "The agent does not know what to do about this log." in out


def test_a_repair_that_repairs_nothing_is_no_success(monkeypatch, capsys):
    monkeypatch.setattr(guestbook, "with_migration", lambda web, _column: web)
    assert run("--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert told["failures"] == ["CrashLoop", "CrashLoop"]
    assert not told["checks"]["the_repair_works"]
    assert told["checks"]["nothing_is_left"]


@pytest.mark.parametrize("moment", ["It declares", "It adds a feature", "It kills the database"])
def test_ctrl_c_leaves_nothing(moment):
    command = [sys.executable, str(ROOT / "examples/show.py"), "services"]
    with tempfile.TemporaryDirectory(prefix="sf-", dir="/tmp") as base:
        one = subprocess.Popen(
            command,
            env={**os.environ, "SANDFLEET_STATE": base},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert any(moment in line for line in one.stdout)
        below = descendants(one.pid)[1:]
        assert len(below) > 3
        # As a terminal does it: to all of its foreground group.
        os.killpg(one.pid, signal.SIGINT)
        _, err = one.communicate(timeout=PATIENCE)
        # During an import the signal itself ends it; a shell says 130 of both.
        assert (one.returncode in {130, -signal.SIGINT}, err) == (True, "")
        eventually(lambda: not any(map(is_running, below)), "no process is left")
        assert list(Path(base).iterdir()) == []
