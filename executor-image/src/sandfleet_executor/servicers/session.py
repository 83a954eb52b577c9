"""SessionService."""

import contextlib
import os
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
from sandfleet_api.executor.v1 import session_pb2 as pb
from sandfleet_api.executor.v1 import session_pb2_grpc

from sandfleet_executor import __version__
from sandfleet_executor.core import requests
from sandfleet_executor.core.errors import BadRequest
from sandfleet_executor.core.executions.usage import End, LanguageTally, Tally
from sandfleet_executor.core.network import egress_probe as targets
from sandfleet_executor.core.packages import installation, preload
from sandfleet_executor.core.packages.installation import Declared, Status
from sandfleet_executor.core.session.expiry import Lease
from sandfleet_executor.effects.executions.meter import ExecutionMeter
from sandfleet_executor.effects.namespace.children import NamespaceError
from sandfleet_executor.effects.namespace.namespace import Namespace
from sandfleet_executor.effects.network import egress_probe as probes
from sandfleet_executor.effects.session.sandbox_meter import HEARTBEAT_SECONDS, Reading, SandboxMeter
from sandfleet_executor.effects.session.session import Claim, Session
from sandfleet_executor.effects.suspension.suspender import Suspender
from sandfleet_executor.servicers.convert import common as convert
from sandfleet_executor.servicers.convert import contexts
from sandfleet_executor.servicers.errors import ApiError

LEAST_WATCH_SECONDS, DEFAULT_WATCH_SECONDS, MOST_WATCH_SECONDS = 0.1, 1.0, 60.0
MAX_LEASE_SECONDS = 30 * 24 * 3600.0
PRELOAD_STATES = {
    preload.State.WAITING: pb.PRELOAD_STATE_WAITING,
    preload.State.LOADING: pb.PRELOAD_STATE_WAITING,
    preload.State.LOADED: pb.PRELOAD_STATE_LOADED,
    preload.State.FAILED: pb.PRELOAD_STATE_FAILED,
}
ORIGINS = {"image": pb.PACKAGE_ORIGIN_IMAGE, "workspace": pb.PACKAGE_ORIGIN_WORKSPACE}


class SessionService(session_pb2_grpc.SessionServiceServicer):
    def __init__(self, session: Session, meter: SandboxMeter, suspender: Suspender) -> None:
        self._session = session
        self._meter = meter
        self._suspender = suspender

    async def Open(self, request: pb.OpenRequest, context: Any) -> pb.OpenResponse:
        claim = Claim(
            requests.check_id("session id", request.session_id),
            lease_of(request),
            requests.check_envs(request.envs),
            self._session.config.limits.lowered(convert.limits_wish(request.limits)),
            request.mounts,
            request.egress,
            request.egress_authority,
        )
        namespace = await self._session.open(claim, self._suspender.begin)
        return pb.OpenResponse(description=describe(self._session, namespace))

    async def Suspend(self, request: pb.SuspendRequest, context: Any) -> pb.SuspendResponse:
        kept = await self._suspender.suspend(force=request.force, unused=request.unused)
        return pb.SuspendResponse(
            suspension=pb.Suspension(
                contexts=map(contexts.report, kept.contexts),
                services=kept.services,
                ended_executions=kept.ended_executions,
                ended_connections=kept.ended_connections,
                tmp_bytes=kept.tmp_bytes,
            )
        )

    async def Resume(self, request: pb.ResumeRequest, context: Any) -> pb.ResumeResponse:
        back = await self._suspender.resumed()
        if back is None:
            return pb.ResumeResponse()
        return pb.ResumeResponse(
            resumption=pb.Resumption(contexts=map(contexts.report, back.contexts), services=back.services)
        )

    async def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.DescribeResponse:
        said = describe(self._session, await self._session.namespaces.get())
        if (idle := self._suspender.idle()) is not None:
            said.idle.CopyFrom(convert.duration(idle))
        said.prepared = await self._suspender.prepared()
        return said

    async def GetEnvironment(self, request: pb.GetEnvironmentRequest, context: Any) -> pb.GetEnvironmentResponse:
        found = await self._session.installed()
        hello = (await self._session.namespaces.get()).hello
        return pb.GetEnvironmentResponse(
            python_version=hello.python,
            kernel=hello.kernel,
            languages=[pb.LanguageVersion(language=name, version=version) for name, version in found.languages],
            packages=[
                pb.Package(name=each.name, version=each.version, origin=ORIGINS[each.origin]) for each in found.packages
            ],
            fixed_envs=found.fixed_envs,
            declared=[
                declared_message(each) for each in installation.renewed(self._session.packages.status, found.declared)
            ],
            installation=installation_message(self._session.packages.status, log=True),
        )

    async def Health(self, request: pb.HealthRequest, context: Any) -> pb.HealthResponse:
        if self._session.held:
            return pb.HealthResponse(ready=False, message="cannot run anything: the sandbox is being suspended")
        try:
            await (await self._session.namespaces.get()).ping()
        except NamespaceError as error:
            return pb.HealthResponse(ready=False, message=str(error))
        return pb.HealthResponse(ready=True)

    async def Usage(self, request: pb.UsageRequest, context: Any) -> pb.UsageResponse:
        return usage_message(await self._meter.read())

    async def WatchUsage(self, request: pb.WatchUsageRequest, context: Any) -> AsyncIterator[pb.WatchUsageResponse]:
        interval = watch_interval(convert.seconds(request, "interval"))
        told, told_at = b"", 0.0
        # A slow reader gets the state at the time when it can take it, and delays no other reader.
        async with contextlib.aclosing(self._meter.ticks(interval)) as ticks:
            async for _ in ticks:
                said = watch_message(await self._meter.read(age=interval / 2), self._meter.running())
                now, mark = time.monotonic(), timeless(said)
                if mark != told or now - told_at >= HEARTBEAT_SECONDS:
                    told, told_at = mark, now
                    yield said

    async def ProbeEgress(self, request: pb.ProbeEgressRequest, context: Any) -> pb.ProbeEgressResponse:
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
        limits=convert.limits_message(reading.limits),
        ended=[ended_message(*one) for one in reading.tallies.executions],
        tool_calls=[pb.EndedToolCalls(end=end, count=count) for end, count in reading.tallies.tool_calls],
        languages=[language_message(*one) for one in reading.tallies.languages],
        cpus=reading.limits.cpus or os.cpu_count() or 1,
    )


def language_message(language: str, tally: LanguageTally) -> pb.LanguageUsage:
    return pb.LanguageUsage(
        language=language,
        executions=tally.executions,
        cpu_seconds=tally.cpu_seconds,
        wall_seconds=tally.wall_seconds,
        peak_memory_bytes=tally.peak_memory_bytes,
    )


def ended_message(end: End, tally: Tally) -> pb.EndedExecutions:
    return pb.EndedExecutions(
        commands=end.span == "run_command",
        outcome=convert.OUTCOMES[end.outcome],
        blame=convert.BLAMES[end.blame],
        counts=tally.counts,
        wall_seconds=tally.wall_seconds,
    )


def watch_message(reading: Reading, meters: list[ExecutionMeter]) -> pb.WatchUsageResponse:
    executions = [
        pb.ExecutionUsage(
            execution_id=meter.execution.id,
            context_id=meter.attributes.get("sandfleet.context.id", ""),
            memory_bytes=meter.memory,
            processes=meter.processes,
            usage=convert.usage(meter.usage()),
        )
        for meter in meters
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


def describe(session: Session, namespace: Namespace) -> pb.DescribeResponse:
    remaining = session.tenancy.lease.remaining(time.monotonic())
    return pb.DescribeResponse(
        sandbox_id=session.config.sandbox_id,
        sandbox_uid=session.config.sandbox_uid,
        session_id=session.session_id,
        isolation=isolation(session, namespace),
        separations=session.namespaces.separations(namespace),
        kernel=namespace.hello.kernel,
        languages=namespace.hello.languages,
        python_version=namespace.hello.python,
        limits=convert.limits_message(session.limits),
        started=convert.timestamp(int(session.started * 1e9)),
        lease_remaining=None if remaining is None else convert.duration(remaining),
        executor_version=__version__,
        packages=installation_message(session.packages.status, log=False),
        mounts=session.mounts.told(),
        preload=[
            pb.PreloadedModule(module=each.name, state=PRELOAD_STATES[each.state], problem=each.problem)
            for each in session.preload.status.modules
        ],
    )


def installation_message(status: Status, *, log: bool) -> pb.Installation | None:
    """None where nothing is declared."""
    if not status.declared:
        return None
    state = f"INSTALL_STATE_{status.state.name}"
    return pb.Installation(state=state, reason=status.reason, message=status.message, log=status.log if log else "")


def declared_message(each: Declared) -> pb.DeclaredPackage:
    return pb.DeclaredPackage(
        requirement=each.requirement,
        state=f"INSTALL_STATE_{each.state.name}",
        name=each.name,
        version=each.version,
        origin=ORIGINS.get(each.origin, pb.PACKAGE_ORIGIN_UNSPECIFIED),
    )
