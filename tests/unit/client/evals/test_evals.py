"""Sets of tasks, checks, pass rates and pages of `sandfleet eval`."""

import itertools
import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet.driver.result import TaskEnd, TaskResult
from sandfleet.errors import InvalidArgument
from sandfleet.evals import page, show
from sandfleet.evals.checks import wrong_values
from sandfleet.evals.evaluation import Evaluation, Sample
from sandfleet.evals.policies import named
from sandfleet.evals.statistics import Counted, compare, estimate, pass_at
from sandfleet.evals.task import SETS, EvalTask, load

TASK = EvalTask("t", "p", answer=("Oslo", 12.5), tolerance=0.01)


@pytest.mark.parametrize("name", SETS)
def test_each_shipped_task_has_code_that_is_right_and_code_that_is_wrong(name):
    for task in load(name):
        assert task.solution
        assert task.wrong
        assert task.prompt.strip().endswith(".") or "?" in task.prompt


@given(st.integers(1, 8), st.data())
def test_pass_at_k_is_the_part_of_all_choices_that_has_a_right_one(samples, data):
    right, k = data.draw(st.integers(0, samples)), data.draw(st.integers(1, samples))
    choices = list(itertools.combinations(range(samples), k))
    expected = sum(any(index < right for index in choice) for choice in choices) / len(choices)
    assert math.isclose(pass_at(k, Counted(samples, right)), expected)


def test_pass_at_more_than_there_are_is_not_known():
    assert math.isnan(pass_at(3, Counted(2, 1)))


@pytest.mark.slow
def test_the_interval_holds_the_truth_about_95_times_of_100():
    chance, held = Random(1), 0
    for _ in range(200):
        values = [float(chance.random() < 0.7) for _ in range(60)]
        found = estimate(values, chance)
        held += found.low <= 0.7 <= found.high
    assert 180 <= held <= 199


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_tasks_that_all_agree_leave_a_doubt(value):
    few, many = estimate([value] * 5, Random(1)), estimate([value] * 500, Random(1))
    assert few.high - few.low > many.high - many.low > 0


def test_a_difference_is_shown_only_when_its_interval_leaves_out_zero():
    good = {f"t{n}": Counted(2, 2) for n in range(20)}
    bad = {f"t{n}": Counted(2, 0) for n in range(20)}
    mixed = {f"t{n}": Counted(2, 2 if n % 2 else 0) for n in range(20)}
    other = {f"t{n}": Counted(2, 0 if n % 2 else 2) for n in range(20)}
    assert compare(bad, good, Random(1)).verdict == "better"
    assert compare(good, bad, Random(1)).verdict == "worse"
    equal = compare(mixed, other, Random(1))
    assert equal.verdict == "no difference shown"
    assert (len(equal.gained), len(equal.lost)) == (10, 10)
    assert compare(good, {}, Random(1)) is None


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (("oslo", "12.5"), ""),
        (("Oslo ", "about 12.505 kg"), ""),
        (("Oslo",), "has 1 values"),
        (("Bern", "12.5"), "the answer is Bern"),
        (("Oslo", "13"), "and 12.5 is right"),
        (("Oslo", "none"), "and 12.5 is right"),
    ],
)
def test_answers_are_compared_by_value(values, says):
    trouble = wrong_values(TASK, values)
    assert says in trouble
    assert bool(says) == bool(trouble)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("x.toml", "[[task]]\nkey = 'a'\nprompt = 'p'", "neither an answer nor a test"),
        ("x.toml", "[[task]]\nkey = 'a'\nprompt = 'p'\nanswers = 1", "no field 'answers'"),
        ("x.toml", "[[task]]\nprompt = 'p'\nanswer = 1", "its key has to be text"),
        ("x.toml", "key = ", "cannot read the tasks"),
        ("x.toml", "", "no list of tasks"),
        ("x.json", '[{"key": "a", "prompt": "p", "answer": {}}]', "its answer has to be"),
        ("x.json", '[{"key": "a", "prompt": "p", "answer": 1, "files": {"a": 1}}]', "its files have to be"),
        ("x.jsonl", '{"key": "a", "prompt": "p", "answer": 1}\n' * 2, "two of them have the key 'a'"),
        ("x.jsonl", "[]", "it is no table"),
        ("missing.toml", None, "no such file; the shipped sets are functions, data"),
    ],
)
def test_a_file_that_is_no_set_of_tasks_says_what_is_wrong(tmp_path, name, text, says):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(InvalidArgument, match=says):
        load(str(tmp_path / name))


def test_the_three_formats_mean_the_same(tmp_path):
    (tmp_path / "a.toml").write_text("[[task]]\nkey = 'a'\nprompt = 'p'\nanswer = [1, 'x']\n[task.files]\n'f' = 'c'")
    (tmp_path / "a.jsonl").write_text('{"key": "a", "prompt": "p", "answer": [1, "x"], "files": {"f": "c"}}\n')
    (tmp_path / "a.json").write_text('[{"key": "a", "prompt": "p", "answer": [1, "x"], "files": {"f": "c"}}]')
    for kind in ("toml", "jsonl", "json"):
        assert load(str(tmp_path / f"a.{kind}")) == (EvalTask("a", "p", answer=(1, "x"), files={"f": "c"}),)


@pytest.mark.parametrize("name", ["", "scripted:none", "openai:", "no_such_module:f", "math:no_such", "words"])
def test_an_unknown_policy_is_refused(name):
    with pytest.raises(InvalidArgument, match="cannot use the policy"):
        named(name)


def sample(policy, task, number, end, message=""):
    return Sample(policy, task, number, TaskResult(f"{policy}{task}{number}", end, message))


def evaluated(message=""):
    ends = {"a": TaskEnd.ANSWERED, "b": TaskEnd.WRONG}
    samples = [sample("first", task, n, TaskEnd.ANSWERED) for task in ("a", "b") for n in (1, 2)]
    samples += [sample("second", task, n, ends[task], message) for task in ("a", "b") for n in (1, 2)]
    return Evaluation(("a", "b"), ("first", "second"), tuple(samples))


def test_failures_of_the_platform_count_for_no_policy():
    lost = sample("first", "a", 3, TaskEnd.PLATFORM_FAILURE)
    plain = evaluated()
    found = Evaluation(plain.tasks, plain.policies, (*plain.samples, lost))
    assert found.scored("first").counts == plain.scored("first").counts
    assert found.scored("first").unjudged == 1
    assert plain.is_complete
    assert not found.is_complete


def test_what_models_have_written_is_shown_and_not_obeyed():
    hostile = "<script>alert(1)</script>\x1b[31m"
    found = evaluated(hostile)
    shown = page.html(found, "<b>set</b>")
    assert "<script>" not in shown
    assert "<b>set</b>" not in shown
    assert "&lt;script&gt;" in shown
    renamed = Evaluation(("a\x1b[2J", "b"), ("first\x1b[31m",), ())
    assert "\x1b" not in "\n".join(show.lines(renamed))


def test_flipped_tasks_are_named():
    text = "\n".join(show.lines(evaluated()))
    assert "second against first" in text
    assert "lost: b" in text
    assert evaluated().to_json()["comparisons"][0]["lost"] == ("b",)
