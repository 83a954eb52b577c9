"""Services: messages as values, and back. Executors are hostile."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import cast

from sandfleet._wire import api
from sandfleet._wire.convert import common as convert
from sandfleet._wire.convert.enums import numbers_of, values_of
from sandfleet.errors import InvalidArgument
from sandfleet.values.services import Applied, LogPiece, Probe, Service, ServiceExit, ServiceSpec, ServiceState

_MOST_NAMES, _MOST_PORTS, _TEXT = 1000, 1000, 4096


def spec_message(spec: ServiceSpec) -> api.service.ServiceSpec:
    """Write a declaration. Raises InvalidArgument."""
    policies = numbers_of(api.service.RestartPolicy)
    if spec.restart not in policies:
        raise InvalidArgument(f'cannot declare {spec.name}: restart is "always", "on-failure" or "never"')
    words, line = _command(spec.cmd)
    return api.service.ServiceSpec(
        name=spec.name,
        argv=words,
        shell=line,
        cwd=os.fsencode(spec.cwd),
        envs=dict(spec.envs),
        readiness=_probe(spec.ready),
        liveness=_probe(spec.live),
        restart=cast("api.service.RestartPolicy", policies[spec.restart]),
        backoff=convert.seconds(spec.backoff),
        backoff_cap=convert.seconds(spec.backoff_cap),
        max_failures=spec.max_failures or 0,
        after=spec.after,
        stop_signal=spec.stop_signal,
        grace=convert.seconds(spec.grace),
    )


def _probe(probe: Probe | None) -> api.service.Probe | None:
    if probe is None:
        return None
    made = api.service.Probe(
        interval=convert.seconds(probe.interval),
        timeout=convert.seconds(probe.timeout),
        success_threshold=probe.successes,
        failure_threshold=probe.failures,
    )
    match probe.kind:
        case "tcp":
            made.tcp.CopyFrom(api.service.TcpProbe(port=probe.port))
        case "http":
            made.http.CopyFrom(api.service.HttpProbe(port=probe.port, path=probe.path, expected_status=probe.status))
        case "exec":
            words, line = _command(probe.command)
            made.exec.CopyFrom(api.service.ExecProbe(argv=words, shell=line))
    return made


def _command(cmd: str | Sequence[str | bytes]) -> tuple[list[bytes], bytes]:
    return ([], os.fsencode(cmd)) if isinstance(cmd, str) else ([os.fsencode(word) for word in cmd], b"")


def applied(message: api.service.ApplyResponse) -> Applied:
    """Read what a declaration changed."""
    return Applied(
        started=_names(message.started),
        restarted=_names(message.restarted),
        stopped=_names(message.stopped),
        unchanged=_names(message.unchanged),
    )


def service(message: api.service.Service) -> Service:
    """Read a service."""
    return Service(
        name=message.name[:_TEXT],
        state=values_of(api.service.ServiceState, ServiceState).get(message.state, ServiceState.UNKNOWN),
        reason=message.reason[:_TEXT],
        message=message.message[:_TEXT],
        pid=message.pid,
        started=convert.moment(message.started),
        restarts=message.restarts,
        last_exit=_exit(message.last_exit) if message.HasField("last_exit") else None,
        ports=tuple(message.ports[:_MOST_PORTS]) if message.ports_known else None,
        from_template=message.from_template,
        log_path=message.log_path[:_TEXT],
        log_problem=message.log_problem[:_TEXT],
    )


def _exit(message: api.service.ServiceExit) -> ServiceExit:
    return ServiceExit(
        exit_code=message.exit_code,
        signal=message.signal[:_TEXT],
        reason=message.reason[:_TEXT],
        message=message.message[:_TEXT],
        leftover_processes_killed=message.leftover_processes_killed,
        at=convert.moment(message.at),
    )


def log_piece(message: api.service.LogsResponse) -> LogPiece | None:
    """Read a part of a log; None for one of a kind that this client does not know."""
    match message.WhichOneof("event"):
        case "chunk":
            return LogPiece(message.chunk.offset, message.chunk.data)
        case "gap":
            return LogPiece(message.gap.offset, dropped_bytes=message.gap.dropped_bytes)
    return None


def _names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name[:_TEXT] for name, _ in zip(names, range(_MOST_NAMES), strict=False))
