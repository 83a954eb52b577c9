"""A session is replayed from its journal: what is the same is said so, and what is planted is found."""

import random
import shutil

import pandas as pd
import pytest
from sandfleet import AsyncFleet, AsyncSandbox
from sandfleet.journal.side_by_side import side_by_side
from sandfleet.replay import load, replay
from support.fleet.process import a_fleet

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with a_fleet(tmp_path_factory.mktemp("fleet") / "f") as process:
        yield process


@pytest.fixture
async def fleet(served):
    async with await AsyncFleet.connect(f"unix:{served.state_dir}/fleet.sock") as connected:
        yield connected


async def recorded(fleet, path, session, **options):
    """The records of a session that does this."""
    async with AsyncSandbox.create(fleet=fleet, **options) as sandbox:
        await session(sandbox)
        await sandbox.journal.export(path)
    return load(path)


async def again(fleet, found, contract="", **options):
    async with AsyncSandbox.create(fleet=fleet, contract=contract) as sandbox:
        return await replay(found, sandbox, **options)


def words(done):
    return {step.step.title: step.word for step in done.steps}


async def a_session(sandbox):
    await sandbox.files.write("orders.csv", "city,total\nOslo,3\nRoma,4\n")
    await sandbox.run_code("import csv\nrows = list(csv.DictReader(open('orders.csv')))\nlen(rows)")
    await sandbox.run_code("total = sum(int(row['total']) for row in rows)\nprint(total)")
    await sandbox.run_code("rows['none']")
    await sandbox.run_code("open('result.txt', 'w').write(str(total))")
    await sandbox.commands.run("cat result.txt; exit 3")
    await sandbox.commands.run(["sort"], stdin="b\na\n")
    await sandbox.create_context("other")
    await sandbox.run_code("x = 1", context="other")
    await sandbox.fork_context("other", context_ids=["copy"])
    await sandbox.run_code("x + 1", context="copy")
    await sandbox.run_code("echo $((6 * 7))", language="bash")
    await sandbox.files.make_dir("out")
    await sandbox.files.rename("result.txt", "out/result.txt")
    await sandbox.files.remove("orders.csv")
    await sandbox.states.save("kept")
    await sandbox.run_code("del total")
    await sandbox.states.restore("kept")
    await sandbox.run_code("total")
    await sandbox.tables.put("df", pd.DataFrame({"a": [1, 2]}))
    await sandbox.run_code("int(df.a.sum())")
    await sandbox.run_code("SELECT sum(a) FROM df", language="sql")
    await sandbox.restart_context("other")
    await sandbox.delete_context("copy")
    await sandbox.run_code("[input('a'), input('b')]", on_input=lambda request: f"\u2028{request}")


async def test_a_session_replays_and_each_step_is_the_same(fleet, tmp_path):
    found = await recorded(fleet, tmp_path / "one.journal", a_session)
    done = await again(fleet, found)
    assert done.ok, [(step.number, step.word, step.why, step.sameness) for step in done.steps if not step.ok]
    assert {step.word for step in done.steps} == {"same", "skipped"}
    assert done.count("skipped") == 1
    assert len(done.steps) == len(found)


def programs(count):
    """Small programs that use what earlier ones have made: numbers, texts, lists, functions, files, failures."""
    chosen = random.Random(21)
    shapes = (
        "x{n} = {a} * {b}\nx{n}",
        "print('{a}' * {c})",
        "[number ** 2 for number in range({c})]",
        "def f{n}(value):\n    return value + {a}\nf{n}({b})",
        "open('file{n}.txt', 'w').write('{a} {b}')",
        "sorted({{'{a}', '{b}', '{c}'}})",
        "1 / ({a} - {a})",
        "import sys; print('{b}', file=sys.stderr)",
        "{{n: n % {c} for n in range(6)}}",
        "import math; math.sqrt({a})",
        "class C{n}:\n    value = {b}\nC{n}.value",
        "undefined{n}",
    )
    for number in range(count):
        a, b, c = (chosen.randint(1, 9) for _ in range(3))
        yield chosen.choice(shapes).format(n=number, a=a, b=b, c=c)


async def test_generated_programs_replay_and_each_is_the_same(fleet, tmp_path):
    async def session(sandbox):
        for code in programs(200):
            await sandbox.run_code(code)

    found = await recorded(fleet, tmp_path / "one.journal", session)
    done = await again(fleet, found, go_on=True)
    assert (done.count("same"), done.count("skipped")) == (200, 1)


CELLS = {
    "the time": ("import time; print(time.time())", ("times",)),
    "a date": ("import datetime; datetime.datetime.now()", None),
    "an address": ("object()", ("addresses",)),
    "a temporary path": ("import tempfile; print(tempfile.mkdtemp())", ("temporary paths",)),
    "an id": ("import uuid; print(uuid.uuid4())", ("ids",)),
}


async def test_what_rules_allow_is_the_same_but_for_them(fleet, tmp_path):
    async def session(sandbox):
        for code, _ in CELLS.values():
            await sandbox.run_code(code)

    found = await recorded(fleet, tmp_path / "one.journal", session)
    done = await again(fleet, found, go_on=True)
    executed = [step for step in done.steps if step.step.record.kind == "execution"]
    for step, (name, (_, rules)) in zip(executed, CELLS.items(), strict=True):
        if rules is not None:
            assert (name, step.word, step.sameness.rules) == (name, "same but for", rules)
        else:
            # A date as Python writes its object is no text of a time: the difference is shown.
            assert (name, step.word) == (name, "different")


async def test_a_planted_difference_is_found_and_stops_the_replay(fleet, tmp_path):
    async def session(sandbox):
        await sandbox.run_code("import random")
        await sandbox.run_code("print(random.random())")
        await sandbox.run_code("print('after')")

    found = await recorded(fleet, tmp_path / "one.journal", session)
    done = await again(fleet, found)
    *_, last = done.steps
    assert (done.ok, last.word, last.step.title) == (False, "different", "print(random.random())")
    (difference,) = last.sameness.differences
    assert difference.field == "stdout"
    assert [line[0] for line in difference.diff[-2:]] == ["-", "+"]
    assert done.stopped == f"record {last.number} is different"
    # By choice it goes on.
    assert words(await again(fleet, found, go_on=True))["print('after')"] == "same"


async def test_a_sandbox_stands_at_a_step_to_try_another_branch(fleet, tmp_path):
    async def session(sandbox):
        for number in range(4):
            await sandbox.run_code(f"x = {number}")

    found = await recorded(fleet, tmp_path / "one.journal", session)
    third = [record.number for record in found if record.kind == "execution"][2]
    async with AsyncSandbox.create(fleet=fleet) as sandbox:
        done = await replay(found, sandbox, upto=third)
        assert (done.ok, done.steps[-1].number) == (True, third)
        assert (await sandbox.run_code("x * 10")).text == "20"


async def test_variables_of_the_environment_are_asked_for_by_their_digests(fleet, tmp_path):
    async def session(sandbox):
        await sandbox.run_code("import os; print(os.environ['KEY'])", envs={"KEY": "right"})

    found = await recorded(fleet, tmp_path / "one.journal", session)
    for envs, word in (
        ({}, "cannot be replayed"),
        ({"KEY": "wrong"}, "cannot be replayed"),
        ({"KEY": "right"}, "same"),
    ):
        assert (await again(fleet, found, envs=envs)).steps[-1].word == word


async def test_tools_answer_from_the_record(fleet, tmp_path):
    asked = []

    def weather(city: str, days: int = 1) -> dict[str, int]:
        """The weather."""
        asked.append(city)
        if city == "Nowhere":
            raise LookupError("there is no such city")
        return {city: 20 + days}

    async def session(sandbox):
        await sandbox.serve_tools([weather])
        await sandbox.run_code("print(tools.weather('Oslo', days=2))")
        await sandbox.run_code("tools.weather('Nowhere')")

    found = await recorded(fleet, tmp_path / "one.journal", session, contract="brokered")
    assert asked == ["Oslo", "Nowhere"]
    done = await again(fleet, found, contract="brokered")
    assert done.ok, [step.sameness for step in done.steps]
    assert asked == ["Oslo", "Nowhere"]
    # A journal whose code asks for something else than it did: the call has no answer, and the step says so.
    changed = [record for record in found if record.kind != "tool_call" or record.body["execution"] == "none"]
    lost = await again(fleet, changed, contract="brokered")
    assert not lost.ok


async def test_two_runs_of_one_task_stand_side_by_side(fleet, tmp_path):
    async def one(sandbox):
        await sandbox.run_code("data = [3, 1, 2]")
        await sandbox.run_code("sorted(data)")

    async def other(sandbox):
        await sandbox.run_code("data = [3, 1, 2]")
        await sandbox.run_code("data.order()")
        await sandbox.run_code("sorted(data)")

    found = side_by_side(
        await recorded(fleet, tmp_path / "one.journal", one), await recorded(fleet, tmp_path / "two.journal", other)
    )
    assert [(row.same_code, row.one is None, row.other is None) for row in found.rows] == [
        (True, False, False),
        (False, True, False),
        (True, False, False),
    ]
    assert found.failures == (0, 1)
    assert found.rows[2].sameness.verdict.value == "same"


async def test_hostile_records_are_done_in_the_sandbox_or_refused(fleet, tmp_path):
    async def session(sandbox):
        await sandbox.files.write("a.txt", b"one")

    (opened, written) = await recorded(fleet, tmp_path / "one.journal", session)
    outside = tmp_path / "outside"

    def with_body(**changed):
        return [opened, type(written)(written.head, written.prev, written.kind, written.at, written.body | changed)]

    for changed in (
        {"content": "!!"},
        {"content": "dHdv"},
        {"path": "/etc/passwd"},
        {"op": "explode"},
        {"op": ["write"]},
        {"content": None},
    ):
        done = await again(fleet, with_body(**changed))
        assert not done.ok, changed
    # A path of this machine is one of the sandbox there, if that has it.
    await again(fleet, with_body(path=str(outside)))
    assert not outside.exists()
