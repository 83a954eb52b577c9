"""What tables look like on narrow terminals."""

import io
import sys

import pytest
from sandfleet.cli import checks, main, sandboxes, snapshots, table
from sandfleet.cli.fleets import queue

ROWS = {
    sandboxes: ("default/quickstart-5f7c", "suspended", "49 min", "in 12 min", "python", "fast", "namespace",
                "sandfleet demo --sessions 10 --policy (12345)", "team=search,run=nightly"),
    snapshots: ("4f6a8c1e9b2d", "before-the-join", "49 min", "78badc2a9577", "1204", "1.5 GiB", "210 MiB",
                "requested", "secrets,network"),
    queue: ("search-team", "ml", "2", "16 sandboxes, 32 CPU, 64 GiB of memory", "16", "4 sandboxes, 8 CPU", "12",
            "49 min", "3", "QuotaReached"),
}  # fmt: skip


@pytest.mark.parametrize("module", ROWS, ids=lambda module: module.__name__)
@pytest.mark.parametrize("width", [60, 80, 160])
def test_no_row_wraps(module, width):
    columns, row = module._COLUMNS, ROWS[module]
    head, line = table.lines(columns, [row], width, module._LESS)
    assert max(len(head), len(line)) <= width
    assert line.startswith(row[0][:20])
    if width == 160:
        assert head.split()[:3] == " ".join(columns).split()[:3]


def test_a_column_that_says_nothing_goes_first_and_one_that_is_needed_is_cut():
    rows = [("a", "-", "label"), ("b", "-", "x" * 30)]
    assert table.lines(("ID", "POOL", "LABELS"), rows, 38, ("LABELS", "POOL"))[0] == "ID  LABELS"
    assert table.lines(("ID", "LABELS"), [("a", "x" * 90)], 20)[1] == f"a   {'x' * 15}…"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_on_a_terminal_an_empty_list_says_so_and_a_program_gets_the_columns(monkeypatch):
    for out, shown in ((Terminal(), "no pool\n"), (io.StringIO(), "POOL\n")):
        monkeypatch.setattr(sys, "stdout", out)
        table.show(("POOL",), [], none="no pool")
        assert out.getvalue() == shown


def test_a_pipe_gets_whole_rows(monkeypatch):
    monkeypatch.setattr(sys, "stdout", out := io.StringIO())
    monkeypatch.setenv("COLUMNS", "20")
    table.show(("POOL",), [("x" * 50,)], drop=("POOL",))
    assert "x" * 50 in out.getvalue()


def test_the_help_has_each_command_in_one_of_four_groups_and_fits_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["--help"])
    said = capsys.readouterr().out
    lines = said.splitlines()
    assert max(map(len, lines)) < 80
    from sandfleet import cli

    assert sorted(name for names in cli._GROUPS.values() for name in names) == sorted(cli._COMMANDS)
    for name in (*cli._COMMANDS, *cli._SHORT):
        assert sum(line.split()[:1] == [name] and line[0] == " " for line in lines) == 1
    assert [line for line in lines if line in {f"{about}:" for about in cli._ABOUT.values()}] == [
        f"{about}:" for about in cli._ABOUT.values()
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("sanboxes", "sanboxes is no command; did you mean sandboxes?"),
        ("sl", "sl is no command; did you mean ls?"),
        ("zzz", "zzz is no command; `sandfleet --help` lists them"),
        ("queue lst", "lst is no choice here; did you mean ls?"),
        ("reviews zzz", "zzz is no choice here: there are ls, show, "),
    ],
)
def test_a_typo_is_told_what_it_may_have_meant(words, said, capsys):
    with pytest.raises(SystemExit) as caught:
        main(words.split())
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


def test_details_of_checks_go_on_below_each_other_on_a_narrow_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stdout", out := Terminal())
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("NO_COLOR", "1")
    checks.show([checks.Check("bubblewrap", ok=False, detail="not found: install the package bubblewrap", needed=True)])
    checks.show([checks.Check("gVisor", ok=False, detail="not inside gVisor")])
    assert out.getvalue().splitlines() == [
        "MISSING bubblewrap           not found: install the package",
        f"{'':29}bubblewrap",
        "-       gVisor               not inside gVisor",
    ]


def test_a_text_breaks_between_words_on_a_terminal_alone(monkeypatch):
    text = "isolation:    namespace (pid, mount, ipc, uts, network)"
    monkeypatch.setenv("COLUMNS", "40")
    assert table.wrapped(text, 14) == text
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert table.wrapped(text, 14) == "isolation:    namespace (pid, mount,\n              ipc, uts, network)"
