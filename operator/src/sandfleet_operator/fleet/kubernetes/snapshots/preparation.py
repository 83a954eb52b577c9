"""Pools that start from a snapshot: their sandboxes are filled before they are warm.

Only files are put in place. No code of the snapshot runs before the executor is verified and a claim has opened its
session, which then gets the variables and services. What the session had received goes with the sandbox into the record
of its claim, in the write that binds it.
"""

from collections.abc import Callable
from contextlib import aclosing, suppress

from sandfleet_operator.api.values import Mark, Sandbox, marks_of
from sandfleet_operator.cluster.lease import NotLeadingError
from sandfleet_operator.fleet.kubernetes.fleet import KubernetesFleet
from sandfleet_operator.fleet.kubernetes.snapshots.parties import Parties
from sandfleet_operator.fleet.snapshots.jobs import Event, Jobs
from sandfleet_operator.fleet.snapshots.messages import check_reference
from sandfleet_operator.fleet.snapshots.transfers import Party, Transfers
from sandfleet_operator.plan.audit import Decision, Record, Verdict
from sandfleet_operator.plan.claims.patches import filled_patch
from sandfleet_operator.plan.pods import names


class PoolPreparation:
    """What fills the sandboxes of pools (fleet.incarnations.Preparation). `write` writes audit records."""

    def __init__(
        self, kubernetes: KubernetesFleet, jobs: Jobs, parties: Parties, write: Callable[[Record], None]
    ) -> None:
        self._kubernetes, self._jobs, self._parties = kubernetes, jobs, parties
        self._transfers, self._write = Transfers(jobs), write

    async def prepare(self, sandbox: Sandbox) -> frozenset[Mark]:
        """Raises FleetError. What an earlier leader has put into a warm sandbox stays."""
        recipe = self._kubernetes.catalog.recipe(sandbox.pool)
        snapshot = recipe.spec.snapshot if recipe is not None else ""
        if not snapshot or (sandbox.claim is not None and sandbox.claim.alone):
            return frozenset()
        check_reference(snapshot)
        party = self._parties.unclaimed(sandbox)
        said = await self._found(sandbox, party, snapshot) or await self._fill(sandbox, party, snapshot)
        received = marks_of(said["received"])
        await self._note(sandbox, received)
        return received

    async def _note(self, sandbox: Sandbox, received: frozenset[Mark]) -> None:
        """On the pod, for the next leader. One that leads by now asks the executor."""
        pod = self._kubernetes.pod_of(sandbox)
        if pod is not None and names.FILLED not in pod.annotations:
            with suppress(NotLeadingError):
                await self._kubernetes.patch_pod(sandbox, filled_patch(pod.uid, received))

    async def _found(self, sandbox: Sandbox, party: Party, snapshot: str) -> Event | None:
        """The pool's snapshot, if the sandbox has it already."""
        if not (held := await self._kubernetes.executors.prepared(sandbox)):
            return None
        said: Event = (await self._jobs.answer("get", tenant=party.tenant, snapshot=snapshot))["snapshot"]
        return said if said["id"] == held else None

    async def _fill(self, sandbox: Sandbox, party: Party, snapshot: str) -> Event:
        fleet, last = self._kubernetes.fleet, Event()
        async with aclosing(self._transfers.prepared(party, snapshot)) as events:
            async for event in events:
                fleet.scheduler.suspensions.filling(sandbox.sandbox_uid, fleet.now())
                last = event
        said: Event = last["snapshot"]
        details = {"snapshot_id": said["id"], "purpose": "pool"}
        self._write(
            Record(decision=Decision.RESTORATION, verdict=Verdict.ALLOWED, sandbox=party.sandbox_id, details=details)
        )
        return said
