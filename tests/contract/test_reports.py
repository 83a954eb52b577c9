"""Reports of what lives and of what a driver has left: journals, plots and checkpoints of real fleets."""

import asyncio
import json
import shutil
import struct
import subprocess
import sys
import zlib
from base64 import b64decode
from pathlib import Path

import pytest
from sandfleet import AsyncFleet, Sandbox
from sandfleet.cli import main
from sandfleet.codeact import CodeActAgent, FinalAnswer, RunCode
from sandfleet.driver import AgentTask, DriverOptions, FleetDriver
from support.fleet.process import a_fleet

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


DOT = (
    b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    + chunk(b"IDAT", zlib.compress(b"\0\x80")) + chunk(b"IEND", b"")
)  # fmt: skip
PLOT = f"class Plot:\n    def _repr_png_(self): return {DOT!r}\nPlot()"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with a_fleet(tmp_path_factory.mktemp("fleet") / "f") as fleet:
        yield f"unix:{fleet.state_dir}/fleet.sock"


@pytest.fixture(autouse=True)
def named(address, monkeypatch, tmp_path):
    monkeypatch.setenv("SANDFLEET_ADDRESS", address)
    monkeypatch.setenv("SANDFLEET_TRACES", str(tmp_path / "no-spans.db"))


def reported(capsys, *words):
    assert main(["report", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_session_that_lives_is_read_from_its_journal_with_its_plots(capsys, tmp_path):
    with Sandbox.create() as sandbox:
        sandbox.run_code(PLOT)
        sandbox.run_code("open('kept.txt', 'w').write('x')\nprint('hello')")
        sandbox.run_code("{}['key']")
        found = reported(capsys, sandbox.sandbox_id)
        page = tmp_path / "page.html"
        assert main(["report", sandbox.sandbox_id, "-o", str(page)]) == 0
        copy = tmp_path / "session.journal"
        assert sandbox.journal.export(copy).verification.ok
        # The report itself is no part of the session.
        assert sandbox.journal.head().head.number == len(copy.read_bytes().splitlines())
    (session,) = found["sessions"]
    (plot,) = session["steps"][0]["pictures"]
    assert (plot["mime"], b64decode(plot["data"])) == ("image/png", DOT)
    assert (session["steps"][1]["files"], session["steps"][1]["output"]) == (["kept.txt"], "hello\n")
    assert (session["is_failed"], session["steps"][2]["exception"]) == (True, "KeyError: 'key'")
    assert "There are no spans" in " ".join(found["missing"])
    assert "data:" in page.read_text().partition("img-src ")[2][:10]
    capsys.readouterr()
    # Its journal remains, with small plots in it.
    (again,) = reported(capsys, str(copy))["sessions"]
    assert [step["code"] for step in again["steps"]] == [step["code"] for step in session["steps"]]
    assert b64decode(again["steps"][0]["pictures"][0]["data"]) == DOT


def test_a_session_that_is_gone_is_said_to_be_gone(capsys):
    with Sandbox.create() as sandbox:
        gone = sandbox.sandbox_id
    assert main(["report", gone]) == 1
    assert f"The journal of sandbox {gone} is missing" in capsys.readouterr().err


def agent_of(sandbox, task):
    async def policy(conversation):
        if not conversation.steps:
            return RunCode(f"print({task.data['number']} * 2)", intent="double it")
        evidence = conversation.last.evidence
        return FinalAnswer(int(evidence.output), evidence.execution_id)

    return CodeActAgent(policy, sandbox)


async def driven(path: Path, wrong: set[int]) -> None:
    def check(number):
        return lambda run, sandbox: "it is no good" if number in wrong else ""

    tasks = [AgentTask(f"t{n}", "Double.", data={"number": n}, check=check(n)) for n in range(3)]
    async with await AsyncFleet.connect() as fleet:
        async for _ in FleetDriver(fleet=fleet, options=DriverOptions(concurrency=3)).run(
            agent_of, tasks, checkpoint=path
        ):
            pass


def test_a_run_is_read_from_the_checkpoint_of_its_driver_and_compared_with_another(capsys, tmp_path):
    first, second = tmp_path / "first.sqlite", tmp_path / "second.sqlite"
    asyncio.run(driven(first, {0, 1}))
    asyncio.run(driven(second, {0, 2}))
    found = reported(capsys, str(second), "--compare", str(first))
    ends = {one["key"]: (one["end"], one["message"], one["count"]) for one in found["sessions"]}
    assert ends == {
        "t0": ("wrong", "it is no good", 2),
        "t1": ("answered", "the answer was accepted", 2),
        "t2": ("wrong", "it is no good", 2),
    }
    assert {one["key"]: one["end"] for one in found["other"]["sessions"]}["t2"] == "answered"
    # Code and output stay in the checkpoint of a run that is over.
    assert [step["output"] for step in found["sessions"][1]["steps"]] == ["2\n", "2"]
    assert found["sessions"][1]["steps"][0]["code"] == "print(1 * 2)"
    assert all(one["seconds"] > 0 and one["wait"] is not None for one in found["sessions"])
    page = tmp_path / "page.html"
    assert main(["report", str(second), "--compare", str(first), "-o", str(page)]) == 0
    flips = {one["key"]: one["flipped"] for one in json.loads(data_of(page))["pairs"]}
    assert flips == {"t0": "", "t1": "gained", "t2": "lost"}


def data_of(page):
    return page.read_text().partition("id='data'>")[2].partition("</script>")[0]


def test_the_example_of_a_data_agent_leaves_a_report_with_its_plot_and_its_answer(tmp_path):
    example = Path(__file__).parents[2] / "examples/data_agent.py"
    done = subprocess.run([sys.executable, example], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "answered Köln 20888.3\n"), done.stderr
    (session,) = json.loads(data_of(tmp_path / "report.html"))["sessions"]
    assert (session["answer"], session["task"].endswith("how much is it?")) == ("Köln 20888.3", True)
    assert [step["is_failed"] for step in session["steps"]] == [False, True, False, False, False, False]
    assert [len(step["pictures"]) for step in session["steps"]] == [0, 0, 0, 1, 0, 0]


def test_a_database_that_is_no_checkpoint_is_refused(capsys, tmp_path):
    other = tmp_path / "other.db"
    other.write_bytes(b"SQLite format 3\0" + b"nonsense")
    assert main(["report", str(other)]) == 3
    assert "cannot read the checkpoint" in capsys.readouterr().err
