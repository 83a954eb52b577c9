"""The report of a run: what it says, what it escapes, and that it stays small."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet.driver.report import RunReport
from sandfleet.driver.result import Spent, TaskEnd, TaskResult
from sandfleet.errors import InvalidArgument


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Read(HTMLParser):
    """The names of all tags, and the text between them."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        assert not [name for name, _ in attributes if name.startswith("on") or name in {"src", "href"}]

    def handle_data(self, data):
        self.text += data


def written(path, results, clock=None):
    report = RunReport(path, "Run of <b>agents</b>", clock or Clock())
    for result in results:
        report.add(result)
    report.write()
    return path.read_text()


def test_it_says_how_many_tasks_were_solved_and_why_others_were_not(tmp_path):
    clock = Clock()
    clock.now = 30.0
    spent = Spent(claim_seconds=2.0, seconds=8.0, parked_seconds=1.0, input_tokens=1200)
    results = [TaskResult(f"t{number}", TaskEnd.ANSWERED, spent=spent, steps=3) for number in range(5)]
    results += [TaskResult("bad", TaskEnd.WRONG, "the sum is 4", spent=spent, steps=2, failures=1)]
    results += [TaskResult("lost", TaskEnd.PLATFORM_FAILURE, "no sandbox: none is free", attempts=3)]
    results += [TaskResult("old", TaskEnd.ANSWERED, is_stored=True)]
    page = Read(written(tmp_path / "run.html", results, clock)).text
    for said in (
        "6 of 8",
        "17 steps, 1 of them failed",
        "1 results came",
        "1 tasks took more than one",
        "7,200 tokens",
    ):
        assert said in page
    for said in ("wrong: the sum is 4", "platform_failure: no sandbox: none is free", "wrong · bad", "median"):
        assert said in page


@pytest.mark.parametrize("field", ["key", "message", "answer", "sandbox_id", "trace_id"])
@given(evil=st.text() | st.sampled_from(["<script>x()</script>", "'\" onload=x", "</pre></details><img src=x>"]))
def test_what_models_and_code_have_written_is_only_text(tmp_path_factory, field, evil):
    folder = tmp_path_factory.mktemp("report")
    fields = {"key": "k", "message": "m", "answer": ("a",), "sandbox_id": "s", "trace_id": "t"}
    plain = Read(written(folder / "plain.html", [TaskResult(end=TaskEnd.WRONG, **fields)]))
    fields[field] = (evil,) if field == "answer" else evil
    assert Read(written(folder / "evil.html", [TaskResult(end=TaskEnd.WRONG, **fields)])).tags == plain.tags


def test_it_is_bounded_however_many_tasks_fail_each_in_its_own_way(tmp_path):
    results = (TaskResult(f"t{number}", TaskEnd.WRONG, f"{number} " + "x" * 2000) for number in range(5000))
    page = written(tmp_path / "run.html", results)
    assert len(page) < 3 << 20
    assert "And 4,500 more." in Read(page).text


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 50), st.floats(0, 50)), min_size=1, max_size=40))
def test_the_picture_never_shows_more_sessions_than_there_were(tmp_path_factory, sessions):
    clock = Clock()
    report = RunReport(tmp_path_factory.mktemp("report") / "run.html", "Run", clock)
    for later, claim, seconds in sessions:
        clock.now += later
        report.add(TaskResult("t", TaskEnd.ANSWERED, spent=Spent(claim_seconds=claim, seconds=seconds)))
    report.write()
    page = report._path.read_text()
    assert int(re.search(r"text-anchor='end'>([\d,]+)</text>", page)[1].replace(",", "")) <= len(sessions)
    heights = [
        float(y) for polygon in re.findall(r"points='([^']+)'", page) for y in re.findall(r",([\d.-]+)", polygon)
    ]
    assert all(10 <= height <= 180 for height in heights)


def test_a_folder_that_is_not_there_is_said_before_the_run(tmp_path):
    with pytest.raises(InvalidArgument, match="its folder does not exist"):
        RunReport(tmp_path / "none" / "run.html", "Run", Clock())
