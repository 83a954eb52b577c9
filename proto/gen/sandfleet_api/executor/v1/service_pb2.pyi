import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RestartPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RESTART_POLICY_UNSPECIFIED: _ClassVar[RestartPolicy]
    RESTART_POLICY_ALWAYS: _ClassVar[RestartPolicy]
    RESTART_POLICY_ON_FAILURE: _ClassVar[RestartPolicy]
    RESTART_POLICY_NEVER: _ClassVar[RestartPolicy]

class ServiceState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SERVICE_STATE_UNSPECIFIED: _ClassVar[ServiceState]
    SERVICE_STATE_WAITING: _ClassVar[ServiceState]
    SERVICE_STATE_STARTING: _ClassVar[ServiceState]
    SERVICE_STATE_RUNNING: _ClassVar[ServiceState]
    SERVICE_STATE_READY: _ClassVar[ServiceState]
    SERVICE_STATE_STOPPING: _ClassVar[ServiceState]
    SERVICE_STATE_RESTARTING: _ClassVar[ServiceState]
    SERVICE_STATE_FAILING: _ClassVar[ServiceState]
    SERVICE_STATE_BACK_OFF: _ClassVar[ServiceState]
    SERVICE_STATE_COMPLETED: _ClassVar[ServiceState]
    SERVICE_STATE_FAILED: _ClassVar[ServiceState]
    SERVICE_STATE_STOPPED: _ClassVar[ServiceState]
RESTART_POLICY_UNSPECIFIED: RestartPolicy
RESTART_POLICY_ALWAYS: RestartPolicy
RESTART_POLICY_ON_FAILURE: RestartPolicy
RESTART_POLICY_NEVER: RestartPolicy
SERVICE_STATE_UNSPECIFIED: ServiceState
SERVICE_STATE_WAITING: ServiceState
SERVICE_STATE_STARTING: ServiceState
SERVICE_STATE_RUNNING: ServiceState
SERVICE_STATE_READY: ServiceState
SERVICE_STATE_STOPPING: ServiceState
SERVICE_STATE_RESTARTING: ServiceState
SERVICE_STATE_FAILING: ServiceState
SERVICE_STATE_BACK_OFF: ServiceState
SERVICE_STATE_COMPLETED: ServiceState
SERVICE_STATE_FAILED: ServiceState
SERVICE_STATE_STOPPED: ServiceState

class TcpProbe(_message.Message):
    __slots__ = ("port",)
    PORT_FIELD_NUMBER: _ClassVar[int]
    port: int
    def __init__(self, port: _Optional[int] = ...) -> None: ...

class HttpProbe(_message.Message):
    __slots__ = ("port", "path", "expected_status")
    PORT_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_STATUS_FIELD_NUMBER: _ClassVar[int]
    port: int
    path: str
    expected_status: int
    def __init__(self, port: _Optional[int] = ..., path: _Optional[str] = ..., expected_status: _Optional[int] = ...) -> None: ...

class ExecProbe(_message.Message):
    __slots__ = ("argv", "shell")
    ARGV_FIELD_NUMBER: _ClassVar[int]
    SHELL_FIELD_NUMBER: _ClassVar[int]
    argv: _containers.RepeatedScalarFieldContainer[bytes]
    shell: bytes
    def __init__(self, argv: _Optional[_Iterable[bytes]] = ..., shell: _Optional[bytes] = ...) -> None: ...

class Probe(_message.Message):
    __slots__ = ("tcp", "http", "exec", "interval", "timeout", "success_threshold", "failure_threshold")
    TCP_FIELD_NUMBER: _ClassVar[int]
    HTTP_FIELD_NUMBER: _ClassVar[int]
    EXEC_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    FAILURE_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    tcp: TcpProbe
    http: HttpProbe
    exec: ExecProbe
    interval: _duration_pb2.Duration
    timeout: _duration_pb2.Duration
    success_threshold: int
    failure_threshold: int
    def __init__(self, tcp: _Optional[_Union[TcpProbe, _Mapping]] = ..., http: _Optional[_Union[HttpProbe, _Mapping]] = ..., exec: _Optional[_Union[ExecProbe, _Mapping]] = ..., interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., success_threshold: _Optional[int] = ..., failure_threshold: _Optional[int] = ...) -> None: ...

class ServiceSpec(_message.Message):
    __slots__ = ("name", "argv", "shell", "cwd", "envs", "readiness", "liveness", "restart", "backoff", "backoff_cap", "max_failures", "after", "stop_signal", "grace")
    class EnvsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGV_FIELD_NUMBER: _ClassVar[int]
    SHELL_FIELD_NUMBER: _ClassVar[int]
    CWD_FIELD_NUMBER: _ClassVar[int]
    ENVS_FIELD_NUMBER: _ClassVar[int]
    READINESS_FIELD_NUMBER: _ClassVar[int]
    LIVENESS_FIELD_NUMBER: _ClassVar[int]
    RESTART_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_CAP_FIELD_NUMBER: _ClassVar[int]
    MAX_FAILURES_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    STOP_SIGNAL_FIELD_NUMBER: _ClassVar[int]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    name: str
    argv: _containers.RepeatedScalarFieldContainer[bytes]
    shell: bytes
    cwd: bytes
    envs: _containers.ScalarMap[str, str]
    readiness: Probe
    liveness: Probe
    restart: RestartPolicy
    backoff: _duration_pb2.Duration
    backoff_cap: _duration_pb2.Duration
    max_failures: int
    after: _containers.RepeatedScalarFieldContainer[str]
    stop_signal: int
    grace: _duration_pb2.Duration
    def __init__(self, name: _Optional[str] = ..., argv: _Optional[_Iterable[bytes]] = ..., shell: _Optional[bytes] = ..., cwd: _Optional[bytes] = ..., envs: _Optional[_Mapping[str, str]] = ..., readiness: _Optional[_Union[Probe, _Mapping]] = ..., liveness: _Optional[_Union[Probe, _Mapping]] = ..., restart: _Optional[_Union[RestartPolicy, str]] = ..., backoff: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., backoff_cap: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_failures: _Optional[int] = ..., after: _Optional[_Iterable[str]] = ..., stop_signal: _Optional[int] = ..., grace: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ApplyRequest(_message.Message):
    __slots__ = ("services", "keep_others")
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    KEEP_OTHERS_FIELD_NUMBER: _ClassVar[int]
    services: _containers.RepeatedCompositeFieldContainer[ServiceSpec]
    keep_others: bool
    def __init__(self, services: _Optional[_Iterable[_Union[ServiceSpec, _Mapping]]] = ..., keep_others: _Optional[bool] = ...) -> None: ...

class ApplyResponse(_message.Message):
    __slots__ = ("started", "restarted", "stopped", "unchanged")
    STARTED_FIELD_NUMBER: _ClassVar[int]
    RESTARTED_FIELD_NUMBER: _ClassVar[int]
    STOPPED_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    started: _containers.RepeatedScalarFieldContainer[str]
    restarted: _containers.RepeatedScalarFieldContainer[str]
    stopped: _containers.RepeatedScalarFieldContainer[str]
    unchanged: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, started: _Optional[_Iterable[str]] = ..., restarted: _Optional[_Iterable[str]] = ..., stopped: _Optional[_Iterable[str]] = ..., unchanged: _Optional[_Iterable[str]] = ...) -> None: ...

class ServiceManagerServiceStartRequest(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class ServiceManagerServiceStartResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StopRequest(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class StopResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RestartRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class RestartResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ServiceExit(_message.Message):
    __slots__ = ("exit_code", "signal", "reason", "message", "leftover_processes_killed", "at")
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LEFTOVER_PROCESSES_KILLED_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    exit_code: int
    signal: str
    reason: str
    message: str
    leftover_processes_killed: int
    at: _timestamp_pb2.Timestamp
    def __init__(self, exit_code: _Optional[int] = ..., signal: _Optional[str] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., leftover_processes_killed: _Optional[int] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Service(_message.Message):
    __slots__ = ("name", "state", "reason", "message", "pid", "started", "restarts", "last_exit", "ports", "ports_known", "from_template", "log_path", "log_problem", "spec")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    LAST_EXIT_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    PORTS_KNOWN_FIELD_NUMBER: _ClassVar[int]
    FROM_TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    LOG_PATH_FIELD_NUMBER: _ClassVar[int]
    LOG_PROBLEM_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: ServiceState
    reason: str
    message: str
    pid: int
    started: _timestamp_pb2.Timestamp
    restarts: int
    last_exit: ServiceExit
    ports: _containers.RepeatedScalarFieldContainer[int]
    ports_known: bool
    from_template: bool
    log_path: str
    log_problem: str
    spec: ServiceSpec
    def __init__(self, name: _Optional[str] = ..., state: _Optional[_Union[ServiceState, str]] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., pid: _Optional[int] = ..., started: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., restarts: _Optional[int] = ..., last_exit: _Optional[_Union[ServiceExit, _Mapping]] = ..., ports: _Optional[_Iterable[int]] = ..., ports_known: _Optional[bool] = ..., from_template: _Optional[bool] = ..., log_path: _Optional[str] = ..., log_problem: _Optional[str] = ..., spec: _Optional[_Union[ServiceSpec, _Mapping]] = ...) -> None: ...

class ServiceManagerServiceListRequest(_message.Message):
    __slots__ = ("specs",)
    SPECS_FIELD_NUMBER: _ClassVar[int]
    specs: bool
    def __init__(self, specs: _Optional[bool] = ...) -> None: ...

class ServiceManagerServiceListResponse(_message.Message):
    __slots__ = ("services",)
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    services: _containers.RepeatedCompositeFieldContainer[Service]
    def __init__(self, services: _Optional[_Iterable[_Union[Service, _Mapping]]] = ...) -> None: ...

class LogsRequest(_message.Message):
    __slots__ = ("name", "offset", "tail_lines", "follow")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TAIL_LINES_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    name: str
    offset: int
    tail_lines: int
    follow: bool
    def __init__(self, name: _Optional[str] = ..., offset: _Optional[int] = ..., tail_lines: _Optional[int] = ..., follow: _Optional[bool] = ...) -> None: ...

class LogChunk(_message.Message):
    __slots__ = ("offset", "data")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    offset: int
    data: bytes
    def __init__(self, offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class LogGap(_message.Message):
    __slots__ = ("offset", "dropped_bytes")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DROPPED_BYTES_FIELD_NUMBER: _ClassVar[int]
    offset: int
    dropped_bytes: int
    def __init__(self, offset: _Optional[int] = ..., dropped_bytes: _Optional[int] = ...) -> None: ...

class LogsResponse(_message.Message):
    __slots__ = ("chunk", "gap")
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    chunk: LogChunk
    gap: LogGap
    def __init__(self, chunk: _Optional[_Union[LogChunk, _Mapping]] = ..., gap: _Optional[_Union[LogGap, _Mapping]] = ...) -> None: ...

class WaitReadyRequest(_message.Message):
    __slots__ = ("name", "timeout")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    name: str
    timeout: _duration_pb2.Duration
    def __init__(self, name: _Optional[str] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class WaitReadyResponse(_message.Message):
    __slots__ = ("ready", "service", "log_tail")
    READY_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    LOG_TAIL_FIELD_NUMBER: _ClassVar[int]
    ready: bool
    service: Service
    log_tail: bytes
    def __init__(self, ready: _Optional[bool] = ..., service: _Optional[_Union[Service, _Mapping]] = ..., log_tail: _Optional[bytes] = ...) -> None: ...
