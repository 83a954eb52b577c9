"""Has a short program look at what is installed, in the session and with its rights: the folder of packages is the user's."""

from sandfleet_executor.core import bwrap, manifest
from sandfleet_executor.core.config import Limits
from sandfleet_executor.core.events import STDOUT, Output
from sandfleet_executor.core.manifest import Manifest
from sandfleet_executor.effects.accounting import Surroundings
from sandfleet_executor.effects.commands import Command, CommandRequest
from sandfleet_executor.effects.execution import Execution
from sandfleet_executor.effects.launch import link_worker, this_host
from sandfleet_executor.effects.session import Session

OUTPUT_BYTES = 4 << 20
SECONDS = 15.0


async def look(session: Session) -> Manifest:
    """Raises BadManifest where it cannot be looked at."""
    config, envs = session.config, session.environment({})
    contained = config.isolation == "namespace"
    parent = bwrap.WORKER_PARENT if contained else link_worker(config.private_dir)
    module = f"{bwrap.WORKER_PACKAGE}.manifest"
    start = f"import sys; sys.path.append({parent!r}); import {module}; sys.path.pop(); {module}.main(sys.argv[1])"
    folder = f"{session.workdir}/{bwrap.PACKAGES}"
    argv = [this_host().python, "-I", "-B", "-c", start, folder]
    said = await output_of(argv, session.around, envs, session.limits)
    return manifest.parse(said, {name: envs[name] for name in bwrap.FIXED if name in envs})


async def output_of(argv: list[str], around: Surroundings, envs: dict[str, str], limits: Limits) -> bytes:
    """Of a command that nobody sees. Raises BadManifest unless it ends well."""
    request = CommandRequest(
        payload=b"\0".join(part.encode() for part in argv),
        shell=False,
        cwd=b"/",
        envs=envs,
        open_stdin=False,
        merge_output=False,
        timeout=SECONDS,
        traceparent=None,
        memory_limit=limits.memory_bytes,
        disk_limit=limits.disk_bytes,
    )
    execution = Execution("environment", OUTPUT_BYTES)
    await Command(execution, request, around).run()
    end = execution.finished
    if end is None or end.outcome != "ok":
        raise manifest.BadManifest(f"cannot look at what is installed: {end.message if end else 'it did not end'}")
    said = b""
    async for batch in execution.batches():
        said += b"".join(event.data for _, event in batch if isinstance(event, Output) and event.stream == STDOUT)
    return said
