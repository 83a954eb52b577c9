"""How a journal reads, and that nothing in it acts on a terminal."""

import io
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sandfleet import cli
from sandfleet.journal.notebook import page, visible
from sandfleet.journal.records import Head, Record
from sandfleet.journal.sameness import Verdict, compare, needed_rules
from sandfleet.journal.side_by_side import side_by_side
from sandfleet.journal.steps import Need, step_of
from sandfleet_executor.core.journal import records as executors

KINDS = (
    "opened",
    "execution",
    "terminal",
    "tool_call",
    "review",
    "context",
    "file",
    "state",
    "service",
    "gap",
    "packages",
    "closed",
    "another",
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(
    [
        *("code", "argv", "outcome", "seconds", "stdout", "results", "error", "files", "earlier", "op", "content"),
        *("size", "answer", "arguments", "decision", "env", "signals", "stdin", "type", "by", "reason", "cut_record"),
        *("stderr", "exit_code", "context", "id", "rollback", "failed", "path", "mode", "name", "names", "spec"),
        *("pod", "session", "tool", "method", "missed", "terminal", "installed", "envs", "environment", "contexts"),
    ]
)
BODIES = st.dictionaries(NAMES, VALUES, max_size=8)


def record(kind, body, number=1, at=0.0):
    return Record(Head(number, "a" * 64), "0" * 64, kind, at, body)


def cell(code, stdout="", **body):
    text = {"text": stdout, "bytes": len(stdout), "sha256": executors.hash_of(stdout.encode()), "cut": False}
    return {"type": "cell", "code": {"text": code}, "outcome": "ok", "stdout": text, "seconds": 0.5, **body}


def test_a_cell_reads_like_a_notebook():
    body = cell(
        "x = 1\nprint(x)", "1\n", results=[{"mime": "text/plain", "text": "None", "bytes": 4}], context="default"
    )
    body["files"] = {"changed": [{"path": "a.txt", "size": 3}], "removed": ["b.txt"]}
    assert list(page(record("execution", body, 7))) == [
        "[7] 1970-01-01 00:00:00  cell in default  ok  0.500 s",
        "    │ x = 1",
        "    │ print(x)",
        "    1",
        "    None",
        "    ~ a.txt (3 bytes)",
        "    - b.txt",
    ]


@given(st.sampled_from(KINDS), BODIES, st.floats(-1e14, 1e14))
def test_any_record_has_a_page_and_nothing_in_it_acts(kind, body, at):
    for line in page(record(kind, body, at=at)):
        assert all(letter == "\t" or letter.isprintable() for letter in line)


@pytest.mark.parametrize(
    ("kind", "body", "why"),
    [
        ("service", {"op": "applied", "spec": {"services": [{"name": "web"}, {"name": "db"}]}}, "service web, db"),
        ("service", {"op": "restarted", "name": "web"}, "service web (restarted)"),
        ("service", {"op": "stopped", "names": [str(number) for number in range(9)]}, "and 4 more"),
        ("terminal", {"argv": ["bash", "-i"]}, "terminal bash -i"),
    ],
)
def test_services_and_terminals_are_named_where_they_are_not_replayed(kind, body, why):
    step = step_of(record(kind, body))
    assert step.need is Need.BESIDE
    assert why in step.why


@given(st.text())
def test_visible_text_is_visible(text):
    assert all(letter == "\t" or letter.isprintable() for letter in visible(text))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;owned\x07", "\\x1b]0;owned\\x07"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\ud800", "\\ud800"),
        ("\r", "\\r"),
        ("é ≠ 字", "é ≠ 字"),
    ],
)
def test_escapes_are_shown_and_not_obeyed(text, shown):
    assert visible(text) == shown


@given(st.sampled_from(KINDS), BODIES, BODIES)
@example("execution", {"code": None, "outcome": []}, {"results": True})
@example("execution", {"outcome": {"killed": 1}, "results": 5}, {"outcome": "killed"})
@example("service", {"spec": {"services": [None, {"name": []}]}, "names": 3}, {})
def test_any_record_can_be_judged(kind, body, other):
    step = step_of(record(kind, body))
    assert step.need in Need
    assert all(letter.isprintable() for letter in step.title + step.why)
    assert compare(body, body).verdict is Verdict.SAME
    assert compare(body, other).verdict in Verdict
    assert side_by_side([record(kind, body)], [record(kind, other)]).rows is not None


@pytest.mark.parametrize(
    ("was", "now", "rules"),
    [
        ("<object at 0x7f1234567890>", "<object at 0x7fabcdef0123>", ("addresses",)),
        ("2026-01-02T03:04:05Z", "2026-02-03T04:05:06Z", ("times",)),
        ("took 1.5 ms at 0x7f1234567890", "took 2.25 ms at 0x7fabcdef0123", ("durations", "addresses")),
        ("/tmp/tmpabc/x", "/tmp/tmpdef/x", ("temporary paths",)),
        ("pid 12", "pid 34", ("process ids",)),
        ("same", "same", ()),
        ("0.123", "0.456", None),
        ("x at 0x7f1234567890", "y at 0x7fabcdef0123", None),
        ("3 rows", "4 rows", None),
    ],
)
def test_only_what_a_rule_names_may_differ(was, now, rules):
    assert needed_rules(was, now) == rules


def test_output_of_which_only_the_begin_is_recorded_differs_by_its_digest():
    one, other = (cell("x", "begin") for _ in range(2))
    one["stdout"], other["stdout"] = ({**one["stdout"], "cut": True, "sha256": mark * 64} for mark in "ab")
    (difference,) = compare(one, other).differences
    assert (difference.was, difference.now) == ("sha256 " + "a" * 64, "sha256 " + "b" * 64)


@pytest.fixture
def journal(tmp_path):
    lines, head = [], executors.Head()
    for kind, body in (("opened", {"pod": "p", "session": "s"}), ("execution", cell("print('\x1b[2J')", "\x1b[2J\n"))):
        line, head = executors.follow(head, kind, body, 5.0)
        lines.append(line)
    path = tmp_path / "s.journal"
    path.write_bytes(b"".join(lines))
    return path


def test_show_and_verify_from_the_command_line(journal, capsys, monkeypatch):
    assert cli.main(["journal", "show", str(journal)]) == cli.OK
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "│ print('\\x1b[2J')" in out
    assert cli.main(["journal", "show", str(journal), "--json"]) == cli.OK
    assert [json.loads(line)["n"] for line in capsys.readouterr().out.splitlines()] == [1, 2]
    assert cli.main(["journal", "verify", str(journal)]) == cli.OK
    assert "no head says whether later records were cut off" in capsys.readouterr().out
    whole = journal.read_bytes()
    journal.write_bytes(whole.replace(b"print", b"Print"))
    assert cli.main(["journal", "verify", str(journal), "--json"]) == cli.OK
    # The last record has none behind it: only a head can tell.
    assert json.loads(capsys.readouterr().out)["only_executor_from"] == 1
    journal.write_bytes(whole[:-5])
    assert cli.main(["journal", "verify", str(journal)]) == cli.FAILED
    assert "record 2: is cut off" in capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(whole)))
    assert cli.main(["journal", "verify", "-"]) == cli.OK


@pytest.mark.parametrize(
    "words",
    [
        ["verify", "MISSING"],
        ["show", "MISSING"],
        ["compare", "MISSING", "MISSING"],
        ["verify", "JOURNAL", "--keys", "JOURNAL"],
        ["verify", "JOURNAL", "--heads", "MISSING"],
        ["replay", "EMPTY"],
        ["replay", "JOURNAL", "--env", "novalue"],
    ],
)
def test_what_cannot_be_read_is_wrong_usage(words, journal, tmp_path, capsys):
    (tmp_path / "empty").write_bytes(b"")
    places = {"MISSING": tmp_path / "missing", "JOURNAL": journal, "EMPTY": tmp_path / "empty"}
    assert cli.main(["journal", *(str(places.get(word, word)) for word in words)]) == cli.USAGE
    assert "cannot" in capsys.readouterr().err
