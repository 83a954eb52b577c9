"""A host of tools in a process of its own that keeps its calls in a file, and kills itself at one moment of a call.

`python kept_host.py FILE LOG MOMENT` is told the executor on its standard input. Each run of a tool adds a line to LOG.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path

from contract.executor.harness import ExecutorUnderTest
from sandfleet import Decision, ToolLimits, tool
from sandfleet.tools.calls_file import CallsFile

NEVER, RECEIVED, RUNNING, FINISHED = MOMENTS = ("never", "received", "running", "finished")
LIMIT = 5


def tools_of(log, die=lambda: None):
    """Two tools that write into the log, the second one idempotent, and one that a cell may call twice."""

    def pay(amount: float) -> str:
        with Path(log).open("a") as file:
            file.write("pay\n")
        die()
        return f"paid {amount:g}"

    def look(key: bytes) -> bytes:
        with Path(log).open("a") as file:
            file.write("look\n")
        die()
        return key[::-1]

    def twice() -> str:
        return "looked"

    limits = ToolLimits(calls_per_session=LIMIT, budget=100)
    return [
        tool(pay, limits=limits, cost=lambda given: given["amount"]),
        tool(look, idempotent=True),
        tool(twice, limits=ToolLimits(calls_per_execution=2)),
    ]


@contextlib.asynccontextmanager
async def kept_host(executor, file, log, moment):
    """The process, as soon as it serves."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        __file__,
        str(file),
        str(log),
        moment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    said = {"config": executor.config, "ca": executor.ca.decode(), "token": executor.token()}
    process.stdin.write(json.dumps(said).encode() + b"\n")
    try:
        assert await process.stdout.readline() == b"serving\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def kill_myself():
    os.kill(os.getpid(), signal.SIGKILL)


async def main():
    file, log, moment = sys.argv[1:]
    said = json.loads(sys.stdin.readline())
    client = ExecutorUnderTest(None, said["config"], ca=said["ca"].encode()).client(token=said["token"])
    written = CallsFile.finished

    async def finished(self, call_id, answer):
        await written(self, call_id, answer)
        if moment == FINISHED:
            kill_myself()

    def policy(_call, _session):
        if moment == RECEIVED:
            kill_myself()
        return Decision(allowed=True)

    CallsFile.finished = finished
    offered = tools_of(log, kill_myself if moment == RUNNING else lambda: None)
    await client.serve_tools(offered, policy=policy, calls_file=file)
    print("serving", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
