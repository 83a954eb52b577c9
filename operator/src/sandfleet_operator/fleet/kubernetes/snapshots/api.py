"""Snapshots of a cluster's sessions, as callers have them. A tenant is a namespace; its rights are the caller's."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from sandfleet_api.executor.v1 import session_pb2
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
from sandfleet_operator.fleet.snapshots.transfers import Party, Transfers


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
        self._sessions, self._jobs, self.transfers = sessions, jobs, Transfers(jobs)

    async def authenticate(self, token: str) -> Caller:
        return await self._reviews.authenticate(token)

    async def tenant(self, caller: Caller, verb: str, namespace: str) -> str:
        feed.parse_id(f"{namespace}/x", doing=f"{verb} snapshots")
        await self._reviews.authorize(caller, verb, namespace, "", kind=SANDBOX_SNAPSHOT)
        self._sessions.check_serving(f"{verb} snapshots")
        return namespace

    async def resumption(self, sandbox_id: str) -> session_pb2.Resumption | None:
        session = self._kubernetes.session_of(sandbox_id)
        return await self._kubernetes.suspender.resumption(session.sandbox_id) if session else None

    def changed(self, tenant: str) -> None:
        self._kubernetes.snapshots_changed(tenant)

    async def exported(self, tenant: str, snapshot: str) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._jobs.run("export", tenant=tenant, snapshot=snapshot)) as events:
            async for event in events:
                if event["event"] == "piece":
                    yield event["data"]
                    # Its caller has taken it: no more than one piece waits here.
                    self._jobs.tell(event, "more")

    async def imported(
        self, caller: Caller, tenant: str, header: pb.ImportSnapshotRequest.Header, pieces: AsyncGenerator[bytes, None]
    ) -> Event:
        """The snapshotter asks for each piece."""
        template, offers = self._offers(tenant, header.template or "python")
        words = {"name": header.name, "template": template, "owner": caller.username}
        last = Event()
        async with aclosing(self._jobs.run("import", tenant=tenant, words=words, offers=offers)) as events:
            async for event in events:
                last = event
                if event["event"] == "more":
                    data = await anext(pieces, None)
                    self._jobs.tell(event, "piece", data=data or b"", last=data is None)
        return last

    def _offers(self, namespace: str, template: str) -> tuple[str, dict[str, dict[str, float]]]:
        """What the template gives at most: contract → limits. Raises FleetError."""
        offers = {}
        for contract in Contract:
            recipe = self._kubernetes.catalog.resolve(namespace, "", template, contract)
            if recipe.wanted is not None and recipe.wanted.contract is contract:
                offers[contract.value] = in_numbers(recipe.wanted.limits)
        return template, offers

    async def party(self, caller: Caller, sandbox_id: str, verb: str, *, doing: str) -> Party:
        namespace, name = feed.parse_id(sandbox_id, doing=doing)
        await self._reviews.authorize(caller, "create", namespace, name, CONNECT)
        await self.tenant(caller, verb, namespace)
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
