"""How the fleet's API shows a session and a CodeSandbox, and the access that a caller gets to them."""

from dataclasses import replace

from sandfleet_api.fleet.v1 import fleet_pb2

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.sandbox import CodeSandbox, code_sandbox
from sandfleet_operator.api.kinds.template import Contract
from sandfleet_operator.api.kube import CODE_SANDBOX, NotFound, Ref
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.api.values import Sandbox
from sandfleet_operator.cluster.kube_api import KubeApi
from sandfleet_operator.cluster.reviews import Caller
from sandfleet_operator.executors.contact import Credentials
from sandfleet_operator.executors.tokens import CALLER_SCOPES, MAX_LIFETIME
from sandfleet_operator.fleet import convert
from sandfleet_operator.fleet.kubernetes import feed
from sandfleet_operator.fleet.kubernetes.catalog import COLD
from sandfleet_operator.fleet.kubernetes.fleet import KubernetesFleet
from sandfleet_operator.fleet.reviews.claims import check_brings_nothing
from sandfleet_operator.plan.claims.record import object_of, volume_of_workspace
from sandfleet_operator.plan.pods.names import session_id

MAX_HOLDER = 256


class Sessions:
    def __init__(self, kube: KubeApi, credentials: Credentials, kubernetes: KubernetesFleet) -> None:
        self._kube = kube
        self._credentials = credentials
        self._kubernetes = kubernetes

    def of(self, sandbox_id: str) -> Sandbox | None:
        """The session of a claim, by the id that its caller has; None where the id names no claim."""
        sandbox = self._kubernetes.session_of(sandbox_id)
        return sandbox if sandbox is not None and sandbox.bound else None

    def message(self, sandbox: Sandbox) -> fleet_pb2.Sandbox:
        assert sandbox.claim is not None
        namespace, _, pool = sandbox.pool.partition("/")
        pod = self._kubernetes.pod_of(sandbox)
        message = convert.sandbox_message(sandbox)
        message.sandbox_id = f"{namespace}/{object_of(sandbox.claim)}"
        message.sandbox_uid = pod.uid if pod else ""
        written = None if pod else self._kubernetes.object_of(message.sandbox_id)
        kept = written.status.workspace_claim if written else volume_of_workspace(sandbox.claim.workspace_id)
        message.workspace_id = pod.workspace_claim if pod else kept
        message.pool = "" if pool.startswith(COLD) else pool
        if (known := self._kubernetes.egresses.of(message.sandbox_id)) is not None:
            message.egress.MergeFrom(feed.egress_message(known))
        return message

    def access(self, caller: Caller, sandbox: Sandbox) -> fleet_pb2.Access:
        assert sandbox.claim is not None
        claimed = replace(sandbox.claim, key=replace(sandbox.claim.key, holder=caller.username[:MAX_HOLDER]))
        access = convert.access_message(*self._kubernetes.fleet.access(replace(sandbox, claim=claimed)))
        access.ca_pem = self._credentials.authority.pem
        return access

    async def read(self, namespace: str, name: str) -> CodeSandbox:
        try:
            return code_sandbox(await self._kube.get(Ref(CODE_SANDBOX, namespace, name)))
        except NotFound as error:
            identity = f"{namespace}/{name}"
            ended = self._kubernetes.why_ended(identity)
            why = f"it ended: {ended}" if ended else f"there is no CodeSandbox {name} in namespace {namespace}"
            text = f"cannot get sandbox {identity}: {why}"
            raise ClaimReason.SANDBOX_NOT_FOUND.error(text, identity) from error
        except FleetError as error:
            identity = f"{namespace}/{name}"
            text = f"cannot get sandbox {identity}: {error.problem.message}"
            raise ClaimReason.SANDBOX_UNREADABLE.error(text, identity) from error

    def object_access(self, caller: Caller, sandbox: CodeSandbox) -> fleet_pb2.Access:
        endpoint, contract = self._kubernetes.endpoint(sandbox), self._kubernetes.contract_of(sandbox)
        if contract == Contract.REVIEWED.value:
            spec = sandbox.spec
            check_brings_nothing(
                envs=bool(spec.envs), workspace=bool(spec.workspace.claim_name), doing="open a sandbox"
            )
        token = self._credentials.signer.issue(
            sandbox_id=session_id(sandbox.meta.namespace, sandbox.meta.name),
            sandbox_uid=endpoint.pod_uid,
            holder=caller.username[:MAX_HOLDER],
            scopes=CALLER_SCOPES,
            lifetime=MAX_LIFETIME,
            contract=contract,
        )
        access = convert.access_message(endpoint.address, token)
        access.ca_pem = self._credentials.authority.pem
        return access
