"""Claims of callers on Kubernetes: who may, what is asked for, and what is answered. Decisions are the engine's."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

from sandfleet_api.fleet.v1 import fleet_pb2

from sandfleet_operator.api.errors import Code, FleetError, Problem, invalid
from sandfleet_operator.api.resources import CodeSandbox, Retention
from sandfleet_operator.api.validate import MAX_LEASE, MAX_WAIT, check_duration
from sandfleet_operator.api.values import Claim, Sandbox, Template
from sandfleet_operator.effects.contact import Credentials
from sandfleet_operator.effects.kubeapi import KubeApi
from sandfleet_operator.effects.reviews import Caller, Reviews
from sandfleet_operator.effects.telemetry import ClaimSpan
from sandfleet_operator.effects.tokens import Token
from sandfleet_operator.fleet import convert
from sandfleet_operator.fleet.kubernetes import objects, view
from sandfleet_operator.fleet.kubernetes.catalog import COLD, Recipe
from sandfleet_operator.fleet.kubernetes.changes import Matches
from sandfleet_operator.fleet.kubernetes.fleet import KubernetesFleet
from sandfleet_operator.fleet.kubernetes.workspaces import Workspaces
from sandfleet_operator.fleet.watches import Watch
from sandfleet_operator.plan import names
from sandfleet_operator.plan.claims import volume_of_workspace, workspace_key
from sandfleet_operator.plan.effective import MAX_ENVS_JSON
from sandfleet_operator.plan.queue import Queued

# The subresource that roles name; nothing is served under it.
CONNECT = "connect"
MAX_HOLDER = 256
# Of a label of a namespace or an object.
AUTONOMOUS = "autonomous"


class Claims:
    def __init__(self, kube: KubeApi, kubernetes: KubernetesFleet, reviews: Reviews, credentials: Credentials) -> None:
        self._kubernetes = kubernetes
        self._workspaces = Workspaces(kube)
        self._reviews = reviews
        self._credentials = credentials

    async def ask(self, caller: Caller, request: fleet_pb2.ClaimRequest, span: ClaimSpan) -> Watch:
        """A claim that waits from now; it has to be left in any case. Raises FleetError."""
        namespace, _ = view.parse_id(f"{request.namespace}/x", doing="claim")
        await self._reviews.authorize(caller, "create", namespace, "")
        # What a claim answers with is a way to run code.
        await self._reviews.authorize(caller, "create", namespace, "", CONNECT)
        self._check_serving("claim")
        recipe = self._kubernetes.resolve(namespace, request.pool, request.template)
        claim = self._claim(caller, request, recipe, span.traceparent)
        if claim.workspace_id and not self._kubernetes.engine.knows(claim.key):
            claim = await self._on_workspace(namespace, claim)
            self._check_serving("claim")
        return self._kubernetes.fleet.claim(claim)

    def _claim(self, caller: Caller, request: fleet_pb2.ClaimRequest, recipe: Recipe, traceparent: str) -> Claim:
        pool = self._kubernetes.engine.pool(recipe.name)
        template = pool.template if pool else Template(name=recipe.template)
        claim = convert.claim(request, caller.username[:MAX_HOLDER], template, traceparent)
        for label in claim.labels:
            if names.is_reserved(label):
                raise invalid(
                    "InvalidLabel", f"cannot claim: label {label[:100]!r} is Kubernetes' or Sandfleet's", label[:100]
                )
        size = sum(len(name) + len(value) for name, value in claim.envs.items())
        if size > MAX_ENVS_JSON // 2:
            why = f"the environment of {size} characters is larger than {MAX_ENVS_JSON // 2}"
            raise invalid("InvalidEnvironment", f"cannot claim: {why}")
        egress = request.egress != fleet_pb2.EGRESS_NONE
        return replace(
            _on_volume(claim, recipe), pool=recipe.name, contract=request.contract or AUTONOMOUS, egress=egress
        )

    async def _on_workspace(self, namespace: str, claim: Claim) -> Claim:
        """The claim once its workspace is free, with what is left of its wait. Raises FleetError."""
        check_duration(claim.max_wait, "longest wait", most=MAX_WAIT, doing="claim", zero=True)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self._workspaces.free(namespace, volume_of_workspace(claim.workspace_id), claim.max_wait)
        return replace(claim, max_wait=max(0.0, claim.max_wait - (loop.time() - began)))

    async def responses(self, caller: Caller, watch: Watch, span: ClaimSpan) -> AsyncIterator[fleet_pb2.ClaimResponse]:
        sequence = 0
        while True:
            sequence += 1
            news = await watch.next()
            self._check_serving("claim")
            if not isinstance(news, Queued):
                span.bound(news.sandbox_id, warm=news.warm)
                yield fleet_pb2.ClaimResponse(sequence=sequence, bound=await self._bound(caller, news))
                return
            span.queued(news.position, news.reason)
            yield fleet_pb2.ClaimResponse(sequence=sequence, queued=convert.queued_message(news))

    async def _bound(self, caller: Caller, sandbox: Sandbox) -> fleet_pb2.Bound:
        self._kubernetes.note_session(sandbox)
        present = await self._kubernetes.fleet.get(sandbox.sandbox_id, reachable=False)
        message = self.message(present)
        return fleet_pb2.Bound(
            sandbox=message,
            access=self.access(caller, present),
            warm=present.warm,
            egress=message.egress.state,
        )

    async def renew(self, caller: Caller, request: fleet_pb2.RenewRequest) -> fleet_pb2.RenewResponse | None:
        """None where no claim is what the id names. Raises FleetError."""
        namespace, name = view.parse_id(request.sandbox_id, doing="renew the lease")
        await self._reviews.authorize(caller, "create", namespace, name, CONNECT)
        self._check_serving("renew the lease")
        lease = convert.seconds(request, "lease")
        if lease is not None:
            check_duration(lease, "lease", most=MAX_LEASE, doing="renew the lease")
        known = self.known(request.sandbox_id)
        if known is None or known.claim is None or known.claim.object_uid:
            return None
        sandbox = await self._kubernetes.fleet.renew(known.sandbox_id, lease)
        return fleet_pb2.RenewResponse(sandbox=self.message(sandbox), access=self.access(caller, sandbox))

    async def release(self, sandbox_id: str) -> bool | None:
        """Whether it ended by this; None where no claim is what the id names. Raises FleetError."""
        self._check_serving("release")
        known = self.known(sandbox_id)
        return await self._kubernetes.fleet.release(known.sandbox_id) if known else None

    def known(self, sandbox_id: str) -> Sandbox | None:
        """The session of a claim, by the name that its caller has."""
        sandbox = self._kubernetes.session_of(sandbox_id)
        return sandbox if sandbox is not None and sandbox.bound else None

    async def reachable(self, sandbox: Sandbox) -> Sandbox:
        return await self._kubernetes.fleet.get(sandbox.sandbox_id, reachable=False)

    def message(self, sandbox: Sandbox) -> fleet_pb2.Sandbox:
        assert sandbox.claim is not None
        namespace, _, pool = sandbox.pool.partition("/")
        pod = self._kubernetes.pod_of(sandbox)
        message = convert.sandbox_message(sandbox)
        message.sandbox_id = f"{namespace}/{objects.object_of(sandbox.claim)}"
        message.sandbox_uid = pod.uid if pod else ""
        message.workspace_id = pod.workspace_claim if pod else volume_of_workspace(sandbox.claim.workspace_id)
        message.pool = "" if pool.startswith(COLD) else pool
        if (known := self._kubernetes.egresses.of(message.sandbox_id)) is not None:
            message.egress.MergeFrom(view.egress_message(known))
        return message

    def described(self, sandbox: CodeSandbox) -> fleet_pb2.Sandbox:
        return self._kubernetes.egresses.describe(sandbox)

    def access(self, caller: Caller, sandbox: Sandbox) -> fleet_pb2.Access:
        assert sandbox.claim is not None
        claimed = replace(sandbox.claim, key=replace(sandbox.claim.key, holder=caller.username[:MAX_HOLDER]))
        address, token = self._access(replace(sandbox, claim=claimed))
        access = convert.access_message(address, token)
        access.ca_pem = self._credentials.authority.pem
        return access

    def _access(self, sandbox: Sandbox) -> tuple[str, Token]:
        return self._kubernetes.fleet.access(sandbox)

    def watch(self, namespace: str, matches: Matches) -> AsyncIterator[fleet_pb2.WatchResponse]:
        return self._kubernetes.changes.watch(namespace, matches)

    def pools(self, namespace: str) -> list[fleet_pb2.Pool]:
        """By name; without a namespace, of all."""
        found = ((pool, level) for pool, level in self._kubernetes.pools() if COLD not in pool.name)
        return [convert.pool_message(*one) for one in found if not namespace or one[0].name.startswith(f"{namespace}/")]

    def _check_serving(self, doing: str) -> None:
        if not self._kubernetes.serving:
            raise FleetError(
                Problem(Code.UNAVAILABLE, "NotServing", f"cannot {doing}: another fleet leads, or none yet")
            )


def _on_volume(claim: Claim, recipe: Recipe) -> Claim:
    """The claim with its workspace as the engine calls it, which stays where the template or the claim says so. Raises FleetError."""
    wanted = recipe.wanted
    if wanted is not None and wanted.ephemeral and (claim.workspace_id or claim.keep_workspace):
        why = f"workspaces of template {recipe.template!r} are directories of their pods, and go with them"
        raise FleetError(Problem(Code.FAILED_PRECONDITION, "WorkspaceEphemeral", f"cannot claim: {why}"))
    key = workspace_key(recipe.namespace, claim.workspace_id) if claim.workspace_id else ""
    kept = claim.keep_workspace or (wanted is not None and wanted.retention is Retention.RETAIN)
    return replace(claim, workspace_id=key, keep_workspace=kept)
