"""Skills of real sandboxes on this machine: saved in one session, imported in the next."""

import subprocess
import sys

import pytest
from sandfleet import AsyncSandbox, InvalidArgument, Sandbox, SkillLibrary, SkillState
from sandfleet.codeact import CodeActAgent, GiveUp

CODE = '"""Means of numbers."""\n\ndef mean(values):\n    return sum(values) / len(values)\n'
TESTS = "from skills import stats\nassert stats.mean([1, 3]) == 2\n"


@pytest.fixture
def library(tmp_path):
    return SkillLibrary(tmp_path / "library")


async def test_a_skill_is_tested_in_a_fresh_sandbox_and_imported_in_a_later_session(library):
    async with AsyncSandbox.create(skills=library) as first:
        await first.files.write("stats.py", CODE)
        await first.run_code("import os; os.environ['PLANTED'] = '1'; open('planted', 'w').close()")
        tests = TESTS + "import os\nassert not os.path.exists('planted')\nassert 'PLANTED' not in os.environ\n"
        saved = await first.skills.save("stats", path="stats.py", tests=tests)
        assert (saved.state, saved.why) == (SkillState.OFFERED, "")
    async with AsyncSandbox.create(skills=library) as second:
        assert [skill.name for skill in second.skills.loaded] == ["stats"]
        assert (await second.run_code("from skills import stats; stats.mean([1, 2])")).text == "1.5"
        # A session changes its own copy only.
        await second.run_code("open('skills/stats.py', 'w').write('mean = None')")
        assert library.get("stats").code == CODE


@pytest.mark.smoke
async def test_a_skill_whose_tests_fail_is_not_offered(library):
    async with AsyncSandbox.create(skills=library) as sandbox:
        saved = await sandbox.skills.save("stats", CODE, tests="from skills import stats\nassert stats.mean([1]) == 2")
        assert saved.state is SkillState.FAILED
        assert "AssertionError" in saved.why
        with pytest.raises(InvalidArgument, match="its tests fail"):
            await sandbox.skills.load("stats")
        assert (await sandbox.skills.load()) == ()


async def test_a_skill_carries_the_mark_of_its_session(library):
    async with AsyncSandbox.create(skills=library) as sandbox:
        await sandbox._link.fleet.note_received(sandbox.sandbox_id, ("untrusted",))
        saved = await sandbox.skills.save("stats", CODE, tests=TESTS)
        assert (saved.state, saved.marks) == (SkillState.AWAITING_REVIEW, ("untrusted",))
    async with AsyncSandbox.create(skills=library) as other:
        assert other.skills.loaded == ()
        library.approve(saved, "ann")
        # The control: a session that loads nothing has received nothing.
        assert await other._link.fleet.note_received(other.sandbox_id, ()) == frozenset()
        await other.skills.load("stats")
        assert await other._link.fleet.note_received(other.sandbox_id, ()) == {"untrusted"}


async def test_in_a_reviewed_sandbox_loading_a_skill_waits_for_approval(library):
    library.checked(library.add("stats", CODE, TESTS), "")
    asked = []

    def answer(review):
        asked.append(review)
        return review.deny("no skills today") if len(asked) > 1 else review.approve()

    with pytest.raises(Exception, match="no skills today"):
        await AsyncSandbox.create(skills=library, contract="reviewed", on_review=answer)
    assert len(asked) == 2


async def test_a_policy_is_shown_the_skills(library):
    library.checked(library.add("stats", CODE, TESTS), "")
    seen = []

    async def policy(conversation):
        seen.extend(conversation.skills)
        return GiveUp("enough")

    async with AsyncSandbox.create(skills=library) as sandbox:
        await CodeActAgent(policy, sandbox).run("anything")
    assert seen == ["# skills.stats: Means of numbers.\ndef skills.stats.mean(values): ..."]


def test_without_a_library_there_are_no_skills():
    with Sandbox.create() as sandbox, pytest.raises(InvalidArgument, match="without skills="):
        sandbox.skills.save("stats", CODE, tests=TESTS)


def test_the_command_lists_checks_and_approves(library):
    library.add("stats", CODE, TESTS, marks=("untrusted",))

    def skills(*words, code=0):
        line = [sys.executable, "-m", "sandfleet", "skills", *words, "--library", str(library.folder)]
        done = subprocess.run(line, capture_output=True, text=True, timeout=90, check=False)
        assert done.returncode == code, done.stderr
        return done.stdout

    assert "unchecked" in skills("ls")
    library.add("stats", CODE, "raise SystemExit('worse')")
    assert "stats@2 is failed" in skills("check", "stats", code=1)
    assert "stats@1 is awaiting review" in skills("check", "stats@1")
    assert "def mean(values):" in skills("show", "stats@1")
    assert "stats@1 is offered" in skills("approve", "stats@1", "--as", "ann")
    assert library.get("stats", 1).approved_by == "ann"
    skills("show", "none", code=3)
