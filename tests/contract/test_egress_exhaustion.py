"""Ten thousand connections of one session, at an egress process of its own with the bounds that it has in earnest."""

import asyncio
import contextlib
import json
import os
import resource
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sandfleet_operator.fleet.egress.sessions import Bounds
from support.operator.egress_bed import Server, serving

CONNECTIONS, AT_ONCE = 10_000, 50
# Descriptors of this process and of the egress process, where it is not bounded: the connections, and some to spare.
DESCRIPTORS = CONNECTIONS + 1_000
SESSIONS = ("one", "other")
# Bytes of memory.
LITTLE = 16 << 20
# The process, with other bounds.
UNBOUNDED = """
import functools, sys
from sandfleet_operator.fleet.egress import serve
serve.Bounds = functools.partial(serve.Bounds, **BOUNDS)
sys.exit(serve.main())
"""


@dataclass
class EgressProcess:
    pid: int
    # At which an executor hands the listener of its session over.
    path: Path

    @property
    def memory(self) -> int:
        """What it has resident."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    @property
    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    @contextlib.contextmanager
    def session(self, name: str) -> Iterator[tuple[str, int]]:
        """The address of its proxy."""
        with socket.socket(socket.AF_UNIX) as control, socket.create_server(("127.0.0.1", 0)) as listener:
            control.connect(str(self.path))
            socket.send_fds(control, [json.dumps({"session": name}).encode() + b"\n"], [listener.fileno()])
            yield listener.getsockname()


@contextlib.asynccontextmanager
async def egress_process(folder: Path, port: int, **bounds: int) -> AsyncIterator[EgressProcess]:
    """Its sessions may reach a.test at this port."""
    path = folder / "egress.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        code = UNBOUNDED.replace("BOUNDS", repr(bounds))
        words = [sys.executable, "-c", code, "--listen-fd", str(listener.fileno()), "--host", "a.test=127.0.0.1"]
        process = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, pass_fds=[listener.fileno()]
        )
    assert process.stdin
    assert process.stdout
    await process.stdout.readline()
    for name in SESSIONS:
        allow = {"op": "allow", "session": name, "names": [f"a.test:{port}"]}
        process.stdin.write(json.dumps(allow).encode() + b"\n")
    process.stdin.write(b'{"op":"serve"}\n')
    # Its reports are of no interest here, and would fill the pipe.
    reading = asyncio.ensure_future(process.stdout.read())
    try:
        yield EgressProcess(process.pid, path)
    finally:
        process.stdin.close()
        await process.wait()
        await reading


async def served(proxy: tuple[str, int], port: int) -> bool:
    """Whether a request of the session goes through."""
    try:
        reader, writer = await asyncio.open_connection(*proxy)
        writer.write(f"GET http://a.test:{port}/ HTTP/1.1\r\nHost: a.test:{port}\r\nConnection: close\r\n\r\n".encode())
        answer = await asyncio.wait_for(reader.read(), 60)
    except OSError:
        return False
    writer.close()
    return answer.startswith(b"HTTP/1.1 200 ")


@contextlib.contextmanager
def descriptors(count: int) -> Iterator[None]:
    """This process, and those that it starts, may open so many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@dataclass(frozen=True)
class Flood:
    # Requests of the other session that went through, of those that were tried.
    served: int
    tried: int
    # What the egress process has more than before.
    memory: int
    descriptors: int


async def flood(**bounds: int) -> Flood:
    """One session opens all of its connections, of which none says anything. The other asks for a page meanwhile."""
    async with contextlib.AsyncExitStack() as stack:
        port = await stack.enter_async_context(serving(Server()))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="sf-", dir="/tmp"))
        stack.enter_context(descriptors(DESCRIPTORS))
        process = await stack.enter_async_context(egress_process(Path(folder), port, **bounds))
        one, other = (stack.enter_context(process.session(name)) for name in SESSIONS)
        assert await served(other, port)
        memory, count, answers = process.memory, process.descriptors, []
        for _ in range(CONNECTIONS // AT_ONCE):
            for _ in range(AT_ONCE):
                stack.enter_context(socket.create_connection(one))
            answers.append(await served(other, port))
        return Flood(sum(answers), len(answers), process.memory - memory, process.descriptors - count)


enough = pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_NOFILE)[1] < DESCRIPTORS,
    reason=f"a process may open fewer than {DESCRIPTORS} files here (ulimit -Hn)",
)


@enough
@pytest.mark.attack("opens ten thousand connections to its proxy", "others are served, and memory stays")
async def test_ten_thousand_connections_of_one_session_cost_others_nothing() -> None:
    found = await flood()
    assert found.served == found.tried
    assert found.memory < LITTLE
    assert found.descriptors <= Bounds().per_session + 2 * AT_ONCE


@enough
@pytest.mark.control("opens ten thousand connections to its proxy")
async def test_without_a_bound_of_a_session_the_others_are_not_served() -> None:
    found = await flood(per_session=2 * CONNECTIONS)
    assert found.served < found.tried


@enough
@pytest.mark.control("opens ten thousand connections to its proxy")
async def test_without_any_bound_each_connection_takes_memory_and_a_descriptor() -> None:
    found = await flood(per_session=2 * CONNECTIONS, connections=2 * CONNECTIONS)
    assert found.memory > 2 * LITTLE
    # Those that were accepted last may be missing.
    assert found.descriptors >= CONNECTIONS - AT_ONCE
