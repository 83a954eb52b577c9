"""A secret in every place where a session can have one is in nothing that the platform says of the session.

Spans, metrics and audit records are what real processes export: a program with an agent, its own fleet and executors.
"""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from sandfleet.cli import main
from support.fleet.process import a_fleet
from support.otlp import collecting
from support.ports import free_port

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
# In code, output, tools and names; and in values that not even a journal has.
CANARY, SECRET = "canary_3b9c", "secret_5d1e"
AGENT = """
import asyncio, subprocess, sys
from sandfleet import AsyncSandbox, tool
from sandfleet.codeact import CodeActAgent, FinalAnswer, RunCode, RunCommand

@tool
def look_up(name: str) -> str:
    "A word."
    if name == "CANARY_missing":
        raise LookupError("CANARY is not there")
    return "CANARY"

@tool(returns="secret")
def password() -> str:
    "A secret."
    return "SECRET"

MOVES = [
    RunCode("word = 'CANARY'\\nopen('CANARY.txt', 'w').write(word)\\nprint(word)\\nword", intent="find CANARY"),
    RunCode("class CANARY_error(Exception): pass\\nraise CANARY_error(word)"),
    RunCode("import os, tools\\nassert tools.look_up('CANARY') and tools.password() and os.environ['KEY']\\n"
            "tools.look_up('CANARY_missing')"),
    RunCommand("echo CANARY >&2; exit 3"),
    RunCode("import os; os._exit(1)"),
    RunCode("1 + 1"),
]

async def policy(conversation):
    done = len(conversation.steps)
    return MOVES[done] if done < len(MOVES) else FinalAnswer(2, conversation.steps[-1].evidence.execution_id)

async def main():
    made = AsyncSandbox.create(contract="brokered", envs={"KEY": "SECRET"}, labels={"note": "CANARY"})
    async with made as sandbox:
        await sandbox.files.write("CANARY/data", "SECRET")
        await sandbox.create_context("second", envs={"OTHER": "SECRET"})
        await sandbox.run_code("import os; assert os.environ['OTHER']", context="second", envs={"MORE": "SECRET"})
        agent = CodeActAgent(policy, sandbox, tools=[look_up, password], max_failures=9, name="tester")
        run = await agent.run("say CANARY")
        subprocess.run([sys.executable, "-m", "sandfleet", "report", sandbox.sandbox_id, "-o", sys.argv[1]], check=True,
                       capture_output=True)
        print("end", run.end.value, sandbox.sandbox_id)

asyncio.run(main())
""".replace("CANARY", CANARY).replace("SECRET", SECRET)


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """Everything that was said of the session, by its kind; and the sandbox."""
    folder = tmp_path_factory.mktemp("canary")
    port = free_port()
    with collecting() as collector, pytest.MonkeyPatch.context() as patch:
        said = {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint,
                "OTEL_METRIC_EXPORT_INTERVAL": "200", "SANDFLEET_AUDIT": str(folder / "audit.jsonl"),
                "SANDFLEET_TRACES": str(folder / "spans.jsonl")}  # fmt: skip
        for name, value in said.items():
            patch.setenv(name, value)
        with a_fleet(folder / "f", "--metrics-port", str(port)) as fleet:
            address = {"SANDFLEET_ADDRESS": f"unix:{fleet.state_dir}/fleet.sock"}
            done = subprocess.run([sys.executable, "-c", AGENT, str(folder / "live.html")], env=os.environ | address,
                                  capture_output=True, text=True, timeout=110, check=False)  # fmt: skip
            assert done.returncode == 0, done.stderr
            metrics = subprocess.run(
                ["curl", "-s", f"http://127.0.0.1:{port}/metrics"], capture_output=True, check=True
            )
            process = fleet.process
        logs = done.stderr.encode() + (process.stderr.read() if not process.stderr.closed else b"")
    sandbox = re.search(r"end answered (\S+)", done.stdout)[1]
    bodies = {kind: b"".join(parts) for kind, parts in collector.bodies.items()}
    return folder, sandbox, {
        "spans": bodies["traces"],
        "spans in a file": (folder / "spans.jsonl").read_bytes(),
        "metrics over OTLP": bodies["metrics"],
        "audit over OTLP": bodies["logs"],
        "metrics": metrics.stdout,
        "audit": (folder / "audit.jsonl").read_bytes(),
        "logs": logs,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "known"),
    [
        ("spans", b"execute_cell"), ("spans in a file", b"execute_cell"), ("metrics over OTLP", b"sandfleet_executions"), ("audit over OTLP", b"release"),
        ("metrics", b"sandfleet_tool_calls_total{"), ("audit", b'"claim"'), ("logs", b""),
    ],
)  # fmt: skip
def test_no_secret_of_a_session_is_in_what_the_platform_says_of_it(played, kind, known):
    _, _, said = played
    assert known in said[kind], "there is nothing to find a secret in"
    for secret in (CANARY, SECRET):
        assert secret.encode() not in said[kind]


def test_a_name_that_a_caller_gives_is_in_the_spans(played):
    """The control: what is looked through has the words of the session that it may have."""
    assert b"second" in played[2]["spans"]
    assert b"look_up" in played[2]["spans"]


def test_the_report_of_spans_alone_has_no_secret_and_that_of_a_journal_no_value_of_the_environment(played, capsys):
    folder, sandbox, _ = played
    page = folder / "spans.html"
    assert main(["report", sandbox, "--spans", str(folder / "spans.jsonl"), "-o", str(page)]) == 0
    assert main(["trace", sandbox, "--spans", str(folder / "spans.jsonl")]) == 0
    told = page.read_text() + capsys.readouterr().out
    assert "execute_cell" in told
    assert CANARY not in told and SECRET not in told
    # A journal is read to show the code: it has no values of variables, no files and no answers of secret tools.
    live = (folder / "live.html").read_text()
    assert f"word = '{CANARY}'" in json.loads(live.partition("id='data'>")[2].partition("</script>")[0])["sessions"][0][
        "steps"][1]["code"]  # fmt: skip
    assert SECRET not in live
