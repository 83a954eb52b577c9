"""Saves sessions into snapshots and fills sandboxes from them, on one machine and on Kubernetes alike."""

import base64
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from sandfleet_api.executor.v1 import snapshot_pb2 as executor_pb
from sandfleet_api.fleet.v1 import snapshot_pb2 as pb

from sandfleet_operator.api.values import Mark, marks_of
from sandfleet_operator.fleet.snapshots.jobs import Event, Jobs
from sandfleet_operator.fleet.snapshots.messages import message
from sandfleet_operator.plan.snapshots.reasons import SnapshotReason

# Of a machine with one owner.
LOCAL_TENANT = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """A session that is saved or filled.

    Attributes:
        sandbox_id: as its caller has it.
        limits: those in force.
        place: where its executor is, and a token for one transfer: what snapshots/transfer.py calls a Place.
        claim: what its claim asked for (plan/snapshots/claims.py), or empty.
        note: adds marks of what it has received, and returns all once they are kept. Raises FleetError.

    """

    tenant: str
    sandbox_id: str
    template: str
    contract: str
    limits: Mapping[str, float]
    place: Mapping[str, str]
    claim: str = ""
    note: Callable[[frozenset[Mark]], Awaitable[frozenset[Mark]]]

    async def marks(self) -> list[str]:
        return sorted(one.value for one in await self.note(frozenset()))


class Transfers:
    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs

    async def save(
        self,
        party: Party,
        owner: str,
        words: Mapping[str, Any],
        *,
        hold: bool = False,
        force: bool = False,
        unused: bool = False,
        keep_days: float | None = None,
        keep_count: int | None = None,
    ) -> AsyncGenerator[Event, None]:
        """The snapshotter's events. `words`: name, labels and reason; `hold`: the session ends with it.

        `unused`: with `hold`, refused while a service is to run, too.
        """
        about = {
            "session": party.sandbox_id,
            "sandbox": party.sandbox_id,
            "template": party.template,
            "contract": party.contract,
            "received": await party.marks(),
            "limits": dict(party.limits),
            "parents": (),
            "owner": owner,
            "claim": party.claim,
            "keep": {"days": keep_days, "count": keep_count},
            **words,
        }
        how = {"hold": hold, "force": force, "unused": unused}
        job = self.jobs.run("save", tenant=party.tenant, about=about, **how, **party.place)
        async with aclosing(job) as events:
            async for event in events:
                if event["event"] == "done" and (marks := await party.marks()) != about["received"]:
                    await self._overtaken(party, event, marks, hold=hold)
                yield event

    async def dropped(self, party: Party, snapshot_id: str) -> None:
        """Deletes the snapshot of a held session that goes on where it was. Raises FleetError."""
        await self.forget(party.tenant, snapshot_id, now=True)
        await self.jobs.answer("unhold", tenant=party.tenant, **party.place)

    async def _overtaken(self, party: Party, event: Event, marks: list[str], *, hold: bool) -> None:
        """Raises FleetError: the snapshot has what came meanwhile, and not its mark."""
        await self.forget(party.tenant, event["snapshot"]["id"], now=True)
        if hold:
            await self.jobs.answer("unhold", tenant=party.tenant, **party.place)
        why = f"sandbox {party.sandbox_id} has received {', '.join(marks)} content meanwhile"
        raise SnapshotReason.SNAPSHOT_OVERTAKEN.error(f"cannot save: {why}", party.sandbox_id)

    async def restore(self, party: Party, snapshot: str, *, force: bool) -> AsyncGenerator[Event, None]:
        """The snapshotter's events. `snapshot`: an id, or a name. Raises FleetError."""
        # Before a byte of it is there: a crash in between leaves a session that is marked for nothing.
        wanted = {"tenant": party.tenant, "snapshot": snapshot, "sandbox": party.sandbox_id}
        said = (await self.jobs.answer("get", **wanted))["snapshot"]
        await party.note(marks_of(said["received"]))
        filled = self.filled(party, said["id"], digest=said.get("digest", ""), force=force, undone_since=None)
        async with aclosing(filled) as events:
            async for event in events:
                yield event

    def filled(
        self,
        party: Party,
        snapshot_id: str,
        *,
        digest: str,
        kept: bool = False,
        force: bool,
        undone_since: float | None,
    ) -> AsyncGenerator[Event, None]:
        """As `restore`, of a snapshot whose marks the session has. Raises FleetError.

        `digest`: of its manifest; empty: any. `kept`: the snapshot keeps this session. `undone_since`: the session was
        lost, and is told so, in seconds of the epoch.
        """
        return self._restoring(
            party, snapshot_id, digest, kept=kept, force=force, undone_since=undone_since, prepare=False
        )

    def prepared(self, party: Party, snapshot: str) -> AsyncGenerator[Event, None]:
        """Fills a warm sandbox, which gets the variables with its session. The snapshotter's events.

        Its marks are in the last one. Raises FleetError.
        """
        return self._restoring(party, snapshot, force=False, undone_since=None, prepare=True)

    def _restoring(
        self,
        party: Party,
        snapshot: str,
        digest: str = "",
        *,
        kept: bool = False,
        force: bool,
        undone_since: float | None,
        prepare: bool,
    ) -> AsyncGenerator[Event, None]:
        return self.jobs.run(
            "restore",
            tenant=party.tenant,
            snapshot=snapshot,
            digest=digest,
            kept=kept,
            force=force,
            undone_since=undone_since,
            prepare=prepare,
            contract=party.contract,
            limits=dict(party.limits),
            **party.place,
        )

    async def get(self, tenant: str, snapshot: str) -> pb.Snapshot:
        event = await self.jobs.answer("get", tenant=tenant, snapshot=snapshot)
        described = message(event["snapshot"])
        described.facts.ParseFromString(base64.b64decode(event["facts"]))
        return described

    async def list(self, tenant: str, sandbox_id: str, *, deleted: bool) -> list[pb.Snapshot]:
        """The newest first. `sandbox_id` empty: of all. `deleted`: those that can be taken back, instead."""
        events = self.jobs.run("list", tenant=tenant, sandbox=sandbox_id, deleted=deleted)
        return [message(event["snapshot"]) async for event in events if event["event"] == "snapshot"]

    async def newest(self, party: Party) -> Event | None:
        """The last snapshot that keeps this session. Raises FleetError."""
        event = await self.jobs.answer("keeps", tenant=party.tenant, sandbox=party.sandbox_id)
        found: Event | None = event.get("snapshot")
        return found

    async def forget(self, tenant: str, snapshot: str, *, now: bool = False, by: str = "caller") -> bool:
        """Returns whether there was one. `now`: it can never be taken back. Raises FleetError."""
        return bool((await self.jobs.answer("delete", tenant=tenant, snapshot=snapshot, now=now, by=by))["existed"])

    async def undelete(self, tenant: str, snapshot: str) -> pb.Snapshot:
        """Raises FleetError."""
        return message((await self.jobs.answer("undelete", tenant=tenant, snapshot=snapshot))["snapshot"])


def restored(event: Event) -> pb.RestoreSnapshotResponse.Restored:
    """What the last event of a restore says; the caller adds what came back of the session."""
    answer = answer_of(event)
    return pb.RestoreSnapshotResponse.Restored(
        snapshot=message(event["snapshot"]), unrestored=answer.unrestored, ended_executions=answer.ended_executions
    )


def answer_of(event: Event) -> executor_pb.RestoreResponse:
    return executor_pb.RestoreResponse.FromString(base64.b64decode(event["answer"]))
