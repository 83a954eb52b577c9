"""ServiceManagerService."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from google.protobuf.message import DecodeError
from sandfleet_api.executor.v1 import service_pb2 as pb
from sandfleet_api.executor.v1 import service_pb2_grpc

from sandfleet_executor.core import requests
from sandfleet_executor.core.errors import BadRequest
from sandfleet_executor.core.services.machine import Exit
from sandfleet_executor.core.services.plan import Service
from sandfleet_executor.core.services.spec import Exec, Http, Probe, Restart, ServiceSpec, Tcp
from sandfleet_executor.effects.services.logs import log_path
from sandfleet_executor.effects.session.session import Session
from sandfleet_executor.effects.suspension.suspender import Codec
from sandfleet_executor.servicers.convert import common as convert

WAIT_SECONDS = 60.0
MAX_WAIT_SECONDS = 3600.0
MAX_NAMES = 1000
POLICIES = {pb.RestartPolicy.Value(f"RESTART_POLICY_{policy.name}"): policy for policy in Restart}
POLICIES[pb.RESTART_POLICY_UNSPECIFIED] = Restart.ON_FAILURE


class ServiceManagerService(service_pb2_grpc.ServiceManagerServiceServicer):
    def __init__(self, session: Session) -> None:
        self._session = session
        self._services = session.services

    async def Apply(self, request: pb.ApplyRequest, context: Any) -> pb.ApplyResponse:
        specs = [spec_of(one, self._session.workdir) for one in request.services]
        change = self._services.apply(specs, keep_others=request.keep_others)
        return pb.ApplyResponse(
            started=change.started, restarted=change.restarted, stopped=change.stopped, unchanged=change.unchanged
        )

    async def Start(
        self, request: pb.ServiceManagerServiceStartRequest, context: Any
    ) -> pb.ServiceManagerServiceStartResponse:
        self._services.start(names_of(request.names))
        return pb.ServiceManagerServiceStartResponse()

    async def Stop(self, request: pb.StopRequest, context: Any) -> pb.StopResponse:
        await self._services.stop(names_of(request.names))
        return pb.StopResponse()

    async def Restart(self, request: pb.RestartRequest, context: Any) -> pb.RestartResponse:
        self._services.restart(request.name)
        return pb.RestartResponse()

    async def List(
        self, request: pb.ServiceManagerServiceListRequest, context: Any
    ) -> pb.ServiceManagerServiceListResponse:
        ports = await self._services.ports()
        services = [self._message(one, *ports.get(one.name, ([], not one.runtime.pid))) for one in self._services.all()]
        if request.specs:
            for message, one in zip(services, self._services.all(), strict=True):
                message.spec.CopyFrom(spec_message(one.spec))
        return pb.ServiceManagerServiceListResponse(services=services)

    async def Logs(self, request: pb.LogsRequest, context: Any) -> AsyncIterator[pb.LogsResponse]:
        log = self._services.log(request.name)
        if request.tail_lines and request.HasField("offset"):
            raise BadRequest("cannot read the log: give either an offset or a number of lines")
        offset = log.ring.first
        if request.HasField("offset"):
            offset = request.offset
        elif request.tail_lines:
            offset = log.ring.tail(request.tail_lines)
        async for start, missing, data in log.pieces(offset, follow=request.follow):
            if missing:
                yield pb.LogsResponse(gap=pb.LogGap(offset=start, dropped_bytes=missing))
            else:
                yield pb.LogsResponse(chunk=pb.LogChunk(offset=start, data=data))

    async def WaitReady(self, request: pb.WaitReadyRequest, context: Any) -> pb.WaitReadyResponse:
        seconds = convert.seconds(request, "timeout")
        seconds = WAIT_SECONDS if seconds is None else seconds
        if not 0 <= seconds <= MAX_WAIT_SECONDS:
            raise BadRequest(f"cannot wait {seconds:g} s: it has to be at least 0 and at most {MAX_WAIT_SECONDS:g}")
        ready = await self._services.wait_ready(request.name, seconds)
        one, log = self._services.get(request.name), self._services.log(request.name)
        # Not its ports: that takes a look at the processes.
        shown = self._message(one, [], known=False)
        return pb.WaitReadyResponse(ready=ready, service=shown, log_tail=b"" if ready else log.ring.last_lines())

    def _message(self, one: Service, ports: Sequence[int], known: bool) -> pb.Service:
        runtime = one.runtime
        started = convert.timestamp(int(self._services.since(one) * 1e9)) if runtime.pid else None
        return pb.Service(
            name=one.name,
            state=f"SERVICE_STATE_{runtime.state.name}",
            reason=runtime.reason,
            message=runtime.message,
            pid=runtime.pid,
            started=started,
            restarts=runtime.restarts,
            last_exit=exit_message(runtime.last) if runtime.last else None,
            ports=ports,
            ports_known=known,
            from_template=one.from_template,
            log_path=log_path(one.name),
            log_problem=self._services.log_problem(one.name),
        )


def codec(workdir: str) -> Codec:
    """Declared services as the API writes them."""

    def decoded(text: bytes) -> ServiceSpec:
        try:
            return spec_of(pb.ServiceSpec.FromString(text), workdir)
        except DecodeError as error:
            raise BadRequest(f"cannot read a declared service: {error}") from error

    return Codec(lambda spec: spec_message(spec).SerializeToString(), decoded)


def names_of(names: Sequence[str]) -> list[str]:
    """Raises BadRequest."""
    if len(names) > MAX_NAMES:
        raise BadRequest(f"cannot take {len(names)} names: the most is {MAX_NAMES}")
    return list(dict.fromkeys(names))


def spec_of(message: pb.ServiceSpec, workdir: str) -> ServiceSpec:
    """Raises BadRequest."""
    if message.restart not in POLICIES:
        raise BadRequest(f"cannot declare {message.name[:80]}: there is no restart policy {message.restart}")
    given = {
        "backoff": convert.seconds(message, "backoff"),
        "backoff_cap": convert.seconds(message, "backoff_cap"),
        "max_failures": message.max_failures or None,
        "stop_signal": message.stop_signal or None,
        "grace": convert.seconds(message, "grace"),
    }
    return ServiceSpec(
        name=message.name,
        payload=requests.command_payload(message.argv, message.shell),
        shell=bool(message.shell),
        cwd=requests.check_cwd(message.cwd, workdir),
        envs=requests.check_envs(message.envs),
        readiness=probe_of(message.readiness) if message.HasField("readiness") else None,
        liveness=probe_of(message.liveness) if message.HasField("liveness") else None,
        restart=POLICIES[message.restart],
        after=tuple(dict.fromkeys(message.after)),
        **{name: value for name, value in given.items() if value is not None},  # type: ignore[arg-type] # each of its kind
    )


def probe_of(message: pb.Probe) -> Probe:
    """Raises BadRequest."""
    given = {
        "interval": convert.seconds(message, "interval"),
        "timeout": convert.seconds(message, "timeout"),
        "successes": message.success_threshold or None,
        "failures": message.failure_threshold or None,
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    return Probe(check_of(message), **chosen)  # type: ignore[arg-type] # each of its kind


def check_of(message: pb.Probe) -> Tcp | Http | Exec:
    match message.WhichOneof("check"):
        case "tcp":
            return Tcp(message.tcp.port)
        case "http":
            return Http(message.http.port, message.http.path or "/", message.http.expected_status)
        case "exec":
            check = message.exec
            return Exec(requests.command_payload(check.argv, check.shell), bool(check.shell))
    raise BadRequest("cannot declare a probe: it needs one of tcp, http and exec")


def spec_message(spec: ServiceSpec) -> pb.ServiceSpec:
    return pb.ServiceSpec(
        name=spec.name,
        argv=[] if spec.shell else spec.payload.split(b"\0"),
        shell=spec.payload if spec.shell else b"",
        cwd=spec.cwd,
        envs=spec.envs,
        readiness=probe_message(spec.readiness) if spec.readiness else None,
        liveness=probe_message(spec.liveness) if spec.liveness else None,
        restart=f"RESTART_POLICY_{spec.restart.name}",
        backoff=convert.duration(spec.backoff),
        backoff_cap=convert.duration(spec.backoff_cap),
        max_failures=spec.max_failures,
        after=spec.after,
        stop_signal=spec.stop_signal,
        grace=convert.duration(spec.grace),
    )


def probe_message(probe: Probe) -> pb.Probe:
    made = pb.Probe(
        interval=convert.duration(probe.interval),
        timeout=convert.duration(probe.timeout),
        success_threshold=probe.successes,
        failure_threshold=probe.failures,
    )
    match probe.check:
        case Tcp(port):
            made.tcp.port = port
        case Http(port, path, status):
            made.http.CopyFrom(pb.HttpProbe(port=port, path=path, expected_status=status))
        case Exec(payload, shell):
            made.exec.CopyFrom(
                pb.ExecProbe(argv=[] if shell else payload.split(b"\0"), shell=payload if shell else b"")
            )
    return made


def exit_message(how: Exit) -> pb.ServiceExit:
    return pb.ServiceExit(
        exit_code=how.code,
        signal=how.signal,
        reason=how.reason,
        message=how.message,
        leftover_processes_killed=how.leftover,
        at=convert.timestamp(int(how.at * 1e9)),
    )
