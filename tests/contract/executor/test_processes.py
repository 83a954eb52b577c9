"""Fork bombs and attempts to kill what user code does not own."""

import asyncio
import contextlib
import os
import signal

import pytest
import pytest_asyncio
from contract.executor.harness import until
from sandfleet import Outcome

pytestmark = pytest.mark.asyncio(loop_scope="session")

LIMIT = 64
# Of a small sandbox under gVisor.
LEAST = 32
# Forks until it is not allowed to any more; each child stays.
FORK_MANY = """
import os, time
made = 0
while made < 1000:
    try:
        pid = os.fork()
    except OSError:
        break
    if pid == 0:
        time.sleep(1000)
    made += 1
made
"""
PYTHON_BOMB = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
SHELL_BOMB = ":(){ :|:& };: ; while :; do :; done"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def small(starting):
    async with starting(limits={"processes": LIMIT}) as made:
        yield made


async def at_rest(executor):
    """How many processes there are when none is being made in reserve any more."""
    seen = []

    def rests():
        seen.append(len(executor.processes()))
        return len(seen) > 5 and seen[-6:] == [seen[-1]] * 6

    await until(rests)
    return seen[-1]


async def settled(executor, count):
    """Waits until no more than `count` processes are left."""
    await until(lambda: len(executor.processes()) <= count)


@pytest.mark.needs("own uid")  # RLIMIT_NPROC counts all processes of a uid
@pytest.mark.attack("starts more processes than the limit", "refused", control="in it")
async def test_a_cell_cannot_have_more_processes_than_the_limit(small, neighbour):
    execution = await small.sandbox.run_code(FORK_MANY, timeout=60)
    assert LIMIT // 2 < int(execution.text) < LIMIT
    assert (await neighbour.run_code("here")).text == "'untouched'"
    # Control: where the limit is higher the same code goes on beyond it.
    context = await neighbour.create_context()
    more = await neighbour.run_code(FORK_MANY.replace("1000:", f"{2 * LIMIT}:"), context=context, timeout=60)
    assert int(more.text) == 2 * LIMIT
    await neighbour.delete_context(context)


@pytest.mark.needs("own count of processes")
async def test_the_least_limit_leaves_room_for_programs(starting):
    """Where the executor's own threads were counted with them, a busy executor left none."""
    async with starting(limits={"processes": LEAST}) as executor:
        execution = await executor.sandbox.run_code(FORK_MANY, timeout=60)
        assert int(execution.text) > LEAST * 3 // 5
        refused = await executor.sandbox.commands.run("true", timeout=60)
        assert (refused.exit_code, "as many processes as its limit allows" in refused.stderr) == (126, True)


@pytest.mark.parametrize("bomb", [PYTHON_BOMB, f"!{SHELL_BOMB}"], ids=["python", "shell"])
@pytest.mark.attack("drops a fork bomb in a cell", "it ends at the deadline")
async def test_a_fork_bomb_in_a_cell_ends_at_its_deadline_and_leaves_nothing(small, neighbour, bomb):
    sandbox = small.sandbox
    await sandbox.run_code("1")
    before = await at_rest(small)
    execution = await sandbox.run_code(bomb, timeout=2)
    assert execution.outcome is Outcome.TIMEOUT
    assert execution.usage.peak_processes > 10
    await sandbox.restart_context()
    await settled(small, before)
    assert (await sandbox.run_code("1 + 1", timeout=60)).text == "2"
    assert (await sandbox.commands.run("echo on", timeout=60)).stdout == "on\n"
    assert (await neighbour.run_code("here")).text == "'untouched'"
    assert not small.ended


async def test_after_a_fork_bomb_in_a_cell_the_next_cells_and_commands_work(fresh):
    sandbox = fresh.sandbox
    await sandbox.run_code("1")
    await sandbox.run_code("import os\nwhile True: os.fork()", timeout=10)
    assert (await sandbox.run_code("1 + 1", timeout=60)).text == "2"

    # The bomb's children are the user's: those that are left go on forking until each of them meets the limit.
    async def works():
        ran = await sandbox.run_code("import subprocess; subprocess.run(['echo']).returncode", timeout=60)
        return ran.text == "0" and (await sandbox.commands.run("echo on", timeout=60)).stdout == "on\n"

    await until(works)


@pytest.mark.attack("drops a fork bomb under the default limits", "the sandbox lives")
async def test_a_fork_bomb_with_the_default_limits_does_not_end_the_sandbox(starting):
    async with starting(limits={"processes": 256}) as executor:
        sandbox = executor.sandbox
        await sandbox.run_code("1")
        await sandbox.run_code(PYTHON_BOMB, timeout=10)
        assert (await sandbox.run_code("1 + 1", timeout=60)).text == "2"
        assert not executor.ended


@pytest.mark.parametrize("bomb", [SHELL_BOMB, f"python3 -c '{PYTHON_BOMB}'"], ids=["shell", "python"])
@pytest.mark.attack("drops a fork bomb in a command", "it ends at the deadline")
async def test_a_fork_bomb_in_a_command_ends_at_its_deadline_and_leaves_nothing(small, neighbour, bomb):
    sandbox = small.sandbox
    await sandbox.run_code("x = 1")
    before = await at_rest(small)
    result = await sandbox.commands.run(bomb, timeout=2)
    assert result.outcome is Outcome.TIMEOUT
    await settled(small, before)
    assert (await sandbox.run_code("x", timeout=60)).text == "1"
    assert (await sandbox.commands.run("echo on", timeout=60)).stdout == "on\n"
    assert (await neighbour.run_code("here")).text == "'untouched'"


@pytest.mark.attack("drops a fork bomb of daemons", "it ends")
async def test_a_fork_bomb_of_daemons_in_a_command_is_ended(small):
    daemons = "for i in $(seq 30); do (setsid sh -c '(setsid sleep 1000 &)' &) ; done; sleep 1; echo done"
    before = await at_rest(small)
    result = await small.sandbox.commands.run(daemons, timeout=60)
    assert result.leftover_processes_killed >= 10
    await settled(small, before)


# What outlives its maker where nothing ends it. Each says the pids that it leaves, one a line.
LEFT = {
    "bomb": "for i in 1 2 3 4 5 6 7 8; do sleep 1000 & echo $!; done",
    "daemons": "for i in 1 2 3 4 5 6 7 8; do setsid sh -c 'sleep 1000 & echo $!'; done",
    "attack on the supervisor": "sh -c 'echo $$; kill -KILL $PPID; exec sleep 1000'",
}


@pytest.mark.parametrize("left", LEFT.values(), ids=LEFT)
@pytest.mark.control(
    "drops a fork bomb in a cell",
    "drops a fork bomb in a command",
    "drops a fork bomb of daemons",
    "drops a fork bomb under the default limits",
    "attacks the supervisor of its command",
)
async def test_control_outside_of_a_session_they_live_on(tmp_path, left):
    said = tmp_path / "said"
    with said.open("wb") as file:
        maker = await asyncio.create_subprocess_exec("bash", "-c", f"{left}\n:", stdout=file)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(maker.wait(), 10)
    pids = [int(line) for line in said.read_text().split()]
    try:
        assert pids
        for pid in pids:
            os.kill(pid, 0)
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


async def test_zombies_of_a_cell_s_orphans_are_reaped(small):
    # Each leaves an orphan that ends: only the executor's own process can reap it.
    sandbox = small.sandbox
    for _ in range(4):
        await sandbox.commands.run("true")
        await sandbox.run_code(
            "import subprocess\nfor _ in range(30): subprocess.run(['sh', '-c', '(true &)'])", timeout=60
        )
    assert (await sandbox.run_code("subprocess.run(['echo']).returncode", timeout=60)).text == "0"


@pytest.mark.parametrize("target", ["-1", "1"])
@pytest.mark.parametrize("number", [9, 15, 19])
@pytest.mark.attack("kills or stops all it sees", "its own session at most", control="in it")
async def test_killing_or_stopping_everything_costs_the_session_at_most_its_processes(
    executor, neighbour, target, number
):
    sandbox = executor.sandbox
    await sandbox.run_code("x = 1")
    victim = await sandbox.commands.run("echo up; sleep 1000", background=True, timeout=90)
    await anext(victim)
    result = await sandbox.commands.run(f"kill -{number} -- {target}; exit 3", timeout=3)
    assert result.outcome in (Outcome.ERROR, Outcome.KILLED, Outcome.TIMEOUT)
    if target == "-1" and number == 9:
        # Control: the attack is real, what it may reach it ends.
        assert (await victim.wait()).outcome is Outcome.KILLED
    else:
        await victim.kill()
        await victim.wait()
    # A stopped interpreter is only known by its silence; one that was killed may be gone only when the cell has come.
    after = await sandbox.run_code("1 + 1", timeout=4)
    assert after.text == "2" or after.outcome in (Outcome.TIMEOUT, Outcome.KILLED)
    assert (await sandbox.run_code("1 + 1", timeout=30)).text == "2"
    assert (await sandbox.commands.run("echo on", timeout=30)).stdout == "on\n"
    assert (await neighbour.run_code("here")).text == "'untouched'"
    assert not executor.ended


@pytest.mark.parametrize(
    "code",
    [
        "import os; os.kill(-1, 9)",
        # Elsewhere it ends the session's processes, see above.
        pytest.param("import os; os.kill(1, 9)", marks=pytest.mark.needs("a PID 1 that cannot be killed from below")),
        "import os, signal; os.kill(1, signal.SIGSTOP)",
    ],
)
async def test_a_cell_that_kills_everything_goes_on(executor, code):
    execution = await executor.sandbox.run_code(f"x = 1\ntry:\n    {code}\nexcept OSError: pass\nx", timeout=30)
    assert execution.text == "1"
    assert (await executor.sandbox.run_code("x", timeout=30)).text == "1"
    assert (await executor.sandbox.commands.run("echo on", timeout=30)).stdout == "on\n"


@pytest.mark.parametrize(
    ("attack", "outcome"),
    [
        ("kill -KILL $PPID; sleep 1000", Outcome.KILLED),
        ("kill -STOP $PPID; sleep 1000", Outcome.TIMEOUT),
        ("kill -TERM $PPID; kill -INT $PPID; kill -HUP $PPID; sleep 0.2; echo survived", None),
        ("setsid sleep 1000 & kill -KILL $PPID; sleep 1000", Outcome.KILLED),
    ],
)
@pytest.mark.attack("attacks the supervisor of its command", "it ends with all it started")
async def test_a_command_that_attacks_its_supervisor_ends_with_all_it_started(executor, attack, outcome):
    sandbox = executor.sandbox
    await sandbox.run_code("x = 1")
    before = await at_rest(executor)
    result = await sandbox.commands.run(attack, timeout=3)
    assert outcome is None or result.outcome is outcome
    await settled(executor, before)
    assert (await sandbox.run_code("x", timeout=30)).text == "1"
    assert (await sandbox.commands.run("echo on", timeout=30)).stdout == "on\n"


async def test_a_cell_that_kills_the_supervisors_of_commands_leaves_none_of_them(executor):
    sandbox = executor.sandbox
    await sandbox.run_code("x = 1")
    before = await at_rest(executor)
    handles = [await sandbox.commands.run("echo up; sleep 1000", background=True, timeout=60) for _ in range(3)]
    for handle in handles:
        await anext(handle)
    code = "import os\nfor name in filter(str.isdecimal, os.listdir('/proc')):\n    if int(name) not in (1, os.getpid()):\n        try: os.kill(int(name), 9)\n        except OSError: pass\nx"
    assert (await sandbox.run_code(code, timeout=30)).text == "1"
    results = await asyncio.gather(*(handle.wait() for handle in handles))
    assert {result.outcome for result in results} == {Outcome.KILLED}
    await settled(executor, before)


async def test_two_contexts_of_one_sandbox_can_kill_each_other_and_it_is_said(executor):
    sandbox = executor.sandbox
    await sandbox.create_context("victim")
    pid = (await sandbox.run_code("import os; os.getpid()", context="victim")).text
    running = asyncio.create_task(
        sandbox.run_code("open('/tmp/on', 'w')\nwhile True: pass", context="victim", timeout=60)
    )
    await until(lambda: sandbox.files.exists("/tmp/on"))
    await sandbox.run_code(f"import os; os.kill({pid}, 9)")
    execution = await running
    assert (execution.outcome, execution.signal) == ("killed", "SIGKILL")
    assert "processes" in execution.lost


# What waits for its use: below PID 1, and not what signals it nor above that.
INTERRUPT_ALL = """
import os, signal, time
def parent(pid):
    with open(f'/proc/{pid}/stat') as file:
        return int(file.read().rpartition(') ')[2].split()[1])
def alive(pid):
    with open(f'/proc/{pid}/stat') as file:
        return file.read().rpartition(') ')[2][0] != 'Z'
def lives(pid):
    try: return alive(pid)
    except OSError: return False
mine = os.getpid()
while parent(mine) != 1: mine = parent(mine)
waiting = [int(pid) for pid in os.listdir('/proc') if pid.isdecimal() and pid != '1' and int(pid) != mine and parent(pid) == 1]
for pid in waiting: os.kill(pid, signal.SIGNAL)
until = time.monotonic() + SECONDS
while any(map(lives, waiting)) and time.monotonic() < until: time.sleep(0.02)
print(len(waiting), sum(map(lives, waiting)))
"""


async def test_an_interrupt_ends_nothing_that_waits_to_be_needed(starting):
    async with starting() as executor:
        run = executor.sandbox.commands.run
        await executor.sandbox.run_code("1")

        async def there():
            """The context, its copy, and one more in reserve."""
            code = INTERRUPT_ALL.replace("signal.SIGNAL", "0").replace("SECONDS", "0")
            return int((await run(["python3", "-c", code])).stdout.split()[0]) >= 3

        await until(there)
        code = INTERRUPT_ALL.replace("SIGNAL", "SIGINT").replace("SECONDS", "1")
        found = (await run(["python3", "-c", code])).stdout.split()
        assert int(found[0]) >= 3
        assert found[0] == found[1]
        # Control: it can be reached from there, and is replaced.
        code = INTERRUPT_ALL.replace("SIGNAL", "SIGKILL").replace("SECONDS", "60")
        assert (await run(["python3", "-c", code])).stdout.split()[1] == "0"
        assert (await run("echo on")).stdout == "on\n"
