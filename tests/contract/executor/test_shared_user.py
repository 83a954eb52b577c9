"""Without root all sandboxes are one user to the kernel: what one of them uses up, the others still have."""

import pytest
from contract.executor.terminals import everything
from sandfleet import Outcome

# As root each sandbox has a user of its own, and in pods each has a kernel of its own.
pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.needs("a user shared with other sandboxes")]

# Descriptors on their way through sockets, until the kernel lets no more be sent.
IN_FLIGHT = """
import errno, os, socket, time
held, null = [], os.open('/dev/null', os.O_RDONLY)
try:
    for number in range(200):
        held.append(socket.socketpair())
        for _ in range(200): socket.send_fds(held[-1][0], [b'x'], [null], socket.MSG_DONTWAIT)
except BlockingIOError: pass
except OSError as error:
    print(errno.errorcode[error.errno], flush=True)
time.sleep(600)
"""
SENDS = """
import errno, socket
ours, theirs = socket.socketpair()
try:
    socket.send_fds(ours, [b'x'], [0])
    print('sent')
except OSError as error: print(errno.errorcode[error.errno])
"""


@pytest.mark.attack("uses up the descriptors in flight of its user", "other sandboxes work", control="in it")
async def test_descriptors_in_flight_of_one_sandbox_do_not_stop_the_executor_of_another(executor, starting):
    async with starting() as other:
        running = await executor.sandbox.commands.run(["python3", "-c", IN_FLIGHT], background=True, timeout=300)
        async for event in running:
            assert "ETOOMANYREFS" in str(event), event
            break
        # Control: a program of the other one's cannot send any more.
        result = await other.sandbox.commands.run(["python3", "-c", SENDS])
        assert (result.outcome, result.stdout) == (Outcome.OK, "ETOOMANYREFS\n")
        assert await everything(await other.sandbox.pty.create(command="echo $((40 + 2))")) == b"42\r\n"
        await other.sandbox.create_context("new")
        assert (await other.sandbox.run_code("1 + 1", context="new")).text == "2"
        await running.kill()


# Instances of inotify, until the kernel gives no more.
WATCHERS = """
import ctypes, errno, time
libc, count = ctypes.CDLL(None, use_errno=True), 0
while libc.inotify_init1(0) >= 0: count += 1
print(errno.errorcode[ctypes.get_errno()], count, flush=True)
time.sleep(600)
"""
WATCHES = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
print('watches' if libc.inotify_init1(0) >= 0 else errno.errorcode[ctypes.get_errno()])
"""
RAISES = "echo 4096 > /proc/sys/user/max_inotify_instances"


async def watching(sandbox):
    """A program that has all instances of inotify that it gets, and what it says: an error, and how many."""
    running = await sandbox.commands.run(["python3", "-c", WATCHERS], background=True, timeout=300)
    async for event in running:
        return running, event.text.split()
    raise AssertionError("it says nothing")


@pytest.mark.attack("uses up the inotify instances of its user", "other sandboxes watch files")
async def test_inotify_of_one_sandbox_does_not_stop_that_of_another(executor, starting):
    # More than its share is not to be had for its code.
    assert (await executor.sandbox.commands.run(RAISES)).exit_code != 0
    running, (error, count) = await watching(executor.sandbox)
    assert (error, int(count) <= 16) == ("EMFILE", True)
    async with starting() as other:
        result = await other.sandbox.commands.run(["python3", "-c", WATCHES])
        assert (result.outcome, result.stdout) == (Outcome.OK, "watches\n")
        await other.sandbox.files.write("seen.txt", "x")
        changed = await other.sandbox.run_code("open('made.txt', 'w').close()")
        assert (changed.files.created, changed.files.complete) == (("made.txt",), True)
    await running.kill()


@pytest.mark.control("uses up the inotify instances of its user")
async def test_control_without_a_session_one_program_takes_them_from_all(unprotected, starting):
    async with starting() as other:
        running, _ = await watching(unprotected.sandbox)
        result = await other.sandbox.commands.run(["python3", "-c", WATCHES])
        assert (result.outcome, result.stdout) == (Outcome.OK, "EMFILE\n")
        await running.kill()
