"""Signs the certificate of the gateway, which asks with its own account."""

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

# The only name that is signed: not the fleet's, and no pod has it as its UID.
NAME = "sandfleet-gateway"
# The subresource that the gateway's role names; the API server serves nothing under it.
RIGHT = "gateway"
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
        try:
            caller = await self._reviews.authenticate(calls.token(context))
            await self._reviews.authorize(caller, "create", self._namespace, "", RIGHT)
            return gateway_pb2.SignResponse(certificate_pem=self._signed(request.signing_request_pem))
        except (FleetError, KubeError) as error:
            await calls.abort(context, calls.problem_of(error))

    def _signed(self, request_pem: bytes) -> bytes:
        authority = self._credentials.authority
        try:
            return authority.answer(request_pem, NAME, self._clock(), CERTIFICATE_SECONDS)
        except RequestRefusedError as error:
            raise GatewayReason.INVALID_SIGNING_REQUEST.error(str(error)) from error
