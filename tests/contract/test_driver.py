"""The driver of agent loops over real sandboxes of this machine."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandfleet import AsyncFleet, AsyncSandbox
from sandfleet.codeact import CodeActAgent, FinalAnswer, RunCode
from sandfleet.driver import AgentTask, Bounds, DriverOptions, FixedParking, FleetDriver, TaskEnd, actions
from sandfleet.driver.checkpoint import Checkpoint
from sandfleet.driver.session import Session


def squares(*, think=0.0):
    """Agents that write a line for each cell that runs, and square their number."""

    def make(sandbox, task):
        number = task.data["n"]

        async def policy(conversation):
            await asyncio.sleep(think)
            if len(conversation.steps) < 3:
                return RunCode(f"print({number} ** 2); open('ran', 'a').write('x')")
            return FinalAnswer(number**2, conversation.last.evidence.execution_id)

        return CodeActAgent(policy, sandbox)

    return make


async def once_each(run, sandbox):
    """No cell has run twice."""
    return "" if (ran := await sandbox.files.read("ran")) == "xxx" else f"cells have run {len(ran)} times"


def tasks(count, **fields):
    return [AgentTask(f"t-{n}", f"square {n}", data={"n": n}, **{"check": once_each, **fields}) for n in range(count)]


async def claimed(fleet):
    """The sandboxes that have an owner, once none is starting: that may be for an owner or for the pool."""
    found = await fleet.list()
    while any(one.state == "starting" for one in found):
        await asyncio.sleep(0.1)
        found = await fleet.list()
    return {one.sandbox_id for one in found if one.state != "warm"}


async def finished(driver, make, given, **options):
    return {result.key: result async for result in driver.run(make, given, **options)}


async def test_each_task_has_a_sandbox_of_its_own_and_none_is_left():
    async with await AsyncFleet.connect() as fleet:
        driver = FleetDriver(fleet=fleet, options=DriverOptions(concurrency=3))
        found = await finished(driver, squares(), tasks(6))
        assert {key: result.answer for key, result in found.items()} == {f"t-{n}": (str(n * n),) for n in range(6)}
        assert all(result.ok and result.steps == 4 and result.spent.claim_seconds > 0 for result in found.values())
        assert len({result.sandbox_id for result in found.values()}) == 6
        # The newest record of each journal, as the session's last call told it.
        assert {result.journal_head.partition(":")[0] for result in found.values()} == {"4"}
        assert await claimed(fleet) == set()


async def hangs(conversation):
    await asyncio.sleep(3600)


def raises(*_):
    raise KeyError("a mistake")


def loops(*_):
    # A checker in a thread, which cannot be ended; it ends with the test.
    time.sleep(3)
    return ""


def only(policy):
    return lambda sandbox, task: CodeActAgent(policy, sandbox)


CASES = {
    "the factory raises": (raises, {}, TaskEnd.AGENT_ERROR, "KeyError"),
    "the policy raises": (only(raises), {}, TaskEnd.AGENT_ERROR, "KeyError"),
    "the policy hangs": (only(hangs), {}, TaskEnd.TIMED_OUT, "12 s were over"),
    "the checker raises": (squares(), {"check": raises}, TaskEnd.CHECK_FAILED, "KeyError"),
    "the checker loops": (squares(), {"check": loops}, TaskEnd.CHECK_FAILED, "within 1 s"),
    "the checker objects": (squares(), {"check": lambda *_: "too small"}, TaskEnd.WRONG, "too small"),
}


async def test_what_is_wrong_with_one_task_ends_only_that_task():
    async with await AsyncFleet.connect() as fleet:
        driver = FleetDriver(fleet=fleet, options=DriverOptions(bounds=Bounds(session=12.0, check=1.0)))

        def make(sandbox, task):
            return CASES[task.key][0](sandbox, task) if task.key in CASES else squares()(sandbox, task)

        given = [AgentTask(name, "p", data={"n": 3}, **fields) for name, (_, fields, *_) in CASES.items()]
        good = AgentTask("good", "p", data={"n": 3})
        found = [result async for result in driver.run(make, [*given, good, good, AgentTask("good", "other")])]
        for name, (_, _, end, says) in CASES.items():
            [result] = [one for one in found if one.key == name]
            assert (result.end, says in result.message) == (end, True), result
        ends = sorted(result.end.value for result in found if result.key == "good")
        assert ends == ["answered", "refused", "refused"]
        assert await claimed(fleet) == set()


async def test_a_session_is_parked_while_its_model_thinks_and_keeps_its_variables():
    def make(sandbox, task):
        async def policy(conversation):
            await asyncio.sleep(0.6)
            if len(conversation.steps) < 2:
                return RunCode("x = 41" if not conversation.steps else "print(x + 1)")
            return FinalAnswer(42, conversation.last.evidence.execution_id)

        return CodeActAgent(policy, sandbox)

    async with await AsyncFleet.connect() as fleet:
        driver = FleetDriver(fleet=fleet, options=DriverOptions(parking=FixedParking(0.2)))
        found = await finished(driver, make, [AgentTask("t", "p")])
        assert found["t"].answer == ("42",)
        assert found["t"].spent.parks == 3
        assert found["t"].spent.parked_seconds > 0
        # The control: without parking the same task is not parked.
        control = await finished(FleetDriver(fleet=fleet), make, [AgentTask("t", "p")])
        assert (control["t"].answer, control["t"].spent.parks) == (("42",), 0)
        assert await claimed(fleet) == set()


async def test_a_caller_that_reads_slowly_has_no_more_tasks_begun():
    begun = []

    def made():
        for task in tasks(40):
            begun.append(task.key)
            yield task

    async with await AsyncFleet.connect() as fleet, FleetDriver(fleet=fleet) as driver:
        results = driver.run(raises, made(), concurrency=2)
        assert (await anext(results)).end is TaskEnd.AGENT_ERROR
        # Two results wait to be read, two tasks hold theirs, and the next one waits for room.
        await asyncio.sleep(4.0)
        assert len(begun) <= 6
        assert len([result async for result in results]) == 39


async def test_a_session_whose_sandbox_is_gone_is_one_more_attempt(tmp_path):
    path = tmp_path / "run.sqlite"
    async with await AsyncFleet.connect() as fleet:
        kept = Checkpoint(path, time.time())
        [task] = tasks(1)
        taken = await kept.take(task.key, task.fingerprint(), time.time())
        await kept.bound(taken, "sb-of-an-earlier-fleet")
        await kept.act(taken, 1, actions.to_json(RunCode("print('never')")))
        await kept.close()
        found = await finished(FleetDriver(fleet=fleet), squares(), [task], checkpoint=path)
        assert (found["t-0"].ok, found["t-0"].attempts) == (True, 2)


async def test_the_fleet_that_others_of_this_process_share_stays_open():
    async with AsyncSandbox.create() as sandbox:
        found = await finished(FleetDriver(template="python"), squares(), tasks(1))
        assert found["t-0"].ok
        assert (await sandbox.set_timeout(60)).sandbox_id == sandbox.sandbox_id
        # A template that does not exist: the option reaches the claim.
        refused = await finished(FleetDriver(template="no-such"), squares(), tasks(1))
        assert refused["t-0"].end is TaskEnd.PLATFORM_FAILURE
        assert "no-such" in refused["t-0"].message


@pytest.mark.parametrize("is_undone", [True, False], ids=["", "control: the claim is not undone"])
async def test_a_claim_whose_answer_an_interrupt_has_lost_leaves_no_sandbox(monkeypatch, is_undone):
    create, lost = Session._claim, []

    async def loses(session, options):
        made = await create(session, options)
        if not lost:
            lost.append(made.sandbox_id)
            await made.close()
            # The answer does not come before the interrupt.
            await asyncio.Event().wait()
        return made

    async def leaves(*_): ...

    monkeypatch.setattr(Session, "_claim", loses)
    if not is_undone:
        monkeypatch.setattr(Session, "_undone", leaves)
    async with await AsyncFleet.connect() as fleet, FleetDriver(fleet=fleet) as driver:
        results = asyncio.create_task(finished(driver, squares(), tasks(1)))
        while not lost:
            await asyncio.sleep(0.05)
        results.cancel()
        await asyncio.gather(results, return_exceptions=True)
        assert await claimed(fleet) == (set() if is_undone else set(lost))
        await fleet.release(lost[0])


async def test_a_caller_that_stops_reading_leaves_no_sandbox():
    async with await AsyncFleet.connect() as fleet, FleetDriver(fleet=fleet) as driver:
        async for _ in driver.run(squares(think=0.2), tasks(4)):
            break
    async with await AsyncFleet.connect() as fleet:
        assert await claimed(fleet) == set()


PROGRAM = """
    import asyncio, json, sys
    sys.path.insert(0, sys.argv[3])
    from contract.test_driver import squares, tasks
    from sandfleet import AsyncFleet
    from sandfleet.driver import FleetDriver

    async def main():
        async with await AsyncFleet.connect(sys.argv[1]) as fleet, FleetDriver(fleet=fleet) as driver:
            async for result in driver.run(squares(think=0.5), tasks(4), checkpoint=sys.argv[2]):
                said = [result.key, result.end, list(result.answer), result.message, result.is_stored, result.sandbox_id]
                print(json.dumps(said), flush=True)

    asyncio.run(main())
"""


@pytest.fixture
def dev() -> Iterator[str]:
    """The address of a fleet that outlives its clients."""
    with tempfile.TemporaryDirectory(prefix="sf-", dir="/tmp") as base:
        command = [sys.executable, "-m", "sandfleet", "dev", "--pool-size", "2", "--json"]
        serving = subprocess.Popen(
            command, env={**os.environ, "SANDFLEET_STATE": base}, stdout=subprocess.PIPE, text=True
        )
        assert serving.stdout is not None
        yield json.loads(serving.stdout.readline())["address"]
        serving.send_signal(signal.SIGINT)
        serving.communicate(timeout=60)


@pytest.fixture
def begin(dev, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    tests = Path(__file__).parents[1]

    def begin():
        line = [sys.executable, str(program), dev, str(tmp_path / "run.sqlite"), str(tests)]
        return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return begin


def said(process):
    out, errors = process.communicate(timeout=90)
    return [json.loads(line) for line in out.splitlines()], errors


async def until_sandboxes_work(address, seconds=1.0):
    async with await AsyncFleet.connect(address) as fleet:
        while len(await claimed(fleet)) < 4:
            await asyncio.sleep(0.1)
        await asyncio.sleep(seconds)


EVERY = sorted([f"t-{n}", "answered", [str(n * n)]] for n in range(4))


async def test_a_killed_driver_is_continued_in_its_sandboxes_and_no_cell_runs_twice(dev, begin):
    killed = begin()
    await until_sandboxes_work(dev)
    async with await AsyncFleet.connect(dev) as fleet:
        before = await claimed(fleet)
        killed.kill()
        killed.wait()
        second, errors = await asyncio.to_thread(said, begin())
        assert sorted(line[:3] for line in second) == EVERY, (second, errors)
        assert {line[5] for line in second} == before
        assert before
        assert await claimed(fleet) == set()
    third, _ = await asyncio.to_thread(said, begin())
    assert sorted(line[:3] for line in third) == EVERY
    assert all(line[4] for line in third)


@pytest.mark.parametrize("seconds", [0.0, 1.0], ids=["while it claims", "while its agents work"])
async def test_an_interrupted_driver_releases_its_sandboxes_and_its_tasks(dev, begin, seconds):
    interrupted = begin()
    await until_sandboxes_work(dev, seconds)
    interrupted.send_signal(signal.SIGINT)
    await asyncio.to_thread(interrupted.communicate, timeout=60)
    async with await AsyncFleet.connect(dev) as fleet:
        assert await claimed(fleet) == set()
    again, errors = await asyncio.to_thread(said, begin())
    assert sorted(line[:3] for line in again) == EVERY, (again, errors)


async def test_two_processes_share_one_run_and_each_task_is_run_once(dev, begin):
    first, second = begin(), begin()
    (one, errors), (other, more) = await asyncio.gather(asyncio.to_thread(said, first), asyncio.to_thread(said, second))
    for lines in (one, other):
        assert sorted(line[:3] for line in lines) == EVERY, (lines, errors, more)
    run_by = [line[0] for line in (*one, *other) if not line[4]]
    assert sorted(run_by) == [f"t-{n}" for n in range(4)]
