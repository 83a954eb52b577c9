"""What a cell does to the very shell that it runs in, and to the process that drives it."""

import pytest
from contract.executor.harness import until
from contract.executor.shells import run_fixture, said, shell_fixture
from sandfleet import Outcome
from sandfleet_executor.worker.bash.context import BEGAN_ANEW

pytestmark = pytest.mark.asyncio(loop_scope="session")
# pytest finds a fixture by its name in the module.
shell, run = shell_fixture, run_fixture

LOST = ("variables", "processes")

# What a cell may do to its shell without keeping the next cell from working.
SURVIVED = {
    "all descriptors closed": 'for fd in {0..255}; do eval "exec $fd>&-"; done',
    "its functions hidden": "unset() { :; }; set() { :; }; trap() { :; }; eval() { :; }; source() { :; }; printf() { :; }; exec() { :; }",
    "its commands aliased": "alias .=false builtin=false printf=false trap=false exit=false case=false shopt=false",
    "a trap before each command": "trap 'true evil' DEBUG; trap ': evil' RETURN; set -T",
    "a trap that prints": "trap 'echo evil' DEBUG",
    "its interrupt ignored": "trap '' INT",
    "an error trap": "trap 'echo evil' ERR",
    "an exit trap": "trap 'echo evil' EXIT",
    "no globbing, no clobbering": "set -f -C; set -o noclobber; shopt -s failglob nullglob",
    "unset variables": "set -u",
    "all exported": "set -a",
    "verbose": "set -v",
    "traced elsewhere": "exec {BASH_XTRACEFD}>/tmp/trace; set -x",
    "another IFS": "IFS=0123456789/",
    "read-only variables": "readonly TRACEPARENT IFS PATH PS4 BASH_SOURCE LINENO BASH_ARGV0 SHELLOPTS 2>/dev/null",
    "no PATH": "PATH=; unset PATH HOME PWD OLDPWD",
    "the folder gone": "mkdir /tmp/gone; cd /tmp/gone; rmdir /tmp/gone",
    "posix": "set -o posix",
    "extended": "shopt -s extdebug expand_aliases compat31; set -E -T",
    "few files": "ulimit -n 32",
    "no core, small files": "ulimit -c 0; ulimit -f 1; ulimit -s 1024",
    "forged answers": 'for n in 0 1 2 3 4; do for fd in /proc/$PPID/fd/*; do echo "$n 0" >|$fd; done; done 2>/dev/null',
    "garbage for answers": "for fd in /proc/$PPID/fd/*; do [ -p $fd ] && head -c 100000 /dev/urandom >$fd; done 2>/dev/null",
    "stopped": "kill -STOP $$ & wait",
    "a terminal asked for": "stty sane; tput reset; read -t 1; read -p prompt",
    "wrapped": "builtin enable -n echo; function command { :; }; hash -p /nowhere cat",
}


@pytest.mark.parametrize("attack", SURVIVED)
@pytest.mark.attack("spoils its shell", "the next cell works")
async def test_what_a_cell_does_to_its_shell_does_not_keep_the_next_from_working(run, attack):
    await run("kept=5")
    await run(SURVIVED[attack], timeout=3)
    await run("command trap - DEBUG 2>/dev/null; builtin trap - DEBUG", timeout=3)
    after = await run("builtin printf '%s\\n' \"$kept\"", timeout=30)
    if after.lost or (after.error and BEGAN_ANEW in after.error.value):
        # It was ended, and that was said.
        after = await run("builtin printf '%s\\n' 5", timeout=30)
    assert (after.outcome, after.logs.stdout.splitlines()[-1:]) == (Outcome.OK, ["5"])


# What takes from the shell what it needs to answer: only the end of the shell helps.
BROKEN = {
    "no builtins": "enable -n builtin printf . trap",
    "builtin hidden": "builtin() { :; }",
    "nothing executed": "set -n",
    "restricted": "set -r",
    "no files": "ulimit -n 1",
    "its lines eaten": "cat /proc/$PPID/fd/* >/dev/null 2>&1 & cat <&255 >/dev/null; wait",
    "its lines closed": 'exec 255<&-; for fd in /proc/$$/fd/*; do [ -p $fd ] && eval "exec ${fd##*/}<&-"; done',
    "the parent stopped": "kill -STOP $PPID",
    "the parent killed": "kill -KILL $PPID",
    "the parent ended": "kill -TERM $PPID; kill -HUP $PPID",
    "replaced": "exec sleep 1000",
    "an end by an error": "set -u; echo $undefined",
    "read-only functions": "builtin() { :; }; readonly -f builtin",
}


@pytest.mark.parametrize("attack", BROKEN)
@pytest.mark.attack("breaks its shell", "a new shell")
async def test_a_shell_that_code_has_broken_is_replaced(executor, sandbox, run, neighbour, attack):
    await sandbox.run_code("kept = 1")
    for _ in range(2):
        execution = await run(BROKEN[attack], timeout=5)
        assert execution.blame in (None, "code", "limit")
        await run("true", timeout=5)
        await run("true", timeout=5)

    async def says_on():
        """What still eats lines eats its own code's, until it has ended."""
        after = await run("echo on", timeout=30)
        return after.outcome is Outcome.OK and after.logs.stdout == "on\n"

    await until(says_on)
    assert (await sandbox.run_code("kept")).text == "1"
    assert (await neighbour.run_code("here")).text == "'untouched'"
    assert not executor.ended


@pytest.mark.parametrize("attack", ["no builtins", "builtin hidden", "nothing executed", "restricted"])
@pytest.mark.attack("keeps its shell from answering", "it is given up in time")
async def test_a_shell_that_cannot_answer_is_given_up_long_before_its_deadline(run, attack):
    execution = await run(BROKEN[attack], timeout=300)
    assert (execution.outcome, execution.blame, execution.reason) == ("killed", "code", "InterpreterBroken")
    assert (await run("echo on")).lost == LOST


@pytest.mark.parametrize("attack", ["no builtins", "nothing executed", "replaced"])
@pytest.mark.control("breaks its shell")
async def test_a_plain_shell_does_not_go_on_after_it(sandbox, attack):
    result = await sandbox.commands.run(["bash", "-c", f"bash -c '{BROKEN[attack]}\nbuiltin echo on'"], timeout=2)
    assert "on" not in result.stdout.split()


@pytest.mark.parametrize("attack", ["no PATH", "few files", "read-only variables", "stopped"])
@pytest.mark.control("spoils its shell")
async def test_a_plain_shell_is_spoiled_by_it(sandbox, attack):
    code = f"{SURVIVED[attack]}\nexport PATH=/usr/bin; (exec 40</dev/null) && ls / >/dev/null && cd / && IFS=x && builtin echo on"
    if attack == "no PATH":
        code = code.replace("export PATH=/usr/bin; ", "")
    result = await sandbox.commands.run(["bash", "-c", code], timeout=2)
    assert "on" not in result.stdout.split()


async def test_a_shell_that_is_silent_and_at_work_is_not_given_up(run):
    # Control: it is not the silence alone.
    assert await said(run, "sleep 4; echo on") == "on\n"


@pytest.mark.control("keeps its shell from answering")
async def test_a_forged_answer_reaches_the_shell_s_driver(run):
    # Control: the random name of each cell makes the forged answers be passed over. A cell can find out its own name.
    name = "[[ $(trap -p INT) =~ interrupted.([0-9a-f]+) ]]"
    forged = 'for fd in /proc/$PPID/fd/*; do [ -p $fd ] && echo "${BASH_REMATCH[1]} 33" >$fd; done 2>/dev/null'
    execution = await run(f"{name}; {forged}; sleep 1000", timeout=5)
    assert (execution.outcome, execution.exit_code) == ("error", 33)
