"""Snapshots of the sandboxes of one machine: whose they are, what they may become, and the snapshotter's work."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from sandfleet_api.executor.v1 import session_pb2
from sandfleet_api.executor.v1 import snapshot_pb2 as executor_pb
from sandfleet_api.fleet.v1 import snapshot_pb2 as pb

from sandfleet_operator.api.limits import in_numbers
from sandfleet_operator.api.validate import check_id
from sandfleet_operator.api.values import Mark, Sandbox, Template
from sandfleet_operator.cluster.reviews import Caller
from sandfleet_operator.executors.client import Executors
from sandfleet_operator.fleet.driver import FleetDriver
from sandfleet_operator.fleet.local.received import LocalReceived
from sandfleet_operator.fleet.local.snapshotter import Snapshotter
from sandfleet_operator.fleet.snapshots.jobs import Event
from sandfleet_operator.fleet.snapshots.scratch_files import scratch_file
from sandfleet_operator.fleet.snapshots.transfers import LOCAL_TENANT, Party, Transfers, answer_of
from sandfleet_operator.fleet.suspender import Suspender
from sandfleet_operator.plan.snapshots.claims import encode_claim
from sandfleet_operator.plan.snapshots.reasons import SnapshotReason
from sandfleet_operator.snapshots.backends.places import may_exist

EXPORTED_BYTES = 1 << 20
# "deny": callers of this fleet may not bring in what was written elsewhere.
IMPORTS = "SANDFLEET_SNAPSHOT_IMPORTS"


@dataclass(frozen=True)
class Sessions:
    """The sessions of this machine, and what is known of them."""

    fleet: FleetDriver
    suspender: Suspender
    executors: Executors
    received: LocalReceived


@dataclass(frozen=True, slots=True)
class Keeper:
    """The snapshot with which a session goes on. `saved`: seconds since the epoch."""

    snapshot_id: str
    digest: str
    saved: float
    automatic: bool


class LocalSnapshots:
    """One tenant, and one caller: the owner of this machine's fleet."""

    def __init__(
        self,
        sessions: Sessions,
        templates: Mapping[str, Template],
        caller: Caller,
        snapshotter: Snapshotter | None = None,
    ) -> None:
        self._fleet, self._suspender = sessions.fleet, sessions.suspender
        self._executors, self._received = sessions.executors, sessions.received
        self._jobs = snapshotter or Snapshotter()
        self.transfers = Transfers(self._jobs)
        self._templates = templates
        self._caller = caller

    async def close(self) -> None:
        """Ends the snapshotter."""
        await self._jobs.close()

    async def authenticate(self, token: str) -> Caller:  # noqa: ARG002 - the transport has let the caller in
        return self._caller

    async def tenant(self, caller: Caller, verb: str, namespace: str) -> str:  # noqa: ARG002 - there is one caller
        if verb == "import" and os.environ.get(IMPORTS) == "deny":
            why = f"{IMPORTS} of this fleet denies it"
            raise SnapshotReason.SNAPSHOT_IMPORT_DENIED.error(f"cannot import: {why}")
        return LOCAL_TENANT

    async def party(self, caller: Caller, sandbox_id: str, verb: str, *, doing: str) -> Party:  # noqa: ARG002 - there is one caller
        check_id(sandbox_id, "sandbox id", doing=doing)
        await self._suspender.settled(sandbox_id, sandbox_id)
        return self._party(await self._fleet.get(sandbox_id, reachable=True))

    async def resumption(self, sandbox_id: str) -> session_pb2.Resumption | None:
        return await self._suspender.resumption(sandbox_id)

    def changed(self, tenant: str) -> None:
        """Nothing else keeps what snapshots there are."""

    def save(
        self, caller: Caller, sandbox: Sandbox, words: Mapping[str, Any], **options: Any
    ) -> AsyncGenerator[Event, None]:
        """The snapshotter's events. `words` and `options` are those of Transfers.save."""
        return self.transfers.save(self._party(sandbox), caller.username, words, **options)

    async def keeps(self, sandbox_id: str) -> Event | None:
        """The newest snapshot with which this session goes on, and its claim. Raises FleetError."""
        if not may_exist(os.environ):
            # Nothing was ever saved: no process is started to find that out.
            return None
        found = await self._jobs.answer("keeps", tenant=LOCAL_TENANT, sandbox=sandbox_id)
        return found if "snapshot" in found else None

    async def fill(self, sandbox: Sandbox, keeper: Keeper, told: Callable[[], None]) -> executor_pb.RestoreResponse:
        """Puts a snapshot into a sandbox that no caller has yet. `told` at each progress. Raises FleetError."""
        party, since = self._party(sandbox), keeper.saved if keeper.automatic else None
        how: dict[str, Any] = {"digest": keeper.digest, "force": True, "undone_since": since}
        job = self.transfers.filled(party, keeper.snapshot_id, **how)
        last: Event = {}
        async with aclosing(job) as events:
            async for event in events:
                told()
                last = event
        return answer_of(last)

    async def forget(self, snapshot_id: str, *, now: bool) -> None:
        """`now`: it can never be taken back. Raises FleetError."""
        await self.transfers.forget(LOCAL_TENANT, snapshot_id, now=now)

    async def exported(self, tenant: str, snapshot: str) -> AsyncGenerator[bytes, None]:
        async with scratch_file() as path:
            await self._jobs.answer("export", tenant=tenant, snapshot=snapshot, path=str(path))
            async with _opened(path, "rb") as file:
                while data := await asyncio.to_thread(file.read, EXPORTED_BYTES):
                    yield data

    async def imported(
        self, caller: Caller, tenant: str, header: pb.ImportSnapshotRequest.Header, pieces: AsyncGenerator[bytes, None]
    ) -> Event:
        # The file asks for a contract and for limits, of which it gets what a template here has at most.
        offers = {one.contract: in_numbers(one.limits) for one in self._templates.values()}
        template = next(iter(self._templates.values())).name
        words = {"name": header.name, "template": template, "owner": caller.username}
        async with scratch_file() as path:
            await _received_file(pieces, path)
            return await self._jobs.answer("import", tenant=tenant, path=str(path), words=words, offers=offers)

    def _party(self, sandbox: Sandbox) -> Party:
        async def note(marks: frozenset[Mark]) -> frozenset[Mark]:
            return self._received.note(sandbox.sandbox_id, marks)

        address, token = self._executors.address(sandbox), self._executors.transfer_token(sandbox).text
        return Party(
            tenant=LOCAL_TENANT,
            sandbox_id=sandbox.sandbox_id,
            template=sandbox.template,
            contract=sandbox.contract,
            limits=self._limits(sandbox),
            place={"address": address, "token": token},
            claim=encode_claim(sandbox.claim) if sandbox.claim else "",
            note=note,
        )

    def _limits(self, sandbox: Sandbox) -> dict[str, float]:
        """Those in force: the template's, lowered by the claim."""
        found = in_numbers(self._templates[sandbox.pool].limits)
        asked = asdict(sandbox.claim.limits) if sandbox.claim else {}
        return found | {name: value for name, value in asked.items() if value}


async def _received_file(pieces: AsyncGenerator[bytes, None], path: Path) -> None:
    async with _opened(path, "xb") as file:
        async for data in pieces:
            try:
                await asyncio.to_thread(file.write, data)
            except OSError as error:
                why = f"cannot import: its file has no room here: {error.strerror}"
                raise SnapshotReason.SNAPSHOT_STORE_FULL.error(why) from error


@asynccontextmanager
async def _opened(path: Path, mode: str) -> AsyncGenerator[IO[bytes], None]:
    file: IO[bytes] = await asyncio.to_thread(path.open, mode, 0)
    try:
        yield file
    finally:
        await asyncio.shield(asyncio.to_thread(file.close))
