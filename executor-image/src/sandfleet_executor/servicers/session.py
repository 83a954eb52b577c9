"""SessionService."""

import time
from typing import Any

import grpc
from sandfleet_api.executor.v1 import common_pb2, session_pb2_grpc
from sandfleet_api.executor.v1 import session_pb2 as pb

from sandfleet_executor import __version__
from sandfleet_executor.core import probes as targets
from sandfleet_executor.core import requests
from sandfleet_executor.core.config import Limits
from sandfleet_executor.core.requests import BadRequest
from sandfleet_executor.effects import environment, probes
from sandfleet_executor.effects.children import NamespaceError
from sandfleet_executor.effects.namespace import Namespace
from sandfleet_executor.effects.session import Lease, Session
from sandfleet_executor.servicers import convert
from sandfleet_executor.servicers.convert import typed_failures
from sandfleet_executor.servicers.errors import ApiError

MAX_LEASE_SECONDS = 30 * 24 * 3600.0
ORIGINS = {"image": pb.PACKAGE_ORIGIN_IMAGE, "workspace": pb.PACKAGE_ORIGIN_WORKSPACE}


class SessionService(session_pb2_grpc.SessionServiceServicer):
    def __init__(self, session: Session) -> None:
        self._session = session

    async def Open(self, request: pb.OpenRequest, context: Any) -> pb.OpenResponse:
        with typed_failures(request.session_id):
            namespace = await self._session.open(
                requests.check_id("session id", request.session_id),
                lease_of(request),
                requests.check_envs(request.envs),
                self._session.config.limits.lowered(convert.limits_wish(request.limits)),
            )
        return pb.OpenResponse(description=describe(self._session, namespace))

    async def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.DescribeResponse:
        with typed_failures():
            return describe(self._session, await self._session.namespace())

    async def GetEnvironment(self, request: pb.GetEnvironmentRequest, context: Any) -> pb.GetEnvironmentResponse:
        with typed_failures():
            found = await environment.look(self._session)
            hello = (await self._session.namespace()).hello
        return pb.GetEnvironmentResponse(
            python_version=hello.python,
            kernel=hello.kernel,
            languages=[pb.LanguageVersion(language=name, version=version) for name, version in found.languages],
            packages=[
                pb.Package(name=each.name, version=each.version, origin=ORIGINS[each.origin]) for each in found.packages
            ],
            fixed_envs=found.fixed_envs,
        )

    async def Health(self, request: pb.HealthRequest, context: Any) -> pb.HealthResponse:
        try:
            await (await self._session.namespace()).ping()
        except NamespaceError as error:
            return pb.HealthResponse(ready=False, message=str(error))
        return pb.HealthResponse(ready=True)

    async def Usage(self, request: pb.UsageRequest, context: Any) -> pb.UsageResponse:
        with typed_failures():
            used = await (await self._session.namespace()).usage()
        return pb.UsageResponse(
            memory_bytes=used["memory"],
            tmp_bytes=used["tmp"],
            processes=used["processes"],
            cpu_seconds=used["cpu"],
            running_executions=self._session.running_executions,
        )

    async def ProbeEgress(self, request: pb.ProbeEgressRequest, context: Any) -> pb.ProbeEgressResponse:
        with typed_failures():
            wanted = targets.checked([target_of(one) for one in request.targets])
        if self._session.config.network != "pod":
            why = "cannot probe: user code has a network of its own, so that what the executor reaches says nothing"
            raise ApiError(grpc.StatusCode.FAILED_PRECONDITION, "OwnNetwork", why)
        return pb.ProbeEgressResponse(reached=await probes.reached(wanted))

    async def Close(self, request: pb.CloseRequest, context: Any) -> pb.CloseResponse:
        await self._session.close()
        return pb.CloseResponse()


def target_of(message: pb.EgressTarget) -> targets.Target:
    """Raises BadRequest."""
    if message.WhichOneof("target") == "name_server" and message.name_server:
        return targets.Target()
    return targets.tcp_target(message.tcp.address, message.tcp.port)


def lease_of(request: pb.OpenRequest) -> Lease:
    """Raises BadRequest."""
    lease, idle = convert.seconds(request, "lease"), convert.seconds(request, "idle_timeout")
    for name, value in (("lease", lease), ("idle timeout", idle)):
        if value is not None and not 0 < value <= MAX_LEASE_SECONDS:
            raise BadRequest(
                f"cannot take a {name} of {value:g} s: it has to be above 0 and at most {MAX_LEASE_SECONDS:g}"
            )
    return Lease(time.monotonic() + lease if lease else None, idle)


def isolation(session: Session, namespace: Namespace) -> pb.Isolation:
    if session.config.isolation == "none":
        return pb.ISOLATION_NONE
    return pb.ISOLATION_GVISOR if "gvisor" in namespace.hello.kernel.lower() else pb.ISOLATION_NAMESPACE


def limits_message(limits: Limits) -> common_pb2.Limits:
    return common_pb2.Limits(
        memory_bytes=limits.memory_bytes,
        tmp_bytes=limits.tmpfs_bytes,
        processes=limits.processes,
        output_bytes=limits.output_bytes,
        executions=limits.executions,
        max_timeout=convert.duration(limits.max_timeout),
        default_timeout=convert.duration(limits.default_timeout),
    )


def describe(session: Session, namespace: Namespace) -> pb.DescribeResponse:
    remaining = session.lease_remaining()
    return pb.DescribeResponse(
        sandbox_id=session.config.sandbox_id,
        sandbox_uid=session.config.sandbox_uid,
        session_id=session.session_id,
        isolation=isolation(session, namespace),
        separations=session.separations(namespace),
        kernel=namespace.hello.kernel,
        languages=namespace.hello.languages,
        python_version=namespace.hello.python,
        limits=limits_message(session.limits),
        started=convert.timestamp(int(session.started * 1e9)),
        lease_remaining=None if remaining is None else convert.duration(remaining),
        executor_version=__version__,
    )
