"""The part of the fleet's API that signs heads of journals."""

from sandfleet_api.fleet.v1 import fleet_pb2

from sandfleet_operator.api.values import Sandbox
from sandfleet_operator.cluster.reviews import Caller
from sandfleet_operator.fleet.journals.witness import Witness, message
from sandfleet_operator.fleet.kubernetes.fleet import KubernetesFleet


class JournalCalls:
    """The part of the fleet's API that signs heads of journals."""

    _kubernetes: KubernetesFleet
    _witness: Witness

    async def _claimed(self, caller: Caller, sandbox_id: str, *, doing: str) -> Sandbox:
        """The session of a claim, for a caller who may run code in it. Raises FleetError."""
        raise NotImplementedError

    def _check_awake(self, known: Sandbox, sandbox_id: str) -> None:
        """Raises FleetError, with the id that the caller knows."""
        raise NotImplementedError

    async def countersign_journal(
        self, caller: Caller, request: fleet_pb2.CountersignJournalRequest
    ) -> fleet_pb2.CountersignJournalResponse:
        known = await self._claimed(caller, request.sandbox_id, doing="sign the journal")
        self._check_awake(known, request.sandbox_id)
        present = await self._kubernetes.fleet.get(known.sandbox_id, reachable=False)
        heads = await self._witness.countersign(present)
        return fleet_pb2.CountersignJournalResponse(heads=map(message, heads))
