"""Terminals: what a program finds in one, and what it can do with it."""

import asyncio
import signal

import pytest
from contract.executor.terminals import Screen, everything, python, shell
from sandfleet import Outcome
from sandfleet.errors import InvalidArgument, NotFoundError, PreconditionFailed
from sandfleet_api.executor.v1 import process_pb2 as pb

pytestmark = pytest.mark.asyncio(loop_scope="session")

CTRL_C, CTRL_D, CTRL_Z, CTRL_BACKSLASH = b"\x03", b"\x04", b"\x1a", b"\x1c"


async def test_a_program_finds_a_terminal_of_the_size_and_kind_that_was_asked_for(sandbox):
    code = (
        "import os, sys; size = os.get_terminal_size()\n"
        "print([os.isatty(n) for n in range(3)], size.lines, size.columns, os.environ['TERM'], os.ttyname(0)[:9],"
        " os.getsid(0) == os.getpid(), os.tcgetpgrp(0) == os.getpgrp(), bool(os.open('/dev/tty', os.O_RDWR)))"
    )
    shown = await everything(await python(sandbox, code, rows=31, cols=107, term="vt220"))
    assert shown == b"[True, True, True] 31 107 vt220 /dev/pts/ True True True\r\n"
    # Control: a command without one has none.
    result = await sandbox.commands.run(["python3", "-c", "import os; print(os.isatty(0), os.environ['TERM'])"])
    assert result.stdout == "False dumb\n"


@pytest.mark.smoke
async def test_a_terminal_defaults_to_24x80_and_xterm(sandbox):
    shown = await everything(await sandbox.pty.create(command="stty size; echo $TERM; pwd"))
    assert shown == b"24 80\r\nxterm-256color\r\n/workspace\r\n"
    await sandbox.files.make_dir("deep")
    shown = await everything(
        await sandbox.pty.create(command="pwd; echo $A $TERM", cwd="deep", envs={"A": "b", "TERM": "x"})
    )
    assert shown == b"/workspace/deep\r\nb x\r\n"


@pytest.mark.smoke
async def test_the_shell_without_a_command_is_bash_and_its_end_is_the_end(sandbox):
    handle = await sandbox.pty.create()
    await handle.send("echo $((6 * 7)); exit 7\r")
    assert b"42\r\n" in await everything(handle)
    result = await handle.wait()
    assert (result.exit_code, result.outcome, result.stdout) == (7, Outcome.ERROR, "")
    with pytest.raises(NotFoundError):
        await handle.send("x")
    with pytest.raises(NotFoundError):
        await handle.resize(10, 10)
    assert not await handle.kill()


async def test_the_shell_has_a_prompt_and_the_user_s_own_settings_come_after_it(fresh):
    handle = await fresh.sandbox.pty.create(term="dumb")
    screen = Screen(handle)
    await screen.until(rb"sandbox:~\$ ")
    await screen.type("mkdir d; cd d\r")
    await screen.until(rb"sandbox:~/d\$ ")
    await screen.type("exit\r")
    await handle.wait()
    # Its history is nothing that the workspace has.
    assert [each.name for each in await fresh.sandbox.files.list(".")] == ["d"]
    await fresh.sandbox.files.write(".bashrc", "PS1='mine> '")
    for options, prompt in (({}, rb"mine> "), ({"envs": {"HOME": "/tmp", "PS1": "given> "}}, rb"given> ")):
        await Screen(await fresh.sandbox.pty.create(**options)).until(prompt)


@pytest.mark.smoke
async def test_a_resize_is_seen_and_told(sandbox):
    code = (
        "import os, signal\n"
        "signal.signal(signal.SIGWINCH, lambda *_: print('told', *os.get_terminal_size()))\n"
        "print('ready')\n"
        "while True: signal.pause()"
    )
    screen = Screen(await python(sandbox, code))
    await screen.until(rb"ready")
    await screen.handle.resize(50, 132)
    await screen.until(rb"told 132 50")
    await screen.handle.resize(51, 133)
    await screen.until(rb"told 133 51")
    await screen.handle.kill()


@pytest.mark.smoke
async def test_the_program_in_front_of_a_shell_is_told_of_a_resize(sandbox):
    screen = await shell(sandbox)
    await screen.type(
        "python3 -uc \"import os, signal as s; s.signal(28, print); s.pthread_sigmask(s.SIG_BLOCK, [28]); print('rea' + 'dy'); s.sigwait([28]); print('told', *os.get_terminal_size())\"\r"
    )
    await screen.until(rb"ready")
    await screen.handle.resize(44, 55)
    await screen.until(rb"told 55 44")
    await screen.until(rb"@ ")
    await screen.type("stty size\r")
    await screen.until(rb"44 55")
    await screen.handle.kill()


@pytest.mark.smoke
async def test_what_is_typed_is_echoed_unless_the_program_does_not_want_it(sandbox):
    handle = await python(sandbox, "import getpass; print('<', input('name: '), getpass.getpass('word: '), '>')")
    screen = Screen(handle)
    await screen.until(rb"name: ")
    await screen.type("ann\r")
    await screen.until(rb"ann\r\n")
    await screen.until(rb"word: ")
    await screen.type("secret\r")
    assert (await screen.until(rb"(.*)< ann secret >"))[1] == b"\r\n"


async def test_ctrl_c_interrupts_the_program_in_front_and_not_the_shell(sandbox):
    screen = await shell(sandbox)
    await screen.type("sleep 1000\r")
    await screen.until(rb"sleep 1000\r\n")
    # The shell has to have put it in front first: until then it is the shell's own line that is interrupted.
    for _ in range(100):
        await screen.type(CTRL_C)
        try:
            async with asyncio.timeout(0.3):
                await screen.until(rb"@ ")
            break
        except TimeoutError:
            continue
    await screen.type("echo code $?\r")
    await screen.until(rb"code 130\r\n")
    await screen.type("exit 5\r")
    assert (await screen.handle.wait()).exit_code == 5


@pytest.mark.smoke
async def test_a_signal_goes_to_the_command(sandbox):
    waits = "trap 'echo caught; exit 3' USR1; echo ready; while :; do sleep 0.05; done"
    screen = Screen(await sandbox.pty.create(command=waits))
    await screen.until(rb"ready\r\n")
    assert await screen.handle.signal(signal.SIGUSR1)
    await screen.until(rb"caught\r\n")
    assert (await screen.handle.wait()).exit_code == 3
    assert not await screen.handle.signal(signal.SIGUSR1)


async def test_ctrl_d_ends_what_reads_and_ctrl_backslash_quits(sandbox):
    screen = Screen(await sandbox.pty.create(command="cat; echo over"))
    await screen.type("line\r")
    await screen.until(rb"line\r\nline\r\n")
    await screen.type(CTRL_D)
    await screen.until(rb"over\r\n")
    assert (await screen.handle.wait()).ok
    screen = Screen(await python(sandbox, "import time; print('ready'); time.sleep(1000)"))
    await screen.until(rb"ready")
    await screen.type(CTRL_BACKSLASH)
    result = await screen.handle.wait()
    assert (result.signal, result.exit_code) == ("SIGQUIT", 131)


async def test_jobs_go_to_the_background_and_come_back(sandbox):
    screen = await shell(sandbox)
    await screen.type("sleep 1000 &\r")
    await screen.until(rb"\[1\] \d+")
    await screen.type("jobs\r")
    # With its prompt: what is typed before that is echoed in front of it.
    await screen.until(rb"\[1\]\+\s+Running\s+sleep 1000 &\r\n@ ")
    await screen.type("fg\r")
    await screen.until(rb"fg\r\nsleep 1000\r\n")
    for _ in range(100):
        await screen.type(CTRL_Z)
        try:
            async with asyncio.timeout(0.3):
                await screen.until(rb"Stopped\s+sleep 1000")
            break
        except TimeoutError:
            continue
    await screen.type("kill %1; fg; echo gone\r")
    await screen.until(rb"gone\r\n")
    await screen.handle.kill()


@pytest.mark.smoke
async def test_a_program_that_draws_can(sandbox):
    code = (
        "import curses\n"
        "def main(screen):\n"
        "    screen.addstr(3, 5, 'hello from curses'); screen.refresh()\n"
        "    key = screen.getch()\n"
        "    screen.addstr(4, 5, f'key {key} in {curses.LINES}x{curses.COLS}'); screen.refresh(); screen.getch()\n"
        "curses.wrapper(main)"
    )
    screen = Screen(await python(sandbox, code, rows=33, cols=99, term="xterm"))
    await screen.until(rb"\x1b\[4;6H.*hello from curses")
    await screen.type("k")
    await screen.until(rb"key 107 in 33x99")
    await screen.type("q")
    assert (await screen.handle.wait()).ok


@pytest.mark.smoke
async def test_a_program_that_lets_go_of_its_terminal_for_a_while_does_not_lose_it(sandbox):
    code = "exec </dev/null >/dev/null 2>&1; sleep 0.3; exec >/dev/tty; echo back"
    assert await everything(await sandbox.pty.create(command=code)) == b"back\r\n"


@pytest.mark.smoke
async def test_what_cannot_be_started_says_so_in_the_terminal(sandbox):
    handle = await sandbox.pty.create(command=["no-such-program"])
    assert b"No such file" in await everything(handle)
    assert (await handle.wait()).exit_code == 127


@pytest.mark.smoke
async def test_a_terminal_s_input_has_no_end_but_ctrl_d(executor, sandbox):
    handle = await sandbox.pty.create(command="cat")
    request = pb.CloseInputRequest(execution_id=handle.execution_id)
    with pytest.raises(PreconditionFailed) as refused:
        await sandbox._link.unary(lambda c: c.process.CloseInput, request)
    assert refused.value.reason == "IsTerminal"
    await handle.send(CTRL_D)
    assert (await handle.wait()).ok


@pytest.mark.smoke
async def test_a_command_without_a_terminal_has_none_to_resize(sandbox):
    handle = await sandbox.commands.run("sleep 1000", background=True)
    request = pb.ResizeRequest(execution_id=handle.execution_id, rows=1, cols=1)
    with pytest.raises(PreconditionFailed) as refused:
        await sandbox._link.unary(lambda c: c.process.Resize, request)
    assert refused.value.reason == "NoTerminal"
    await handle.kill()


@pytest.mark.parametrize(
    "options",
    [
        {"rows": 4097},
        {"cols": 4097},
        {"rows": 1 << 31},
        {"term": "a b"},
        {"term": "x" * 65},
        {"term": "../x"},
        {"command": []},
    ],
    ids=str,
)
async def test_a_terminal_that_cannot_be_is_refused(sandbox, options):
    with pytest.raises(InvalidArgument, match=r"^cannot "):
        await sandbox.pty.create(**options)


@pytest.mark.smoke
async def test_a_size_that_cannot_be_is_refused(sandbox):
    handle = await sandbox.pty.create(command="read x")
    for rows, cols in ((0, 80), (24, 0), (4097, 80)):
        with pytest.raises(InvalidArgument):
            await handle.resize(rows, cols)
    await handle.kill()
