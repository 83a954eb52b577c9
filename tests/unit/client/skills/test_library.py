"""The folder of skills: what is kept, what is refused, and what a damaged one says."""

import json
import multiprocessing
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet import InvalidArgument, NotFoundError, SkillError, SkillLibrary, SkillState
from sandfleet.skills import source

CODE = '"""Means of numbers.\n\nMore words."""\n\ndef mean(values: list[float]) -> float:\n    return sum(values) / len(values)\n\n\ndef _own(): ...\n'
TESTS = "from skills import stats\nassert stats.mean([1, 3]) == 2\n"


@pytest.fixture
def library(tmp_path):
    return SkillLibrary(tmp_path / "library")


def test_a_skill_is_kept_with_its_summary_and_its_functions(library):
    skill = library.add("stats", CODE, TESTS, sandbox_id="sb-1")
    assert (skill.name, skill.version, skill.summary) == ("stats", 1, "Means of numbers.")
    assert skill.stub == "# skills.stats: Means of numbers.\ndef skills.stats.mean(values: list[float]) -> float: ..."
    assert (skill.code, skill.tests, skill.sandbox_id) == (CODE, TESTS, "sb-1")
    assert library.newest() == (skill,)
    assert library.offered() == ()


def test_versions_count_up_and_the_same_again_is_the_same_version(library):
    first, again = library.add("stats", CODE, TESTS), library.add("stats", CODE, TESTS)
    second = library.add("stats", CODE + "\n", TESTS)
    assert (first.version, again.version, second.version) == (1, 1, 2)
    assert library.get("stats") == second
    assert library.get("stats", 1) == first
    with pytest.raises(NotFoundError, match="has no version 3"):
        library.get("stats", 3)
    with pytest.raises(NotFoundError, match="other is not there"):
        library.get("other")


@pytest.mark.parametrize(
    ("marks", "failure", "state"),
    [
        ((), "", SkillState.OFFERED),
        ((), "its tests fail", SkillState.FAILED),
        (("untrusted",), "", SkillState.AWAITING_REVIEW),
        (("secret",), "", SkillState.AWAITING_REVIEW),
        (("untrusted",), "its tests fail", SkillState.FAILED),
    ],
)
def test_a_skill_is_offered_when_its_tests_pass_and_its_session_was_trusted(library, marks, failure, state):
    skill = library.add("stats", CODE, TESTS, marks=marks)
    assert skill.state is SkillState.UNCHECKED
    assert library.checked(skill, failure).state is state
    assert bool(library.offered()) == (state is SkillState.OFFERED)


def test_a_person_approves_what_comes_from_an_untrusted_session_and_its_marks_stay(library):
    skill = library.checked(library.add("stats", CODE, TESTS, marks=("untrusted",)), "")
    with pytest.raises(InvalidArgument, match="say who"):
        library.approve(skill, "")
    approved = library.approve(skill, "ann")
    assert (approved.state, approved.approved_by, approved.marks) == (SkillState.OFFERED, "ann", ("untrusted",))
    with pytest.raises(InvalidArgument, match="is offered"):
        library.approve(approved, "ann")
    assert library.reject(approved, "too slow").why == "too slow"
    assert library.offered() == ()


def test_tests_that_run_again_undo_no_decision_of_a_person(library):
    approved = library.approve(library.checked(library.add("stats", CODE, TESTS, marks=("secret",)), ""), "ann")
    assert library.checked(approved, "").state is SkillState.OFFERED
    # A check may have read the skill before it was rejected.
    rejected = library.reject(approved, "too slow")
    for failure in ("", "its tests fail"):
        assert library.checked(approved, failure) == rejected
    assert library.offered() == ()


def test_a_failed_new_version_leaves_the_old_one_offered(library):
    old = library.checked(library.add("stats", CODE, TESTS), "")
    library.checked(library.add("stats", CODE + "# worse\n", TESTS), "its tests fail")
    assert library.offered() == (old,)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "../a", "import", "_own", "é", "a" * 65, "a.b"])
def test_a_name_that_is_no_module_is_refused(library, name):
    with pytest.raises(InvalidArgument, match="cannot save the skill"):
        library.add(name, CODE, TESTS)


@pytest.mark.parametrize(
    ("code", "tests", "says"),
    [
        ("", TESTS, "has no code"),
        (CODE, " ", "has no tests"),
        ("x" * (source.LARGEST + 1), TESTS, "its code is over"),
        ("def", TESTS, "is no Python"),
        ("x = " + "(" * 5000 + ")" * 5000, TESTS, "is no Python"),
        ("\0", TESTS, "is no Python"),
    ],
    ids=["no code", "no tests", "too large", "broken", "deep", "null byte"],
)
def test_what_is_no_skill_is_refused_and_nothing_is_kept(library, code, tests, says):
    with pytest.raises(InvalidArgument, match=says):
        library.add("stats", code, tests)
    assert library.newest() == ()


@given(st.integers(0, 200), st.binary(min_size=1, max_size=3))
def test_a_change_of_what_was_saved_is_found(tmp_path_factory, place, change):
    library = SkillLibrary(tmp_path_factory.mktemp("library"))
    skill = library.add("stats", CODE, TESTS)
    path = library.folder / "objects" / f"{skill.digest}.json"
    body = path.read_bytes()
    place %= len(body)
    changed = body[:place] + change + body[place + len(change) :]
    path.write_bytes(changed)
    if changed != body:
        with pytest.raises(SkillError, match="cannot read version 1"):
            library.newest()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"versions": 1}', '{"versions": [1]}', '{"versions": [{}]}'])
def test_a_damaged_index_is_named(library, text):
    library.add("stats", CODE, TESTS)
    (library.folder / "names" / "stats.json").write_text(text)
    with pytest.raises(SkillError, match="cannot read"):
        library.newest()


def test_a_mark_that_cannot_be_read_counts_as_untrusted(library):
    skill = library.add("stats", CODE, TESTS)
    said = json.loads((library.folder / "objects" / f"{skill.digest}.json").read_bytes())
    said["marks"] = None
    body = json.dumps(said, sort_keys=True).encode()
    digest = source.hashed(body)
    (library.folder / "objects" / f"{digest}.json").write_bytes(body)
    (library.folder / "names" / "stats.json").write_text(
        json.dumps({"versions": [{"digest": digest, "state": "unchecked"}]})
    )
    assert library.get("stats").marks == ("untrusted",)


def test_a_version_that_was_replaced_meanwhile_is_not_changed(library):
    skill = library.add("stats", CODE, TESTS)
    with pytest.raises(SkillError, match="is another one now"):
        library.checked(replace(skill, digest="0" * 64), "")


def add_many(folder, number):
    library = SkillLibrary(folder)
    for count in range(10):
        library.add("stats", f"x = {number * 100 + count}", "pass")


def test_processes_that_save_side_by_side_lose_no_version(library):
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=add_many, args=(library.folder, number)) for number in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert len({skill.code for skill in library.versions("stats")}) == 30
