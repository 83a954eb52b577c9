"""What a client and an idle sandbox weigh."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

from figures import Figure, progress
from processes import descendants, executors, memory
from sandfleet import Sandbox

RUNS = 7
IMPORT = "import time; t = time.process_time(); {}; print(time.process_time() - t)"
CLIENT = "from sandfleet import Sandbox"


def figures() -> Iterator[Figure]:
    progress("import of the client")
    bare = import_seconds("import grpc, google.protobuf.message")
    yield Figure(
        "client import, CPU", import_seconds(CLIENT) * 1e3, "ms", bare * 1e3, "beside grpc and protobuf; ≤ 120 ms"
    )
    progress("an idle sandbox")
    with Sandbox.create() as sandbox:
        sandbox.run_code("1")
        executor = max(executors())
        tree = descendants(executor)
        resident = sum(memory(pid, "Rss") for pid in tree)
        proportional = sum(memory(pid) for pid in tree)
    bare_python = memory_of_python()
    note = "all its processes, shared pages once (PSS); beside a bare python; ≤ 150 MB"
    yield Figure("idle sandbox", proportional / 1e6, "MB", bare_python / 1e6, note)
    yield Figure(
        "idle sandbox, RSS summed", resident / 1e6, "MB", bare_python / 1e6, "the same with shared pages counted often"
    )


def import_seconds(statement: str) -> float:
    """CPU seconds, the least of some runs."""
    command = [sys.executable, "-c", IMPORT.format(statement)]
    return min(float(subprocess.run(command, capture_output=True, check=True).stdout) for _ in range(RUNS))


def memory_of_python() -> int:
    code = "import sys; print('ready', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        return memory(process.pid)


def environment() -> str:
    """The machine, for later readers of the figures."""
    return json.dumps({"cores": os.cpu_count(), "kernel": os.uname().release, "load": os.getloadavg()[0]})
