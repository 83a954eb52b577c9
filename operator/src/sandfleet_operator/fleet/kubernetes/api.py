"""The fleet's API over CodeSandboxes: each call checks what the caller may do before it looks at anything."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial

from sandfleet_api.fleet.v1 import fleet_pb2

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.mounts import check as check_mounts
from sandfleet_operator.api.kinds.queue import DEFAULT_QUEUE
from sandfleet_operator.api.kinds.template import Contract, Retention
from sandfleet_operator.api.kube import CODE_SANDBOX, SANDBOX_QUEUE, Conflict, NotFound, Ref
from sandfleet_operator.api.reasons import AdmissionReason, ClaimReason, SuspendReason
from sandfleet_operator.api.selectors import parse_selector
from sandfleet_operator.api.validate import MAX_LEASE, MAX_WAIT, check_duration
from sandfleet_operator.api.values import ASLEEP, Claim, RequestKey, Sandbox, Template
from sandfleet_operator.cluster.clock import wall_clock
from sandfleet_operator.cluster.kube_api import KubeApi
from sandfleet_operator.cluster.reviews import Caller, Reviews
from sandfleet_operator.executors.contact import Credentials
from sandfleet_operator.executors.tickets import TicketError, Tickets
from sandfleet_operator.fleet import convert
from sandfleet_operator.fleet.claim_watches import ClaimWatch
from sandfleet_operator.fleet.driver import suspended
from sandfleet_operator.fleet.journals.witness import Witness, unwitnessed
from sandfleet_operator.fleet.journals.witness import message as head_message
from sandfleet_operator.fleet.kubernetes import feed
from sandfleet_operator.fleet.kubernetes.catalog import COLD, Recipe
from sandfleet_operator.fleet.kubernetes.fleet import KubernetesFleet
from sandfleet_operator.fleet.kubernetes.reviews.calls import ReviewCalls
from sandfleet_operator.fleet.kubernetes.sessions.egress import EgressCalls
from sandfleet_operator.fleet.kubernetes.sessions.journals import JournalCalls
from sandfleet_operator.fleet.kubernetes.sessions.received import Received, ReceivedCalls
from sandfleet_operator.fleet.kubernetes.sessions.shown import MAX_HOLDER, Sessions
from sandfleet_operator.fleet.kubernetes.snapshots.suspensions import SuspensionCalls
from sandfleet_operator.fleet.queue_messages import explanation_message, queue_message
from sandfleet_operator.fleet.reviews.board import ReviewBoard
from sandfleet_operator.fleet.reviews.claims import check_reviewable
from sandfleet_operator.fleet.usage.meter import UsageMeter, unmetered
from sandfleet_operator.plan.claims.record import checked_size, volume_of_workspace, workspace_key
from sandfleet_operator.plan.pods import names
from sandfleet_operator.plan.pods.merge import MAX_ENVS_JSON, envs_size
from sandfleet_operator.plan.scheduler.claim_queue import Place

# The subresource that roles name for access to a sandbox; the API server serves nothing under it.
CONNECT = "connect"


class KubernetesFleetApi(ReviewCalls, ReceivedCalls, JournalCalls, SuspensionCalls, EgressCalls):
    """`reviews` asks who callers are and what they may do; `board` has what waits for approval."""

    def __init__(
        self,
        kube: KubeApi,
        reviews: Reviews,
        credentials: Credentials,
        kubernetes: KubernetesFleet,
        board: ReviewBoard,
        *,
        witness: Witness | None = None,
        usage: UsageMeter | None = None,
    ) -> None:
        super().__init__(reviews, kubernetes, board)
        self._kube, self.received = kube, Received(kube, kubernetes, wall_clock)
        self._tickets = Tickets(lambda: credentials.signer.keys, kubernetes.clock)
        self._witness, self._usage = witness or unwitnessed(), usage or unmetered()
        self._sessions = Sessions(kube, credentials, kubernetes)

    async def authenticate(self, token: str) -> Caller:
        return await self._reviews.authenticate(token)

    # Claims.

    async def claim(self, caller: Caller, request: fleet_pb2.ClaimRequest, traceparent: str) -> ClaimWatch:
        namespace, _ = feed.parse_id(f"{request.namespace}/x", doing="claim")
        await self._reviews.authorize(caller, "create", namespace, "")
        # The answer to a claim is a way to run code.
        await self._reviews.authorize(caller, "create", namespace, "", CONNECT)
        self.check_serving("claim")
        if request.like:
            request = await self._like(caller, request, namespace)
        contract = convert.contract(request)
        recipe = self._kubernetes.resolve(namespace, request.pool, request.template, contract)
        claim = checked_size(self._requested(caller, request, recipe, traceparent))
        if claim.contract == Contract.REVIEWED.value:
            check_reviewable(request)
        await self._may_wait(caller, claim)
        if claim.workspace_id and not self._kubernetes.scheduler.knows(claim.key):
            claim = await self._on_free_workspace(namespace, claim)
            self.check_serving("claim")
        place, note = self._place(request.ticket, claim)
        watch = self._kubernetes.fleet.claim(claim, place)
        watch.ticket, watch.note = partial(self._ticket, claim.key), note
        return watch

    async def _like(self, caller: Caller, request: fleet_pb2.ClaimRequest, namespace: str) -> fleet_pb2.ClaimRequest:
        """The request with what the claim of the sandbox that it names asked for. Raises FleetError."""
        known = await self._claimed(caller, request.like, doing="claim")
        if feed.parse_id(request.like, doing="claim")[0] != namespace:
            # Queues and templates are of one namespace.
            why = f"{request.like[:100]!r}, which it is to be like, is not in namespace {namespace!r}"
            raise ClaimReason.INVALID_ID.error(f"cannot claim: {why}", request.like[:100])
        return convert.like(request, known.claim) if known.claim else request

    def _place(self, ticket: bytes, claim: Claim) -> tuple[Place | None, str]:
        """What the ticket is good for, or why it is ignored: then the claim waits behind all others."""
        if not ticket:
            return None, ""
        try:
            return self._tickets.read(ticket, claim.key, claim.queue), ""
        except TicketError as error:
            return None, f"its ticket was ignored: {error}"

    def _ticket(self, key: RequestKey) -> bytes:
        place = self._kubernetes.scheduler.standing.place(key)
        return self._tickets.issue(key, place) if place else b""

    def _requested(self, caller: Caller, request: fleet_pb2.ClaimRequest, recipe: Recipe, traceparent: str) -> Claim:
        self._check_names(request, recipe)
        pool = self._kubernetes.scheduler.pool(recipe.name)
        template = pool.template if pool else Template(name=recipe.template)
        claim = convert.claim(request, caller.username[:MAX_HOLDER], template, traceparent)
        if claim.snapshot_period is not None:
            claim = replace(claim, snapshot_period=max(claim.snapshot_period, convert.LEAST_SHARED_PERIOD))
        for label in claim.labels:
            if names.is_reserved(label):
                why = f"label {label[:100]!r} is Kubernetes' or Sandfleet's"
                raise ClaimReason.INVALID_LABEL.error(f"cannot claim: {why}", label[:100])
        # As its pod has it, of which other variables are to have their share.
        if (size := envs_size(claim.envs)) > MAX_ENVS_JSON // 2:
            why = f"the environment of {size} bytes as JSON is larger than {MAX_ENVS_JSON // 2}"
            raise ClaimReason.INVALID_ENVIRONMENT.error(f"cannot claim: {why}")
        # The executor would refuse what overlaps with the template's, but only after a pod was bound.
        self._kubernetes.catalog.check_image(recipe, request.image)
        check_mounts({**(recipe.wanted.mounts if recipe.wanted is not None else {}), **claim.mounts})
        named, default = (f"{recipe.namespace}/{name}" for name in (claim.queue, DEFAULT_QUEUE))
        queue = self._kubernetes.scheduler.queues.named(named if claim.queue else "", default)
        return replace(
            _with_workspace(claim, recipe),
            queue=queue,
            key=replace(claim.key, pool=recipe.name),
            pool=recipe.name,
            pod_image=request.image,
            contract=_contract(recipe, convert.contract(request)),
            egress=request.egress != fleet_pb2.EGRESS_NONE and not request.egress_names,
        )

    async def _may_wait(self, caller: Caller, claim: Claim) -> None:
        """Whether the caller may use the claim's queue and its priority class. Raises FleetError."""
        if not claim.queue:
            return
        namespace, _, name = claim.queue.partition("/")
        await self._reviews.authorize(caller, "claim", namespace, name, kind=SANDBOX_QUEUE)
        spec = self._kubernetes.scheduler.queues.spec(claim.queue)
        if spec is not None and any(one.restricted and one.name == claim.priority for one in spec.priority_classes):
            try:
                await self._reviews.authorize(caller, "prioritize", namespace, name, kind=SANDBOX_QUEUE)
            except FleetError as error:
                if error.problem.reason != ClaimReason.FORBIDDEN.value:
                    raise
                why = f"priority class {claim.priority!r} of queue {claim.queue} is restricted"
                message = f"cannot claim: {why}, and {caller.username} may not prioritize on sandboxqueues {name}"
                raise AdmissionReason.PRIORITY_FORBIDDEN.error(message, claim.priority) from error
        self.check_serving("claim")

    async def _on_free_workspace(self, namespace: str, claim: Claim) -> Claim:
        """The claim once its workspace is free, with what is left of its wait. Raises FleetError."""
        check_duration(claim.max_wait, "longest wait", most=MAX_WAIT, doing="claim", zero=True)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self._kubernetes.workspaces.free(namespace, volume_of_workspace(claim.workspace_id), claim.max_wait)
        return replace(claim, max_wait=max(0.0, claim.max_wait - (loop.time() - began)))

    async def bound(self, caller: Caller, sandbox: Sandbox) -> fleet_pb2.Bound:
        sandbox_id = self._noted(sandbox)
        self._check_awake(sandbox, sandbox_id)
        # Again, since the wait may have been long: the answer is a token for just this sandbox.
        await self._reviews.authorize(caller, "create", *feed.parse_id(sandbox_id, doing="claim"), CONNECT)
        present = await self._kubernetes.fleet.get(sandbox.sandbox_id, reachable=False)
        message = self._sessions.message(present)
        access = self._sessions.access(caller, present)
        return fleet_pb2.Bound(sandbox=message, access=access, warm=present.warm, egress=message.egress.state)

    # Sandboxes.

    async def release(self, caller: Caller, request: fleet_pb2.ReleaseRequest) -> fleet_pb2.ReleaseResponse:
        namespace, name = feed.parse_id(request.sandbox_id, doing="release")
        await self._reviews.authorize(caller, "delete", namespace, name)
        self.check_serving("release")
        heads = await self._read_last(known := self._sessions.of(request.sandbox_id))
        if known is not None and known.state in ASLEEP and request.unless_suspended:
            released = False
        elif known is not None:
            released = await self._kubernetes.fleet.release(known.sandbox_id)
        else:
            # kubectl made it, or its claim is over.
            released = await self._delete_found(Ref(CODE_SANDBOX, namespace, name))
        return fleet_pb2.ReleaseResponse(released=released, journal_heads=map(head_message, heads))

    async def _delete_found(self, ref: Ref) -> bool:
        """Deletes exactly the object that has the name now, not one that gets it meanwhile."""
        try:
            found = await self._kube.get(ref)
            return await self._kube.delete(ref, uid=found["metadata"]["uid"])
        except (NotFound, Conflict):
            return False

    async def resume(self, caller: Caller, request: fleet_pb2.ResumeRequest) -> ClaimWatch:
        known = await self._claimed(caller, request.sandbox_id, doing="resume")
        return self._kubernetes.fleet.resume(known.sandbox_id, convert.max_wait(request, doing="resume"))

    async def resumed(self, caller: Caller, sandbox: Sandbox) -> fleet_pb2.ResumeResponse:
        bound = await self.bound(caller, sandbox)
        back = await self._kubernetes.suspender.resumption(sandbox.sandbox_id)
        return fleet_pb2.ResumeResponse(bound=bound, resumption=back)

    async def _claimed(self, caller: Caller, sandbox_id: str, *, doing: str) -> Sandbox:
        """The session of a claim, for a caller who may run code in it. Raises FleetError."""
        namespace, name = feed.parse_id(sandbox_id, doing=doing)
        await self._reviews.authorize(caller, "create", namespace, name, CONNECT)
        self.check_serving(doing)
        known = self._sessions.of(sandbox_id)
        if known is None:
            # NOT_FOUND where it has ended.
            await self._sessions.read(namespace, name)
            why = "the fleet has not claimed it; set spec.operatingMode of the CodeSandbox"
            raise SuspendReason.NOT_CLAIMED.error(f"cannot {doing} {sandbox_id}: {why}", sandbox_id)
        return known

    def _check_awake(self, known: Sandbox, sandbox_id: str) -> None:
        """Raises FleetError, with the id that the caller knows."""
        if known.state in ASLEEP:
            preempted = self._kubernetes.scheduler.suspensions.is_preempted(known)
            raise suspended(sandbox_id, preempted=preempted)

    async def renew(self, caller: Caller, request: fleet_pb2.RenewRequest) -> fleet_pb2.RenewResponse:
        namespace, name = feed.parse_id(request.sandbox_id, doing="renew the lease")
        await self._reviews.authorize(caller, "create", namespace, name, CONNECT)
        self.check_serving("renew the lease")
        lease = convert.seconds(request, "lease")
        if lease is not None:
            check_duration(lease, "lease", most=MAX_LEASE, doing="renew the lease")
        known = self._sessions.of(request.sandbox_id)
        if known is None or known.claim is None or known.claim.object_uid:
            # NOT_FOUND where it has ended.
            await self._sessions.read(namespace, name)
            raise _no_lease(request.sandbox_id)
        self._check_awake(known, request.sandbox_id)
        sandbox = await self._kubernetes.fleet.renew(known.sandbox_id, lease)
        access, heads = self._sessions.access(caller, sandbox), map(head_message, self._read_behind(sandbox))
        return fleet_pb2.RenewResponse(sandbox=self._sessions.message(sandbox), access=access, journal_heads=heads)

    async def get(self, caller: Caller, request: fleet_pb2.GetRequest) -> fleet_pb2.GetResponse:
        namespace, name = feed.parse_id(request.sandbox_id, doing="get")
        await self._reviews.authorize(caller, "get", namespace, name)
        if request.with_access:
            # Running code needs more rights than looking, as pods/exec needs more than pods.
            await self._reviews.authorize(caller, "create", namespace, name, CONNECT)
        known = self._sessions.of(request.sandbox_id)
        if known is not None:
            # Without the API server, so that it also works before the CodeSandbox is written.
            if known.state in ASLEEP and not request.with_access:
                return fleet_pb2.GetResponse(sandbox=self._sessions.message(known))
            if request.with_access:
                await self._kubernetes.suspender.settled(known.sandbox_id, request.sandbox_id)
                if self.parking is not None:
                    await self.parking.settled(known.sandbox_id)
            # It may sleep by now.
            self._check_awake(self._sessions.of(request.sandbox_id) or known, request.sandbox_id)
            present = await self._kubernetes.fleet.get(known.sandbox_id, reachable=False)
            access = self._sessions.access(caller, present) if request.with_access else None
            return fleet_pb2.GetResponse(sandbox=self._sessions.message(present), access=access)
        if self._kubernetes.feed.is_young(request.sandbox_id):
            # It has no CodeSandbox yet, and only the leader serves it.
            self.check_serving("get the sandbox")
        sandbox = await self._sessions.read(namespace, name)
        access = self._sessions.object_access(caller, sandbox) if request.with_access else None
        return fleet_pb2.GetResponse(sandbox=self._kubernetes.egresses.describe(sandbox), access=access)

    async def list(self, caller: Caller, request: fleet_pb2.ListRequest) -> fleet_pb2.ListResponse:
        if request.page_token:
            feed.parse_id(request.page_token, doing="list")
        convert.check_selector_length(request.label_selector)
        matches = parse_selector(request.label_selector)
        await self._reviews.authorize(caller, "list", request.namespace, "")
        if not self._kubernetes.synced:
            raise ClaimReason.NOT_SERVING.error("cannot list: this fleet has not seen all sandboxes yet")
        size = convert.page_size(request)
        found, following = await self._kubernetes.feed.page(request.namespace, matches, request.page_token, size)
        answer = fleet_pb2.ListResponse(next_page_token=following)
        for encoded in found:
            answer.sandboxes.add().ParseFromString(encoded)
        return answer

    async def watch(self, caller: Caller, request: fleet_pb2.WatchRequest) -> AsyncIterator[fleet_pb2.WatchResponse]:
        await self._reviews.authorize(caller, "watch", request.namespace, "")
        return self._kubernetes.feed.watch(request.namespace, parse_selector(request.label_selector), caller.username)

    async def list_pools(self, caller: Caller, request: fleet_pb2.ListPoolsRequest) -> fleet_pb2.ListPoolsResponse:
        """By name; without a namespace, the pools of all."""
        await self._reviews.authorize(caller, "list", request.namespace, "")
        prefix = f"{request.namespace}/" if request.namespace else ""
        found = ((pool, summary) for pool, summary in self._kubernetes.pools() if COLD not in pool.name)
        messages = [convert.pool_message(*one) for one in found if one[0].name.startswith(prefix)]
        return fleet_pb2.ListPoolsResponse(pools=messages)

    async def route(self, caller: Caller, request: fleet_pb2.RouteRequest) -> fleet_pb2.RouteResponse:
        namespace, name = feed.parse_id(request.sandbox_id, doing="find the way to a sandbox")
        await self._reviews.authorize(caller, "create", namespace, name, CONNECT)
        # Another replica does not know a young claim, and would say that it does not exist.
        self.check_serving("find the way to a sandbox")
        known = self._sessions.of(request.sandbox_id)
        if known is None:
            found = self._kubernetes.endpoint(await self._sessions.read(namespace, name))
            address, uid = found.address, found.pod_uid
        else:
            present = await self._kubernetes.fleet.get(known.sandbox_id, reachable=False)
            pod = self._kubernetes.pod_of(present)
            address, uid = self._kubernetes.fleet.address(present), pod.uid if pod else ""
        return fleet_pb2.RouteResponse(address=address, sandbox_uid=uid, caller=caller.username)

    async def list_queues(self, caller: Caller, request: fleet_pb2.ListQueuesRequest) -> fleet_pb2.ListQueuesResponse:
        """By name; without a namespace, the queues of all."""
        await self._reviews.authorize(caller, "list", request.namespace, "")
        prefix = f"{request.namespace}/" if request.namespace else ""
        return fleet_pb2.ListQueuesResponse(
            queues=[queue_message(one) for one in self._kubernetes.fleet.queue_views.all(prefix)]
        )

    async def explain(self, caller: Caller, request: fleet_pb2.ExplainRequest) -> fleet_pb2.ExplainResponse:
        self.check_serving("explain")
        views = self._kubernetes.fleet.queue_views
        match request.WhichOneof("subject"):
            case "claim":
                namespace, _ = feed.parse_id(f"{request.claim.namespace}/x", doing="explain")
                await self._reviews.authorize(caller, "create", namespace, "")
                contract = convert.contract(request.claim)
                recipe = self._kubernetes.resolve(namespace, request.claim.pool, request.claim.template, contract)
                return explanation_message(views.expect(self._requested(caller, request.claim, recipe, "")))
            case "sandbox_id":
                namespace, name = feed.parse_id(request.sandbox_id, doing="explain")
                await self._reviews.authorize(caller, "get", namespace, name)
                session = self._sessions.of(request.sandbox_id)
                return explanation_message(views.explain_session(session.sandbox_id if session else request.sandbox_id))
            case _:
                # Its own claims: nothing but the caller's name is needed.
                prefix = f"{request.namespace}/" if request.namespace else ""
                holder = caller.username[:MAX_HOLDER]
                return explanation_message(views.explain_request(holder, request.request_id, prefix))


def _with_workspace(claim: Claim, recipe: Recipe) -> Claim:
    """The claim with the scheduler's name of its workspace, and whether it is kept. Raises FleetError."""
    wanted = recipe.wanted
    if wanted is not None and wanted.workspace.ephemeral and (claim.workspace_id or claim.keep_workspace):
        why = f"workspaces of template {recipe.template!r} are directories of their pods, and go with them"
        raise ClaimReason.WORKSPACE_EPHEMERAL.error(f"cannot claim: {why}")
    if wanted is not None and wanted.workspace.ephemeral and "suspend" in (claim.on_idle, claim.on_timeout):
        why = f"workspaces of template {recipe.template!r} go with their pods; 'snapshot' keeps the session"
        raise ClaimReason.WORKSPACE_EPHEMERAL.error(f"cannot claim: {why}")
    if claim.on_idle != "end" and claim.idle_timeout is None and wanted is not None:
        claim = replace(claim, idle_timeout=wanted.idle_timeout)
    key = workspace_key(recipe.namespace, claim.workspace_id) if claim.workspace_id else ""
    kept = claim.keep_workspace or (wanted is not None and wanted.retention is Retention.RETAIN)
    return replace(claim, workspace_id=key, keep_workspace=kept)


def _contract(recipe: Recipe, asked: Contract | None) -> str:
    """The contract of the claim's pod. Raises FleetError where the template does not have it."""
    if recipe.wanted is None:
        # Nothing can be started; the pool says why. A contract that is asked for may be what its template refuses.
        if asked not in {None, Contract.AUTONOMOUS} and recipe.why:
            raise ClaimReason.CONTRACT_NOT_SUPPORTED.error(f"cannot claim: {recipe.why}")
        return (asked or Contract.AUTONOMOUS).value
    return recipe.wanted.contract.value


def _no_lease(sandbox_id: str) -> FleetError:
    text = "it lives for its lifetimeSeconds, or until the CodeSandbox is deleted"
    why = f"cannot renew the lease: sandbox {sandbox_id} has none; {text}"
    return ClaimReason.NO_LEASE.error(why, sandbox_id)
