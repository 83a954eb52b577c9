"""Commands: the first byte, and a flood."""

import subprocess
import threading
import time
from collections.abc import Iterator

from figures import Figure, progress, quantile
from processes import executors, memory
from sandfleet import Sandbox

RUNS = 60
FLOOD = 1 << 30


def figures() -> Iterator[Figure]:
    progress("first output byte of a command")
    with Sandbox.create() as sandbox:
        ours = [first_byte(sandbox) for _ in range(RUNS)]
        theirs = [first_byte_locally() for _ in range(RUNS)]
        note = "beside a subprocess of this machine"
        yield Figure("first byte of a command, p50", quantile(ours, 0.5), "ms", quantile(theirs, 0.5), note)
    progress("a flood of 1 GiB, read to its end")
    yield from flood()


def first_byte(sandbox: Sandbox) -> float:
    """Milliseconds."""
    came: list[float] = []
    start = time.perf_counter()
    sandbox.commands.run(["/bin/echo", "x"], on_stdout=lambda _: came.append(time.perf_counter()))
    return (came[0] - start) * 1e3


def first_byte_locally() -> float:
    start = time.perf_counter()
    with subprocess.Popen(["/bin/echo", "x"], stdout=subprocess.PIPE) as process:
        process.stdout.read(1)
        elapsed = time.perf_counter() - start
    return elapsed * 1e3


def flood() -> Iterator[Figure]:
    command = f"head -c {FLOOD} /dev/zero"
    with Sandbox.create() as sandbox:
        before = set(executors())
        highest = {pid: memory(pid, "Rss") for pid in before}
        start_memory = dict(highest)
        done = threading.Event()

        def watch() -> None:
            while not done.wait(0.05):
                for pid in before:
                    highest[pid] = max(highest[pid], memory(pid, "Rss"))

        watcher = threading.Thread(target=watch)
        watcher.start()
        start = time.perf_counter()
        try:
            received = sum(len(chunk) for chunk in stream(sandbox, command))
        finally:
            done.set()
            watcher.join()
        seconds = time.perf_counter() - start
    assert received == FLOOD, received
    note = "beside a pipe of this machine; ≥ 60 MB/s"
    yield Figure("output of one stream", FLOOD / 1e6 / seconds, "MB/s", pipe_speed(command), note)
    growth = max(highest[pid] - start_memory[pid] for pid in before)
    yield Figure("executor memory growth in the flood", growth / 1e6, "MB", note="flat: a few windows of 4 MB")


def stream(sandbox: Sandbox, command: str) -> Iterator[bytes]:
    for chunk in sandbox.commands.run(command, background=True, output_limit=2 * FLOOD):
        yield chunk.data


def pipe_speed(command: str) -> float:
    start = time.perf_counter()
    with subprocess.Popen(command, shell=True, stdout=subprocess.PIPE) as process:
        while process.stdout.read(1 << 18):
            pass
    return FLOOD / 1e6 / (time.perf_counter() - start)
