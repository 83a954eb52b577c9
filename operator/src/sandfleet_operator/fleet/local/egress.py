"""Egress by name on one machine: the process below the fleet, the lists of sessions, and what they have reached."""

import asyncio
import contextlib
import json
import logging
import os
import secrets
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from sandfleet_operator.api.egress import Credential, WayOut, canonical, parse_all
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.networks import network
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.api.values import Sandbox
from sandfleet_operator.plan.audit import Record
from sandfleet_operator.plan.egress.reports import HostReport, Reports, connection_record
from sandfleet_operator.plan.scheduler.inventory import Inventory

COMMAND = (sys.executable, "-P", "-m", "sandfleet_operator.fleet.egress.serve")
# What names may lead to beside public addresses: networks, and NAME=ADDRESS for hosts that are not looked up.
NETWORKS, HOSTS = "SANDFLEET_EGRESS_NETWORKS", "SANDFLEET_EGRESS_HOSTS"
PLACEHOLDER = "sandfleet-credential-"
BACKLOG = 1024
MAX_LINE_BYTES = 4 << 20
START_SECONDS, CLOSE_SECONDS = 20.0, 2.0
# Between the end of a process and the start of the next one, while sessions need it.
PAUSE = 0.2

_LOG = logging.getLogger(__name__)


class EgressError(Exception):
    """Its message is "cannot X: why"."""


def arguments(environ: Mapping[str, str]) -> list[str]:
    """The arguments of the process by what the environment says. Raises EgressError."""
    words = []
    for text in _words(environ.get(NETWORKS, "")):
        try:
            words += ["--network", str(network(text))]
        except FleetError as error:
            raise EgressError(f"cannot take {NETWORKS}: {error}") from None
    for text in _words(environ.get(HOSTS, "")):
        name, _, address = text.partition("=")
        try:
            words += ["--host", f"{name}={network(address).network_address}"]
        except FleetError as error:
            raise EgressError(f"cannot take {HOSTS}: {error}") from None
        if not canonical(name):
            raise EgressError(f"cannot take {HOSTS}: {name[:80]!r} is no name of a host")
    return words


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


@dataclass(slots=True)
class _Known:
    """A session with egress."""

    names: tuple[str, ...]
    # With their placeholders; key and certificate of the session's authority, and the certificate alone.
    credentials: tuple[Credential, ...] = field(default=(), repr=False)
    authority: tuple[str, str] = field(default=("", ""), repr=False)
    reports: Reports = field(default_factory=Reports)


def _known(names: tuple[str, ...], credentials: Sequence[Credential]) -> _Known:
    if not credentials and not _has_rules(names):
        return _Known(names)
    # Late: other sessions need no authority.
    from sandfleet_operator.fleet.egress.tls import new_authority

    # The placeholder says nothing of the secret, and is of this session alone.
    filled = (
        replace(one, placeholder=f"{PLACEHOLDER}{secrets.token_hex(16)}" if one.env else "") for one in credentials
    )
    return _Known(names, tuple(filled), new_authority())


def _has_rules(names: Sequence[str]) -> bool:
    """Whether requests have to be looked at. Raises FleetError."""
    return any(one.has_rules for one in parse_all(names))


class LocalEgress:
    """The process is started with the first session that may reach anything, and again whenever it has ended."""

    def __init__(
        self,
        path: Path,
        inventory: Inventory,
        write: Callable[[Record], None],
        clock: Callable[[], float],
        *,
        words: Sequence[str] = (),
        command: Sequence[str] = COMMAND,
    ) -> None:
        """`path` is where executors connect, `words` are arguments of the process."""
        self._path = path
        self._command = (*command, *words)
        self._inventory = inventory
        self._write = write
        self._clock = clock
        self._listener: socket.socket | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._sessions: dict[str, _Known] = {}
        self._closing = False

    async def admit(self, sandbox: Sandbox) -> WayOut:
        """How the session gets out; then the process knows its list. Raises FleetError."""
        names = sandbox.claim.egress_names if sandbox.claim else ()
        if not names and sandbox.sandbox_id not in self._sessions:
            return WayOut()
        async with self._starting:
            if sandbox.sandbox_id not in self._sessions:
                self._sessions[sandbox.sandbox_id] = _known(names, sandbox.claim.credentials if sandbox.claim else ())
                self._allow(sandbox.sandbox_id)
            if self._process is None:
                await self._start()
        known = self._sessions[sandbox.sandbox_id]
        envs = {one.env: one.placeholder for one in known.credentials if one.env}
        return WayOut(is_open=True, envs=envs, authority=known.authority[1])

    def change(self, sandbox: Sandbox, names: Sequence[str]) -> None:
        """Another list for a session, from now on. Raises FleetError."""
        has_rules = _has_rules(names)
        known = self._sessions.get(sandbox.sandbox_id)
        if known is None:
            why = "it was claimed without names, so that its programs do not look for the way out"
            raise ClaimReason.NO_EGRESS.error(f"cannot change the egress list: {why}", sandbox.sandbox_id)
        if has_rules and not known.authority[0]:
            why = (
                "it was claimed without methods, paths and credentials, so that its programs trust no other certificate"
            )
            raise ClaimReason.NO_EGRESS.error(f"cannot allow single methods or paths: {why}", sandbox.sandbox_id)
        assert sandbox.claim is not None
        known.names = tuple(names)
        # An executor that replaces this one gets the new list, too.
        self._inventory.put(replace(sandbox, claim=replace(sandbox.claim, egress_names=known.names)))
        self._allow(sandbox.sandbox_id)

    def names(self, sandbox: Sandbox) -> tuple[str, ...]:
        known = self._sessions.get(sandbox.sandbox_id)
        if known is not None:
            return known.names
        return sandbox.claim.egress_names if sandbox.claim else ()

    def reports(self, sandbox_id: str) -> tuple[HostReport, ...]:
        known = self._sessions.get(sandbox_id)
        return known.reports.all() if known else ()

    def end(self, sandbox_id: str) -> None:
        """The session has ended, and so do its connections."""
        if self._sessions.pop(sandbox_id, None) is not None:
            self._tell({"op": "end", "session": sandbox_id})

    async def close(self) -> None:
        self._closing = True
        async with self._starting:
            process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            try:
                await asyncio.wait_for(process.wait(), CLOSE_SECONDS)
            except TimeoutError:
                process.kill()
                await process.wait()
        if self._reading is not None:
            await asyncio.wait([self._reading], timeout=CLOSE_SECONDS)
        if self._listener is not None:
            self._listener.close()

    def _allow(self, sandbox_id: str) -> None:
        known = self._sessions[sandbox_id]
        secret = {"credentials": list(map(asdict, known.credentials)), "authority": known.authority[0]}
        self._tell({"op": "allow", "session": sandbox_id, "names": list(known.names), **secret})

    def _tell(self, message: dict[str, Any]) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError, RuntimeError):
                self._process.stdin.write(json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n")

    # The process.

    def _listening(self) -> socket.socket:
        """The socket outlives each process: connections that come between two of them wait in it."""
        if self._listener is None:
            self._path.unlink(missing_ok=True)
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._listener.bind(os.fspath(self._path))
            self._listener.listen(BACKLOG)
        return self._listener

    async def _start(self) -> None:
        """Raises FleetError."""
        try:
            process = await self._launch()
        except (OSError, EgressError) as error:
            raise ClaimReason.START_FAILED.error(f"cannot start the egress process: {error}") from error
        self._process = process
        for sandbox_id in self._sessions:
            self._allow(sandbox_id)
        self._tell({"op": "serve"})
        self._reading = asyncio.create_task(self._read(process))

    async def _launch(self) -> asyncio.subprocess.Process:
        number = self._listening().fileno()
        process = await asyncio.create_subprocess_exec(
            *self._command,
            "--listen-fd",
            str(number),
            pass_fds=(number,),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=MAX_LINE_BYTES,
            # As the executor host: it ends when its owner does.
            start_new_session=True,
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(START_SECONDS):
                line = await process.stdout.readline()
        except TimeoutError:
            line = b""
        if not line:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            raise EgressError("it does not answer")
        return process

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            self._heard(json.loads(line))
        await process.wait()
        for known in self._sessions.values():
            known.reports.closed()
        while self._process is process and not self._closing:
            await asyncio.sleep(PAUSE)
            async with self._starting:
                # Without sessions the next claim starts it.
                self._process = None
                if self._sessions and not self._closing:
                    try:
                        await self._start()
                    except FleetError as error:
                        _LOG.warning("%s", error)
                        self._process = process

    def _heard(self, event: dict[str, Any]) -> None:
        for sandbox_id, rows in event.get("sessions", {}).items():
            known = self._sessions.get(sandbox_id)
            for row in rows:
                if known is not None:
                    known.reports.add(row, self._clock())
                if row["connections"]:
                    self._write(connection_record(sandbox_id, row))
