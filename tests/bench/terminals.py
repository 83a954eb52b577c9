"""A terminal in a sandbox beside one of this machine."""

import asyncio
import os
import pty
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator

from figures import Figure, progress, quantile
from sandfleet import AsyncSandbox

KEYS, ROUNDS = 300, 10
FLOOD = 64 << 20
# The terminal itself echoes; the program only keeps it open.
QUIET = ["python3", "-c", "import time; print('ready', flush=True); time.sleep(1e6)"]
DIRECT = "beside a terminal of this machine"


def figures() -> Iterator[Figure]:
    progress("the echo of a key in a terminal")
    yield from asyncio.run(measure(AsyncSandbox.create))


async def measure(create: Callable[[], Awaitable[AsyncSandbox]]) -> list[Figure]:
    """Keys in a sandbox and here, and how fast a terminal shows what is written."""
    master, process = start_locally(QUIET)
    os.read(master, 100)
    ours, theirs = [], []
    async with await create() as sandbox:
        handle = await sandbox.pty.create(command=QUIET)
        await anext(handle)
        # By turns, so that both see the same noise.
        for _ in range(ROUNDS):
            for _ in range(KEYS // ROUNDS):
                start = time.perf_counter()
                await handle.send(b"k")
                await anext(handle)
                ours.append((time.perf_counter() - start) * 1e3)
            theirs += [echo_locally(master) for _ in range(KEYS // ROUNDS)]
        await handle.kill()
        start = time.perf_counter()
        handle = await sandbox.pty.create(command=f"stty raw; head -c {FLOOD} /dev/zero")
        received = 0
        async for data in handle:
            received += len(data)
        assert received == FLOOD, received
        speed = FLOOD / 1e6 / (time.perf_counter() - start)
    process.kill()
    process.wait()
    os.close(master)
    echoes = [
        Figure(f"echo of a key, p{share * 100:g}", quantile(ours, share), "ms", quantile(theirs, share), DIRECT)
        for share in (0.5, 0.99)
    ]
    return [*echoes, Figure("output of a terminal", speed, "MB/s", flood_locally(), DIRECT)]


def start_locally(command: list[str]) -> tuple[int, subprocess.Popen[bytes]]:
    master, slave = pty.openpty()
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
    os.close(slave)
    return master, process


def echo_locally(master: int) -> float:
    start = time.perf_counter()
    os.write(master, b"k")
    os.read(master, 100)
    return (time.perf_counter() - start) * 1e3


def flood_locally() -> float:
    start = time.perf_counter()
    master, process = start_locally(["sh", "-c", f"stty raw; head -c {FLOOD} /dev/zero"])
    left = FLOOD
    while left > 0:
        left -= len(os.read(master, 1 << 18))
    seconds = time.perf_counter() - start
    process.wait()
    os.close(master)
    return FLOOD / 1e6 / seconds
