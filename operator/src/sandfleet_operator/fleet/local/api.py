"""The fleet's API on one machine: one template, one pool, one caller and no namespaces."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

from sandfleet_api.fleet.v1 import egress_pb2, fleet_pb2

from sandfleet_operator.api.kinds.queue import DEFAULT_QUEUE
from sandfleet_operator.api.kinds.template import Contract
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.api.selectors import parse_selector
from sandfleet_operator.api.validate import MAX_LEASE, check_duration, check_id
from sandfleet_operator.api.values import Claim, Image, Isolation, Mark, Sandbox, State, Template
from sandfleet_operator.cluster.reviews import Caller
from sandfleet_operator.fleet import convert
from sandfleet_operator.fleet.claim_watches import ClaimWatch
from sandfleet_operator.fleet.driver import FleetDriver
from sandfleet_operator.fleet.journals.witness import Witness, unwitnessed
from sandfleet_operator.fleet.journals.witness import message as head_message
from sandfleet_operator.fleet.local.egress import LocalEgress
from sandfleet_operator.fleet.local.parking import Parking
from sandfleet_operator.fleet.local.received import LocalReceived
from sandfleet_operator.fleet.local.reviews import TOKEN_HOLDER, ReviewerTokens, check_reviewer
from sandfleet_operator.fleet.queue_messages import explanation_message, queue_message
from sandfleet_operator.fleet.reviews.board import ReviewBoard
from sandfleet_operator.fleet.reviews.claims import check_reviewable
from sandfleet_operator.fleet.suspender import Suspender
from sandfleet_operator.fleet.usage.meter import UsageMeter, unmetered
from sandfleet_operator.plan.scheduler.refill import Pool

NO_NETWORK = fleet_pb2.EgressStatus(
    state=fleet_pb2.EGRESS_STATE_DENIED, reason="NoNetwork", message="it has no network but its own loopback"
)
MACHINES_NETWORK = fleet_pb2.EgressStatus(
    reason="MachinesNetwork", message="nothing keeps it from the machine's network"
)


# Names of an egress list that its status shows.
SHOWN_NAMES = 5
# Pools of one fleet: one for each contract, and for each image that a claim has named.
MAX_POOLS = 256
NOT_IN_SNAPSHOTS = "a snapshot names no root of this machine; make one, and create a sandbox with it and the image"
Reviewing = tuple[ReviewBoard, ReviewerTokens]


class LocalFleetApi:
    """`templates` are those of the pools, one for each contract that is served; the first is for claims that name none.

    `holder` is the caller: the transport lets in the owner of the socket's private directory only.
    """

    def __init__(
        self,
        fleet: FleetDriver,
        suspender: Suspender,
        templates: dict[str, Template],
        holder: str,
        reviewing: Reviewing,
        *,
        witness: Witness | None = None,
        usage: UsageMeter | None = None,
        egress: LocalEgress | None = None,
    ) -> None:
        self._reviews, self._reviewers = reviewing
        self._fleet = fleet
        self._suspender = suspender
        self._templates = templates
        self._caller = Caller(holder)
        self._witness, self._usage = witness or unwitnessed(), usage or unmetered()
        self._egress = egress
        self.received = LocalReceived(fleet.scheduler.inventory)
        # None: this fleet keeps no snapshots.
        self.parking: Parking | None = None

    async def authenticate(self, token: str) -> Caller:
        """The transport has let the caller in; only reviewers need a token."""
        reviewer = self._reviewers.holder(token)
        return Caller(reviewer, TOKEN_HOLDER) if reviewer else self._caller

    def check_serving(self, doing: str) -> None:
        """A fleet of one machine has no rival: FleetDriver itself refuses claims while it starts and stops."""

    async def claim(self, caller: Caller, request: fleet_pb2.ClaimRequest, traceparent: str) -> ClaimWatch:
        return self._fleet.claim(self._requested(caller, request, traceparent))

    def _requested(self, caller: Caller, request: fleet_pb2.ClaimRequest, traceparent: str) -> Claim:
        if request.like:
            check_id(request.like, "sandbox id", doing="claim")
            # NOT_FOUND where it has ended.
            origin = self._suspender.session(request.like).claim
            request = convert.like(request, origin) if origin else request
        pool, template = self._wanted(convert.contract(request))
        if request.image:
            pool, template = self._pool_of_image(pool, template, convert.image(request))
        claim = convert.claim(request, caller.username, template, traceparent)
        _check_kept(claim)
        self._check_no_cluster(request, template)
        check_egress(claim, template)
        if template.contract == Contract.REVIEWED.value:
            check_reviewable(request)
        queue = self._fleet.scheduler.queues.named(claim.queue, DEFAULT_QUEUE)
        # Another template has no pool here, which the scheduler says.
        pool = pool if claim.pool == template.name else claim.pool
        return replace(claim, queue=queue, pool=pool, key=replace(claim.key, pool=pool))

    def _pool_of_image(self, pool: str, template: Template, image: Image) -> tuple[str, Template]:
        """A pool of its own, which keeps no sandbox warm, and its template. Raises FleetError."""
        if template.isolation is Isolation.NONE:
            why = "without a session namespace code has the machine's own root"
            raise ClaimReason.IMAGE_UNAVAILABLE.error(f"cannot claim with an image: {why}", image.path)
        if not Path(image.path).is_dir():
            why = "there is no such folder on this machine"
            raise ClaimReason.IMAGE_UNAVAILABLE.error(f"cannot claim with the image {image.path}: {why}", image.path)
        found = replace(template, image=image)
        name = next((name for name, each in self._templates.items() if each == found), "")
        if name:
            return name, found
        if len(self._templates) >= MAX_POOLS:
            why = f"this fleet has had {MAX_POOLS} of them already"
            raise ClaimReason.IMAGE_UNAVAILABLE.error(f"cannot claim with another image: {why}", image.path)
        name = f"{pool}-image-{len(self._templates)}"
        self._templates[name] = found
        self._fleet.do(self._fleet.scheduler.set_pool(Pool(name=name, template=found), self._fleet.now()))
        return name, found

    def _wanted(self, contract: Contract | None) -> tuple[str, Template]:
        """The pool for a contract, and its template. Raises FleetError."""
        for pool, template in self._templates.items():
            if contract is None or template.contract == contract.value:
                return pool, template
        assert contract is not None
        why = f"contract {contract.value} needs a session namespace, and without one code has all that this machine has"
        raise ClaimReason.CONTRACT_NOT_SUPPORTED.error(f"cannot claim: {why}")

    @staticmethod
    def _check_no_cluster(request: fleet_pb2.ClaimRequest, template: Template) -> None:
        """Raises FleetError where the claim asks for what only a cluster has. The pool has the name of its template."""
        if request.name:
            why = "sandboxes of one machine have the names that it makes up"
            raise ClaimReason.NO_CLUSTER.error(f"cannot claim with the name {request.name[:80]!r}: {why}")
        _check_no_namespace(request.namespace, doing="claim")
        if request.pool and {request.pool, request.template} - {""} != {template.name}:
            what = f"pool {request.pool[:80]!r}" + (
                f" of template {request.template[:80]!r}" if request.template else ""
            )
            raise ClaimReason.POOL_NOT_FOUND.error(f"cannot claim: there is no {what} on one machine")

    async def bound(self, caller: Caller, sandbox: Sandbox) -> fleet_pb2.Bound:  # noqa: ARG002 - there is one caller
        # A request that is repeated may find its sandbox recovering.
        present = await self._fleet.get(sandbox.sandbox_id, reachable=False)
        message = _message(present)
        if present.contract == Contract.REVIEWED.value:
            self._reviews.follow(present.sandbox_id)
        return fleet_pb2.Bound(
            sandbox=message, access=self._access(present), warm=present.warm, egress=message.egress.state
        )

    def pod_marks(self, sandbox: Sandbox) -> Sequence[tuple[str, float]]:  # noqa: ARG002 - one machine has no pods
        return ()

    async def suspend(self, caller: Caller, request: fleet_pb2.SuspendRequest) -> fleet_pb2.SuspendResponse:
        check_id(request.sandbox_id, "sandbox id", doing="suspend")
        if request.to == fleet_pb2.SUSPEND_TO_SNAPSHOT:
            return await self._parked(caller, request)
        sandbox, kept = await self._suspender.suspend(
            request.sandbox_id, force=request.force, seconds=convert.suspension_seconds(request)
        )
        return fleet_pb2.SuspendResponse(sandbox=_message(sandbox), suspension=kept)

    async def _parked(self, caller: Caller, request: fleet_pb2.SuspendRequest) -> fleet_pb2.SuspendResponse:
        if self.parking is None:
            raise ClaimReason.UNIMPLEMENTED.error("cannot suspend into a snapshot: this fleet keeps none")
        known = self._fleet.scheduler.inventory.get(request.sandbox_id)
        if known and known.claim and known.claim.image:
            raise ClaimReason.IMAGE_UNAVAILABLE.error(f"cannot suspend into a snapshot: {NOT_IN_SNAPSHOTS}")
        # What they say of it is asked while its executor is there.
        await asyncio.gather(self._witness.released(known), self._usage.released(known))
        sandbox, kept, snapshot_id = await self.parking.park(caller, request.sandbox_id, force=request.force)
        return fleet_pb2.SuspendResponse(sandbox=_message(sandbox), suspension=kept, snapshot_id=snapshot_id)

    async def resume(self, caller: Caller, request: fleet_pb2.ResumeRequest) -> ClaimWatch:
        check_id(request.sandbox_id, "sandbox id", doing="resume")
        if self.parking is not None:
            await self.parking.take_in(caller, request.sandbox_id)
        return self._fleet.resume(request.sandbox_id, convert.max_wait(request, doing="resume"))

    async def resumed(self, caller: Caller, sandbox: Sandbox) -> fleet_pb2.ResumeResponse:
        bound = await self.bound(caller, sandbox)
        return fleet_pb2.ResumeResponse(bound=bound, resumption=await self._suspender.resumption(sandbox.sandbox_id))

    async def release(self, caller: Caller, request: fleet_pb2.ReleaseRequest) -> fleet_pb2.ReleaseResponse:  # noqa: ARG002 - there is one caller
        check_id(request.sandbox_id, "sandbox id", doing="release")
        if request.unless_suspended and self._suspender.is_asleep(request.sandbox_id):
            return fleet_pb2.ReleaseResponse(released=False)
        known = self._fleet.scheduler.inventory.get(request.sandbox_id)
        heads, _ = await asyncio.gather(self._witness.released(known), self._usage.released(known))
        released = await self._fleet.release(request.sandbox_id)
        if released and self.parking is not None:
            await self.parking.ended(request.sandbox_id)
        return fleet_pb2.ReleaseResponse(released=released, journal_heads=map(head_message, heads))

    async def renew(self, caller: Caller, request: fleet_pb2.RenewRequest) -> fleet_pb2.RenewResponse:  # noqa: ARG002 - there is one caller
        check_id(request.sandbox_id, "sandbox id", doing="renew the lease")
        lease = convert.seconds(request, "lease")
        if lease is not None:
            check_duration(lease, "lease", most=MAX_LEASE, doing="renew the lease")
        sandbox = await self._fleet.renew(request.sandbox_id, lease)
        self._usage.renewed(sandbox)
        heads = map(head_message, self._witness.renewed(sandbox))
        return fleet_pb2.RenewResponse(sandbox=_message(sandbox), access=self._access(sandbox), journal_heads=heads)

    async def get(self, caller: Caller, request: fleet_pb2.GetRequest) -> fleet_pb2.GetResponse:  # noqa: ARG002 - there is one caller
        check_id(request.sandbox_id, "sandbox id", doing="get")
        if not request.with_access and self._suspender.is_asleep(request.sandbox_id):
            return fleet_pb2.GetResponse(sandbox=_message(self._suspender.session(request.sandbox_id)))
        if request.with_access:
            await self._suspender.settled(request.sandbox_id, request.sandbox_id)
            if self.parking is not None:
                await self.parking.settled(request.sandbox_id)
        sandbox = await self._fleet.get(request.sandbox_id, reachable=request.with_access)
        access = self._access(sandbox) if request.with_access else None
        return fleet_pb2.GetResponse(sandbox=_message(sandbox), access=access)

    async def list(self, caller: Caller, request: fleet_pb2.ListRequest) -> fleet_pb2.ListResponse:  # noqa: ARG002 - there is one caller
        _check_no_namespace(request.namespace, doing="list")
        if request.page_token:
            check_id(request.page_token, "page token", doing="list")
        convert.check_selector_length(request.label_selector)
        size = convert.page_size(request)
        found = _selected(self._fleet, request, size + 1)
        page = found[:size]
        following = page[-1].sandbox_id if len(found) > size else ""
        return fleet_pb2.ListResponse(sandboxes=[_message(one) for one in page], next_page_token=following)

    async def watch(self, caller: Caller, request: fleet_pb2.WatchRequest) -> AsyncIterator[fleet_pb2.WatchResponse]:  # noqa: ARG002 - it is refused
        why = "cannot watch: only the sandboxes of a cluster can be watched; list those of one machine"
        raise ClaimReason.UNIMPLEMENTED.error(why)

    async def list_pools(self, caller: Caller, request: fleet_pb2.ListPoolsRequest) -> fleet_pb2.ListPoolsResponse:  # noqa: ARG002 - there is one caller
        _check_no_namespace(request.namespace, doing="list pools")
        return fleet_pb2.ListPoolsResponse(pools=[convert.pool_message(*one) for one in self._fleet.pools()])

    async def route(self, caller: Caller, request: fleet_pb2.RouteRequest) -> fleet_pb2.RouteResponse:  # noqa: ARG002 - it is refused
        why = "cannot find the way to a sandbox: those of one machine are reached by their sockets"
        raise ClaimReason.UNIMPLEMENTED.error(why)

    async def list_queues(self, caller: Caller, request: fleet_pb2.ListQueuesRequest) -> fleet_pb2.ListQueuesResponse:  # noqa: ARG002 - there is one caller
        _check_no_namespace(request.namespace, doing="list queues")
        return fleet_pb2.ListQueuesResponse(queues=[queue_message(one) for one in self._fleet.queue_views.all()])

    async def explain(self, caller: Caller, request: fleet_pb2.ExplainRequest) -> fleet_pb2.ExplainResponse:
        _check_no_namespace(request.namespace, doing="explain")
        match request.WhichOneof("subject"):
            case "claim":
                return explanation_message(self._fleet.queue_views.expect(self._requested(caller, request.claim, "")))
            case "sandbox_id":
                check_id(request.sandbox_id, "sandbox id", doing="explain")
                return explanation_message(self._fleet.queue_views.explain_session(request.sandbox_id))
            case _:
                check_id(request.request_id, "request id", doing="explain")
                return explanation_message(self._fleet.queue_views.explain_request(caller.username, request.request_id))

    async def list_reviews(
        self, caller: Caller, request: fleet_pb2.ListReviewsRequest
    ) -> fleet_pb2.ListReviewsResponse:
        check_reviewer(self._reviewers, caller)
        _check_no_namespace(request.namespace, doing="list reviews")
        return self._reviews.waiting(request.sandbox_id)

    async def watch_reviews(
        self, caller: Caller, request: fleet_pb2.WatchReviewsRequest
    ) -> AsyncIterator[fleet_pb2.WatchReviewsResponse]:
        check_reviewer(self._reviewers, caller)
        return self._reviews.watch(request.sandbox_id)

    async def answer_review(
        self, caller: Caller, request: fleet_pb2.AnswerReviewRequest
    ) -> fleet_pb2.AnswerReviewResponse:
        check_reviewer(self._reviewers, caller)
        return await self._reviews.answer(caller, request)

    async def note_received(
        self,
        caller: Caller,  # noqa: ARG002 - there is one caller
        request: fleet_pb2.NoteReceivedRequest,
    ) -> fleet_pb2.NoteReceivedResponse:
        check_id(request.sandbox_id, "sandbox id", doing="mark the session")
        # NOT_FOUND where it has ended.
        self._suspender.session(request.sandbox_id)
        found = self.received.note(request.sandbox_id, convert.marks(request))
        self._reviews.received(request.sandbox_id, found)
        return convert.received_message(found)

    async def review_call(
        self,
        caller: Caller,  # noqa: ARG002 - there is one caller
        request: fleet_pb2.ReviewCallRequest,
    ) -> fleet_pb2.ReviewCallResponse:
        check_id(request.sandbox_id, "sandbox id", doing="review the call")
        # NOT_FOUND where it has ended.
        self._suspender.session(request.sandbox_id)

        async def received() -> frozenset[Mark]:
            return self.received.note(request.sandbox_id, frozenset())

        return await self._reviews.review_call(request, received)

    async def countersign_journal(
        self,
        caller: Caller,  # noqa: ARG002 - there is one caller
        request: fleet_pb2.CountersignJournalRequest,
    ) -> fleet_pb2.CountersignJournalResponse:
        check_id(request.sandbox_id, "sandbox id", doing="sign the journal")
        sandbox = await self._fleet.get(request.sandbox_id, reachable=False)
        heads = await self._witness.countersign(sandbox)
        return fleet_pb2.CountersignJournalResponse(heads=map(head_message, heads))

    async def set_egress(self, caller: Caller, request: egress_pb2.SetEgressRequest) -> egress_pb2.SetEgressResponse:  # noqa: ARG002 - there is one caller
        check_id(request.sandbox_id, "sandbox id", doing="change the egress list")
        sandbox = await self._fleet.get(request.sandbox_id, reachable=False)
        self._ways_out.change(sandbox, request.names)
        return egress_pb2.SetEgressResponse()

    async def get_egress(self, caller: Caller, request: egress_pb2.GetEgressRequest) -> egress_pb2.GetEgressResponse:  # noqa: ARG002 - there is one caller
        check_id(request.sandbox_id, "sandbox id", doing="look at the egress")
        sandbox = self._suspender.session(request.sandbox_id)
        names, hosts = self._ways_out.names(sandbox), self._ways_out.reports(request.sandbox_id)
        return egress_pb2.GetEgressResponse(names=names, hosts=map(convert.host_report, hosts))

    @property
    def _ways_out(self) -> LocalEgress:
        """Raises FleetError."""
        if self._egress is None:
            raise ClaimReason.UNIMPLEMENTED.error("cannot look at the egress: this fleet has none by name")
        return self._egress

    def _access(self, sandbox: Sandbox) -> fleet_pb2.Access:
        return convert.access_message(*self._fleet.access(sandbox))


def _message(sandbox: Sandbox) -> fleet_pb2.Sandbox:
    message = convert.sandbox_message(sandbox)
    names = sandbox.claim.egress_names if sandbox.claim else ()
    if names:
        message.egress.CopyFrom(by_name(names))
    else:
        message.egress.CopyFrom(MACHINES_NETWORK if sandbox.isolation is Isolation.NONE else NO_NETWORK)
    return message


def by_name(names: Sequence[str]) -> fleet_pb2.EgressStatus:
    """The status of a session that may reach names."""
    shown = ", ".join(names[:SHOWN_NAMES]) + (f" and {len(names) - SHOWN_NAMES} more" if names[SHOWN_NAMES:] else "")
    return fleet_pb2.EgressStatus(
        state=fleet_pb2.EGRESS_STATE_OPEN, reason="ByName", message=f"it reaches {shown}, by name"
    )


def check_egress(claim: Claim, template: Template) -> None:
    """Raises FleetError where a list of names would say nothing, or where tools are to be the only way out."""
    if not claim.egress_names:
        return
    why = ""
    if template.isolation is Isolation.NONE:
        why = "without a session namespace code has this machine's network"
    elif template.contract == Contract.BROKERED.value:
        why = "contract brokered allows none; offer a tool that does what is needed"
    if why:
        raise ClaimReason.INVALID_EGRESS.error(f"cannot claim with names that the sandbox may reach: {why}")


def _check_kept(claim: Claim) -> None:
    """Raises FleetError where a claim with an image asks to go on from a snapshot by itself."""
    if claim.image and ("snapshot" in {claim.on_idle, claim.on_timeout} or claim.snapshot_period is not None):
        raise ClaimReason.IMAGE_UNAVAILABLE.error(f"cannot keep a sandbox with an image: {NOT_IN_SNAPSHOTS}")


def _check_no_namespace(namespace: str, *, doing: str) -> None:
    """Raises FleetError where the request names a namespace."""
    if namespace:
        raise ClaimReason.NO_CLUSTER.error(
            f"cannot {doing} in namespace {namespace[:80]!r}: this fleet is of one machine, which has none"
        )


def _selected(fleet: FleetDriver, request: fleet_pb2.ListRequest, most: int) -> list[Sandbox]:
    """The first `most` sandboxes after the page before, by id."""
    matches = parse_selector(request.label_selector)
    listed = (one for one in fleet.scheduler.inventory.all() if request.warm or one.claim is not None)
    live = (one for one in listed if one.state is not State.ENDED and one.sandbox_id > request.page_token)
    return sorted((one for one in live if matches(one.labels)), key=lambda one: one.sandbox_id)[:most]
