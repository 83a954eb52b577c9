"""Without root all sandboxes are one user to the kernel: what one of them uses up, the others still have."""

import pytest
from contract.executor.terminals import everything
from sandfleet import Outcome

pytestmark = pytest.mark.asyncio(loop_scope="session")

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
async def test_descriptors_in_flight_of_one_sandbox_do_not_stop_the_executor_of_another(host, executor, starting):
    if "own uid" in host.traits:
        pytest.skip("needs sandboxes of one user, which this set-up has not")
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
