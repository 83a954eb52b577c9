"""Trees, waterfalls and reports made of spans that may be missing, wrong or hostile."""

import hashlib
import json
import re
import subprocess
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet.observe.report import frames, pictures
from sandfleet.observe.report.assemble import report
from sandfleet.observe.report.compare import pairs
from sandfleet.observe.report.journal import Journal, Recorded
from sandfleet.observe.report.model import Report, Step, Task
from sandfleet.observe.report.page import html
from sandfleet.observe.spans.decode import span_of_line
from sandfleet.observe.spans.record import SpanRecord
from sandfleet.observe.spans.tree import MAX_DEPTH, gaps, trees
from sandfleet.observe.spans.waterfall import MAX_LINES, duration, waterfall
from support.tools import tool

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
    assert report("x", spans).name == "x"


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
    (session,) = report("r1", a_session("one", fails=True)).sessions
    assert (session.key, session.sandbox, session.is_failed, session.end) == ("one", "box1", True, "out_of_steps")
    assert session.message == "the time was over"
    (step,) = session.steps
    assert (step.end, step.exception, step.blame, step.code, step.tokens) == ("error", "KeyError", "code", "x", 5)
    assert [bar[1] for bar in session.bars][:2] == ["task: out_of_steps", "invoke_agent a"]


def test_what_is_missing_is_said():
    said = " ".join(report("r1", a_session("one")).missing)
    assert "fleet's spans are missing" in said
    assert "executors' spans are missing" in said
    assert "Code and output are missing" not in said
    bare = [span(1, name="execute_tool run_code", gen_ai__tool__call__id="e")]
    assert "Code and output are missing" in " ".join(report("r", bare).missing)


PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (8).to_bytes(4, "big") * 2 + b"rest"


def a_journal(*bodies, kind="execution", sandbox="box1"):
    found = Journal(sandbox)
    for body in bodies:
        found.take(kind, body, 1_000.0)
    return found


def an_execution(call="e1", **more):
    return {"id": call, "type": "cell", "begun": 990.0, "seconds": 2.0, "outcome": "ok", **more}


def test_a_journal_adds_code_output_results_files_tools_and_reviews():
    journal = a_journal(
        an_execution(
            code={"text": "print(1)", "bytes": 8, "cut": False},
            stdout={"text": "out", "cut": True, "bytes": 9},
            results=[
                {"mime": "application/zip", "bytes": 3, "sha256": "ab", "main": False},
                {"mime": "text/plain", "text": "42"},
            ],
            error={"name": "KeyError", "value": "'x'"},
            files={"changed": [{"path": "a.txt"}], "removed": ["b.txt"]},
            denied_hosts=["b.test", "c.test:81"],
        )
    )
    journal.take("tool_call", {"execution": "e1", "tool": "look_up", "error": {"reason": "NotFound"}}, 1.0)
    journal.take("review", {"execution": "e1", "id": "r", "decision": "approved", "by": "ann"}, 1.0)
    (session,) = report("r1", a_session("one"), [journal]).sessions
    (step,) = session.steps
    assert step.code == "print(1)"
    assert step.output == "out\n… cut: 9 bytes in all\n[application/zip, 3 bytes]\n42"
    assert (step.exception, step.files) == ("KeyError: 'x'", ("a.txt", "-b.txt"))
    assert step.hosts == ("b.test refused", "c.test:81 refused")
    assert (step.tools, step.reviews) == (("look_up: NotFound",), ("approved by ann",))


def test_a_journal_alone_is_a_session_and_what_spans_would_tell_is_said_to_be_missing():
    journal = a_journal(an_execution("e1"), an_execution("e2", begun=995.0, outcome="timeout", blame="limit"))
    journal.take(
        "review", {"id": "r", "method": "/a.B/Write", "decision": "denied", "by": "ann", "reason": "no"}, 999.0
    )
    found = report("box1", [], [journal])
    (session,) = found.sessions
    assert [(step.kind, step.start, step.end) for step in session.steps] == [
        ("run_code", 0.0, "ok"), ("run_code", 5.0, "timeout"), ("request Write", 9.0, "denied"),
    ]  # fmt: skip
    assert session.steps[2].reviews == ("denied by ann: no",)
    assert (session.is_failed, session.message) == (True, "step 3 ended with denied (denied, blame: policy)")
    assert "There are no spans" in found.missing[0]


def test_executions_without_a_span_stand_between_the_others_by_the_clock_of_the_spans():
    # The span of e1 starts 3 ms after 1970, when the executor's clock says 990 s.
    journal = a_journal(an_execution("e1"), an_execution("e9", begun=989.0), an_execution("e8", begun=991.0))
    (session,) = report("r1", a_session("one"), [journal]).sessions
    assert [step.number for step in session.steps] == [1, 2, 3]
    assert [round(step.start, 3) for step in session.steps] == [-0.997, 0.002, 1.003]


def test_calls_of_a_program_without_an_agent_are_one_session_of_their_sandbox_with_its_claim():
    box = {"sandfleet__sandbox__id": "box"}
    spans = [
        span(1, 0, 0, 50, "sandfleet_api.fleet.v1.FleetService/Claim", "1" * 32, **box),
        *(span(n, 0, n * 100, n * 100 + 9, "execute_tool run_code", f"{n:032x}", gen_ai__tool__call__id=f"e{n}", **box)
          for n in (2, 3)),
        # The same execution, looked at once more.
        span(4, 0, 400, 409, "execute_tool attach", "4" * 32, gen_ai__tool__call__id="e2", **box),
    ]  # fmt: skip
    (session,) = report("box", spans).sessions
    assert (session.key, session.sandbox, len(session.steps), session.wait) == ("sandbox box", "box", 2, 0.05)
    assert [bar[1] for bar in session.bars][:2] == ["FleetService/Claim", "execute_tool run_code"]
    assert session.steps[0].start == pytest.approx(0.2)


def drawn(data, mime=pictures.PNG, **more):
    digest = hashlib.sha256(data).hexdigest()
    (one,) = (
        a_journal(an_execution(results=[{"mime": mime, "bytes": len(data), "sha256": digest, **more}]))
        .of("e1")
        .pictures
    )
    return one


SVG = b"<svg xmlns='http://www.w3.org/2000/svg'><!-- a --><circle r='4'/></svg>"
HUGE = PNG[:16] + (1 << 20).to_bytes(4, "big") * 2 + b"rest"


@pytest.mark.parametrize(
    ("picture", "data", "why"),
    [
        (drawn(PNG), PNG, ""),
        (drawn(SVG, pictures.SVG), SVG, ""),
        (drawn(PNG), PNG + b"!", "not those of the journal"),
        (drawn(HUGE), HUGE, "too many pixels"),
        (drawn(b"GIF89a"), b"GIF89a", "no PNG"),
        (drawn(b"<!DOCTYPE svg [<!ENTITY a 'b'>]><svg/>", pictures.SVG), b"<!DOCTYPE svg [<!ENTITY a 'b'>]><svg/>", "entities"),
        (drawn(PNG + b"x" * pictures.MAX_BYTES), PNG + b"x" * pictures.MAX_BYTES, "larger than 2 MiB"),
    ],
)  # fmt: skip
def test_a_plot_is_shown_where_its_bytes_are_those_of_the_journal_and_cheap_to_show(picture, data, why):
    assert picture.why.startswith("not kept")
    found = pictures.shown(picture, data)
    assert why in found.why
    assert bool(found.data) == (not why)


def test_a_small_svg_stands_in_the_record_itself():
    assert drawn(SVG, pictures.SVG, text=SVG.decode()).data
    assert pictures.filled([drawn(PNG)], [SVG, PNG])[0].data
    assert not pictures.filled([drawn(PNG)], [SVG])[0].data


def test_plots_beyond_the_bound_are_left_out_and_counted():
    one = pictures.shown(drawn(PNG), PNG)
    many = pictures.within_bounds([one] * (pictures.MAX_PICTURES + 2))
    assert sum(bool(picture.data) for picture in many) == pictures.MAX_PICTURES
    assert "16 MiB of pictures" in many[-1].why


def test_a_checkpoint_says_how_tasks_ended_and_spans_add_their_steps():
    tasks = [
        Task(key="one", end="wrong", is_failed=True, message="not 7", trace_id=f"{1:032x}", seconds=3.0, count=2),
        Task(key="two", end="answered", answer="7", sandbox="gone", seconds=1.0, count=4, failures=3),
        Task(key="three", count=1, steps=(a_step(1, code="1 + 1", intent="add"),)),
    ]
    found = report("run.sqlite", a_session("as the span has it"), tasks=tasks)
    assert [(one.key, one.end, one.is_failed, one.count, len(one.steps)) for one in found.sessions] == [
        ("one", "wrong", True, 2, 1), ("two", "answered", False, 4, 0), ("three", "running", False, 1, 1),
    ]  # fmt: skip
    assert [one.failures for one in found.sessions] == [1, 3, 0]
    assert found.sessions[0].message == "not 7"
    assert (found.sessions[2].steps[0].code, found.sessions[2].steps[0].intent) == ("1 + 1", "add")


def a_step(number, **more):
    return Step(**{"number": number, "kind": "run_code", "end": "ok", "start": 0.0, "seconds": 0.0} | more)


def test_steps_of_spans_get_code_and_output_from_the_driver():
    bare = [one for one in a_session("one", fails=True) if "arguments" not in str(one.attributes)]
    bare.append(span(9, 103, 3, 800, "execute_tool run_code", f"{1:032x}", gen_ai__tool__call__id="e1"))
    told = a_step(1, code="1 / 0", output="oh", intent="divide", exception="ZeroDivisionError: by zero")
    task = Task(key="one", end="wrong", trace_id=f"{1:032x}", count=1, steps=(told,))
    found = report("r1", bare, tasks=[task])
    (step,) = found.sessions[0].steps
    assert (step.code, step.output, step.intent, step.seconds > 0.5) == ("1 / 0", "oh", "divide", True)
    assert "Code and output are missing" not in " ".join(found.missing)


FRAME = """<div><style>.dataframe td { color: red }</style><table border="1" class="dataframe"><thead>
<tr><th></th><th colspan="2">price</th></tr><tr><th>shop</th><th>mean</th><th>max</th></tr></thead><tbody>
<tr><th rowspan="2">Bonn</th><td>1.5</td><td>&lt;b&gt;</td></tr><tr><td>2</td><td><script>x()</script>3</td></tr>
</tbody></table></div>"""


def test_a_data_frame_is_a_table_without_its_source_and_its_text():
    parts = [
        {"mime": "text/plain", "text": "shop mean", "main": True},
        {"mime": "text/html", "text": FRAME, "main": True},
    ]
    recorded = a_journal(an_execution(results=[*parts, {"mime": "text/plain", "text": "42", "main": False}])).of("e1")
    assert recorded.results == ("42",)
    (frame,) = recorded.frames
    assert (frame.head, frame.rows) == (2, (
        ("", "", "price"), ("shop", "mean", "max"), ("Bonn", "1.5", "<b>"), ("", "2", "3"),
    ))  # fmt: skip


@given(st.text() | st.lists(st.sampled_from(
    ["<table>", "</table>", "<tr>", "<td rowspan=9 colspan=9999>", "<th rowspan=3>", "</td>", "<thead>", "x"])).map("".join))  # fmt: skip
def test_any_html_gives_bounded_tables_of_text(markup):
    for frame in frames.frames(markup):
        assert len(frame.rows) <= frames.MAX_ROWS
        assert all(len(row) <= frames.MAX_COLUMNS + 1 for row in frame.rows)


def test_a_result_with_a_plot_is_the_plot_alone_and_the_journal_may_have_its_bytes():
    digest = hashlib.sha256(PNG).hexdigest()
    drawn = {"mime": "image/png", "bytes": len(PNG), "sha256": digest, "base64": b64encode(PNG).decode()}
    results = [{"mime": "text/plain", "text": "<Figure size 600x300>"}, drawn]
    recorded = a_journal(an_execution(results=results)).of("e1")
    assert (recorded.results, recorded.pictures[0].why) == ((), "")
    forged = a_journal(an_execution(results=[drawn | {"base64": "no base64!"}])).of("e1")
    assert not forged.pictures[0].data


def test_an_answer_is_found_in_the_output_that_it_stands_in():
    spans = [*a_session("one"), span(109, 101, 950, 960, "step final_answer", f"{1:032x}",
             sandfleet__step__verdict="accepted", sandfleet__answer__execution="e1")]  # fmt: skip
    journal = a_journal(an_execution("e1", stdout={"text": "the sum is 42\n"}))
    (session,) = report("r1", spans, [journal]).sessions
    assert (session.answer, session.steps[-1].output) == ("the sum is 42", "the sum is 42")


def test_steps_whose_agent_is_not_over_are_one_session():
    trace, box = "c" * 32, {"sandfleet__sandbox__id": "box"}
    steps = [
        span(n, 99, n * 10, n * 10 + 5, "step run_code", trace, gen_ai__agent__name="clerk", **box) for n in (1, 2, 3)
    ]
    (session,) = report("box", steps).sessions
    assert (session.key, len(session.steps)) == ("agent clerk in sandbox box", 3)


def test_two_runs_are_compared_task_by_task():
    before = [*a_session("same"), *a_session("gained", fails=True, number=2), *a_session("gone", number=3)]
    after = [
        *a_session("same", number=4, code="other", run="r2"),
        *a_session("gained", number=5, run="r2"),
    ]
    found = pairs(report("r1", before), report("r2", after))
    assert [(pair.key, pair.flipped, pair.differs) for pair in found] == [("gained", "gained", 0), ("same", "", 1)]
    assert found[1].rows == ((0, 0, False),)


def test_evaluations_of_two_policies_are_compared_task_by_task():
    def made(*keys):
        return report("run", [], tasks=[Task(key=json.dumps(key), end="answered") for key in keys])

    first, second = made(["hasty", "join", 1], ["hasty", "margin", 1]), made(["careful", "join", 1])
    assert [pair.key for pair in pairs(first, second)] == ["join 1"]
    assert [one.key for one in made(["a", "join", 1], ["b", "join", 1]).sessions] == ["join 1, a", "join 1, b"]
    assert [one.key for one in made(["a", "join"]).sessions] == ['["a", "join"]']


def test_steps_of_the_same_code_stand_side_by_side():
    def ran(*codes):
        return report(
            "r", [], [a_journal(*(an_execution(f"e{n}", code={"text": code}) for n, code in enumerate(codes)))]
        )

    (pair,) = pairs(ran("a", "b", "c"), ran("a", "x", "b", "c"))
    assert pair.rows == ((0, 0, True), (-1, 1, False), (1, 2, True), (2, 3, True))


def shown(tmp_path, found: Report, fragment="") -> str:
    """The page as a browser has it when it is drawn."""
    path = tmp_path / "report.html"
    path.write_text(html(found), encoding="utf-8")
    command = [tool("chromium"), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]
    command += ["--virtual-time-budget=5000", "--dump-dom", path.as_uri() + fragment]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=True).stdout


@pytest.mark.process
def test_markup_in_names_code_and_output_is_shown_as_text_and_runs_nothing(tmp_path):
    spans = [span(1, name=HOSTILE, gen_ai__tool__call__id="e", sandfleet__outcome="error")]
    recorded = Journal(executions={"e": Recorded(code=HOSTILE, output=HOSTILE, error=HOSTILE)})
    found = report(HOSTILE, spans, [recorded])
    assert "<script>document" not in html(found)
    page = shown(tmp_path, found)
    assert "<title>pwned" not in page
    assert "<img" not in page.partition("<main")[2].partition("</main>")[0]
    assert "&lt;img src=x" in page


@pytest.mark.process
def test_a_run_says_at_the_top_which_session_failed_and_why(tmp_path):
    spans = [one for n in range(1, 31) for one in a_session(f"task {n}", number=n, fails=n == 7)]
    page = shown(tmp_path, report("r1", spans))
    body = page.partition('<main id="page">')[2]
    assert "1 of 30 sessions went wrong." in body
    assert "task 7: the time was over" in body
    assert body.index("1 of 30 sessions") < 500


@pytest.mark.process
def test_a_report_of_ten_thousand_steps_draws_what_is_looked_at(tmp_path):
    root = span(1, 0, 0, 100_000, "invoke_agent a", sandfleet__run__end="answered")
    steps = [
        span(n, 1, n, n + 1, "execute_tool run_code", gen_ai__tool__call__id=f"e{n}", sandfleet__outcome="ok")
        for n in range(2, 10_002)
    ]
    ran = {f"e{n}": Recorded(code="print(1)\n" * 20) for n in range(2, 10_002)}
    found = report("r", [root, *steps], [Journal(executions=ran)])
    assert len(found.sessions[0].steps) == 10_000
    page = shown(tmp_path, found)
    body = page.partition('<main id="page">')[2].partition("</main>")[0]
    assert body.count("<details") < 300
    assert "Show more (9800 left)" in body
    # Of code that is not looked at the first line names its step.
    assert "print(1)\nprint(1)" not in body


@pytest.mark.process
def test_a_session_opens_what_failed_what_was_drawn_and_the_answer(tmp_path):
    drawn = pictures.made(PNG)
    steps = (
        a_step(1, code="load()", output="rows"),
        a_step(2, code="df.prise", end="error", is_failed=True, exception="AttributeError: prise"),
        a_step(3, code="plot()", pictures=(drawn,)),
        a_step(4, kind="final_answer", end="accepted", output="Bonn"),
    )
    task = Task(
        key="t", end="answered", prompt="Which shop sells most?", answer="Bonn", count=4, failures=1, steps=steps
    )
    page = shown(tmp_path, report("run.html", [], tasks=[task]))
    assert "<title>Which shop sells most? · Sandfleet</title>" in page
    body = page.partition('<main id="page">')[2].partition("</main>")[0]
    assert "<h1>Which shop sells most?</h1>" in body
    assert "Went well: answered." in body
    assert body.count("<details") - body.count("open=") == 2  # the first step, and what is missing
    assert body.count("<img") == 1
    assert body.index("Answer") < body.index("<h2>Steps")
