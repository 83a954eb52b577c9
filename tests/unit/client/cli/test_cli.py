"""The command line, against a scripted fleet."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sandfleet
from sandfleet import Sandbox
from sandfleet import _portal as portal
from sandfleet._fleets import embedded
from sandfleet.cli import doctor, main, sentence, table
from sandfleet.cli.checks import Check
from sandfleet.cli.sandboxes import program
from sandfleet.testing import Breaks, Event, FakeFleet, finished, output, result
from sandfleet.values.sandbox import Isolation
from sandfleet_api.executor.v1 import common_pb2
from sandfleet_api.fleet.v1 import fleet_pb2


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeFleet]:
    made = FakeFleet()
    portal.run(made.__aenter__())
    monkeypatch.setenv("SANDFLEET_ADDRESS", made.address)
    yield made
    portal.run(made.__aexit__(None, None, None))


@pytest.fixture
def script(tmp_path: Path) -> str:
    (tmp_path / "code.py").write_text("code")
    return str(tmp_path / "code.py")


def test_run_streams_the_output_and_ends_the_sandbox(
    fake: FakeFleet, script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.answer("code", output("out\n"), output("err\n", stderr=True), result("text/plain", b"42"), finished())
    assert main(["run", script]) == 0
    assert capsys.readouterr() == ("out\n42\n", "err\n")
    assert fake.ended


def test_run_in_an_existing_sandbox_keeps_it(fake: FakeFleet, script: str) -> None:
    fake.answer("code", finished())
    with Sandbox.create() as sandbox:
        assert main(["run", "--sandbox", sandbox.sandbox_id, script]) == 0
        assert not fake.ended
    with pytest.raises(SystemExit):
        main(["run", "--sandbox", "one", "--isolation", "none", script])


def test_run_of_code_that_raises_shows_its_traceback_and_fails(
    fake: FakeFleet, script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    raised = Event(error=common_pb2.ExecutionError(name="ValueError", value="x", traceback="Traceback: x\n"))
    fake.answer("code", raised, finished(common_pb2.OUTCOME_ERROR, blame=common_pb2.BLAME_CODE))
    assert main(["run", script]) == 1
    assert capsys.readouterr().err == "Traceback: x\n"


def test_run_over_the_deadline_says_so_and_fails(
    fake: FakeFleet, script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.answer("code", finished(common_pb2.OUTCOME_TIMEOUT, blame=common_pb2.BLAME_LIMIT, message="Too slow."))
    assert main(["run", script, "--timeout", "2"]) == 1
    assert capsys.readouterr().err == "sandfleet: timeout: Too slow.\n"
    assert fake.called("Execute")[-1].request.timeout.seconds == 2


def test_run_that_the_platform_lost_is_no_failure_of_the_code(fake: FakeFleet, script: str) -> None:
    fake.answer("code", Breaks())
    assert main(["run", script]) == 3


def test_run_as_json_prints_one_object(fake: FakeFleet, script: str, capsys: pytest.CaptureFixture[str]) -> None:
    fake.answer("code", output("out\n"), result("image/png", b"\x89P"), finished())
    assert main(["run", script, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["outcome"], said["logs"]["stdout"], said["results"][0]["parts"]) == (
        "ok",
        "out\n",
        {"image/png": "iVA="},
    )


def test_run_of_bash_is_a_command(fake: FakeFleet, script: str, capsys: pytest.CaptureFixture[str]) -> None:
    fake.answer("bash /tmp/sandfleet-run", output("hi\n"), finished())
    assert main(["run", script, "--language", "bash"]) == 0
    assert capsys.readouterr().out == "hi\n"
    assert fake.files == {b"/tmp/sandfleet-run": b"code"}


def test_run_of_a_missing_file_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "/nope"]) == 2
    assert "cannot run /nope" in capsys.readouterr().err


def test_a_platform_failure_has_its_own_exit_code_and_json_on_request(
    monkeypatch: pytest.MonkeyPatch, script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SANDFLEET_ADDRESS", raising=False)
    monkeypatch.setattr(embedded, "running", lambda: None)
    monkeypatch.setattr(embedded, "find_spec", lambda _: None)
    assert main(["run", script, "--json"]) == 3
    said = json.loads(capsys.readouterr().out)["error"]
    assert (said["type"], said["reason"]) == ("UnavailableError", "LocalNotInstalled")
    assert main(["run", script]) == 3
    assert capsys.readouterr().err.startswith("sandfleet: cannot start an embedded fleet")


@pytest.mark.parametrize(
    "words", [["nope"], ["create", "--keep", "soon"], ["run", "-e", "A", "x"], ["run", "x", "--language", "cobol"]]
)
def test_wrong_usage_is_exit_code_2(words: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2


@pytest.mark.parametrize(
    "command",
    [
        "run",
        "demo",
        "doctor",
        "dev",
        "pool ls",
        *(f"sandboxes {action}" for action in ("ls", "get", "kill", "exec", "services", "logs")),
    ],
)
def test_every_command_has_help_and_takes_json(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([*command.split(), "--help"])
    assert caught.value.code == 0
    assert "--json" in capsys.readouterr().out


def test_summaries_keep_the_capitals_of_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert sentence("open a CodeSandbox of Kubernetes") == "Open a CodeSandbox of Kubernetes."
    for words in (["shell"], ["sandboxes", "get"], ["ls"]):
        with pytest.raises(SystemExit):
            main([*words, "--help"])
        assert ".\n" in capsys.readouterr().out


def test_the_version_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert (caught.value.code, capsys.readouterr().out) == (0, f"sandfleet {sandfleet.__version__}\n")


def test_without_words_all_commands_are_listed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([]) == 2
    assert "run a file in a new sandbox" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("/home/me/.venv/bin/python /home/me/.venv/bin/sandfleet demo --sessions 5", "sandfleet demo --sessions 5"),
        ("python3.12 -u -X dev -m ipykernel_launcher -f a.json", "ipykernel_launcher -f a.json"),
        ("python3 -P project/agent.py", "agent.py"),
        ("/usr/bin/python3 -u -c import", "python3 -c"),
        ("/usr/bin/python3", "python3"),
        ("/opt/agent/serve --port 80", "serve --port 80"),
    ],
)
def test_a_sandbox_belongs_to_a_program_by_its_name(words: str, shown: str) -> None:
    assert program([*words.split(), ""]) == shown


@pytest.mark.parametrize("word", ["ls", "ps", "top", "exec", "logs", "kill"])
def test_short_words_are_those_of_sandboxes(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for words in ([word], ["sandboxes", word]):
        with pytest.raises(SystemExit):
            main([*words, "--help"])
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 s"), (-5, "0 s"), (89, "89 s"), (90, "2 min"), (2940, "49 min"), (5400, "2 h"), (200_000, "2 d")],
)
def test_times_are_said_in_their_largest_unit(seconds: float, said: str) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert table.length(seconds) == said
    assert table.since(now - timedelta(seconds=seconds), now) == said
    assert table.until(now + timedelta(seconds=seconds), now) == (f"in {said}" if seconds > 0 else "over")


@pytest.mark.parametrize(
    ("code", "ends"), [("3", 3), ("259", 3), ("-1", 255), ("", 0), ("None", 0), ("bad", 1), ("1.5", 1)]
)
def test_run_ends_with_the_exit_code_of_its_script(
    fake: FakeFleet, script: str, code: str, ends: int, capsys: pytest.CaptureFixture[str]
) -> None:
    raised = Event(error=common_pb2.ExecutionError(name="SystemExit", value=code, traceback="Traceback: x\n"))
    fake.answer("code", raised, finished(common_pb2.OUTCOME_ERROR, blame=common_pb2.BLAME_CODE))
    assert main(["run", script]) == ends
    assert capsys.readouterr().err == (f"{code}\n" if ends == 1 else "")


def test_names_of_changed_files_never_lead_outside_of_the_output(fake: FakeFleet, script: str, tmp_path: Path) -> None:
    changes = common_pb2.FileChanges(created=[b"../out", b"/etc/out", b"sub/in"], complete=True)
    fake.files = {b"../out": b"1", b"/etc/out": b"2", b"sub/in": b"3"}
    fake.answer("code", finished(files=changes))
    assert main(["run", script, "--output", str(tmp_path / "saved")]) == 0
    assert [path.relative_to(tmp_path) for path in sorted(tmp_path.rglob("*")) if path.is_file()] == [
        Path("code.py"),
        Path("saved/sub/in"),
    ]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["k"], ["kill"]),
        (["sandboxes", "l"], ["logs", "ls"]),
        (["run", "--la"], ["--language"]),
        (["run", "--language", ""], ["bash", "javascript", "jupyter-", "python", "sql", "typescript"]),
        (["ls", "--wat"], ["--watch"]),
        (["completion", "z"], ["zsh"]),
        (["run", "--", "--la"], []),
        (["kill", "s-"], ["s-1"]),
    ],
)
def test_words_are_completed(
    fake: FakeFleet, words: list[str], found: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    fake.answer_call("List", fleet_pb2.ListResponse(sandboxes=[fleet_pb2.Sandbox(sandbox_id="s-1")]))
    assert main(["completion", "--words", *words]) == 0
    assert capsys.readouterr().out.split() == found


def test_sandboxes_are_listed_as_a_table_and_as_json(fake: FakeFleet, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sandboxes", "ls"]) == 0
    assert capsys.readouterr().out.split()[:3] == ["SANDBOX", "STATE", "AGE"]
    assert main(["sandboxes", "ls", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.process
def test_the_doctor_says_why_there_is_no_isolation_where_bubblewrap_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert "MISSING bubblewrap           not found: install the package bubblewrap" in shown
    assert "No isolation" in shown
    assert main(["doctor", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["isolation"] == "none"


@pytest.mark.process
def test_the_doctor_tries_a_namespace_and_reports_bubblewraps_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bwrap").write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo 1.0 && exit\necho "No permissions" >&2; exit 1\n'
    )
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path) + os.pathsep + os.environ["PATH"])
    assert main(["doctor"]) == 1
    assert "MISSING session namespace    cannot make one: No permissions\n" in capsys.readouterr().out
    (tmp_path / "restricted").write_text("1\n")
    monkeypatch.setattr(doctor, "_RESTRICTED", tmp_path / "restricted")
    monkeypatch.setattr(doctor.os, "geteuid", lambda: 1000)
    assert main(["doctor"]) == 1
    assert "cannot make one: No permissions (AppArmor forbids user namespaces here; " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("checks", "level"),
    [
        ([Check("a", True, "", needed=True), Check("gVisor", False, "")], Isolation.NAMESPACE),
        ([Check("a", True, "", needed=True), Check("gVisor", True, "")], Isolation.GVISOR),
        ([Check("a", False, "", needed=True), Check("gVisor", True, "")], Isolation.NONE),
        ([Check("a", True, "", needed=True), Check("b", False, "")], Isolation.NAMESPACE),
    ],
)
def test_the_verdict_follows_the_needed_checks(checks: list[Check], level: Isolation) -> None:
    assert doctor.verdict(checks) is level


@pytest.mark.process
def test_a_closed_or_full_output_is_no_traceback(fake: FakeFleet, script: str) -> None:
    def run(redirection: str) -> "subprocess.CompletedProcess[str]":
        line = f'"$0" -m sandfleet run "$1" {redirection}'
        fake.answer("code", output("out\n"), finished())
        return subprocess.run(["bash", "-c", line, sys.executable, script], capture_output=True, text=True, check=False)

    assert (run("").stdout, run("").returncode) == ("out\n", 0)
    full = run("> /dev/full")
    assert (full.returncode, full.stderr) == (1, "sandfleet: cannot go on: No space left on device\n")
    closed = run(">&- <&-")
    assert (closed.returncode, closed.stderr) == (0, "")
    assert run("2>&-").returncode == 0


def test_misplaced_options_of_a_command_are_refused_with_a_hint(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words in (["sandboxes", "exec", "one", "ls", "-l"], ["shell", "one", "ls", "-l"]):
        with pytest.raises(SystemExit):
            main(words)
        assert "unrecognized arguments: -l; options of the command go after --" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["sandboxes", "ls", "--nonsense"])
    assert "behind --" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "reason", "message"),
    [
        (["run"], "WrongUsage", "cannot run: give either a FILE (- is standard input) or -c CODE"),
        (["run", "x", "-c", "1"], "WrongUsage", "cannot run: give either a FILE (- is standard input) or -c CODE"),
        (["run", "-c", "1", "--upload", "x"], "WrongUsage", "cannot upload x: it is not a directory"),
        (["run", "missing"], "ENOENT", "cannot run missing: No such file or directory"),
        (
            ["cp", "a", "b"],
            "WrongUsage",
            "cannot copy: one side has to be ID:PATH of one sandbox, the other a local path",
        ),
        (["cp", "", "one:x"], "WrongUsage", "cannot copy: a name is empty"),
        (
            ["sandboxes", "exec", "one"],
            "WrongUsage",
            "cannot run a command: none is given; use sandboxes exec ID -- CMD…",
        ),
    ],
)
def test_wrong_usage_is_said_to_people_and_to_programs(
    words: list[str],
    reason: str,
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert capsys.readouterr() == ("", f"sandfleet: {message}\n")
    assert main([*words, "--json"]) == 2
    said = capsys.readouterr()
    error = json.loads(said.out)["error"]
    assert (error["reason"], error["message"], said.err) == (reason, message, "")


@pytest.mark.parametrize("ports", ["0", "70000", "1:70000", "-1", "80:", ":80", "1_0", "\uff18\uff10", "80:x"])
def test_ports_that_cannot_be_are_wrong_usage(ports: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["forward", "one", ports])
    assert ended.value.code == 2
    assert f"cannot forward {ports!r}" in capsys.readouterr().err


@pytest.mark.parametrize("tail", ["0", "-1", "99999999999"])
def test_a_number_of_lines_that_cannot_be_is_wrong_usage(
    fake: FakeFleet, tail: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Sandbox.create() as sandbox:
        assert main(["sandboxes", "logs", "--tail", tail, sandbox.sandbox_id, "web"]) == 2
    assert f"cannot read the last {tail} lines" in capsys.readouterr().err
    assert not fake.called("Logs")
