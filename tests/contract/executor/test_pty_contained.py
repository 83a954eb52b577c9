"""What terminals may cost, what they are kept from, and how they end."""

import asyncio
import hashlib
import re

import pytest
from contract.executor.harness import until
from contract.executor.terminals import Screen, everything, python, shell
from sandfleet import Outcome

pytestmark = pytest.mark.asyncio(loop_scope="session")

MIB = 1 << 20


async def test_10_mib_come_whole(sandbox):
    # In gVisor a write to a terminal takes 128 KiB at most: an unbuffered program goes on with the rest.
    code = (
        "import os, tty; tty.setraw(1); data = memoryview(bytes(range(256)) * 40960)\n"
        "while data: data = data[os.write(1, data):]"
    )
    shown = await everything(await python(sandbox, code))
    assert shown == bytes(range(256)) * 40960


async def test_what_is_typed_in_bulk_comes_whole(sandbox):
    code = (
        "import hashlib, os, tty; tty.setraw(0); print('ready', flush=True)\n"
        f"data = b''\nwhile len(data) < {MIB}: data += os.read(0, 65536)\nprint(hashlib.sha256(data).hexdigest())"
    )
    screen = Screen(await python(sandbox, code))
    await screen.until(rb"ready\n")
    data = bytes(range(256)) * (MIB // 256)
    await screen.type(data)
    await screen.until(hashlib.sha256(data).hexdigest().encode())


async def test_a_program_without_a_reader_waits_and_costs_the_executor_nothing(executor, sandbox):
    executor.restart_peak()
    before = executor.memory()
    code = (
        "import sys, tty; tty.setraw(1)\n"
        "for n in range(1 << 30):\n"
        "    sys.stdout.write('x' * 4095 + chr(10))\n"
        "    open('/tmp/written', 'w').write(str(n))"
    )
    handle = await python(sandbox, code)
    await anext(handle)

    async def held():
        if not await sandbox.files.exists("/tmp/written"):
            return False
        first = await sandbox.files.read("/tmp/written")
        await asyncio.sleep(0.5)
        return first != "" and first == await sandbox.files.read("/tmp/written")

    await until(held)
    # gRPC's windows, the executor's and the terminal's own: not more than that was written.
    assert int(await sandbox.files.read("/tmp/written")) * 4096 < 64 * MIB
    assert executor.peak_memory() - before < 64 * MIB
    # Control: it goes on for a reader.
    seen = 0
    while seen < 32 * MIB:
        seen += len(await anext(handle))
    await handle.kill()


async def test_twenty_at_once_do_not_mix(sandbox):
    made = [sandbox.pty.create(command="tty; read a; echo got $a") for _ in range(20)]
    screens = [Screen(handle) for handle in await asyncio.gather(*made)]
    names = {(await screen.until(rb"(/dev/pts/\d+)\r\n"))[1] for screen in screens}
    assert len(names) == 20
    await asyncio.gather(*(screen.type(f"n{number}\r") for number, screen in enumerate(screens)))
    shown = await asyncio.gather(*(everything(screen.handle) for screen in screens))
    assert shown == [f"n{number}\r\ngot n{number}\r\n".encode() for number in range(20)]


@pytest.mark.attack("types into another terminal", "refused", control="in it")
async def test_typing_into_another_terminal_is_impossible(sandbox):
    victim = Screen(await sandbox.pty.create(command="tty; read line; echo got $line"))
    name = (await victim.until(rb"(/dev/pts/\d+)\r\n"))[1].decode()
    attack = (
        "import fcntl, os, sys, termios\n"
        "def push(fd):\n"
        "    try:\n"
        "        for byte in b'echo pwned\\n': fcntl.ioctl(fd, termios.TIOCSTI, bytes([byte]))\n"
        "        return 'pushed'\n"
        "    except OSError as error: return error.strerror\n"
        "own, other = push(0), 'not opened'\n"
        f"other = push(os.open({name!r}, os.O_RDWR | os.O_NOCTTY))\n"
        "os.setsid() if os.fork() == 0 else os.wait()\n"
        "try: fd = os.open(sys.argv[0] and "
        + repr(name)
        + ", os.O_RDWR); fcntl.ioctl(fd, termios.TIOCSCTTY, 1); stolen = push(fd)\n"
        "except OSError as error: stolen = error.strerror\n"
        "print('own:', own, 'other:', other, 'stolen:', stolen)"
    )
    shown = (await everything(await python(sandbox, attack))).decode()
    own = re.search(r"own: (.*?) other", shown)[1]
    # Control: into its own it may, where the kernel still has that at all.
    assert own in ("pushed", "Input/output error", "Inappropriate ioctl for device")
    assert "other: pushed" not in shown
    assert "stolen: pushed" not in shown
    await victim.type("mine\r")
    await victim.until(rb"got mine\r\n")


async def test_a_terminal_is_not_the_executor_s_nor_another_sandbox_s(sandbox, neighbour):
    handle = await sandbox.pty.create(command="tty; ls /dev/pts; read x")
    screen = Screen(handle)
    shown = (await screen.until(rb"/dev/pts/(\d+)\r\n.*ptmx"))[1]
    # Numbers of its own instance: the sandbox beside it does not see them.
    there = (await neighbour.commands.run(["ls", "/dev/pts"])).stdout.split()
    assert shown.decode() not in there
    await handle.kill()


async def test_answers_to_a_programs_questions_go_to_the_process_that_reads(sandbox):
    # What a terminal would answer to is data: only the client decides on it.
    code = "import select, sys, tty; tty.setraw(0); print('\\x1b[c\\x1b[6n\\x1b]0;title\\x07', end='', flush=True); print('!', select.select([0], [], [], 1.0)[0], '!')"
    shown = await everything(await python(sandbox, code))
    assert shown == b"\x1b[c\x1b[6n\x1b]0;title\x07! [] !\n"


async def test_the_executor_keeps_no_descriptor_of_a_terminal(executor, sandbox):
    async def some():
        for _ in range(5):
            await everything(await sandbox.pty.create(command="true"))
        return await asyncio.to_thread(executor.descriptors)

    before = await some()

    async def few():
        return await some() <= before + 2

    await until(few)


async def test_killing_a_terminal_ends_all_that_runs_in_it(sandbox):
    before = (await sandbox.usage()).processes
    screen = await shell(sandbox)
    await screen.type(
        "trap '' HUP TERM INT; (trap '' HUP TERM INT; sleep 1000) & setsid sleep 1000 & echo sta''rted; sleep 1000\r"
    )
    await screen.until(rb"started")
    assert await screen.handle.kill()
    assert (await screen.handle.wait()).outcome is Outcome.INTERRUPTED

    async def as_before():
        return (await sandbox.usage()).processes <= before

    await until(as_before)


async def test_a_deadline_hangs_up(sandbox):
    code = "import signal, sys, time; signal.signal(signal.SIGHUP, lambda *_: sys.exit(print('hung up'))); print('ready'); time.sleep(1000)"
    handle = await python(sandbox, code, timeout=2.0)
    shown = await everything(handle)
    assert (await handle.wait()).outcome is Outcome.TIMEOUT
    assert shown == b"ready\r\nhung up\r\n"


async def test_the_end_of_the_shell_hangs_up_and_leaves_nothing(sandbox):
    before = (await sandbox.usage()).processes
    screen = await shell(sandbox)
    await screen.type("sleep 1000 & sleep 1000 & setsid sleep 1000 &\r")
    await screen.until(rb"\[3\]")
    await screen.type("exit\r")
    result = await screen.handle.wait()
    assert result.leftover_processes_killed >= 1

    async def as_before():
        return (await sandbox.usage()).processes <= before

    await until(as_before)
