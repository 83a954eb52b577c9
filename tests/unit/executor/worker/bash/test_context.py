"""What a live bash answers, and how an exit code is described."""

import os
import signal
import time

import pytest
from sandfleet_executor.worker.base import tree
from sandfleet_executor.worker.bash import context as bash


@pytest.mark.parametrize(
    ("code", "words"),
    [(1, "exit code 1"), (128, "exit code 128"), (139, "exit code 139 (SIGSEGV)"), (255, "exit code 255")],
)
def test_exit_codes_above_128_name_their_signal(code, words):
    assert bash.describe_exit_code(code) == words


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
def test_answers_of_the_shell_give_the_end_of_the_cell(lines, end):
    answers = bash.Answers("7")
    for line in lines:
        assert answers.end is None or line == lines[-1]
        answers.take(line.encode())
    assert (answers.end.code, answers.end.interrupted) == end


def test_the_end_of_a_cell_has_the_options_of_the_shell():
    answers = bash.Answers("7")
    answers.take(b"7 2 checkwinsize:extglob:globstar")
    assert answers.end.options == [b"checkwinsize", b"extglob", b"globstar"]


@pytest.mark.process
@pytest.mark.parametrize(("state", "silent"), [("S", True), ("T", True), ("Z", True), ("R", False), ("D", False)])
def test_a_shell_that_has_read_all_and_still_works_is_not_silent(monkeypatch, state, silent):
    shell = bash.Shell()
    try:
        for _ in range(6000):
            if shell.is_silent():
                break
            time.sleep(0.01)
        found = tree.Process(shell.pid, os.getpid(), state, 0, 0)
        monkeypatch.setattr(tree, "read_process", lambda pid: found if pid == shell.pid else None)
        assert shell.is_silent() is silent
        # Control: one that has not read all silent nothing, whatever it does.
        os.kill(shell.pid, signal.SIGSTOP)
        shell.begin(1, b"", {}, 0)
        assert not shell.is_silent()
    finally:
        os.kill(shell.pid, signal.SIGKILL)
        os.waitpid(shell.pid, 0)
