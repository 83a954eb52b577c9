"""Trees, waterfalls and reports made of spans that may be missing, wrong or hostile."""

import json
import re
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet.observe.report import journal
from sandfleet.observe.report.compare import pairs
from sandfleet.observe.report.journal import Recorded
from sandfleet.observe.report.model import Report, report
from sandfleet.observe.report.page import html
from sandfleet.observe.spans.decode import span_of_line
from sandfleet.observe.spans.record import SpanRecord
from sandfleet.observe.spans.tree import MAX_DEPTH, gaps, trees
from sandfleet.observe.spans.waterfall import MAX_LINES, duration, waterfall

MS = 10**6
HOSTILE = "</script><script>document.title='pwned'</script><img src=x onerror=alert(1)>\x1b[2J"


def span(number, parent=0, start=0, end=10, name="", trace="a" * 32, service="sandfleet", **attributes):
    ids = {"trace_id": trace, "span_id": f"{number:016x}", "parent_id": f"{parent:016x}" if parent else ""}
    said = {key.replace("__", "."): value for key, value in attributes.items()}
    error = said.pop("error", "")
    return SpanRecord(
        **ids, name=name or f"s{number}", service=service, start=start * MS, end=end * MS, attributes=said, error=error
    )


def test_spans_are_drawn_as_a_tree_by_their_start():
    (root,) = trees([span(3, 1, 6, 9), span(1), span(2, 1, 1, 5), span(4, 2, 2, 3)])
    assert [(depth, node.span.name) for depth, node in root.walk()] == [(0, "s1"), (1, "s2"), (2, "s4"), (1, "s3")]
    lines = [line.text for line in waterfall(root, 80)]
    assert lines[0].startswith("s1 ") and lines[0].endswith(" 10.0 ms")
    assert len(set(map(len, lines))) == 1
    assert re.fullmatch(r"    s4 +█+[▏▎▍▌▋▊▉]? +1.0 ms", lines[2])


def test_what_went_wrong_and_what_is_missing_is_said():
    (root,) = trees([span(2, 1, name="cell", sandfleet__outcome="timeout")])
    (line,) = waterfall(root, 80)
    assert line.text.startswith("cell: timeout (parent missing)")
    assert line.failed


def test_a_child_that_its_parent_does_not_cover_is_found():
    (root,) = trees([span(1, 0, 0, 10), span(2, 1, 2, 20), span(3, 1, 2, 10)])
    assert [one.name for one in gaps(root)] == ["s2"]


@given(st.lists(st.builds(span, st.integers(1, 9), st.integers(0, 9), st.integers(0, 50), st.integers(0, 50))))
def test_each_span_stands_in_one_tree_once_whatever_comes(spans):
    found = [node.span.span_id for tree in trees(spans) for _, node in tree.walk()]
    assert sorted(found) == sorted({one.span_id for one in spans})
    for tree in trees(spans):
        assert list(waterfall(tree, 60))
    assert report("x", spans, {}).name == "x"


def test_a_chain_of_thousands_is_drawn_within_bounds():
    (root,) = trees([span(number, number - 1) for number in range(1, 5_000)])
    assert max(depth for depth, _ in root.walk()) == MAX_DEPTH
    lines = list(waterfall(root, 100))
    assert len(lines) == MAX_LINES + 1
    assert lines[-1].text == f"… {4_999 - MAX_LINES} spans more"


def test_names_cannot_write_to_the_terminal():
    (root,) = trees([span(1, name=HOSTILE)])
    assert all(line.text.isprintable() for line in waterfall(root, 200))


@pytest.mark.parametrize(
    ("seconds", "said"), [(123.4, "123 s"), (12.34, "12.3 s"), (1.5, "1.50 s"), (0.0123, "12.3 ms"), (5e-6, "5 µs")]
)
def test_times_have_three_digits(seconds, said):
    assert duration(seconds) == said


@pytest.mark.parametrize("line", ["", "nonsense", "{}", "[1]", '{"context": 3}', '{"context": {"trace_id": "0x1"}}'])
def test_a_line_that_is_no_span_is_left_out(line):
    assert span_of_line(line) is None


# Reports.


def a_session(key, *, fails=False, run="r1", number=1, code="x", seconds=10):
    trace = f"{number:032x}"
    base = number * 100
    end = {"sandfleet__run__end": "out_of_steps" if fails else "answered"}
    made = [
        span(base, 0, 0, seconds * 1000, "task", trace, sandfleet__run__id=run, sandfleet__task__key=key, **end),
        span(base + 1, base, 0, seconds * 1000, "invoke_agent a", trace, sandfleet__run__message="the time was over"),
        span(base + 2, base + 1, 0, 1, "chat m", trace, gen_ai__usage__input_tokens=5),
        span(base + 3, base + 1, 2, 900, "step run_code", trace, sandfleet__step__verdict="failed"),
    ]
    arguments = {"gen_ai__tool__call__arguments": json.dumps({"code": code})}
    outcome = {"sandfleet__outcome": "error", "sandfleet__exception": "KeyError", "sandfleet__blame": "code"}
    call = {"gen_ai__tool__call__id": f"e{number}", "sandfleet__sandbox__id": f"box{number}"}
    made.append(span(base + 4, base + 3, 3, 800, "execute_tool run_code", trace, **call, **outcome, **arguments))
    return made


def test_a_session_says_what_went_wrong_in_its_steps():
    (session,) = report("r1", a_session("one", fails=True), {}).sessions
    assert (session.key, session.sandbox, session.is_failed, session.end) == ("one", "box1", True, "out_of_steps")
    assert session.message == "the time was over"
    (step,) = session.steps
    assert (step.end, step.exception, step.blame, step.code, step.tokens) == ("error", "KeyError", "code", "x", 5)
    assert [bar[1] for bar in session.bars][:2] == ["task: out_of_steps", "invoke_agent a"]


def test_what_is_missing_is_said():
    said = " ".join(report("r1", a_session("one"), {}).missing)
    assert "fleet's spans are missing" in said
    assert "executors' spans are missing" in said
    assert "Code and output are missing" not in said
    bare = [span(1, name="execute_tool run_code", gen_ai__tool__call__id="e")]
    assert "Code and output are missing" in " ".join(report("r", bare, {}).missing)


def test_a_journal_adds_code_output_results_and_files(tmp_path):
    blob = {"text": "print(1)", "bytes": 8, "cut": False}
    body = {
        "id": "e1",
        "code": blob,
        "stdout": {"text": "out", "cut": True},
        "results": [{"mime": "image/png", "bytes": 3, "sha256": "ab"}, {"text": "42"}],
        "error": {"name": "KeyError", "value": "'x'"},
        "files": {"changed": [{"path": "a.txt"}], "removed": ["b.txt"]},
    }
    lines = [{"kind": "execution", "body": body}, {"kind": "file", "body": {}}]
    path = tmp_path / "journal"
    path.write_text("\n".join(map(json.dumps, lines)) + "\nnonsense\n[3]\n")
    recorded = journal.read([path])
    assert list(recorded) == ["e1"]
    (session,) = report("r1", a_session("one"), recorded).sessions
    (step,) = session.steps
    assert step.code == "print(1)"
    assert step.output == "out\n… cut\n[image/png, 3 bytes, sha256 ab]\n42"
    assert (step.exception, step.files) == ("KeyError: 'x'", ("a.txt", "-b.txt"))


def test_two_runs_are_compared_task_by_task():
    before = [*a_session("same"), *a_session("gained", fails=True, number=2), *a_session("gone", number=3)]
    after = [
        *a_session("same", number=4, code="other", run="r2"),
        *a_session("gained", number=5, run="r2"),
    ]
    found = pairs(report("r1", before, {}), report("r2", after, {}))
    assert [(pair.key, pair.flipped, pair.differs) for pair in found] == [("gained", "gained", 0), ("same", "", 1)]


def shown(tmp_path, found: Report, fragment="") -> str:
    """The page as a browser has it when it is drawn."""
    if shutil.which("chromium") is None:
        pytest.skip("chromium is not installed")
    path = tmp_path / "report.html"
    path.write_text(html(found), encoding="utf-8")
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]
    command += ["--virtual-time-budget=5000", "--dump-dom", path.as_uri() + fragment]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=True).stdout


def test_markup_in_names_code_and_output_is_shown_as_text_and_runs_nothing(tmp_path):
    spans = [span(1, name=HOSTILE, gen_ai__tool__call__id="e", sandfleet__outcome="error")]
    recorded = {"e": Recorded(code=HOSTILE, output=HOSTILE, error=HOSTILE)}
    found = report(HOSTILE, spans, recorded)
    assert "<script>document" not in html(found)
    page = shown(tmp_path, found)
    assert "<title>pwned" not in page
    assert "<img" not in page.partition("<main")[2].partition("</main>")[0]
    assert "&lt;img src=x" in page


def test_a_run_says_at_the_top_which_session_failed_and_why(tmp_path):
    spans = [one for n in range(1, 31) for one in a_session(f"task {n}", number=n, fails=n == 7)]
    page = shown(tmp_path, report("r1", spans, {}))
    body = page.partition('<main id="page">')[2]
    assert "1 of 30 sessions went wrong." in body
    assert "task 7: the time was over" in body
    assert body.index("1 of 30 sessions") < 500


def test_a_report_of_ten_thousand_steps_draws_what_is_looked_at(tmp_path):
    root = span(1, 0, 0, 100_000, "invoke_agent a", sandfleet__run__end="answered")
    steps = [
        span(n, 1, n, n + 1, "execute_tool run_code", gen_ai__tool__call__id=f"e{n}", sandfleet__outcome="ok")
        for n in range(2, 10_002)
    ]
    recorded = {f"e{n}": Recorded(code="print(1)\n" * 20) for n in range(2, 10_002)}
    found = report("r", [root, *steps], recorded)
    assert len(found.sessions[0].steps) == 10_000
    page = shown(tmp_path, found)
    body = page.partition('<main id="page">')[2].partition("</main>")[0]
    assert body.count("<details") < 300
    assert "Show more (9800 left)" in body
    assert "print(1)" not in body
