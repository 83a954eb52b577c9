"""Sessions of one machine that only a snapshot keeps: parked for their callers, and taken on under their ids."""

import base64
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from sandfleet_api.executor.v1 import session_pb2
from sandfleet_api.executor.v1 import snapshot_pb2 as executor_pb

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.queue import DEFAULT_QUEUE
from sandfleet_operator.api.limits import Limits, in_numbers
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.api.validate import check_claim
from sandfleet_operator.api.values import Claim, RequestKey, Sandbox, State, Template, marks_of
from sandfleet_operator.cluster.clock import new_id
from sandfleet_operator.cluster.reviews import Caller
from sandfleet_operator.cluster.tasks import Outliving
from sandfleet_operator.fleet.driver import FleetDriver
from sandfleet_operator.fleet.local.received import LocalReceived
from sandfleet_operator.fleet.local.snapshots import Keeper, LocalSnapshots
from sandfleet_operator.fleet.snapshots.messages import suspension_of
from sandfleet_operator.plan.audit import Decision, Record, Verdict
from sandfleet_operator.plan.scheduler.admission import weighed
from sandfleet_operator.plan.snapshots.claims import decode_claim
from sandfleet_operator.plan.snapshots.errors import SnapshotError
from sandfleet_operator.plan.snapshots.reasons import SnapshotReason

# Automatic snapshots of sessions that have ended without this fleet are kept so long.
AUTOMATIC_DAYS = 7.0
# Seconds.
LOOK_PAUSE = 0.2
# Sessions that were taken in, of which it is remembered what fills them.
MOST = 2048

Kept = tuple[Sandbox, session_pb2.Suspension, str]

_LOG = logging.getLogger(__name__)


def _keeper(said: Mapping[str, Any]) -> Keeper:
    return Keeper(said["id"], said["digest"], int(said["created_ms"]) / 1000, said["reason"] == "automatic")


class Parking:
    """Also what fills the sandboxes of such sessions (fleet.incarnations.Refill)."""

    def __init__(
        self,
        fleet: FleetDriver,
        snapshots: LocalSnapshots,
        templates: Mapping[str, Template],
        received: LocalReceived,
        write: Callable[[Record], None],
    ) -> None:
        self._fleet, self._snapshots, self._templates, self._received = fleet, snapshots, templates, received
        self._write = write
        # Of sessions that only a snapshot keeps, and of those that live.
        self._keeping: dict[str, Keeper] = {}
        self.automatic: dict[str, Keeper] = {}
        # Snapshots that are being deleted: they keep nothing any more.
        self._forgetting: set[str] = set()
        self._parking: Outliving[Kept] = Outliving()
        # Sessions that are being put to sleep. Until it is decided, callers wait for an answer about their executors.
        self.settling: set[str] = set()

    async def sleep(self, holder: str, sandbox_id: str, *, force: bool) -> None:
        """Parks an idle session. Raises FleetError."""
        await self.park(Caller(holder), sandbox_id, force=force)

    def saved(self) -> list[str]:
        """Sessions that have an automatic snapshot."""
        return list(self.automatic)

    async def park(self, caller: Caller, sandbox_id: str, *, force: bool) -> Kept:
        """Saves the session and ends its sandbox; as it was, what was kept, and the snapshot. Raises FleetError.

        What has begun goes on if the caller leaves: a session is never left halfway.
        """
        self._fleet.check_serving("suspend the sandbox")
        sandbox = await self._fleet.get(sandbox_id, reachable=True)
        return await self._parking.result(self._park(caller, sandbox, force=force))

    async def _park(self, caller: Caller, sandbox: Sandbox, *, force: bool) -> Kept:
        self.settling.add(sandbox.sandbox_id)
        try:
            return await self._saved_and_ended(caller, sandbox, force=force)
        finally:
            self.settling.discard(sandbox.sandbox_id)

    async def _saved_and_ended(self, caller: Caller, sandbox: Sandbox, *, force: bool) -> Kept:
        words = {"name": "", "labels": dict(sandbox.labels), "reason": "suspend"}
        last: dict[str, Any] = {}
        async for event in self._snapshots.save(caller, sandbox, words, hold=True, force=force):
            last = event
        # From here on the snapshot is the session. If this process dies now, its sandbox ends with it.
        self._note(Decision.SNAPSHOT, sandbox.sandbox_id, last["snapshot"]["id"], "suspend")
        await self._fleet.release(sandbox.sandbox_id)
        facts = executor_pb.SnapshotFacts.FromString(base64.b64decode(last["facts"]))
        asleep = replace(sandbox, state=State.SUSPENDED, running=False, lease_expires=None)
        return asleep, suspension_of(facts), str(last["snapshot"]["id"])

    async def settled(self, sandbox_id: str) -> None:
        """Returns when it is decided whether the session falls asleep."""
        while sandbox_id in self.settling:
            await self._fleet.change(sandbox_id, within=LOOK_PAUSE)

    async def take_in(self, caller: Caller, sandbox_id: str) -> None:
        """A session that only a snapshot keeps sleeps in this fleet from now on; any other is left as it is.

        Raises FleetError where this fleet can never have it.
        """
        inventory = self._fleet.scheduler.inventory
        if inventory.get(sandbox_id) is not None or (kept := await self._snapshots.keeps(sandbox_id)) is None:
            return
        said = kept["snapshot"]
        if inventory.get(sandbox_id) is not None or said["id"] in self._forgetting:
            # Another caller was faster.
            return
        sandbox = self._asleep(caller, sandbox_id, said, kept["claim"])
        self._received.note(sandbox_id, marks_of(said["received"]))
        self._fleet.scheduler.suspensions.take_in(sandbox, self._fleet.now())
        self._prune()
        self._keeping[sandbox_id] = _keeper(said)

    def _asleep(self, caller: Caller, sandbox_id: str, said: Mapping[str, Any], text: str) -> Sandbox:
        """Raises FleetError."""
        pool, template = self._wanted(said["contract"])
        # No caller knows the id of its request any more.
        key = RequestKey(caller.username, new_id(), pool)
        try:
            claim = decode_claim(text, key=key, contract=template.contract, labels=dict(said["labels"]))
        except SnapshotError as error:
            raise SnapshotReason.SNAPSHOT_DAMAGED.error(str(error)) from error
        claim = replace(claim, limits=_narrower(said["limits"], template.limits))
        check_claim(claim, template)
        if template.isolation < claim.min_isolation:
            why = f"this fleet isolates with {template.isolation.name.lower()!r}"
            wanted = claim.min_isolation.name.lower()
            raise ClaimReason.ISOLATION_UNAVAILABLE.error(f"cannot resume a sandbox of isolation {wanted!r}: {why}")
        now = self._fleet.now()
        return Sandbox(
            sandbox_id=sandbox_id,
            sandbox_uid=new_id(),
            pool=pool,
            template=template.name,
            workspace_id=new_id(),
            state=State.SUSPENDED,
            created=now,
            started=now,
            isolation=template.isolation,
            contract=template.contract,
            claim=self._weighed(claim, pool),
            bound=True,
            running=False,
        )

    def _wanted(self, contract: str) -> tuple[str, Template]:
        for pool, template in self._templates.items():
            if template.contract == contract:
                return pool, template
        raise ClaimReason.CONTRACT_NOT_SUPPORTED.error(f"cannot resume a sandbox of contract {contract!r} here")

    def _weighed(self, claim: Claim, pool: str) -> Claim:
        queues = self._fleet.scheduler.queues
        wanted = claim.queue if queues.spec(claim.queue) is not None else ""
        return weighed(replace(claim, queue=queues.named(wanted, DEFAULT_QUEUE)), self._fleet.scheduler.pool(pool))

    async def save(self, sandbox: Sandbox) -> None:
        """One automatic snapshot, with which the session goes on where it is lost. Raises FleetError."""
        before = self.automatic.get(sandbox.sandbox_id)
        parents = [before.snapshot_id] if before else []
        words = {"name": "", "labels": dict(sandbox.labels), "reason": "automatic", "parents": parents}
        holder = Caller(sandbox.holder)
        last: dict[str, Any] = {}
        async for event in self._snapshots.save(holder, sandbox, words, keep_days=AUTOMATIC_DAYS):
            last = event
        self.automatic[sandbox.sandbox_id] = _keeper(last["snapshot"])
        self._note(Decision.SNAPSHOT, sandbox.sandbox_id, last["snapshot"]["id"], "automatic")
        if before:
            await self._forget(sandbox.sandbox_id, before, "replaced")

    async def ended(self, sandbox_id: str) -> None:
        """A session that has ended is not taken on any more. Raises FleetError."""
        for kept in (self.automatic, self._keeping):
            if (keeper := kept.pop(sandbox_id, None)) is not None:
                await self._forget(sandbox_id, keeper, "ended")

    async def fill(self, sandbox: Sandbox) -> None:
        """Raises FleetError where nothing else is there of the session."""
        if (keeper := self._keeping.get(sandbox.sandbox_id)) is not None:
            await self._fill(sandbox, keeper, "resume")
        elif sandbox.state is State.RECOVERING and (keeper := self.automatic.get(sandbox.sandbox_id)) is not None:
            try:
                await self._fill(sandbox, keeper, "recovery")
            except FleetError as error:
                # Nothing has changed then: its files are there, as those of any other session.
                _LOG.warning("session %s goes on with its files: %s", sandbox.sandbox_id, error)

    async def _fill(self, sandbox: Sandbox, keeper: Keeper, purpose: str) -> None:
        filling = self._fleet.scheduler.suspensions.filling
        uid, now = sandbox.sandbox_uid, self._fleet.now
        await self._snapshots.fill(sandbox, keeper, lambda: filling(uid, now()))
        self._note(Decision.RESTORATION, sandbox.sandbox_id, keeper.snapshot_id, purpose)

    async def filled(self, sandbox: Sandbox) -> None:
        """The session has its sandbox: the snapshot was only there to keep it."""
        keeper = self._keeping.pop(sandbox.sandbox_id, None)
        if keeper is None:
            return
        if keeper.automatic and sandbox.claim is not None and sandbox.claim.snapshot_period is not None:
            self.automatic[sandbox.sandbox_id] = keeper
            return
        try:
            await self._forget(sandbox.sandbox_id, keeper, "resumed")
        except FleetError as error:
            _LOG.warning("snapshot %s stays: %s", keeper.snapshot_id, error)

    async def _forget(self, sandbox_id: str, keeper: Keeper, purpose: str) -> None:
        self._forgetting.add(keeper.snapshot_id)
        try:
            # A session that is ended while it sleeps may have been so by mistake.
            await self._snapshots.forget(keeper.snapshot_id, now=purpose != "ended" or keeper.automatic)
        finally:
            self._forgetting.discard(keeper.snapshot_id)
        self._note(Decision.DELETION, sandbox_id, keeper.snapshot_id, purpose)

    def _note(self, decision: Decision, sandbox_id: str, snapshot_id: str, purpose: str) -> None:
        """The fleet decided it; calls have records of their own."""
        details = {"snapshot_id": snapshot_id, "purpose": purpose}
        self._write(Record(decision=decision, verdict=Verdict.ALLOWED, sandbox=sandbox_id, details=details))

    def _prune(self) -> None:
        if len(self._keeping) >= MOST:
            inventory = self._fleet.scheduler.inventory
            self._keeping = {name: one for name, one in self._keeping.items() if inventory.get(name) is not None}


def _narrower(kept: Mapping[str, float], limits: Limits) -> Limits:
    """What both allow. A limit of 0 is none."""
    here = in_numbers(limits)
    both = {name: min(kept.get(name) or math.inf, value or math.inf) for name, value in here.items()}
    kinds = {name: type(value) for name, value in asdict(limits).items()}
    return Limits(**{name: kinds[name](value) for name, value in both.items() if value < math.inf})
