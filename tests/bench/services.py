"""Services: from the start of a server until it is known to be ready."""

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator

from figures import Figure, progress, quantile
from sandfleet import AsyncSandbox, tcp

RUNS = 20
PORT = 18765
SERVER = f"import socket, time; s = socket.create_server(('127.0.0.1', {PORT})); time.sleep(1e6)"
OPTIONS = ["-S", "-c", SERVER]
POLL_SECONDS = 0.001


def figures() -> Iterator[Figure]:
    progress("a service from its start until it is ready")
    yield from asyncio.run(measure(AsyncSandbox.create))


async def measure(create: Callable[[], Awaitable[AsyncSandbox]]) -> list[Figure]:
    ours, theirs = [], []
    async with await create() as sandbox:
        # By turns, so that both see the same noise.
        for _ in range(RUNS):
            ours.append(await ready(sandbox))
            theirs.append(ready_locally())
    note = "beside a subprocess of this machine and a client that tries its port every millisecond"
    return [Figure("service started to ready (tcp), p50", quantile(ours, 0.5), "ms", quantile(theirs, 0.5), note)]


async def ready(sandbox: AsyncSandbox) -> float:
    """Milliseconds."""
    start = time.perf_counter()
    await sandbox.services.start("server", ["python3", *OPTIONS], ready=tcp(PORT), grace=0.0)
    await sandbox.services.wait_ready("server")
    taken = (time.perf_counter() - start) * 1e3
    await sandbox.services.stop("server")
    return taken


def ready_locally() -> float:
    start = time.perf_counter()
    with subprocess.Popen([sys.executable, *OPTIONS]) as process:
        try:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", PORT), timeout=1).close()
                except ConnectionRefusedError:
                    time.sleep(POLL_SECONDS)
                else:
                    return (time.perf_counter() - start) * 1e3
        finally:
            process.kill()
