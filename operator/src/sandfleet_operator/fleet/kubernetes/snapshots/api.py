"""Snapshots of a cluster's sessions, as callers have them. A tenant is a namespace; its rights are the caller's."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from sandfleet_api.fleet.v1 import snapshot_pb2 as pb

from sandfleet_operator.api.kinds.template import Contract
from sandfleet_operator.api.kube import SANDBOX_SNAPSHOT
from sandfleet_operator.api.limits import in_numbers
from sandfleet_operator.api.reasons import ClaimReason, SuspendReason
from sandfleet_operator.api.values import ASLEEP
from sandfleet_operator.cluster.reviews import Caller, Reviews
from sandfleet_operator.fleet.driver import suspended
from sandfleet_operator.fleet.kubernetes import feed
from sandfleet_operator.fleet.kubernetes.fleet import KubernetesFleet
from sandfleet_operator.fleet.kubernetes.sessions.received import CONNECT
from sandfleet_operator.fleet.kubernetes.snapshots.parties import Parties, Sessions
from sandfleet_operator.fleet.snapshots.jobs import Event, Jobs
from sandfleet_operator.fleet.snapshots.messages import check_new, check_reference, message, progress
from sandfleet_operator.fleet.snapshots.transfers import Party, Transfers, restored
from sandfleet_operator.plan.snapshots.reasons import SnapshotReason

# Of an imported file.
MAX_IMPORT_BYTES = 1 << 40


class KubernetesSnapshots:
    """`jobs` reaches a snapshotter.

    A session of a claim can be saved; a sandbox that kubectl made cannot.
    """

    def __init__(
        self,
        kubernetes: KubernetesFleet,
        reviews: Reviews,
        jobs: Jobs,
        parties: Parties,
        sessions: Sessions,
    ) -> None:
        self._kubernetes, self._reviews, self._parties = kubernetes, reviews, parties
        self._sessions, self._jobs, self._transfers = sessions, jobs, Transfers(jobs)

    async def authenticate(self, token: str) -> Caller:
        return await self._reviews.authenticate(token)

    async def create(
        self, caller: Caller, request: pb.CreateSnapshotRequest
    ) -> AsyncIterator[pb.CreateSnapshotResponse]:
        check_new(request.name, request.labels, request.reason)
        party = await self._party(caller, request.sandbox_id, "create", doing="take a snapshot")
        words = {"name": request.name, "labels": dict(request.labels), "reason": request.reason or "manual"}
        async with aclosing(self._transfers.save(party, caller.username, words)) as events:
            async for event in events:
                if event["event"] == "progress":
                    yield pb.CreateSnapshotResponse(progress=progress(event))
                else:
                    self._kubernetes.snapshots_changed(party.tenant)
                    yield pb.CreateSnapshotResponse(snapshot=message(event["snapshot"]))

    async def restore(
        self, caller: Caller, request: pb.RestoreSnapshotRequest
    ) -> AsyncIterator[pb.RestoreSnapshotResponse]:
        check_reference(request.snapshot)
        party = await self._party(caller, request.sandbox_id, "get", doing="restore a snapshot")
        async with aclosing(self._transfers.restore(party, request.snapshot, force=request.force)) as events:
            async for event in events:
                if event["event"] == "progress":
                    yield pb.RestoreSnapshotResponse(progress=progress(event))
                else:
                    yield pb.RestoreSnapshotResponse(restored=await self._back(request.sandbox_id, event))

    async def _back(self, sandbox_id: str, event: Event) -> pb.RestoreSnapshotResponse.Restored:
        back, session = restored(event), self._kubernetes.session_of(sandbox_id)
        resumption = await self._kubernetes.suspender.resumption(session.sandbox_id) if session else None
        if resumption is not None:
            back.resumption.CopyFrom(resumption)
        return back

    async def get(self, caller: Caller, request: pb.GetSnapshotRequest) -> pb.GetSnapshotResponse:
        check_reference(request.snapshot)
        await self._may(caller, "get", request.namespace)
        return pb.GetSnapshotResponse(snapshot=await self._transfers.get(request.namespace, request.snapshot))

    async def list(self, caller: Caller, request: pb.ListSnapshotsRequest) -> pb.ListSnapshotsResponse:
        namespace = request.sandbox_id.partition("/")[0] if request.sandbox_id else request.namespace
        await self._may(caller, "list", namespace)
        found = await self._transfers.list(namespace, request.sandbox_id, deleted=request.deleted)
        return pb.ListSnapshotsResponse(snapshots=found)

    async def delete(self, caller: Caller, request: pb.DeleteSnapshotRequest) -> pb.DeleteSnapshotResponse:
        check_reference(request.snapshot)
        await self._may(caller, "delete", request.namespace)
        existed = await self._transfers.forget(request.namespace, request.snapshot, now=request.now)
        self._kubernetes.snapshots_changed(request.namespace)
        return pb.DeleteSnapshotResponse(existed=existed)

    async def undelete(self, caller: Caller, request: pb.UndeleteSnapshotRequest) -> pb.UndeleteSnapshotResponse:
        """For callers who may delete it."""
        check_reference(request.snapshot)
        await self._may(caller, "delete", request.namespace)
        back = await self._transfers.undelete(request.namespace, request.snapshot)
        self._kubernetes.snapshots_changed(request.namespace)
        return pb.UndeleteSnapshotResponse(snapshot=back)

    async def export(
        self, caller: Caller, request: pb.ExportSnapshotRequest
    ) -> AsyncIterator[pb.ExportSnapshotResponse]:
        check_reference(request.snapshot)
        await self._may(caller, "export", request.namespace)
        job = self._jobs.run("export", tenant=request.namespace, snapshot=request.snapshot)
        async with aclosing(job) as events:
            async for event in events:
                if event["event"] == "piece":
                    yield pb.ExportSnapshotResponse(data=event["data"])
                    # Its caller has taken it: no more than one piece waits here.
                    self._jobs.tell(event, "more")

    async def import_(
        self, caller: Caller, requests: AsyncIterator[pb.ImportSnapshotRequest]
    ) -> pb.ImportSnapshotResponse:
        first = await anext(requests, None)
        if first is None or first.WhichOneof("part") != "header":
            why = "cannot import: the stream has to begin with a header"
            raise SnapshotReason.SNAPSHOT_INVALID.error(why)
        header = first.header
        check_new(header.name, {}, "")
        await self._may(caller, "import", header.namespace)
        template, offers = self._offers(header.namespace, header.template or "python")
        words = {"name": header.name, "template": template, "owner": caller.username}
        job = self._jobs.run("import", tenant=header.namespace, words=words, offers=offers)
        async with aclosing(job) as events:
            event = await self._imported(events, requests)
        self._kubernetes.snapshots_changed(header.namespace)
        return pb.ImportSnapshotResponse(snapshot=message(event["snapshot"]))

    async def _imported(
        self, events: AsyncGenerator[Event, None], requests: AsyncIterator[pb.ImportSnapshotRequest]
    ) -> Event:
        """The last event. The snapshotter asks for each piece. Raises FleetError."""
        size, last = 0, Event()
        async for event in events:
            last = event
            if event["event"] != "more":
                continue
            request = await anext(requests, None)
            data = request.data if request is not None else b""
            size += len(data)
            if request is not None and (request.WhichOneof("part") != "data" or size > MAX_IMPORT_BYTES):
                raise SnapshotReason.SNAPSHOT_INVALID.error("cannot import: after the header only data may come")
            self._jobs.tell(event, "piece", data=data, last=request is None)
        return last

    def _offers(self, namespace: str, template: str) -> tuple[str, dict[str, dict[str, float]]]:
        """What the template gives at most: contract → limits. Raises FleetError."""
        offers = {}
        for contract in Contract:
            recipe = self._kubernetes.catalog.resolve(namespace, "", template, contract)
            if recipe.wanted is not None and recipe.wanted.contract is contract:
                offers[contract.value] = in_numbers(recipe.wanted.limits)
        return template, offers

    async def _may(self, caller: Caller, verb: str, namespace: str) -> None:
        """Raises FleetError."""
        feed.parse_id(f"{namespace}/x", doing=f"{verb} snapshots")
        await self._reviews.authorize(caller, verb, namespace, "", kind=SANDBOX_SNAPSHOT)
        self._sessions.check_serving(f"{verb} snapshots")

    async def _party(self, caller: Caller, sandbox_id: str, verb: str, *, doing: str) -> Party:
        """Raises FleetError."""
        namespace, name = feed.parse_id(sandbox_id, doing=doing)
        await self._reviews.authorize(caller, "create", namespace, name, CONNECT)
        await self._may(caller, verb, namespace)
        known = self._kubernetes.session_of(sandbox_id)
        if known is None or not known.bound:
            there = self._kubernetes.object_of(sandbox_id) is not None
            reason = SuspendReason.NOT_CLAIMED if there else ClaimReason.SANDBOX_NOT_FOUND
            why = "no claim of the fleet has made it" if there else "there is no such sandbox, or it has ended"
            raise reason.error(f"cannot {doing} of {sandbox_id}: {why}", sandbox_id)
        await self._kubernetes.suspender.settled(known.sandbox_id, sandbox_id)
        present = self._kubernetes.session_of(sandbox_id) or known
        if present.state in ASLEEP:
            preempted = self._kubernetes.scheduler.suspensions.is_preempted(present)
            raise suspended(sandbox_id, preempted=preempted)
        return self._parties.of(await self._kubernetes.fleet.get(present.sandbox_id, reachable=True))
