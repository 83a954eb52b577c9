"""SessionService."""

import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
from sandfleet_api.executor.v1 import common_pb2, session_pb2_grpc
from sandfleet_api.executor.v1 import session_pb2 as pb

from sandfleet_executor import __version__
from sandfleet_executor.core import packages, requests
from sandfleet_executor.core import probes as targets
from sandfleet_executor.core.config import Limits
from sandfleet_executor.core.packages import Declared, State, Status
from sandfleet_executor.core.requests import BadRequest
from sandfleet_executor.effects import environment, probes
from sandfleet_executor.effects.accounting import Account
from sandfleet_executor.effects.children import NamespaceError
from sandfleet_executor.effects.meter import HEARTBEAT_SECONDS, Meter, Reading
from sandfleet_executor.effects.namespace import Namespace
from sandfleet_executor.effects.session import Lease, Session
from sandfleet_executor.servicers import convert
from sandfleet_executor.servicers.convert import typed_failures
from sandfleet_executor.servicers.errors import ApiError

LEAST_WATCH_SECONDS, DEFAULT_WATCH_SECONDS, MOST_WATCH_SECONDS = 0.1, 1.0, 60.0
MAX_LEASE_SECONDS = 30 * 24 * 3600.0
INSTALL_STATES = {
    State.WAITING: pb.INSTALL_STATE_WAITING,
    State.INSTALLING: pb.INSTALL_STATE_INSTALLING,
    State.INSTALLED: pb.INSTALL_STATE_INSTALLED,
    State.FAILED: pb.INSTALL_STATE_FAILED,
    State.NOT_NEEDED: pb.INSTALL_STATE_NOT_NEEDED,
}
ORIGINS = {"image": pb.PACKAGE_ORIGIN_IMAGE, "workspace": pb.PACKAGE_ORIGIN_WORKSPACE}


class SessionService(session_pb2_grpc.SessionServiceServicer):
    def __init__(self, session: Session, meter: Meter) -> None:
        self._session = session
        self._meter = meter

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
            declared=[
                declared_message(each) for each in packages.renewed(self._session.packages.status, found.declared)
            ],
            installation=installation_message(self._session.packages.status, log=True),
        )

    async def Health(self, request: pb.HealthRequest, context: Any) -> pb.HealthResponse:
        try:
            await (await self._session.namespace()).ping()
        except NamespaceError as error:
            return pb.HealthResponse(ready=False, message=str(error))
        return pb.HealthResponse(ready=True)

    async def Usage(self, request: pb.UsageRequest, context: Any) -> pb.UsageResponse:
        with typed_failures():
            return usage_message(await self._meter.read())

    async def WatchUsage(self, request: pb.WatchUsageRequest, context: Any) -> AsyncIterator[pb.WatchUsageResponse]:
        with typed_failures():
            interval = watch_interval(convert.seconds(request, "interval"))
            told, told_at = b"", 0.0
            # What the slowest reader gets is what was true when it could take it: nothing waits for it.
            async with contextlib.aclosing(self._meter.ticks(interval)) as ticks:
                async for _ in ticks:
                    said = watch_message(await self._meter.read(age=interval / 2), self._meter.running())
                    now, mark = time.monotonic(), timeless(said)
                    if mark != told or now - told_at >= HEARTBEAT_SECONDS:
                        told, told_at = mark, now
                        yield said

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


def watch_interval(wish: float | None) -> float:
    """Seconds. Raises BadRequest."""
    if wish is not None and wish < 0:
        raise BadRequest(f"cannot watch every {wish:g} s: it has to be 0 or more")
    return min(max(DEFAULT_WATCH_SECONDS if wish is None else wish, LEAST_WATCH_SECONDS), MOST_WATCH_SECONDS)


def usage_message(reading: Reading) -> pb.UsageResponse:
    return pb.UsageResponse(
        memory_bytes=reading.memory,
        tmp_bytes=reading.tmp,
        processes=reading.processes,
        cpu_seconds=reading.cpu_seconds,
        running_executions=reading.running,
        disk_bytes=reading.disk,
        wall_seconds=reading.wall_seconds,
        total_cpu_seconds=reading.totals.cpu_seconds,
        peak_memory_bytes=reading.totals.peak_memory_bytes,
        peak_processes=reading.totals.peak_processes,
        written_bytes=reading.written,
        executions=reading.totals.executions,
        limits=limits_message(reading.limits),
    )


def watch_message(reading: Reading, accounts: list[Account]) -> pb.WatchUsageResponse:
    executions = [
        pb.ExecutionUsage(
            execution_id=account.execution.id,
            context_id=account.attributes.get("sandfleet.context.id", ""),
            memory_bytes=account.memory,
            processes=account.processes,
            usage=convert.usage(account.usage()),
        )
        for account in accounts
    ]
    return pb.WatchUsageResponse(usage=usage_message(reading), executions=executions)


def timeless(message: pb.WatchUsageResponse) -> bytes:
    """What of it changes when something happens, and not by time alone."""
    still = pb.WatchUsageResponse()
    still.CopyFrom(message)
    still.usage.ClearField("wall_seconds")
    for one in still.executions:
        one.usage.ClearField("wall_seconds")
    return still.SerializeToString(deterministic=True)


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
        open_files=limits.open_files,
        disk_bytes=limits.disk_bytes,
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
        packages=installation_message(session.packages.status, log=False),
    )


def installation_message(status: Status, *, log: bool) -> pb.Installation | None:
    """None where nothing is declared."""
    if not status.declared:
        return None
    state = INSTALL_STATES[status.state]
    return pb.Installation(state=state, reason=status.reason, message=status.message, log=status.log if log else "")


def declared_message(each: Declared) -> pb.DeclaredPackage:
    return pb.DeclaredPackage(
        requirement=each.requirement,
        state=INSTALL_STATES[each.state],
        name=each.name,
        version=each.version,
        origin=ORIGINS.get(each.origin, pb.PACKAGE_ORIGIN_UNSPECIFIED),
    )
