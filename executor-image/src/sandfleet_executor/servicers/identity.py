"""IdentityService."""

from typing import Any

import grpc
from sandfleet_api.executor.v1 import identity_pb2 as pb
from sandfleet_api.executor.v1 import identity_pb2_grpc

from sandfleet_executor.effects.access.identity import BadCertificateError, Identity
from sandfleet_executor.servicers.errors import ApiError


class IdentityService(identity_pb2_grpc.IdentityServiceServicer):
    def __init__(self, identity: Identity | None) -> None:
        self._identity = identity

    async def GetSigningRequest(
        self, request: pb.GetSigningRequestRequest, context: Any
    ) -> pb.GetSigningRequestResponse:
        identity = self._known()
        return pb.GetSigningRequestResponse(signing_request_pem=identity.signing_request(), signed=identity.signed)

    async def InstallCertificate(
        self, request: pb.InstallCertificateRequest, context: Any
    ) -> pb.InstallCertificateResponse:
        try:
            self._known().install(request.certificate_pem)
        except BadCertificateError as error:
            raise ApiError(grpc.StatusCode.INVALID_ARGUMENT, "BadCertificate", str(error)) from error
        return pb.InstallCertificateResponse()

    def _known(self) -> Identity:
        if self._identity is None:
            message = "cannot speak of an identity: this executor listens on a unix socket"
            raise ApiError(grpc.StatusCode.FAILED_PRECONDITION, "NoIdentity", message)
        return self._identity
