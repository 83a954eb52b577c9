"""The bar of a run on a terminal, beside what the program prints."""

import io
import sys

from sandfleet.driver.progress import Bar, Progress
from sandfleet.driver.result import TaskEnd, TaskResult


class Terminal(io.StringIO):
    def isatty(self):
        return True

    def lines(self):
        """The lines as they stand: a cleared line is empty again."""
        return [line.rpartition("\r\x1b[2K")[2] for line in self.getvalue().split("\n")]


def test_what_the_program_prints_stands_above_the_bar_which_ends_with_its_line(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    bar, progress = Bar(terminal), Progress(total=2)
    bar(progress)
    print("first", "result")
    progress.ended(TaskResult("a", TaskEnd.ANSWERED))
    bar(progress)
    print("half a line", end="")
    bar(progress)
    print(" and its end")
    progress.ended(TaskResult("b", TaskEnd.WRONG))
    bar(progress)
    bar.close()
    assert sys.stdout is terminal
    print("after")
    last = "█" * 24 + " 2/2 done · 1 answered · 1 wrong"
    assert terminal.lines() == ["first result", "half a line and its end", last, "after", ""]


def test_a_bar_in_a_file_leaves_the_output_alone(monkeypatch):
    monkeypatch.setattr(sys, "stdout", out := io.StringIO())
    bar = Bar(out)
    bar(Progress(total=1))
    bar.close()
    assert (sys.stdout is out, out.getvalue()) == (True, "0/1 done\n")
