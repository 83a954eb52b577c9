"""`sandfleet reviews` as a reviewer uses it, in a terminal and in scripts, with a fleet of this machine."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from sandfleet import Execution, Fleet, Review, Sandbox
from sandfleet._fleets.embedded import Options, Process

COMMAND = [sys.executable, "-m", "sandfleet_command", "reviews"]
PATIENCE = 60
ESCAPE = "\x1b"
# What stands below the last page.
KEYS = "[a]pprove"


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    process = Process(Options(pool_size=0))
    with Fleet.connect(process.address) as made:
        yield made
    process.stop()


@pytest.fixture(scope="module")
def sandbox(fleet: Fleet) -> Iterator[Sandbox]:
    with Sandbox.create(fleet=fleet, contract="reviewed", keep_alive=True) as made:
        yield made


@pytest.fixture(scope="module")
def environment(fleet: Fleet) -> dict[str, str]:
    # The size is that of each test's own terminal, not of the one around the tests.
    kept = {name: value for name, value in os.environ.items() if name not in {"LINES", "COLUMNS"}}
    return {**kept, "SANDFLEET_ADDRESS": fleet.address, "TERM": "xterm"}


@contextmanager
def asked(fleet: Fleet, sandbox: Sandbox, code: str, **options: str) -> Iterator[tuple[Review, "Future[Execution]"]]:
    """A cell that waits, and its outcome; in the end it is denied."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(sandbox.run_code, code, **options)  # type: ignore[arg-type]
        for found in fleet.reviews.watch(sandbox.sandbox_id):
            if found:
                break
        try:
            yield found[0], running
        finally:
            for one in fleet.reviews.list():
                fleet.reviews.answer(one, one.deny())


def said(environment: dict[str, str], *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMMAND, *words],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def in_a_terminal(
    environment: dict[str, str], *words: str, keys: Sequence[tuple[str, str | Callable[[], str]]] = (), rows: int = 200
) -> tuple[int, str]:
    """Exit code, and all that the terminal has shown. `keys`: what is typed when the terminal shows a text."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (rows, 80))
    process = subprocess.Popen([*COMMAND, *words], env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown, waiting, seen = b"", list(keys), 0
    while select.select([ours], [], [], PATIENCE)[0]:
        try:
            data = os.read(ours, 65536)
        except OSError:
            break
        shown += data
        while waiting and (at := shown.decode("utf-8", "replace").find(waiting[0][0], seen)) >= 0:
            seen = at + len(waiting[0][0])
            key = waiting.pop(0)[1]
            os.write(ours, (key if isinstance(key, str) else key()).encode())
    os.close(ours)
    return process.wait(PATIENCE), shown.decode()


def test_what_waits_is_listed_with_what_and_why(fleet: Fleet, sandbox: Sandbox, environment: dict[str, str]) -> None:
    with asked(fleet, sandbox, "import os\nos.remove('a')", intent="make room\x1b[2J") as (review, _):
        ended = said(environment, "ls")
        [head, row] = ended.stdout.splitlines()
        assert head.split() == ["REVIEW", "KIND", "WAITS", "SANDBOX", "LEASE", "WHAT", "WHY"]
        assert row.startswith(f"{review.review_id}@{review.state}  cell ")
        assert row.endswith("import os os.remove('a')  make room\ufffd[2J")
        assert (ended.stderr, ended.returncode) == ("", 0)
        [one] = json.loads(said(environment, "ls", "--json").stdout)
        assert (one["review_id"], one["intent"], one["kind"]) == (review.review_id, "make room\x1b[2J", "cell")
    empty = said(environment, "ls", "--json")
    assert (json.loads(empty.stdout), empty.returncode) == ([], 0)


def test_a_request_is_shown_in_full_and_the_agents_words_cannot_forge_a_line(
    fleet: Fleet, sandbox: Sandbox, environment: dict[str, str]
) -> None:
    code = "import socket  # \u202e\x1b[31m\nprint('x' * 5000)" + "#" * 5000
    with asked(fleet, sandbox, code, intent="harmless\nhints:    none\u2066") as (review, _):
        ended = said(environment, "show", review.review_id)
        lines = ended.stdout.splitlines()
        assert r"why:      harmless\nhints:    none\u2066" in lines
        assert "hints:    imports: socket; uses the network: socket" in lines
        assert r"import socket  # \u202e\x1b[31m" in lines
        assert ended.stdout.count("#" * 5000) == 1
        assert (ESCAPE in ended.stdout, ended.returncode) == (False, 0)
        whole = json.loads(said(environment, "show", review.review_id, "--json").stdout)
        assert (whole["state"], whole["content_bytes"]) == (review.state, len(code.encode()))


def test_a_terminal_gets_colours_unless_it_wants_none(
    fleet: Fleet, sandbox: Sandbox, environment: dict[str, str]
) -> None:
    with asked(fleet, sandbox, "import os  # text") as (review, _):
        code, shown = in_a_terminal(environment, "show", review.review_id, keys=[(KEYS, "q")])
        assert (code, "\x1b[34mimport\x1b[0m os  \x1b[90m# text\x1b[0m" in shown) == (0, True)
        code, shown = in_a_terminal({**environment, "NO_COLOR": "1"}, "show", review.review_id, keys=[(KEYS, "q")])
        assert (code, ESCAPE in shown, "import os  # text" in shown) == (0, False, True)
        assert ESCAPE not in said(environment, "show", review.review_id).stdout


def test_an_answer_is_to_what_was_shown(fleet: Fleet, sandbox: Sandbox, environment: dict[str, str]) -> None:
    with asked(fleet, sandbox, "import os; 40 + 2") as (review, running):
        for name, code, why in (
            (review.review_id, 2, "it is named as ID@STATE"),
            (f"{review.review_id}@{review.state + 1}", 1, "show it again"),
            (f"unknown@{review.state}", 1, "none of this id waits"),
        ):
            ended = said(environment, "approve", name)
            assert (ended.stdout, ended.returncode, why in ended.stderr) == ("", code, True), ended.stderr
        ended = said(environment, "approve", "unknown@1", "--json")
        assert "none of this id waits" in json.loads(ended.stdout)["error"]["message"]
        assert not running.done()
        # Control: as it was shown.
        name = f"{review.review_id}@{review.state}"
        assert said(environment, "approve", name).returncode == 0
        assert running.result(PATIENCE).text == "42"
        assert said(environment, "approve", name).returncode == 1


def test_an_edit_runs_and_a_denial_says_why(
    fleet: Fleet, sandbox: Sandbox, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "edit.py").write_text("print('edited')")
    with asked(fleet, sandbox, "import os; print('asked')") as (review, running):
        name = f"{review.review_id}@{review.state}"
        missing = said(environment, "approve", name, "--edit", str(tmp_path / "none.py"))
        assert (missing.returncode, "none.py" in missing.stderr) == (1, True)
        assert said(environment, "approve", name, "--edit", str(tmp_path / "edit.py")).returncode == 0
        assert running.result(PATIENCE).logs.stdout == "edited\n"
    with asked(fleet, sandbox, "import os; os.abort()") as (review, running):
        assert said(environment, "deny", f"{review.review_id}@{review.state}", "--reason", "not now").returncode == 0
        execution = running.result(PATIENCE)
        assert (execution.outcome, execution.blame) == ("denied", "policy")
        assert "not now" in execution.message


def test_ctrl_c_answers_nothing(fleet: Fleet, sandbox: Sandbox, environment: dict[str, str]) -> None:
    with asked(fleet, sandbox, "import os; 1") as (review, running):
        # It waits for the text of an edit.
        process = subprocess.Popen(
            ["env", "--default-signal=INT", *COMMAND, "approve", f"{review.review_id}@{review.state}", "--edit", "-"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        until_it_waits(process.pid)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
        assert (process.returncode, re.search("Traceback", errors)) == (130, None), errors
        assert not running.done()


def until_it_waits(pid: int) -> None:
    """Until the process reads its standard input."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        syscall = Path(f"/proc/{pid}/syscall").read_text(encoding="ascii").split()
        if syscall[:2] == ["0", "0x0"]:
            return
        time.sleep(0.05)
    raise AssertionError("the command does not read")


def test_keys_approve_deny_and_go_on_to_what_waits_next(
    fleet: Fleet, sandbox: Sandbox, environment: dict[str, str]
) -> None:
    with asked(fleet, sandbox, "import os; print('first')") as (_, first):
        second = ThreadPoolExecutor(1).submit(sandbox.commands.run, "echo second")
        for found in fleet.reviews.watch(sandbox.sandbox_id):
            if len(found) == 2:
                break
        typed = [(KEYS, "n"), ("echo second", ""), (KEYS, "d"), ("reason for the agent", "not today\n")]
        code, shown = in_a_terminal(environment, "show", keys=typed)
        assert (code, "deny: done" in shown, "no other request waits" in shown) == (0, True, True), shown
        assert "not today" in second.result(PATIENCE).message
        assert not first.done()
        # Without an id the oldest is shown.
        code, shown = in_a_terminal(environment, "show", keys=[(KEYS, "a")])
        assert (code, "approve: done" in shown) == (0, True), shown
        assert first.result(PATIENCE).logs.stdout == "first\n"
    assert in_a_terminal(environment, "show")[0] == 0


def test_a_long_request_is_paged_and_approved_at_its_end_alone(
    fleet: Fleet, sandbox: Sandbox, environment: dict[str, str]
) -> None:
    lines = "\n".join(f"x{number} = {number}" for number in range(60))
    with asked(fleet, sandbox, "import os; print('before')") as (review, _):
        fleet.reviews.answer(review, review.approve())
    with asked(fleet, sandbox, f"import os\n{lines}\nprint(x59)") as (review, running):
        more = "[space] more"
        # An approval before the end is not taken: the key does nothing.
        code, shown = in_a_terminal(environment, "show", review.review_id, rows=24, keys=[(more, "aq")])
        assert (code, "x59" in shown, running.done()) == (0, False, False)
        pages = int(re.search(r"\(1 of (\d+)\)", shown)[1])  # type: ignore[index]
        assert pages > 2
        typed = [*[(more, " ")] * (pages - 1), (KEYS, "a")]
        code, shown = in_a_terminal(environment, "show", review.review_id, rows=24, keys=typed)
        assert (code, "x59" in shown) == (0, True), shown
        # The cell before was another one, and no earlier version of this.
        assert "approved before" not in shown
        assert running.result(PATIENCE).logs.stdout == "59\n"


def test_an_edit_is_made_in_an_editor(
    fleet: Fleet, sandbox: Sandbox, environment: dict[str, str], tmp_path: Path
) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i s/asked/edited/ "$1"\n')
    editor.chmod(0o755)
    with asked(fleet, sandbox, "import os; print('asked')") as (_, running):
        # One that changes nothing answers nothing, and the request is shown again.
        unchanged = {**environment, "EDITOR": "true"}
        code, shown = in_a_terminal(unchanged, "show", keys=[(KEYS, "e"), ("not edited", ""), (KEYS, "q")])
        assert (code, running.done()) == (0, False), shown
        code, shown = in_a_terminal({**environment, "EDITOR": str(editor)}, "show", keys=[(KEYS, "e")])
        assert (code, "edit: done" in shown) == (0, True), shown
        assert running.result(PATIENCE).logs.stdout == "edited\n"


def test_ctrl_c_at_the_keys_answers_nothing_and_leaves_the_terminal_as_it_was(
    fleet: Fleet, sandbox: Sandbox, environment: dict[str, str]
) -> None:
    with asked(fleet, sandbox, "import os; 2") as (_, running):
        command = ["env", "--default-signal=INT", "setsid", "--ctty", "--wait", *COMMAND, "show"]
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (200, 80))
        before = termios.tcgetattr(theirs)[3]
        process = subprocess.Popen(command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
        shown = b""
        while KEYS.encode() not in shown:
            shown += os.read(ours, 65536)
        assert termios.tcgetattr(theirs)[3] != before
        os.write(ours, b"\x03")
        assert process.wait(PATIENCE) == 130
        assert termios.tcgetattr(theirs)[3] == before
        assert not running.done()
        os.close(ours)
        os.close(theirs)


def test_a_watch_shows_what_comes_and_ends_with_q(fleet: Fleet, sandbox: Sandbox, environment: dict[str, str]) -> None:
    def work() -> str:
        return sandbox.run_code("import os; print('came later')").logs.stdout

    with ThreadPoolExecutor(1) as pool:
        later: list[Future[str]] = []

        def comes() -> str:
            later.append(pool.submit(work))
            return ""

        idle = "q ends"
        code, shown = in_a_terminal(environment, "watch", keys=[(idle, comes), (KEYS, "a"), (idle, "q")])
        assert (code, "approve: done" in shown, shown.count(idle)) == (0, True, 2), shown
        assert later[0].result(PATIENCE) == "came later\n"
    refused = said(environment, "watch")
    assert (refused.returncode, "it is for a terminal" in refused.stderr) == (2, True)
