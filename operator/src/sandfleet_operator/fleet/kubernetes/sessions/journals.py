"""The part of the fleet's API that reads what executors and pods say: heads of journals, usage, times."""

import asyncio
from collections.abc import Sequence

from sandfleet_api.fleet.v1 import fleet_pb2

from sandfleet_operator.api.values import Sandbox
from sandfleet_operator.cluster.reviews import Caller
from sandfleet_operator.fleet.journals.witness import Witness, message
from sandfleet_operator.fleet.kubernetes.fleet import KubernetesFleet
from sandfleet_operator.fleet.usage.meter import UsageMeter
from sandfleet_operator.plan.claims.patches import journal_patch
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.witness import Signed, remembered, remembrance


class PodMemory:
    """The newest signed head of each session, as an annotation of its pod. Only the control plane writes it."""

    def __init__(self, kubernetes: KubernetesFleet) -> None:
        self._kubernetes = kubernetes

    def recall(self, sandbox: Sandbox) -> Signed | None:
        session, pod_uid = self._kubernetes.known_as(sandbox)
        return remembered(self._kubernetes.annotation_of(sandbox, names.JOURNAL_HEAD), session, pod_uid)

    async def keep(self, sandbox: Sandbox, signed: Signed) -> None:
        await self._kubernetes.patch_pod(sandbox, journal_patch(signed.pod_uid, remembrance(signed)))


class JournalCalls:
    """The part of the fleet's API that reads what executors and pods say: heads of journals, usage, times."""

    _kubernetes: KubernetesFleet
    _witness: Witness
    _usage: UsageMeter

    async def _claimed(self, caller: Caller, sandbox_id: str, *, doing: str) -> Sandbox:
        """The session of a claim, for a caller who may run code in it. Raises FleetError."""
        raise NotImplementedError

    def _check_awake(self, known: Sandbox, sandbox_id: str) -> None:
        """Raises FleetError, with the id that the caller knows."""
        raise NotImplementedError

    def pod_marks(self, sandbox: Sandbox) -> Sequence[tuple[str, float]]:
        pod = self._kubernetes.pod_of(sandbox)
        return pod.marks if pod else ()

    def _read_behind(self, sandbox: Sandbox) -> Sequence[Signed]:
        """At a Renew: reads the executor behind the answer. The heads that are signed by now."""
        self._usage.renewed(sandbox)
        return self._witness.renewed(sandbox)

    async def _read_last(self, sandbox: Sandbox | None) -> Sequence[Signed]:
        """At a Release: reads the executor before the session ends. The heads that are signed then."""
        heads, _ = await asyncio.gather(self._witness.released(sandbox), self._usage.released(sandbox))
        return heads

    async def countersign_journal(
        self, caller: Caller, request: fleet_pb2.CountersignJournalRequest
    ) -> fleet_pb2.CountersignJournalResponse:
        known = await self._claimed(caller, request.sandbox_id, doing="sign the journal")
        self._check_awake(known, request.sandbox_id)
        present = await self._kubernetes.fleet.get(known.sandbox_id, reachable=False)
        heads = await self._witness.countersign(present)
        return fleet_pb2.CountersignJournalResponse(heads=map(message, heads))
