"""A long execution whose connection is cut again and again, then one whose executor is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import struct
import sys
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from sandfleet._fleets.fleet import AsyncFleet
from sandfleet._wire.link import Link
from sandfleet.cli import table
from sandfleet.errors import SandfleetError
from sandfleet.sandbox import AsyncSandbox
from sandfleet.values.execution import Outcome
from sandfleet.values.sandbox import SandboxInfo
from sandfleet.values.suspension import Suspension
from sandfleet.values.tools import Decision

from shows.cutting import Cutter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sandfleet._wire import api
    from sandfleet.journal.heads import SignedHead
    from sandfleet.values.execution import Execution

_STEPS = 60
_CUT_EVERY = 5
_KILL_AT = 30
_RPC_TIMEOUT = 30.0
# Shows a number a step, and notes in the workspace that the step ran.
_CODE = """
import time
for step in range(1, {steps} + 1):
    with open({ledger!r}, "a") as file:
        file.write(f"{{step}}\\n")
    print(step, flush=True)
    time.sleep(0.1)
"""


@dataclass(slots=True)
class Told:
    """What the show found; the numbers of the second part are of the execution whose executor was killed."""

    steps: int = 0
    connections: int = 0
    complete: bool = False
    each_once: bool = False
    lost_reason: str = ""
    shown_before_the_kill: int = 0
    kept: bool = False
    ran_again: bool = True

    @property
    def well(self) -> bool:
        """Whether all of it is as it should be."""
        return self.complete and self.each_once and self.kept and not self.ran_again


def main(*, as_json: bool) -> int:
    """Run the show. Returns 0 when nothing was lost or run twice, 1 otherwise."""
    told = asyncio.run(_Show(quiet=as_json).run())
    if as_json:
        print(json.dumps({**asdict(told), "well": told.well}, indent=2))
    return 0 if told.well else 1


class _Detour:
    """The fleet, but each executor is reached through a cutter."""

    def __init__(self, fleet: AsyncFleet, stack: AsyncExitStack) -> None:
        self._fleet = fleet
        self._stack = stack
        self._cutters: dict[str, Cutter] = {}

    @property
    def connections(self) -> int:
        return sum(cutter.connections for cutter in self._cutters.values())

    def cut(self) -> None:
        for cutter in self._cutters.values():
            cutter.cut()

    async def around(self, access: api.fleet.Access) -> api.fleet.Access:
        cutter = self._cutters.get(access.address)
        if cutter is None:
            cutter = self._cutters[access.address] = await self._stack.enter_async_context(Cutter(access.address))
        access.address = cutter.address
        return access

    async def access(self, sandbox_id: str, *, wait: float) -> tuple[api.fleet.Sandbox, api.fleet.Access]:
        sandbox, access = await self._fleet.access(sandbox_id, wait=wait)
        return sandbox, await self.around(access)

    async def wake(self, sandbox_id: str, *, wait: float) -> tuple[api.fleet.Sandbox, api.fleet.Access]:
        sandbox, access = await self._fleet.wake(sandbox_id, wait=wait)
        return sandbox, await self.around(access)

    async def renew(self, sandbox_id: str, lease: float | None) -> tuple[api.fleet.Sandbox, api.fleet.Access]:
        sandbox, access = await self._fleet.renew(sandbox_id, lease)
        return sandbox, await self.around(access)

    async def get(self, sandbox_id: str) -> SandboxInfo:
        return await self._fleet.get(sandbox_id)

    async def release(self, sandbox_id: str, *, unless_suspended: bool = False) -> bool:
        return await self._fleet.release(sandbox_id, unless_suspended=unless_suspended)

    async def suspend(
        self, sandbox_id: str, *, force: bool, timeout: float | None, to: Literal["volume", "snapshot"]
    ) -> Suspension:
        return await self._fleet.suspend(sandbox_id, force=force, timeout=timeout, to=to)

    async def note_received(self, sandbox_id: str, marks: Sequence[str]) -> frozenset[str]:
        return await self._fleet.note_received(sandbox_id, marks)

    async def sign_journal(self, sandbox_id: str) -> Sequence[SignedHead]:
        return await self._fleet.sign_journal(sandbox_id)

    async def review_call(self, request: api.fleet.ReviewCallRequest) -> Decision:
        return await self._fleet.review_call(request)

    def relay(self, sandbox_id: str, access: api.fleet.Access) -> None:
        """None: the cutters are the way."""


class _Show:
    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        live = not table.is_plain(sys.stdout)
        self._red, self._green, self._plain = ("\x1b[31m", "\x1b[32m", "\x1b[0m") if live else ("", "", "")
        self._told = Told(steps=_STEPS)

    async def run(self) -> Told:
        async with AsyncExitStack() as stack:
            fleet = await stack.enter_async_context(await AsyncFleet.connect())
            claimed = await stack.enter_async_context(await AsyncSandbox.create(fleet=fleet))
            sandbox, access = await fleet.access(claimed.sandbox_id, wait=_RPC_TIMEOUT)
            address = access.address
            if not address.startswith("unix:"):
                raise SandfleetError("cannot show this on a cluster: it kills an executor of this machine")
            detour = _Detour(fleet, stack)
            link = Link(detour, sandbox, await detour.around(access), rpc_timeout=_RPC_TIMEOUT)
            seen = AsyncSandbox(link, lease=None, bound=None, keep_alive=None)
            stack.push_async_callback(seen.close)
            await self._cut(seen, detour)
            await self._kill(seen, address)
        return self._told

    async def _cut(self, sandbox: AsyncSandbox, detour: _Detour) -> None:
        self._say(f"One execution of {_STEPS} steps. Its connection is cut after every {_CUT_EVERY} of them:\n")

        def hear(text: str) -> None:
            for number in text.split():
                self._say(f"{number} ")
                if int(number) % _CUT_EVERY == 0 and int(number) < _STEPS:
                    self._say(f"{self._red}✂{self._plain} ")
                    detour.cut()

        execution = await self._ran(sandbox, "cut", hear)
        told = self._told
        told.connections = detour.connections
        told.complete = execution.ok and execution.logs.stdout == _numbers(_STEPS)
        told.each_once = await sandbox.files.read("cut") == _numbers(_STEPS)
        self._judge(
            f"{execution.outcome}: complete over {told.connections} connections, every step ran once", told.complete
        )

    async def _kill(self, sandbox: AsyncSandbox, address: str) -> None:
        self._say(f"\nAnother one. Its executor is killed at step {_KILL_AT}:\n")

        def hear(text: str) -> None:
            for number in text.split():
                self._say(f"{number} ")
                if int(number) == _KILL_AT:
                    self._say(f"{self._red}☠{self._plain} ")
                    os.kill(_listener(address), signal.SIGKILL)

        execution = await self._ran(sandbox, "killed", hear)
        told = self._told
        told.lost_reason = execution.reason
        told.shown_before_the_kill = len(execution.logs.stdout.split())
        told.kept = execution.outcome is Outcome.LOST and told.shown_before_the_kill >= _KILL_AT
        self._judge(f"{execution.outcome} ({execution.reason}), and what it showed is kept", told.kept)
        ran = await sandbox.files.read("killed")
        again = await self._ran(sandbox, "killed", lambda _: None)
        told.ran_again = await sandbox.files.read("killed") != ran or again.logs != execution.logs
        self._judge("asked for again under its id: the same answer, and no step ran again", not told.ran_again)

    @staticmethod
    async def _ran(sandbox: AsyncSandbox, name: str, hear: Callable[[str], None]) -> Execution:
        code = _CODE.format(steps=_STEPS, ledger=name)
        return await sandbox.run_code(code, execution_id=f"demo-{name}", on_stdout=hear, timeout=60)

    def _judge(self, text: str, well: bool) -> None:
        mark = f"{self._green}✔{self._plain}" if well else f"{self._red}✘{self._plain}"
        self._say(f"\n{mark} {text}\n")

    def _say(self, text: str) -> None:
        if not self._quiet:
            sys.stdout.write(text)
            sys.stdout.flush()


def _numbers(count: int) -> str:
    return "".join(f"{number}\n" for number in range(1, count + 1))


def _listener(address: str) -> int:
    """The pid of the process that serves a unix socket."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(address.removeprefix("unix:"))
        credentials = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[0])
