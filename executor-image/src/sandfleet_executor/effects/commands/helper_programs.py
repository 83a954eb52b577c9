"""Short programs of the executor in the session, hidden from callers: they have user code's rights and limits."""

from dataclasses import dataclass

from sandfleet_executor.core.config import ExecutorConfig
from sandfleet_executor.core.executions.events import STDERR, STDOUT, Finished, Output
from sandfleet_executor.core.limits import Limits
from sandfleet_executor.core.session import bwrap
from sandfleet_executor.effects.commands.command import Command, CommandRequest
from sandfleet_executor.effects.executions.execution import Execution
from sandfleet_executor.effects.executions.meter import SessionServices
from sandfleet_executor.effects.namespace.launch import link_worker, python_of

# Of each stream: the head and the tail of more.
OUTPUT_BYTES = 4 << 20
# Modules of the worker with a `main`.
INSTALL, LOOK = "programs.install", "programs.manifest"


@dataclass(frozen=True)
class Said:
    """The end of a helper program, and its output."""

    end: Finished
    out: bytes
    err: bytes


def program(config: ExecutorConfig, module: str, *arguments: str) -> list[str]:
    """The command for `main` of a module of the worker's. It takes no module from user code."""
    parent = bwrap.WORKER_PARENT if config.isolation == "namespace" else link_worker(config.private_dir)
    name = f"{bwrap.WORKER_PACKAGE}.{module}"
    start = f"import sys; sys.path.append({parent!r}); import {name}; sys.path.pop(); {name}.main(*sys.argv[1:])"
    return [python_of(config), "-I", "-B", "-c", start, *arguments]


async def run(
    argv: list[str], session: SessionServices, envs: dict[str, str], limits: Limits, *, name: str, seconds: float
) -> Said:
    """Runs the program to its end; `name` cannot be the id of a caller's execution."""
    request = CommandRequest(
        payload=b"\0".join(part.encode() for part in argv),
        shell=False,
        cwd=b"/",
        envs=envs,
        open_stdin=False,
        merge_output=False,
        timeout=seconds,
        traceparent=None,
        memory_limit=limits.memory_bytes,
        disk_limit=limits.disk_bytes,
    )
    execution = Execution(name, OUTPUT_BYTES)
    await Command(execution, request, session).run()
    end = execution.finished
    if end is None:
        raise AssertionError(f"{name} has no end")
    written = {STDOUT: b"", STDERR: b""}
    async for batch in execution.batches():
        for _, event in batch:
            if isinstance(event, Output):
                written[event.stream] += event.data
    return Said(end, written[STDOUT], written[STDERR])
