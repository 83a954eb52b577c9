"""Signs the certificates of the gateway and the egress process, which ask with their own accounts."""

from collections.abc import Callable

from sandfleet_api.fleet.v1 import gateway_pb2
from sandfleet_api.fleet.v1.gateway_pb2_grpc import GatewayIdentityServiceServicer

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kube import KubeError
from sandfleet_operator.api.reasons import GatewayReason
from sandfleet_operator.cluster.reviews import Reviews
from sandfleet_operator.executors.authority import RequestRefusedError
from sandfleet_operator.executors.contact import Credentials
from sandfleet_operator.fleet import calls
from sandfleet_operator.fleet.calls import Context

# By component, the only name that is signed for it: not the fleet's, and no pod has it as its UID. The component is the
# subresource that its role names, too; the API server serves nothing under it.
NAMES = {"gateway": "sandfleet-gateway", "egress": "sandfleet-egress"}
DEFAULT = "gateway"
CERTIFICATE_SECONDS = 30 * 86400.0


class GatewaySigner(GatewayIdentityServiceServicer):
    """`namespace` is the control plane's; `wall_clock` gives seconds since the epoch."""

    def __init__(
        self, reviews: Reviews, credentials: Credentials, namespace: str, wall_clock: Callable[[], float]
    ) -> None:
        self._reviews = reviews
        self._credentials = credentials
        self._namespace = namespace
        self._clock = wall_clock

    async def Sign(self, request: gateway_pb2.SignRequest, context: Context) -> gateway_pb2.SignResponse:  # noqa: N802 - gRPC's name
        component = request.component or DEFAULT
        try:
            if component not in NAMES:
                why = f"there is no component {component[:40]!a} with a certificate"
                raise GatewayReason.INVALID_SIGNING_REQUEST.error(f"cannot sign the request: {why}")
            caller = await self._reviews.authenticate(calls.token(context))
            await self._reviews.authorize(caller, "create", self._namespace, "", component)
            return gateway_pb2.SignResponse(certificate_pem=self._signed(request.signing_request_pem, NAMES[component]))
        except (FleetError, KubeError) as error:
            await calls.abort(context, calls.problem_of(error))

    def _signed(self, request_pem: bytes, name: str) -> bytes:
        authority = self._credentials.authority
        try:
            return authority.answer(request_pem, name, self._clock(), CERTIFICATE_SECONDS)
        except RequestRefusedError as error:
            raise GatewayReason.INVALID_SIGNING_REQUEST.error(str(error)) from error
