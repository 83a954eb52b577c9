"""Which languages a sandbox has, and how an exit code is said."""

import os
import signal
import time

import pytest
from sandfleet_executor.worker import bash, languages, syntax, tree
from sandfleet_executor.worker.languages import Language


def test_python_is_always_there():
    assert languages.available()[0] == "python"
    assert languages.missing("python") == ""


def test_a_language_without_its_program_is_not_there_and_it_is_said(monkeypatch):
    monkeypatch.setitem(languages.LANGUAGES, "bash", Language("bash", program="/is/not/there"))
    assert "bash" not in languages.available()
    assert languages.missing("bash") == "the sandbox has no /is/not/there"


def test_a_language_that_nobody_knows_is_not_there():
    assert languages.missing("cobol") == "languages are python, bash"


@pytest.mark.parametrize(
    ("code", "words"),
    [(1, "exit code 1"), (128, "exit code 128"), (139, "exit code 139 (SIGSEGV)"), (255, "exit code 255")],
)
def test_an_exit_code_names_the_signal_that_it_stands_for(code, words):
    assert bash.value_of(code) == words


@pytest.mark.parametrize(
    ("lines", "end"),
    [
        (["7 0 braceexpand extglob"], (0, False)),
        (["armed", "7 3"], (3, False)),
        (["interrupted 7", "7 1"], (1, True)),
        # Of the cell before, whose end was already on its way.
        (["interrupted 6", "7 1"], (1, False)),
        (["6 1", "7 0"], (0, False)),
        # `set -e`: what failed, and not how the cell was left.
        (["failed 5", "failed 6", "7 2"], (5, False)),
        # Forged, or broken off.
        (["", "7", "7 x", "failed", "interrupted", "interrupted 7 7", "7 260"], (4, False)),
        (["7 1", "7 2"], (1, False)),
    ],
)
def test_what_a_shell_says_of_a_cell(lines, end):
    heard = bash.Heard("7")
    for line in lines:
        assert heard.end is None or line == lines[-1]
        heard.take(line.encode())
    assert (heard.end.code, heard.end.interrupted) == end


def test_the_options_of_the_shell_come_with_the_end():
    heard = bash.Heard("7")
    heard.take(b"7 2 checkwinsize:extglob:globstar")
    assert heard.end.options == [b"checkwinsize", b"extglob", b"globstar"]


@pytest.mark.parametrize(
    ("code", "extended", "said"),
    [
        ("echo fine", False, ""),
        ("if true\nfi fi", False, "line 2: syntax error near unexpected token `fi'"),
        ("echo 'open", False, "line 1: unexpected EOF while looking for matching `''"),
        # A warning is no error, and does not hide one.
        ("cat <<END\ntext", False, ""),
        ("case x in +(y)) ;; esac", True, ""),
        ("case x in +(y)) ;; esac", False, "line 1: syntax error near unexpected token `('"),
        ("x" * 200_000 + " )", False, "line 1: syntax error near unexpected token `)'"),
    ],
)
def test_what_is_wrong_with_a_script(tmp_path, monkeypatch, code, extended, said):
    script = tmp_path / "a b"
    script.write_text(code)
    # Nothing is run to learn it.
    (tmp_path / "environment").write_text(f"touch {tmp_path}/ran")
    monkeypatch.setenv("BASH_ENV", str(tmp_path / "environment"))
    assert syntax.error_in(str(script), extended=extended) == said
    assert not (tmp_path / "ran").exists()


def test_a_script_of_which_nothing_can_be_learned_in_time_has_no_error(tmp_path, monkeypatch):
    monkeypatch.setattr(syntax, "PATIENCE", 0.1)
    os.mkfifo(tmp_path / "endless")
    assert syntax.error_in(str(tmp_path / "endless"), extended=False) == ""


@pytest.mark.parametrize(("state", "owes"), [("S", True), ("T", True), ("Z", True), ("R", False), ("D", False)])
def test_a_shell_that_has_read_all_and_waits_for_the_processor_is_not_silent(monkeypatch, state, owes):
    shell = bash.Shell()
    try:
        for _ in range(6000):
            if shell.owes_an_answer():
                break
            time.sleep(0.01)
        found = tree.Process(shell.pid, os.getpid(), state, 0, 0)
        monkeypatch.setattr(bash.tree, "look", lambda pid: found if pid == shell.pid else None)
        assert shell.owes_an_answer() is owes
        # Control: one that has not read all owes nothing, whatever it does.
        os.kill(shell.pid, signal.SIGSTOP)
        shell.begin(1, b"", {}, 0)
        assert not shell.owes_an_answer()
    finally:
        os.kill(shell.pid, signal.SIGKILL)
        os.waitpid(shell.pid, 0)
