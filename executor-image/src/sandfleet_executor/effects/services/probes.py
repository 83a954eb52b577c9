"""Probes whether a service is ready or alive, in the session's own network. The answers are hostile."""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from sandfleet_executor.core.services import http
from sandfleet_executor.core.services.exits import judge
from sandfleet_executor.core.services.spec import Exec, Http, Probe, Tcp
from sandfleet_executor.effects.namespace.children import NamespaceError
from sandfleet_executor.effects.namespace.namespace import Namespace
from sandfleet_executor.effects.services.process import Program, Start

MAX_SAID = 200


@dataclass(frozen=True)
class Target:
    """The service: where it runs, and what a command that probes it starts with."""

    namespace: Namespace
    program: Program
    cwd: bytes
    envs: dict[str, str]
    # For programs that are ended after a probe.
    spawn: Callable[[Coroutine[Any, Any, None]], object]


async def trouble(probe: Probe, target: Target, *, owned: bool) -> str:
    """Why the probe fails; empty where it passes. `owned`: the service itself has to listen on the port."""
    try:
        async with asyncio.timeout(probe.timeout):
            found = await _check(probe, target)
            return found or (await _foreign(probe.check, target) if owned else "")
    except TimeoutError:
        return f"{_named(probe.check)} gives no answer within {probe.timeout:g} s"
    except (NamespaceError, OSError) as error:
        return str(error)


async def _check(probe: Probe, target: Target) -> str:
    match probe.check:
        case Tcp(port):
            with await _connected(target, port, probe.timeout):
                return ""
        case Http() as check:
            with await _connected(target, check.port, probe.timeout) as sock:
                return http.trouble(check, await _asked(sock, http.question(check)))
        case Exec() as check:
            return await _run(check, target)


async def _connected(target: Target, port: int, seconds: float) -> socket.socket:
    """Raises NamespaceError, ConnectionError."""
    made = await target.namespace.connect(port, seconds)
    if isinstance(made, socket.socket):
        return made
    raise ConnectionError(f"cannot connect to port {port}: {made.get('message', '')}")


async def _asked(sock: socket.socket, question: bytes) -> bytes:
    """As much of the answer as says something."""
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(sock, question)
    answer = b""
    while not http.is_whole(answer) and (piece := await loop.sock_recv(sock, http.MAX_LINE)):
        answer += piece
    return answer


async def _foreign(check: Tcp | Http | Exec, target: Target) -> str:
    """Whether another process answers on the service's port."""
    if isinstance(check, Exec):
        return ""
    ports, known = (await target.namespace.ports([target.program.root])).get(target.program.root, ([], False))
    if check.port in ports or not known:
        return ""
    return f"port {check.port} is open, but it is no process of this service that listens there"


async def _run(check: Exec, target: Target) -> str:
    said = bytearray()

    def hear(data: bytes) -> None:
        said.extend(data[: MAX_SAID - len(said)])

    program = Program(hear)
    try:
        start = Start(check.payload, check.shell, target.cwd, target.envs)
        await program.start(target.namespace, start, lasting=False)
        # Shielded: a probe that is late ends its program, not what waits for the program's end.
        ended = await asyncio.shield(program.ended)
        program.drain()
    finally:
        target.spawn(program.close())
    if not ended.code:
        return ""
    why = judge(ended, 0, 0.0).message.removeprefix("it ").partition(",")[0]
    text = bytes(said).decode(errors="replace").strip().partition("\n")[0]
    return f"the command that probes it {why}" + (f": {text}" if text else "")


def _named(check: Tcp | Http | Exec) -> str:
    return "the command that probes it" if isinstance(check, Exec) else f"port {check.port}"
