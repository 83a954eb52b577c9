"""Code that works against its own rollback: whatever it does, the result says what is so and the session goes on."""

import pytest
from contract.executor.copies import CRASH, EXIT, copied, is_kept, is_rolled_back, refused, run, state_of
from contract.executor.harness import until
from contract.executor.languages import PYTHON
from sandfleet import Outcome
from sandfleet.errors import PreconditionFailed

pytestmark = pytest.mark.asyncio(loop_scope="session")

MIB = 1 << 20
# Pids of the interpreters beside this one that are children of PID 1: copies, and what waits to become something.
OTHERS = """
import os, signal, pathlib
def others():
    found = []
    for folder in pathlib.Path('/proc').glob('[0-9]*'):
        try:
            parent = int((folder / 'stat').read_text().rpartition(')')[2].split()[1])
        except OSError:
            continue
        if parent == os.getppid() and int(folder.name) != os.getpid():
            found.append(int(folder.name))
    return found
"""


@pytest.mark.parametrize(
    "code",
    [
        "import os\nfor _ in range(5):\n    if os.fork() == 0: __import__('time').sleep(1000)",
        "import threading, time\nfor _ in range(20): threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()",
        "import signal\nfor number in (1, 2, 10, 12, 13, 14, 15, 17): signal.signal(number, signal.SIG_IGN)",
        "import signal\nsignal.signal(17, lambda *a: 1 / 0); signal.signal(15, lambda *a: 1 / 0)",
        "import os; os.closerange(3, 65536)",
        "import sys; sys.modules.clear()",
        "import builtins; builtins.len = builtins.open = None; del builtins.__import__",
        "import os, random, signal, socket\nos.fork = os._exit = os.getpid = os.listdir = None; random.setstate = None; signal.sigtimedwait = None; socket.socket = None",
        "for name in globals().keys() - {'exit_now'}: del globals()[name]",
        "import os; os.register_at_fork(before=lambda: 1 / 0, after_in_child=lambda: 1 / 0, after_in_parent=lambda: 1 / 0)",
        "import resource; resource.setrlimit(resource.RLIMIT_NPROC, (1, 1)); resource.setrlimit(resource.RLIMIT_NOFILE, (30, 30))",
        "import os; os.killpg(0, 9)",
        "import sys; sys.setrecursionlimit(10**9)\ndef f(): f()\nimport ctypes; ctypes.memset(id(f), 0, 4096); f()",
    ],
    ids=[
        "forks",
        "threads",
        "ignores",
        "handlers",
        "closes",
        "modules",
        "builtins",
        "patches",
        "deletes",
        "hooks",
        "rlimits",
        "killpg",
        "recursion",
    ],
)
async def test_what_a_cell_does_before_it_is_killed_does_not_keep_it_from_being_rolled_back(sandbox, context, code):
    await run(sandbox, context, "import json\nvalue = [1, 2]")
    execution = await sandbox.run_code(
        f"exit_now = __import__('os')._exit\n{code}\nexit_now(1)", context=context, timeout=60
    )
    assert execution.outcome in ("killed", "error")
    if execution.outcome == "error":
        # What it did keeps the cell itself from ending the interpreter.
        execution = await sandbox.run_code("x = __import__('ctypes').string_at(0)", context=context, timeout=60)
    assert execution.rollback.done, execution.rollback
    after = await sandbox.run_code(
        "import sys\n(json.dumps(value), len(sys.modules) > 50)", context=context, timeout=60
    )
    assert (after.outcome, after.text) == (Outcome.OK, "('[1, 2]', True)")
    assert (await sandbox.run_code("while True: pass", context=context, timeout=0.3)).outcome is Outcome.TIMEOUT


@pytest.mark.parametrize(
    "code",
    [
        "import sys; sys.modules.clear()",
        "import os, random, signal, socket\nos.fork = os._exit = os.getpid = os.listdir = None; random.setstate = None; signal.sigtimedwait = None; socket.socket = None",
        "import os; os.register_at_fork(before=lambda: 1 / 0, after_in_child=lambda: 1 / 0, after_in_parent=lambda: 1 / 0)",
        "import os; os.register_at_fork(after_in_child=lambda: os._exit(0))",
        "import os; os.closerange(3, 800)",
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (30, 30))",
        "import threading, sys; threading.enumerate = threading.get_ident = None; sys._current_frames = None",
    ],
    ids=["modules", "patches", "hooks", "hook that exits", "closes", "few files", "threading"],
)
@pytest.mark.attack("ruins the interpreter that is copied", "its own context at most")
async def test_a_copy_of_a_ruined_interpreter_harms_only_its_context(sandbox, context, code):
    await sandbox.run_code("value = 1", context=context)
    await sandbox.run_code(code, context=context)
    second = await sandbox.run_code("value", context=context, timeout=60)
    # What cannot be copied may cost its own variables, and a cell still ends in an outcome.
    assert second.text == "1" or second.outcome in ("killed", "error") or "variables" in second.lost
    await sandbox.run_code("__import__('ctypes').string_at(0)", context=context, timeout=60)
    await sandbox.restart_context(context)
    assert (await sandbox.run_code("1 + 1", context=context)).text == "2"


async def test_code_that_forbids_forks_costs_its_copies_and_not_its_variables(sandbox, context):
    await run(sandbox, context, "import sys\nvalue, forbidden = [1], True")
    # It may have been for the sake of what the code runs itself.
    hook = (
        "def hook(name, _):\n    if name == 'os.fork' and forbidden: raise RuntimeError('no')\nsys.addaudithook(hook)"
    )
    assert (await sandbox.run_code(hook, context=context)).outcome is Outcome.OK
    with pytest.raises(PreconditionFailed, match="RuntimeError") as raised:
        await sandbox.fork_context(context, 2)
    assert raised.value.reason == "ForkForbidden"
    kept = await sandbox.run_code("value", context=context)
    assert (kept.text, kept.lost) == ("[1]", ())
    # Control: where it allows them there is one.
    await run(sandbox, context, "forbidden = False")
    assert is_rolled_back(await sandbox.run_code(EXIT, context=context), 4)
    await sandbox.run_code("forbidden = True", context=context)
    assert "RuntimeError" in await refused(sandbox, context, "ForkForbidden")


async def test_code_that_kills_its_own_copy_has_none(sandbox, context):
    await run(sandbox, context, OTHERS)
    code = f"for pid in others():\n    try: os.kill(pid, 9)\n    except OSError: pass\n{EXIT}"
    await refused(sandbox, context, "CopyEnded", code)


async def test_a_copy_that_is_stopped_signalled_and_traced_is_as_it_was(sandbox, context):
    await run(sandbox, context, f"{OTHERS}\nsignal.signal(signal.SIGUSR1, lambda *a: value.clear())\nvalue = [1]")
    code = (
        "import ctypes\nlibc = ctypes.CDLL(None)\n"
        "for pid in others():\n"
        "    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP, signal.SIGSTOP, signal.SIGCONT, signal.SIGSTOP):\n"
        "        try: os.kill(pid, number)\n        except OSError: pass\n"
        f"    libc.ptrace(0x4206, pid, None, None)\n{EXIT}"
    )
    assert is_rolled_back(await sandbox.run_code(code, context=context, timeout=60), 1)
    assert (await sandbox.run_code("value", context=context)).text == "[1]"


@pytest.mark.attack("drops a memory bomb beside its copy", "rolled back")
async def test_a_memory_bomb_is_rolled_back(starting):
    async with starting(limits={"memory_bytes": 512 * MIB}) as executor:
        sandbox = executor.sandbox
        await run(sandbox, "default", "value = 'x' * (20 << 20)")
        for _ in range(2):
            bomb = await sandbox.run_code(PYTHON.hoard, timeout=60)
            assert (bomb.outcome, bomb.reason) == ("memory", "MemoryLimit")
            assert is_rolled_back(bomb, 1)
            await until(lambda: is_kept(sandbox, "default"))
        assert (await sandbox.run_code("len(value), 'hoard' in globals()")).text == "(20971520, False)"


@pytest.mark.control("drops a memory bomb beside its copy")
async def test_control_without_copies_the_same_bomb_costs_the_variables(starting):
    async with starting(limits={"memory_bytes": 512 * MIB}, rollback={"enabled": False}) as executor:
        await executor.sandbox.run_code("value = 1")
        bomb = await executor.sandbox.run_code(PYTHON.hoard, timeout=60)
        assert (bomb.outcome, "variables" in bomb.lost) == ("memory", True), bomb


# The module that makes copies, and a process that takes 640 MiB in some seconds and says how far it has come.
HOARD = """
import os, sys, time
copies = next(each for name, each in sys.modules.items() if name.endswith('.python.copies'))
def hoard():
    held = []
    for number in range(40):
        held.append(b'x' * (16 << 20))
        open('/workspace/progress', 'w').write(str(number + 1))
        time.sleep(0.1)
    time.sleep(30)
    os._exit(0)
"""
# Steps of a hoard that hold more than a limit of 256 MiB. A busy machine comes no further than to 37 of the 40 before
# the time of a copy is over.
BEYOND = 20
FORGED = {
    "in a process below a copy": """
def wait(control, wait=copies.wait):
    if os.fork() == 0:
        hoard()
    return wait(control)
copies.wait = wait
""",
    "in the place of a copy that is expected": """
def make(count, become, make=copies.make):
    make(1, lambda copy: hoard())
    time.sleep(9)
    raise copies.CannotCopyError('Forged', 'it was a process that takes memory')
copies.make = make
""",
}


async def progress(sandbox):
    return int(await sandbox.files.read("progress") or 0) if await sandbox.files.exists("progress") else 0


@pytest.mark.needs("memory of copies told exactly")
@pytest.mark.parametrize("attack", FORGED)
@pytest.mark.attack("hides memory by a forged copy", "it ends, the others live on")
async def test_what_is_no_copy_that_waits_counts_as_what_it_is(starting, attack):
    async with starting(limits={"memory_bytes": 256 * MIB}) as executor:
        sandbox = executor.sandbox
        await run(sandbox, "default", "kept = 'x' * (60 << 20)")
        await sandbox.create_context("forger")
        await sandbox.run_code(HOARD + FORGED[attack], context="forger")
        await until(lambda: progress(sandbox))
        # The guard looks as often as it does while something runs.
        waited = "seen = 0\nwhile seen != (seen := open('/workspace/progress').read() or 1): __import__('time').sleep(3)\nint(seen)"
        held = await sandbox.run_code(waited, timeout=100)
        assert (held.outcome, int(held.text) < BEYOND) == (Outcome.OK, True), held
        assert (await sandbox.run_code("len(kept)")).text == str(60 << 20)


@pytest.mark.needs("memory of copies told exactly")
@pytest.mark.parametrize("attack", FORGED)
@pytest.mark.control("hides memory by a forged copy")
async def test_control_where_there_is_room_a_forged_copy_holds_it(starting, attack):
    async with starting(limits={"memory_bytes": 3072 * MIB}) as executor:
        await executor.sandbox.create_context("forger")
        await executor.sandbox.run_code(HOARD + FORGED[attack], context="forger")

        async def is_done():
            return await progress(executor.sandbox) > BEYOND

        await until(is_done)


@pytest.mark.needs("memory of copies told exactly")
async def test_when_memory_is_short_the_copy_goes_before_anything_is_killed(starting):
    async with starting(limits={"memory_bytes": 600 * MIB}) as executor:
        sandbox = executor.sandbox
        await run(sandbox, "default", "heap = bytearray(b'x' * (200 << 20)); import time")
        # Written anew, the heap is there twice: once in the copy.
        grows = "heap[:] = bytes(200 << 20)\nmore = []\nfor _ in range(18):\n    more.append(b'x' * (10 << 20)); time.sleep(0.05)\ntime.sleep(0.5)\nlen(more)"
        grown = await sandbox.run_code(grows, timeout=60)
        assert (grown.outcome, grown.text) == (Outcome.OK, "18")


@pytest.mark.needs("memory of copies told exactly")
async def test_the_result_of_a_later_kill_says_that_memory_took_the_copy(starting):
    async with starting(limits={"memory_bytes": 600 * MIB}) as executor:
        sandbox = executor.sandbox
        await run(sandbox, "default", "heap = bytearray(b'x' * (200 << 20)); import time")
        code = "heap[:] = bytes(200 << 20)\nmore = [b'x' * (10 << 20) for _ in range(22)]\ntime.sleep(1)\n" + EXIT
        message = await refused(sandbox, "default", "MemoryShort", code)
        assert "given up when memory was short" in message


async def test_many_contexts_each_have_one_copy_and_no_more(sandbox):
    names = [f"many-{number}" for number in range(5)]
    for name in names:
        await sandbox.create_context(name)
        for value in range(3):
            await run(sandbox, name, f"value = {value}")
    for name in names:
        assert is_rolled_back(await sandbox.run_code(CRASH, context=name), 3)
        assert (await sandbox.run_code("value", context=name)).text == "2"
        assert (await state_of(sandbox, name)).generation == 2
        await sandbox.delete_context(name)
    await sandbox.run_code("1")
    await copied(sandbox, "default")
