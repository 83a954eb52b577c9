"""The sandbox of a kernel: claimed at the first cell, kept when the kernel restarts, ended when it is shut down."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sandfleet import AsyncSandbox
from sandfleet.errors import FileError, NotFoundError, SandboxEnded, SandfleetError

# A kernel that dies without a word leaves its sandbox for so long, in seconds.
LEASE = 600.0
_MOST_RECORD = 4096


class Seat:
    """`claim` makes a sandbox that stays, and returns its id; it blocks. `file` names the sandbox for a restart.

    `folder` is copied into the workspace of a sandbox that was just claimed.
    """

    def __init__(self, claim: Callable[[], str], file: Path, folder: Path | None = None) -> None:
        self._claim = claim
        self._file = file
        self._folder = folder
        self._lock = asyncio.Lock()
        self._sandbox: AsyncSandbox | None = None

    async def sandbox(self) -> AsyncSandbox:
        """Return the sandbox, claimed if there is none. Raises SandfleetError."""
        async with self._lock:
            if self._sandbox is None:
                self._sandbox = await self._kept() or await self._claimed()
            return self._sandbox

    @property
    def taken(self) -> AsyncSandbox | None:
        """The sandbox, if there is one."""
        return self._sandbox

    async def lost(self) -> None:
        """Forget a sandbox that has ended; the next cell has another one."""
        sandbox, self._sandbox = self._sandbox, None
        self._file.unlink(missing_ok=True)
        if sandbox:
            with suppress(SandfleetError):
                await sandbox.close()

    async def leave(self, *, restart: bool) -> None:
        """End the sandbox; for a restart only the variables end, and the next kernel of this file finds the rest."""
        if self._sandbox is None:
            self._sandbox = await self._kept()
        if self._sandbox is None:
            return
        with suppress(SandfleetError):
            if not restart:
                self._file.unlink(missing_ok=True)
                await self._sandbox.kill()
                return
            for each in await self._sandbox.list_contexts():
                await self._sandbox.delete_context(each)
            await self._sandbox.close()

    async def _kept(self) -> AsyncSandbox | None:
        """The sandbox of the kernel before, if it is still there."""
        try:
            with self._file.open("rb") as file:
                sandbox_id = str(json.loads(file.read(_MOST_RECORD))["sandbox_id"])
            return await self._connected(sandbox_id)
        except (OSError, ValueError, KeyError, TypeError, NotFoundError, SandboxEnded):
            return None

    async def _claimed(self) -> AsyncSandbox:
        sandbox_id = await asyncio.to_thread(self._claim)
        partial = self._file.with_name(f"{self._file.name}.{os.getpid()}")
        partial.touch(mode=0o600)
        partial.write_text(json.dumps({"sandbox_id": sandbox_id}), encoding="utf-8")
        partial.replace(self._file)
        sandbox = await self._connected(sandbox_id)
        if self._folder is None:
            return sandbox
        try:
            await sandbox.files.upload(self._folder, ".")
        except BaseException as error:  # Without its files no cell is to run.
            self._file.unlink(missing_ok=True)
            await sandbox.kill()
            if isinstance(error, OSError):
                raise FileError(f"cannot copy {self._folder} into the sandbox: {error}") from error
            raise
        return sandbox

    async def _connected(self, sandbox_id: str) -> AsyncSandbox:
        return await AsyncSandbox.connect(sandbox_id, timeout=LEASE, keep_alive=True)
