"""What a checkpoint keeps, for this process and the next."""

import asyncio
import sqlite3
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet.codeact.conversation import Call, FinalAnswer, GiveUp, NoAction, RunCode, RunCommand, Said, Tokens
from sandfleet.driver import actions
from sandfleet.driver.checkpoint import DEAD_AFTER, Busy, Checkpoint, CheckpointError, Different, NotOurs, Taken
from sandfleet.driver.result import Blame, Spent, TaskEnd, TaskResult
from sandfleet.driver.task import AgentTask
from sandfleet.errors import InvalidArgument

NOW = 1_000_000.0
RESULT = TaskResult("k", TaskEnd.ANSWERED, answer=("4", "5"), steps=3, spent=Spent(parks=2, cpu_seconds=0.5))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.sqlite"


async def test_a_task_is_taken_once_and_its_result_is_kept(path):
    first = Checkpoint(path, NOW)
    taken = await first.take("k", "f", NOW)
    assert taken == Taken("k", 1, taken.request_id)
    await first.bound(taken, "sb-1")
    await first.act(taken, 1, "one")
    await first.finish("k", RESULT)
    await first.close()
    second = Checkpoint(path, NOW)
    found = await second.take("k", "f", NOW)
    assert found == RESULT
    assert found.is_stored
    await second.close()


async def test_the_task_of_a_killed_process_goes_on_in_its_sandbox(path):
    killed, next_ = Checkpoint(path, NOW), Checkpoint(path, NOW + 1)
    taken = await killed.take("k", "f", NOW)
    await killed.bound(taken, "sb-1")
    await killed.act(taken, 1, "one")
    assert await next_.take("k", "f", NOW + 1) == Busy()
    later = NOW + DEAD_AFTER + 1
    assert await next_.take("k", "f", later) == Taken("k", 1, taken.request_id, "sb-1", ("one",))
    # The first process was only standing still: it notices.
    for write in (killed.bound(taken, "sb-2"), killed.act(taken, 2, "two"), killed.finish("k", RESULT)):
        with pytest.raises(NotOurs):
            await write
    await killed.give_back(taken)
    await next_.finish("k", RESULT)
    await killed.close()
    await next_.close()


@pytest.mark.process
async def test_a_process_that_is_gone_is_dead_at_once(path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    killed, next_ = Checkpoint(path, NOW), Checkpoint(path, NOW)
    await killed.take("k", "f", NOW)
    await killed._do(
        lambda cursor: cursor.execute("UPDATE drivers SET pid = ? WHERE owner = ?", (gone.pid, killed._owner))
    )
    assert isinstance(await next_.take("k", "f", NOW), Taken)
    await killed.close()
    await next_.close()


async def test_a_process_that_says_that_it_lives_keeps_its_tasks(path):
    busy, other = Checkpoint(path, NOW), Checkpoint(path, NOW)
    await busy.take("k", "f", NOW)
    await busy.beat(NOW + DEAD_AFTER)
    assert await other.take("k", "f", NOW + DEAD_AFTER + 1) == Busy()
    await busy.close()
    assert isinstance(await other.take("k", "f", NOW + DEAD_AFTER + 1), Taken)
    await other.close()


async def test_each_attempt_has_a_request_id_of_its_own(path):
    checkpoint = Checkpoint(path, NOW)
    first = await checkpoint.take("k", "f", NOW)
    await checkpoint.bound(first, "sb-1")
    await checkpoint.act(first, 1, "one")
    second = await checkpoint.again(first)
    await checkpoint.bound(second, "sb-2")
    await checkpoint.act(second, 1, "one")
    other = await checkpoint.take("l", "f", NOW)
    assert len({first.request_id, second.request_id, other.request_id}) == 3
    assert (second.attempt, second.sandbox_id, second.actions) == (2, "", ())
    await checkpoint.give_back(second)
    third = await checkpoint.take("k", "f", NOW)
    assert (third.attempt, third.sandbox_id, third.actions) == (3, "", ())
    await checkpoint.close()


async def test_a_key_with_another_content_is_not_the_same_task(path):
    checkpoint = Checkpoint(path, NOW)
    await checkpoint.take("k", "f", NOW)
    assert await checkpoint.take("k", "g", NOW) == Different()
    await checkpoint.close()


def corrupt(path):
    path.write_bytes(b"no database at all, " * 100)


def foreign(path):
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE theirs (x)")


def made(path):
    asyncio.run(Checkpoint(path, NOW).close())


def newer(path):
    made(path)
    with sqlite3.connect(path) as file:
        file.execute("UPDATE meta SET value = '7'")


def half(path):
    made(path)
    path.write_bytes(path.read_bytes()[:5000])


def missing(path):
    path.parent.rmdir()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (corrupt, "not a database"),
        (foreign, "another program"),
        (newer, "its version is 7"),
        (half, "malformed"),
        (missing, "unable to open"),
    ],
    ids=["corrupt", "foreign", "newer", "half", "missing"],
)
def test_a_file_that_cannot_be_used_says_why(path, spoil, says):
    spoil(path)
    with pytest.raises(CheckpointError, match=says):
        Checkpoint(path, NOW)


async def test_a_full_disk_is_an_error_of_the_checkpoint(path):
    checkpoint = Checkpoint(path, NOW)
    await checkpoint._do(lambda cursor: cursor.execute("PRAGMA max_page_count = 1"))
    with pytest.raises(CheckpointError, match="full"):
        for number in range(1000):
            await checkpoint.take(f"key-{number}" * 50, "f", NOW)
    await checkpoint.close()


TEXT = st.text(max_size=20)
SAID = st.none() | st.builds(
    Said, TEXT, st.tuples(st.builds(Call, TEXT, TEXT, TEXT)), TEXT, TEXT, st.builds(Tokens, st.integers(0, 9))
)
ACTIONS = (
    st.builds(RunCode, TEXT, TEXT, TEXT, SAID)
    | st.builds(RunCommand, TEXT | st.tuples(TEXT, TEXT), TEXT, SAID)
    | st.builds(FinalAnswer, TEXT | st.integers() | st.tuples(TEXT, st.integers()), TEXT, TEXT, TEXT, SAID)
    | st.builds(GiveUp, TEXT, TEXT, SAID)
    | st.builds(NoAction, TEXT, TEXT, SAID)
)


@given(ACTIONS)
def test_actions_are_read_as_they_were_written(action):
    found = actions.from_json(actions.to_json(action))
    assert found == action
    assert found.said == action.said


@pytest.mark.parametrize("line", ["", "[]", "{}", '{"kind": "x"}', '{"kind": "run_code", "other": 1}', "null"])
def test_what_is_no_action_is_refused(line):
    with pytest.raises(ValueError, match=r"cannot read|Expecting"):
        actions.from_json(line)


@pytest.mark.parametrize("end", TaskEnd)
def test_results_are_read_as_they_were_written(end):
    result = replace(RESULT, end=end)
    found = TaskResult.from_json(result.to_json())
    assert found == result
    assert (found.blame is Blame.NONE) == found.ok


def test_a_text_is_a_task_whose_key_is_made_of_it():
    first, again, other = AgentTask.of("a"), AgentTask.of("a"), AgentTask.of("b")
    assert first == again
    assert first.key != other.key
    for key in ("", "x" * 201, "two\nlines"):
        with pytest.raises(InvalidArgument, match="cannot run the task"):
            AgentTask.of(AgentTask(key, "prompt"))


def test_a_fingerprint_knows_each_part_of_a_task():
    task = AgentTask("k", "p", files={"a": "b"}, data={"n": 1})
    changed = [
        replace(task, prompt="q"),
        replace(task, files={"a": "c"}),
        replace(task, files={"ab": ""}),
        replace(task, data={"n": 2}),
    ]
    assert len({one.fingerprint() for one in (task, *changed)}) == 5
    assert replace(task, files={"a": b"b"}, check=print).fingerprint() == task.fingerprint()
