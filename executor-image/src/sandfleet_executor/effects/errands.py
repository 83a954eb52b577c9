"""Short programs of the worker's in the session, that nobody sees: they have user code's rights, and its limits."""

from dataclasses import dataclass

from sandfleet_executor.core import bwrap
from sandfleet_executor.core.config import ExecutorConfig, Limits
from sandfleet_executor.core.events import STDERR, STDOUT, Finished, Output
from sandfleet_executor.effects.accounting import Surroundings
from sandfleet_executor.effects.commands import Command, CommandRequest
from sandfleet_executor.effects.execution import Execution
from sandfleet_executor.effects.launch import link_worker, this_host

# Of each stream: the head and the tail of more.
OUTPUT_BYTES = 4 << 20


@dataclass(frozen=True)
class Said:
    """How it ended, and what it wrote."""

    end: Finished
    out: bytes
    err: bytes


def program(config: ExecutorConfig, module: str, *arguments: str) -> list[str]:
    """The command for `main` of a module of the worker's. It takes no module from user code."""
    parent = bwrap.WORKER_PARENT if config.isolation == "namespace" else link_worker(config.private_dir)
    name = f"{bwrap.WORKER_PACKAGE}.{module}"
    start = f"import sys; sys.path.append({parent!r}); import {name}; sys.path.pop(); {name}.main(*sys.argv[1:])"
    return [this_host().python, "-I", "-B", "-c", start, *arguments]


async def run(
    argv: list[str], around: Surroundings, envs: dict[str, str], limits: Limits, *, name: str, seconds: float
) -> Said:
    """Takes it to its end; `name` is of no execution that anybody can ask for."""
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
    await Command(execution, request, around).run()
    end = execution.finished
    if end is None:
        raise AssertionError(f"{name} has no end")
    written = {STDOUT: b"", STDERR: b""}
    async for batch in execution.batches():
        for _, event in batch:
            if isinstance(event, Output):
                written[event.stream] += event.data
    return Said(end, written[STDOUT], written[STDERR])
