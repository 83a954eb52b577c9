"""Sessions of a cluster that only a snapshot keeps while they sleep.

Each step is one write, after which this process may end (plan/sandbox/parked.py has the operator's part):

    asleep     the executor holds the session, the snapshot is in the store, `status.snapshot` names it, the mode is
               Suspended. Before the third, the session goes on where it was, and its next such snapshot replaces this.
    resumed    the mode is Running, the pod is filled, `status.snapshot.filled`, its caller has it, the snapshot is
               deleted, `status.snapshot` is removed. Before the third, the next pod or leader fills it again.
"""

import asyncio
import base64
import logging
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any

from sandfleet_api.executor.v1 import session_pb2
from sandfleet_api.executor.v1 import snapshot_pb2 as executor_pb

from sandfleet_operator.api.conditions import Reason
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.sandbox import CodeSandbox, OperatingMode, SnapshotStatus
from sandfleet_operator.api.reasons import ClaimReason, SuspendReason
from sandfleet_operator.api.values import Sandbox, State
from sandfleet_operator.cluster.tasks import BackgroundTasks, Outliving
from sandfleet_operator.fleet.kubernetes.fleet import KubernetesFleet
from sandfleet_operator.fleet.kubernetes.snapshots.parties import Parties
from sandfleet_operator.fleet.snapshots.jobs import Event, Jobs
from sandfleet_operator.fleet.snapshots.messages import suspension_of
from sandfleet_operator.fleet.snapshots.transfers import Party, Transfers
from sandfleet_operator.plan.audit import Decision, Record, Verdict
from sandfleet_operator.plan.sandbox.parked import ENDING_SECONDS, has_to_be_filled, lacks_snapshot, wants_snapshot
from sandfleet_operator.plan.snapshots.reasons import SnapshotReason

# Seconds that an executor holds a session after its save, less what clocks may differ by.
HELD_SECONDS, LEAST_HELD_SECONDS = 105.0, ENDING_SECONDS + 15.0
# After a failure, a session that kubectl wants in a snapshot is left alone for so long.
RETRY_SECONDS = 15.0

Kept = tuple[Sandbox, session_pb2.Suspension, str]

_LOG = logging.getLogger(__name__)


class ClusterParking:
    """Also what fills the sandboxes of such sessions, a SnapshotKeeper, and the Keeper of preempted ones.

    `wall_clock` gives seconds since the epoch; `write` writes audit records.
    """

    def __init__(
        self,
        kubernetes: KubernetesFleet,
        jobs: Jobs,
        parties: Parties,
        wall_clock: Callable[[], float],
        write: Callable[[Record], None],
    ) -> None:
        self._kubernetes, self._parties, self._transfers = kubernetes, parties, Transfers(jobs)
        self._clock, self._write = wall_clock, write
        self._background = BackgroundTasks()
        self._parking: Outliving[Kept] = Outliving()
        self._objects = kubernetes.parked
        # Sessions that are being saved for their sleep, and those whose snapshot is being deleted.
        self.settling: set[str] = set()
        self._forgetting: set[str] = set()

    def close(self) -> None:
        self._background.close()
        self._parking.close()

    # To sleep.

    async def park(self, holder: str, sandbox_id: str, *, force: bool, seconds: float | None = None) -> Kept:
        """Saves the session and ends its pod: as it sleeps, what was kept, and the snapshot. Raises FleetError.

        `sandbox_id` is the scheduler's. What has begun goes on if the caller leaves.
        """
        return await self._parking.result(self._park(holder, sandbox_id, force=force, seconds=seconds))

    async def _park(self, holder: str, sandbox_id: str, *, force: bool, seconds: float | None) -> Kept:
        fleet, suspensions = self._kubernetes.fleet, self._kubernetes.scheduler.suspensions
        suspensions.check_room(sandbox_id)
        sandbox = await fleet.get(sandbox_id, reachable=True)
        self._check_volume(sandbox)
        self.settling.add(sandbox_id)
        try:
            await self._kubernetes.record(sandbox)
            event = await self._saved(sandbox, holder, force=force)
            fleet.do(suspensions.suspend(sandbox_id, seconds, fleet.now(), parked=True))
        finally:
            self.settling.discard(sandbox_id)
        asleep = await self._kubernetes.suspender.fell_asleep(sandbox_id)
        return asleep, _suspension_of(event), str(event["snapshot"]["id"])

    def can_park(self, sandbox: Sandbox) -> bool:
        """Whether a snapshot may keep this session. Where no snapshotter answers, it goes on: it is not lost."""
        return self._kubernetes.pod_of(sandbox) is not None and not _keeps_volume(sandbox)

    async def keep(self, sandbox: Sandbox) -> session_pb2.Suspension:
        """Saves an unused session for the owner of its quota (fleet.suspender.Keeper). Raises FleetError."""
        self.settling.add(sandbox.sandbox_id)
        try:
            return _suspension_of(await self._saved(sandbox, sandbox.holder, force=False, unused=True))
        finally:
            self.settling.discard(sandbox.sandbox_id)

    async def _saved(self, sandbox: Sandbox, holder: str, *, force: bool, unused: bool = False) -> Event:
        """The last event of the save, whose snapshot the CodeSandbox names. Raises FleetError."""
        party, before = self._parties.of(sandbox), self._before(sandbox)
        last = await self._save(party, sandbox, holder, "suspend", hold=True, force=force, unused=unused)
        snapshot_id, now = last["snapshot"]["id"], self._clock()
        until = now + HELD_SECONDS - float(last["held_seconds"])
        said = SnapshotStatus(
            id=snapshot_id,
            digest=last["snapshot"].get("digest", ""),
            pod_uid=party.place["name"],
            time=now,
            held_until=until,
        )
        if until - now < LEAST_HELD_SECONDS or not await self._objects.write(sandbox, said):
            await self._transfers.dropped(party, snapshot_id)
            why = "it took so long that the session could not be held, or its CodeSandbox has gone"
            raise SnapshotReason.SNAPSHOT_OVERTAKEN.error(f"cannot save {party.sandbox_id}: {why}", party.sandbox_id)
        self._note(Decision.SNAPSHOT, party.sandbox_id, snapshot_id, "suspend")
        await self._replaced(party, before)
        return last

    async def _save(self, party: Party, sandbox: Sandbox, holder: str, reason: str, **options: Any) -> Event:
        """The last event. Nothing else goes before the CodeSandbox names the new snapshot.

        One that an earlier fleet has saved and not written down is found by the rounds (snapshots/rounds.py).
        """
        last: Event = {}
        words = {"name": "", "labels": dict(sandbox.labels), "reason": reason}
        async with aclosing(self._transfers.save(party, holder, words, **options)) as events:
            async for event in events:
                last = event
        return last

    def _before(self, sandbox: Sandbox) -> SnapshotStatus | None:
        """The automatic snapshot that it has."""
        made = self._objects.of(sandbox)
        said = made.status.snapshot if made is not None else None
        return said if said is not None and said.automatic else None

    async def _replaced(self, party: Party, before: SnapshotStatus | None) -> None:
        if before is not None:
            with suppress(FleetError):
                await self._transfers.forget(party.tenant, before.id, now=True)
                self._note(Decision.DELETION, party.sandbox_id, before.id, "replaced")

    # Without a caller (fleet.snapshots.unattended).

    async def sleep(self, holder: str, sandbox_id: str, *, force: bool) -> None:
        """Parks an idle session. Raises FleetError."""
        await self.park(holder, sandbox_id, force=force)

    async def save(self, sandbox: Sandbox) -> None:
        """One automatic snapshot, with which the session goes on where its pod is lost. Raises FleetError."""
        await self._kubernetes.record(sandbox)
        party, before = self._parties.of(sandbox), self._before(sandbox)
        last = await self._save(party, sandbox, sandbox.holder, "automatic")
        said = _automatic(last["snapshot"], party.place["name"])
        snapshot_id = said.id

        def works_on(found: CodeSandbox) -> bool:
            known, mode = found.status.snapshot, found.spec.operating_mode
            return mode is OperatingMode.RUNNING and (known is None or known.automatic or bool(known.filled))

        if not await self._objects.write(sandbox, said, works_on):
            await self._transfers.forget(party.tenant, snapshot_id, now=True)
            return
        self._note(Decision.SNAPSHOT, party.sandbox_id, snapshot_id, "automatic")
        await self._replaced(party, before)

    def saved(self) -> list[str]:
        """An automatic snapshot ends with its CodeSandbox."""
        return []

    async def ended(self, sandbox_id: str) -> None:
        """Nothing is left to be done."""

    def _check_volume(self, sandbox: Sandbox) -> None:
        """Raises FleetError where the owner wants the volume to stay: the session would be in two places."""
        if _keeps_volume(sandbox):
            known_as = self._kubernetes.known_as(sandbox)[0]
            why = "its workspace is to be kept on its volume; suspend it to that"
            raise SuspendReason.WORKSPACE_KEPT.error(f"cannot suspend {known_as} into a snapshot: {why}", known_as)

    def look(self, known: Sandbox, made: CodeSandbox) -> None:
        """Saves a session whose owner has set the mode, and deletes the snapshot of one that is awake."""
        self._clean(known, made)
        # The operator waits with the pod's end for the snapshot.
        if known.sandbox_id not in self.settling and self._lacks_snapshot(known, made):
            self.settling.add(known.sandbox_id)
            self._background.begin(self._save_declared(known), f"save {known.sandbox_id}")

    async def _save_declared(self, known: Sandbox) -> None:
        try:
            while self._lacks_snapshot(known, self._objects.of(known)):
                try:
                    await self._saved(known, known.holder, force=True)
                except FleetError as error:
                    _LOG.warning("session %s waits for its snapshot: %s", known.sandbox_id, error)
                    await asyncio.sleep(RETRY_SECONDS)
        finally:
            self.settling.discard(known.sandbox_id)

    def _lacks_snapshot(self, known: Sandbox, made: CodeSandbox | None) -> bool:
        pod = self._kubernetes.pod_of(known)
        if made is None or pod is None or pod.ended is not None or pod.deleting or not wants_snapshot(made):
            return False
        return lacks_snapshot(made.status, pod.uid, self._clock())

    async def settled(self, sandbox_id: str) -> None:
        """Returns when it is decided whether the session falls asleep."""
        while sandbox_id in self.settling:
            await self._kubernetes.fleet.change(sandbox_id, within=0.2)

    # Awake again.

    async def fill(self, sandbox: Sandbox) -> None:
        """Raises FleetError."""
        made = self._objects.of(sandbox)
        said = made.status.snapshot if made is not None else None
        if made is None or said is None:
            return
        if not has_to_be_filled(made):
            if not (said.filled or said.automatic):
                await self._stays(sandbox, said)
            return
        party = self._parties.of(sandbox)
        newest = said
        try:
            newest = await self._newest(party, said)
            await self._fill(sandbox, party, newest)
        except FleetError as error:
            last = made.status.restart_history[-1].reason if made.status.restart_history else ""
            if not said.automatic or last == Reason.NODE_LOST.value:
                raise
            # Nothing has changed then: its files are there, as those of any other session.
            _LOG.warning("session %s goes on with its files: %s", party.sandbox_id, error)

        def still(found: CodeSandbox) -> bool:
            # Where it is to sleep again, the operator has begun to take the pod away.
            return has_to_be_filled(found) and _id_of(found) == said.id

        if not await self._objects.write(sandbox, replace(newest, filled=party.place["name"]), still):
            why = "its CodeSandbox has gone, or is to sleep again"
            raise ClaimReason.RECOVERING.error(f"cannot resume {party.sandbox_id}: {why}", party.sandbox_id)
        self._note(Decision.RESTORATION, party.sandbox_id, newest.id, "recovery" if said.automatic else "resume")
        await self._replaced(party, said if newest.id != said.id else None)

    async def _newest(self, party: Party, said: SnapshotStatus) -> SnapshotStatus:
        """What fills a session that has to go back: a fleet may have ended before it named the last one it saved."""
        found = await self._transfers.newest(party) if said.automatic else None
        if found is None or found["id"] == said.id or found["created_ms"] / 1000 < said.time:
            # Another session of the same name may have left an older one.
            return said
        return _automatic(found, said.pod_uid)

    async def _fill(self, sandbox: Sandbox, party: Party, said: SnapshotStatus) -> None:
        fleet = self._kubernetes.fleet
        since = said.time if said.automatic else None
        job = self._transfers.filled(party, said.id, digest=said.digest, kept=True, force=True, undone_since=since)
        async with aclosing(job) as events:
            async for _ in events:
                fleet.scheduler.suspensions.filling(sandbox.sandbox_uid, fleet.now())

    async def _stays(self, sandbox: Sandbox, said: SnapshotStatus) -> None:
        """The session goes on in the pod that was saved, or on its volume, without the snapshot. Raises FleetError."""
        party = self._parties.of(sandbox)
        if not await self._objects.write(sandbox, None, lambda found: not has_to_be_filled(found)):
            raise ClaimReason.RECOVERING.error(f"cannot resume {party.sandbox_id}: it has changed", party.sandbox_id)
        try:
            await self._transfers.dropped(party, said.id)
        except FleetError as error:
            _LOG.warning("snapshot %s stays: %s", said.id, error)

    async def filled(self, sandbox: Sandbox) -> None:
        """The session has its pod: the snapshot was only there to keep it."""
        known, made = self._kubernetes.scheduler.inventory.get(sandbox.sandbox_id), self._objects.of(sandbox)
        if known is not None and made is not None:
            self._clean(known, made)

    def _clean(self, known: Sandbox, made: CodeSandbox) -> None:
        """Also of a snapshot that an earlier leader has left."""
        said = made.status.snapshot
        if (
            said is None
            or said.automatic
            or not said.filled
            or known.state is not State.CLAIMED
            or known.sandbox_id in self._forgetting
        ):
            return
        self._forgetting.add(known.sandbox_id)
        self._background.begin(self._forget(known, made, said), f"delete snapshot {said.id}")

    async def _forget(self, known: Sandbox, made: CodeSandbox, said: SnapshotStatus) -> None:
        try:
            await self._transfers.forget(made.meta.namespace, said.id, now=True)
            await self._objects.write(known, None, lambda found: _id_of(found) == said.id)
            self._note(Decision.DELETION, f"{made.meta.namespace}/{made.meta.name}", said.id, "resumed")
        except FleetError as error:
            # It is tried again when the CodeSandbox is looked at again, and goes with it at the latest.
            _LOG.warning("snapshot %s stays: %s", said.id, error)
        finally:
            self._forgetting.discard(known.sandbox_id)

    def gone(self, made: CodeSandbox) -> None:
        """A CodeSandbox is gone, and its session with it."""
        if (said := made.status.snapshot) is not None:
            self._background.begin(self._end(made, said), f"delete snapshot {said.id}")

    async def _end(self, made: CodeSandbox, said: SnapshotStatus) -> None:
        try:
            # A session that is deleted while it sleeps may have been so by mistake.
            await self._transfers.forget(made.meta.namespace, said.id, now=said.automatic or bool(said.filled))
        except FleetError as error:
            _LOG.warning("snapshot %s of a session that has ended stays: %s", said.id, error)
            return
        self._note(Decision.DELETION, f"{made.meta.namespace}/{made.meta.name}", said.id, "ended")

    def _note(self, decision: Decision, sandbox_id: str, snapshot_id: str, purpose: str) -> None:
        """The fleet decided it; calls have records of their own."""
        details = {"snapshot_id": snapshot_id, "purpose": purpose}
        self._write(Record(decision=decision, verdict=Verdict.ALLOWED, sandbox=sandbox_id, details=details))


def _keeps_volume(sandbox: Sandbox) -> bool:
    return sandbox.claim is not None and bool(sandbox.claim.keep_workspace or sandbox.claim.workspace_id)


def _suspension_of(event: Event) -> session_pb2.Suspension:
    return suspension_of(executor_pb.SnapshotFacts.FromString(base64.b64decode(event["facts"])))


def _automatic(taken: Event, pod_uid: str) -> SnapshotStatus:
    """Of a session that works on, in this pod."""
    return SnapshotStatus(
        id=taken["id"],
        digest=taken.get("digest", ""),
        pod_uid=pod_uid,
        time=taken["created_ms"] / 1000,
        automatic=True,
    )


def _id_of(made: CodeSandbox) -> str:
    return made.status.snapshot.id if made.status.snapshot is not None else ""
