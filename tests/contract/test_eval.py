"""`sandfleet eval` as a user runs it, on real sandboxes of this machine."""

import json
import subprocess
import sys

MINE = """
[[task]]
key = "six"
prompt = "What is six times seven?"
answer = 42
solution = "print(6 * 7)"

[[task]]
key = "file"
prompt = "Write hello into hello.txt."
test = "assert open('hello.txt').read() == 'hello'"
solution = "open('hello.txt', 'w').write('hello'); print('done')"
wrong = "print('done')"
"""
POLICY = """
from sandfleet.codeact import GiveUp


def gives_up(task, sample):
    async def policy(conversation):
        return GiveUp(f"{task.key} is too hard")

    return policy
"""


def evaluate(tmp_path, *arguments):
    line = [sys.executable, "-m", "sandfleet", "eval", "mine.toml", "--json", *arguments]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_two_policies_are_compared_and_a_second_run_comes_from_the_checkpoint(tmp_path):
    (tmp_path / "mine.toml").write_text(MINE)
    (tmp_path / "mine.py").write_text(POLICY)
    asked = [
        "--policy",
        "scripted:careful",
        "--policy",
        "mine:gives_up",
        "-k",
        "2",
        "--checkpoint",
        "c",
        "--report",
        "r.html",
    ]
    found = evaluate(tmp_path, *asked)
    rates = {policy["policy"]: policy["pass_at"]["1"]["mean"] for policy in found["policies"]}
    assert rates == {"scripted:careful": 1.0, "mine:gives_up": 0.0}
    assert found["comparisons"][0]["lost"] == ["file", "six"]
    assert "six is too hard" in (tmp_path / "r.html").read_text()
    again = evaluate(tmp_path, *asked)
    assert again["policies"] == found["policies"]
    assert sorted(s["sandbox_id"] for s in again["samples"]) == sorted(s["sandbox_id"] for s in found["samples"])
