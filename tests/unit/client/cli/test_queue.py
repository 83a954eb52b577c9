"""What `sandfleet queue` takes and shows."""

import io
import os
from dataclasses import replace

import pytest
from sandfleet.cli import main
from sandfleet.cli.fleets import pool, queue
from sandfleet.values.fleet import QueueInfo, Quota

NO_COLOURS = {"NO_COLOR": "1"}
FULL = QueueInfo(
    "one",
    nominal=Quota(sandboxes=2),
    usage=Quota(sandboxes=2),
    admitted=2,
    pending=1,
    oldest_wait=3.0,
    reason="QuotaReached",
    message="queue one uses 2 of 2 sandboxes",
)
FREE = QueueInfo("two", nominal=Quota(sandboxes=4), usage=Quota(sandboxes=1), admitted=1)
NONE = "there are no queues: claims wait for sandboxes only"
WHY = "queue one uses 2 of 2 sandboxes"
HEAD = "QUEUE  COHORT  WEIGHT  QUOTA        ADMITTED  BORROWED  PENDING  OLDEST  PER MIN  REASON"
ROWS = [
    "one    -       1       2 sandboxes  2         -         1        3 s     0        QuotaReached",
    "two    -       1       4 sandboxes  1         -         0        -       0        -",
]
LINES = [f"one  admitted 2  pending 1  used 100%  oldest 3 s  {WHY}", "two  admitted 1  pending 0  used 25%"]
NARROW = [
    "QUEUE  USED  ADMITTED  PENDING  OLDEST",
    "one    100%  2         1        3 s",
    "  queue one uses 2 of 2 sandboxes",
    "two    25%   1         0        -",
]
BARS = [
    f"QUEUE{' ' * 24}USED  ADMITTED  PENDING  OLDEST",
    f"one    {'█' * 20}  100%  2         1        3 s",
    f"  {WHY}",
    f"two    {'█' * 5}{'·' * 15}  25%   1         0        -",
]


class Away:
    """A fleet whose `looks` are shown, one a call; an error among them is raised."""

    def __init__(self, looks):
        self.looks = iter(looks)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def queues(self, *, namespace):
        found = next(self.looks)
        if isinstance(found, BaseException):
            raise found
        return found


class Terminal(io.StringIO):
    def isatty(self):
        return True


def drawn(*screens):
    """The codes of the terminal: back to the first line, each line cleared, what was below cleared."""
    before, text = 0, ""
    for lines in screens:
        back = f"\033[{before}F" if before else ""
        text += back + "".join(f"\033[2K{line}\n" for line in lines) + "\033[J"
        before = len(lines)
    return text


# Words, columns of the terminal (0: a pipe), what each look finds → the output.
SHOWN = {
    "no queues": (["ls"], 0, [()], f"{NONE}\n"),
    "queues": (["ls"], 0, [(FULL, FREE)], "\n".join([HEAD, *ROWS, WHY, ""])),
    "no queues as JSON": (["ls", "--json"], 0, [()], "[]\n"),
    "top in a pipe": (["top", "--count", "1"], 0, [(FULL, FREE)], "\n".join([*LINES, ""])),
    "top without queues in a pipe": (["top", "--count", "1"], 0, [()], f"{NONE}\n"),
    "top as JSON, for a terminal too": (["top", "--count", "1", "--json"], 80, [()], "[]\n"),
    "top on a narrow terminal": (["top", "--count", "1"], 41, [(FULL, FREE)], drawn(NARROW)),
    "top on a wide one": (["top", "--count", "1"], 120, [(FULL, FREE)], drawn(BARS)),
    "queues that go": (["top", "--count", "2", "--interval", "0"], 120, [(FULL, FREE), ()], drawn(BARS, [NONE])),
    "Ctrl-C": (["top", "--interval", "0"], 120, [(), KeyboardInterrupt()], drawn([NONE])),
}


@pytest.mark.parametrize("name", SHOWN)
def test_queues_are_shown_for_people_pipes_and_programs(name, monkeypatch):
    words, columns, looks, shown = SHOWN[name]
    out = Terminal() if columns else io.StringIO()
    monkeypatch.setattr(os, "environ", {**os.environ, **NO_COLOURS, "COLUMNS": str(columns or 80)})
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setattr(pool, "connect", lambda _: Away(looks))
    assert main(["queue", *words]) == 0
    assert out.getvalue() == shown


def test_a_terminal_shows_queues_in_red_that_are_full_while_claims_wait():
    assert queue.screen((FULL, FREE), 120)[1] == [-1.0, 1.0, None, 0.25]
    assert queue.screen((replace(FULL, pending=0, message=""),), 120)[1] == [-1.0, 0.5]


def test_at_80_columns_the_reason_of_a_wait_is_whole():
    why = "queue search uses 3 of 3 sandboxes of its quota, and cohort ml has no more to lend: 4 claims wait before it"
    lines, _ = queue.screen((replace(FULL, message=why), FREE), 80)
    assert max(map(len, lines)) < 80
    assert why in " ".join(" ".join(lines).split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--interval", "-1"], "cannot use '-1' as an interval: it is 0 to 3600 seconds"),
        (["--interval", "nan"], "cannot use 'nan' as an interval"),
        (["--interval", "soon"], "cannot use 'soon' as an interval"),
        (["--count", "0"], "cannot look '0' times: write a number from 1 on"),
        (["--count", "x"], "cannot look 'x' times"),
    ],
)
def test_a_look_that_is_none_is_refused(words, said, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["queue", "top", *words])
    assert caught.value.code == 2
    assert said in capsys.readouterr().err
