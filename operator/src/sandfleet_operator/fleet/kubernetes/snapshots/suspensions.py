"""The part of the fleet's API that suspends sessions."""

from sandfleet_api.fleet.v1 import fleet_pb2

from sandfleet_operator.api.kube import SANDBOX_SNAPSHOT
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.api.values import ASLEEP, Sandbox
from sandfleet_operator.cluster.reviews import Caller, Reviews
from sandfleet_operator.fleet import convert
from sandfleet_operator.fleet.kubernetes import feed
from sandfleet_operator.fleet.kubernetes.fleet import KubernetesFleet
from sandfleet_operator.fleet.kubernetes.sessions.shown import Sessions
from sandfleet_operator.fleet.kubernetes.snapshots.parking import ClusterParking


class SuspensionCalls:
    _reviews: Reviews
    _kubernetes: KubernetesFleet
    _sessions: Sessions
    # None: no snapshotter can be reached.
    parking: ClusterParking | None = None

    async def _claimed(self, caller: Caller, sandbox_id: str, *, doing: str) -> Sandbox:
        """The session of a claim, for a caller who may run code in it. Raises FleetError."""
        raise NotImplementedError

    async def suspend(self, caller: Caller, request: fleet_pb2.SuspendRequest) -> fleet_pb2.SuspendResponse:
        known = await self._claimed(caller, request.sandbox_id, doing="suspend")
        seconds = convert.suspension_seconds(request)
        if request.to == fleet_pb2.SUSPEND_TO_SNAPSHOT and known.state not in ASLEEP:
            return await self._parked(caller, known, request, seconds)
        if known.state not in ASLEEP:
            self._check_volume(await self._kubernetes.fleet.get(known.sandbox_id, reachable=False), request.sandbox_id)
        suspender = self._kubernetes.suspender
        sandbox, kept = await suspender.suspend(known.sandbox_id, force=request.force, seconds=seconds)
        return fleet_pb2.SuspendResponse(sandbox=self._sessions.message(sandbox), suspension=kept)

    async def _parked(
        self, caller: Caller, known: Sandbox, request: fleet_pb2.SuspendRequest, seconds: float | None
    ) -> fleet_pb2.SuspendResponse:
        namespace, _ = feed.parse_id(request.sandbox_id, doing="suspend")
        await self._reviews.authorize(caller, "create", namespace, "", kind=SANDBOX_SNAPSHOT)
        if self.parking is None:
            raise ClaimReason.UNIMPLEMENTED.error("cannot suspend into a snapshot: this fleet keeps none")
        asleep, kept, snapshot_id = await self.parking.park(
            caller.username, known.sandbox_id, force=request.force, seconds=seconds
        )
        message = self._sessions.message(asleep)
        return fleet_pb2.SuspendResponse(sandbox=message, suspension=kept, snapshot_id=snapshot_id)

    def _check_volume(self, sandbox: Sandbox, sandbox_id: str) -> None:
        """Raises FleetError where the workspace is a directory of the pod."""
        pod = self._kubernetes.pod_of(sandbox)
        if pod is not None and not pod.workspace_claim:
            why = f"the workspace of template {sandbox.template!r} is a directory of the pod, and ends with it"
            how = "use a template without workspace.ephemeral, or copy the files out and release the sandbox"
            raise ClaimReason.WORKSPACE_EPHEMERAL.error(f"cannot suspend {sandbox_id}: {why}; {how}", sandbox_id)
