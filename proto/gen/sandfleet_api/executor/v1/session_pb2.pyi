import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from sandfleet_api.executor.v1 import common_pb2 as _common_pb2
from sandfleet_api.executor.v1 import interpreter_pb2 as _interpreter_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Isolation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ISOLATION_UNSPECIFIED: _ClassVar[Isolation]
    ISOLATION_NONE: _ClassVar[Isolation]
    ISOLATION_NAMESPACE: _ClassVar[Isolation]
    ISOLATION_GVISOR: _ClassVar[Isolation]

class PreloadState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PRELOAD_STATE_UNSPECIFIED: _ClassVar[PreloadState]
    PRELOAD_STATE_WAITING: _ClassVar[PreloadState]
    PRELOAD_STATE_LOADED: _ClassVar[PreloadState]
    PRELOAD_STATE_FAILED: _ClassVar[PreloadState]

class InstallState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    INSTALL_STATE_UNSPECIFIED: _ClassVar[InstallState]
    INSTALL_STATE_WAITING: _ClassVar[InstallState]
    INSTALL_STATE_INSTALLING: _ClassVar[InstallState]
    INSTALL_STATE_INSTALLED: _ClassVar[InstallState]
    INSTALL_STATE_FAILED: _ClassVar[InstallState]
    INSTALL_STATE_NOT_NEEDED: _ClassVar[InstallState]

class PackageOrigin(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PACKAGE_ORIGIN_UNSPECIFIED: _ClassVar[PackageOrigin]
    PACKAGE_ORIGIN_IMAGE: _ClassVar[PackageOrigin]
    PACKAGE_ORIGIN_WORKSPACE: _ClassVar[PackageOrigin]
ISOLATION_UNSPECIFIED: Isolation
ISOLATION_NONE: Isolation
ISOLATION_NAMESPACE: Isolation
ISOLATION_GVISOR: Isolation
PRELOAD_STATE_UNSPECIFIED: PreloadState
PRELOAD_STATE_WAITING: PreloadState
PRELOAD_STATE_LOADED: PreloadState
PRELOAD_STATE_FAILED: PreloadState
INSTALL_STATE_UNSPECIFIED: InstallState
INSTALL_STATE_WAITING: InstallState
INSTALL_STATE_INSTALLING: InstallState
INSTALL_STATE_INSTALLED: InstallState
INSTALL_STATE_FAILED: InstallState
INSTALL_STATE_NOT_NEEDED: InstallState
PACKAGE_ORIGIN_UNSPECIFIED: PackageOrigin
PACKAGE_ORIGIN_IMAGE: PackageOrigin
PACKAGE_ORIGIN_WORKSPACE: PackageOrigin

class OpenRequest(_message.Message):
    __slots__ = ("session_id", "lease", "idle_timeout", "envs", "limits", "mounts", "egress", "egress_authority")
    class EnvsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class MountsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    IDLE_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    ENVS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    MOUNTS_FIELD_NUMBER: _ClassVar[int]
    EGRESS_FIELD_NUMBER: _ClassVar[int]
    EGRESS_AUTHORITY_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    lease: _duration_pb2.Duration
    idle_timeout: _duration_pb2.Duration
    envs: _containers.ScalarMap[str, str]
    limits: _common_pb2.Limits
    mounts: _containers.ScalarMap[str, str]
    egress: bool
    egress_authority: bytes
    def __init__(self, session_id: _Optional[str] = ..., lease: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., idle_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., envs: _Optional[_Mapping[str, str]] = ..., limits: _Optional[_Union[_common_pb2.Limits, _Mapping]] = ..., mounts: _Optional[_Mapping[str, str]] = ..., egress: _Optional[bool] = ..., egress_authority: _Optional[bytes] = ...) -> None: ...

class OpenResponse(_message.Message):
    __slots__ = ("description",)
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    description: DescribeResponse
    def __init__(self, description: _Optional[_Union[DescribeResponse, _Mapping]] = ...) -> None: ...

class SuspendRequest(_message.Message):
    __slots__ = ("force", "unused")
    FORCE_FIELD_NUMBER: _ClassVar[int]
    UNUSED_FIELD_NUMBER: _ClassVar[int]
    force: bool
    unused: bool
    def __init__(self, force: _Optional[bool] = ..., unused: _Optional[bool] = ...) -> None: ...

class SuspendResponse(_message.Message):
    __slots__ = ("suspension",)
    SUSPENSION_FIELD_NUMBER: _ClassVar[int]
    suspension: Suspension
    def __init__(self, suspension: _Optional[_Union[Suspension, _Mapping]] = ...) -> None: ...

class ResumeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResumeResponse(_message.Message):
    __slots__ = ("resumption",)
    RESUMPTION_FIELD_NUMBER: _ClassVar[int]
    resumption: Resumption
    def __init__(self, resumption: _Optional[_Union[Resumption, _Mapping]] = ...) -> None: ...

class Suspension(_message.Message):
    __slots__ = ("contexts", "services", "ended_executions", "ended_connections", "tmp_bytes")
    CONTEXTS_FIELD_NUMBER: _ClassVar[int]
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    ENDED_EXECUTIONS_FIELD_NUMBER: _ClassVar[int]
    ENDED_CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    TMP_BYTES_FIELD_NUMBER: _ClassVar[int]
    contexts: _containers.RepeatedCompositeFieldContainer[KeptContext]
    services: _containers.RepeatedScalarFieldContainer[str]
    ended_executions: _containers.RepeatedScalarFieldContainer[str]
    ended_connections: int
    tmp_bytes: int
    def __init__(self, contexts: _Optional[_Iterable[_Union[KeptContext, _Mapping]]] = ..., services: _Optional[_Iterable[str]] = ..., ended_executions: _Optional[_Iterable[str]] = ..., ended_connections: _Optional[int] = ..., tmp_bytes: _Optional[int] = ...) -> None: ...

class Resumption(_message.Message):
    __slots__ = ("contexts", "services")
    CONTEXTS_FIELD_NUMBER: _ClassVar[int]
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    contexts: _containers.RepeatedCompositeFieldContainer[KeptContext]
    services: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, contexts: _Optional[_Iterable[_Union[KeptContext, _Mapping]]] = ..., services: _Optional[_Iterable[str]] = ...) -> None: ...

class KeptContext(_message.Message):
    __slots__ = ("context_id", "language", "variables", "missing", "reason", "message")
    CONTEXT_ID_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    VARIABLES_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    context_id: str
    language: str
    variables: int
    missing: _interpreter_pb2.StateItems
    reason: str
    message: str
    def __init__(self, context_id: _Optional[str] = ..., language: _Optional[str] = ..., variables: _Optional[int] = ..., missing: _Optional[_Union[_interpreter_pb2.StateItems, _Mapping]] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class DescribeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeResponse(_message.Message):
    __slots__ = ("sandbox_id", "sandbox_uid", "session_id", "isolation", "separations", "kernel", "languages", "python_version", "limits", "started", "lease_remaining", "executor_version", "packages", "mounts", "preload", "idle", "prepared")
    class MountsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_UID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    ISOLATION_FIELD_NUMBER: _ClassVar[int]
    SEPARATIONS_FIELD_NUMBER: _ClassVar[int]
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    LANGUAGES_FIELD_NUMBER: _ClassVar[int]
    PYTHON_VERSION_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    LEASE_REMAINING_FIELD_NUMBER: _ClassVar[int]
    EXECUTOR_VERSION_FIELD_NUMBER: _ClassVar[int]
    PACKAGES_FIELD_NUMBER: _ClassVar[int]
    MOUNTS_FIELD_NUMBER: _ClassVar[int]
    PRELOAD_FIELD_NUMBER: _ClassVar[int]
    IDLE_FIELD_NUMBER: _ClassVar[int]
    PREPARED_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    sandbox_uid: str
    session_id: str
    isolation: Isolation
    separations: _containers.RepeatedScalarFieldContainer[str]
    kernel: str
    languages: _containers.RepeatedScalarFieldContainer[str]
    python_version: str
    limits: _common_pb2.Limits
    started: _timestamp_pb2.Timestamp
    lease_remaining: _duration_pb2.Duration
    executor_version: str
    packages: Installation
    mounts: _containers.ScalarMap[str, str]
    preload: _containers.RepeatedCompositeFieldContainer[PreloadedModule]
    idle: _duration_pb2.Duration
    prepared: str
    def __init__(self, sandbox_id: _Optional[str] = ..., sandbox_uid: _Optional[str] = ..., session_id: _Optional[str] = ..., isolation: _Optional[_Union[Isolation, str]] = ..., separations: _Optional[_Iterable[str]] = ..., kernel: _Optional[str] = ..., languages: _Optional[_Iterable[str]] = ..., python_version: _Optional[str] = ..., limits: _Optional[_Union[_common_pb2.Limits, _Mapping]] = ..., started: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., lease_remaining: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., executor_version: _Optional[str] = ..., packages: _Optional[_Union[Installation, _Mapping]] = ..., mounts: _Optional[_Mapping[str, str]] = ..., preload: _Optional[_Iterable[_Union[PreloadedModule, _Mapping]]] = ..., idle: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., prepared: _Optional[str] = ...) -> None: ...

class PreloadedModule(_message.Message):
    __slots__ = ("module", "state", "problem")
    MODULE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    module: str
    state: PreloadState
    problem: str
    def __init__(self, module: _Optional[str] = ..., state: _Optional[_Union[PreloadState, str]] = ..., problem: _Optional[str] = ...) -> None: ...

class GetEnvironmentRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetEnvironmentResponse(_message.Message):
    __slots__ = ("python_version", "kernel", "languages", "packages", "fixed_envs", "declared", "installation")
    class FixedEnvsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PYTHON_VERSION_FIELD_NUMBER: _ClassVar[int]
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    LANGUAGES_FIELD_NUMBER: _ClassVar[int]
    PACKAGES_FIELD_NUMBER: _ClassVar[int]
    FIXED_ENVS_FIELD_NUMBER: _ClassVar[int]
    DECLARED_FIELD_NUMBER: _ClassVar[int]
    INSTALLATION_FIELD_NUMBER: _ClassVar[int]
    python_version: str
    kernel: str
    languages: _containers.RepeatedCompositeFieldContainer[LanguageVersion]
    packages: _containers.RepeatedCompositeFieldContainer[Package]
    fixed_envs: _containers.ScalarMap[str, str]
    declared: _containers.RepeatedCompositeFieldContainer[DeclaredPackage]
    installation: Installation
    def __init__(self, python_version: _Optional[str] = ..., kernel: _Optional[str] = ..., languages: _Optional[_Iterable[_Union[LanguageVersion, _Mapping]]] = ..., packages: _Optional[_Iterable[_Union[Package, _Mapping]]] = ..., fixed_envs: _Optional[_Mapping[str, str]] = ..., declared: _Optional[_Iterable[_Union[DeclaredPackage, _Mapping]]] = ..., installation: _Optional[_Union[Installation, _Mapping]] = ...) -> None: ...

class Installation(_message.Message):
    __slots__ = ("state", "reason", "message", "log")
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    state: InstallState
    reason: str
    message: str
    log: str
    def __init__(self, state: _Optional[_Union[InstallState, str]] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., log: _Optional[str] = ...) -> None: ...

class DeclaredPackage(_message.Message):
    __slots__ = ("requirement", "state", "name", "version", "origin")
    REQUIREMENT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    requirement: str
    state: InstallState
    name: str
    version: str
    origin: PackageOrigin
    def __init__(self, requirement: _Optional[str] = ..., state: _Optional[_Union[InstallState, str]] = ..., name: _Optional[str] = ..., version: _Optional[str] = ..., origin: _Optional[_Union[PackageOrigin, str]] = ...) -> None: ...

class LanguageVersion(_message.Message):
    __slots__ = ("language", "version")
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    language: str
    version: str
    def __init__(self, language: _Optional[str] = ..., version: _Optional[str] = ...) -> None: ...

class Package(_message.Message):
    __slots__ = ("name", "version", "origin")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: str
    origin: PackageOrigin
    def __init__(self, name: _Optional[str] = ..., version: _Optional[str] = ..., origin: _Optional[_Union[PackageOrigin, str]] = ...) -> None: ...

class HealthRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HealthResponse(_message.Message):
    __slots__ = ("ready", "message")
    READY_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ready: bool
    message: str
    def __init__(self, ready: _Optional[bool] = ..., message: _Optional[str] = ...) -> None: ...

class UsageRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UsageResponse(_message.Message):
    __slots__ = ("memory_bytes", "tmp_bytes", "processes", "cpu_seconds", "running_executions", "disk_bytes", "wall_seconds", "total_cpu_seconds", "peak_memory_bytes", "peak_processes", "written_bytes", "executions", "limits", "ended", "tool_calls", "languages", "cpus")
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    TMP_BYTES_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_EXECUTIONS_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    WALL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PEAK_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    PEAK_PROCESSES_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    EXECUTIONS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    LANGUAGES_FIELD_NUMBER: _ClassVar[int]
    CPUS_FIELD_NUMBER: _ClassVar[int]
    memory_bytes: int
    tmp_bytes: int
    processes: int
    cpu_seconds: float
    running_executions: int
    disk_bytes: int
    wall_seconds: float
    total_cpu_seconds: float
    peak_memory_bytes: int
    peak_processes: int
    written_bytes: int
    executions: int
    limits: _common_pb2.Limits
    ended: _containers.RepeatedCompositeFieldContainer[EndedExecutions]
    tool_calls: _containers.RepeatedCompositeFieldContainer[EndedToolCalls]
    languages: _containers.RepeatedCompositeFieldContainer[LanguageUsage]
    cpus: float
    def __init__(self, memory_bytes: _Optional[int] = ..., tmp_bytes: _Optional[int] = ..., processes: _Optional[int] = ..., cpu_seconds: _Optional[float] = ..., running_executions: _Optional[int] = ..., disk_bytes: _Optional[int] = ..., wall_seconds: _Optional[float] = ..., total_cpu_seconds: _Optional[float] = ..., peak_memory_bytes: _Optional[int] = ..., peak_processes: _Optional[int] = ..., written_bytes: _Optional[int] = ..., executions: _Optional[int] = ..., limits: _Optional[_Union[_common_pb2.Limits, _Mapping]] = ..., ended: _Optional[_Iterable[_Union[EndedExecutions, _Mapping]]] = ..., tool_calls: _Optional[_Iterable[_Union[EndedToolCalls, _Mapping]]] = ..., languages: _Optional[_Iterable[_Union[LanguageUsage, _Mapping]]] = ..., cpus: _Optional[float] = ...) -> None: ...

class LanguageUsage(_message.Message):
    __slots__ = ("language", "executions", "cpu_seconds", "wall_seconds", "peak_memory_bytes")
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    EXECUTIONS_FIELD_NUMBER: _ClassVar[int]
    CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WALL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PEAK_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    language: str
    executions: int
    cpu_seconds: float
    wall_seconds: float
    peak_memory_bytes: int
    def __init__(self, language: _Optional[str] = ..., executions: _Optional[int] = ..., cpu_seconds: _Optional[float] = ..., wall_seconds: _Optional[float] = ..., peak_memory_bytes: _Optional[int] = ...) -> None: ...

class EndedExecutions(_message.Message):
    __slots__ = ("commands", "outcome", "blame", "counts", "wall_seconds")
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    BLAME_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    WALL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    commands: bool
    outcome: _common_pb2.Outcome
    blame: _common_pb2.Blame
    counts: _containers.RepeatedScalarFieldContainer[int]
    wall_seconds: float
    def __init__(self, commands: _Optional[bool] = ..., outcome: _Optional[_Union[_common_pb2.Outcome, str]] = ..., blame: _Optional[_Union[_common_pb2.Blame, str]] = ..., counts: _Optional[_Iterable[int]] = ..., wall_seconds: _Optional[float] = ...) -> None: ...

class EndedToolCalls(_message.Message):
    __slots__ = ("end", "count")
    END_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    end: str
    count: int
    def __init__(self, end: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class WatchUsageRequest(_message.Message):
    __slots__ = ("interval",)
    INTERVAL_FIELD_NUMBER: _ClassVar[int]
    interval: _duration_pb2.Duration
    def __init__(self, interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class WatchUsageResponse(_message.Message):
    __slots__ = ("usage", "executions")
    USAGE_FIELD_NUMBER: _ClassVar[int]
    EXECUTIONS_FIELD_NUMBER: _ClassVar[int]
    usage: UsageResponse
    executions: _containers.RepeatedCompositeFieldContainer[ExecutionUsage]
    def __init__(self, usage: _Optional[_Union[UsageResponse, _Mapping]] = ..., executions: _Optional[_Iterable[_Union[ExecutionUsage, _Mapping]]] = ...) -> None: ...

class ExecutionUsage(_message.Message):
    __slots__ = ("execution_id", "context_id", "memory_bytes", "processes", "usage")
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_ID_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    execution_id: str
    context_id: str
    memory_bytes: int
    processes: int
    usage: _common_pb2.Usage
    def __init__(self, execution_id: _Optional[str] = ..., context_id: _Optional[str] = ..., memory_bytes: _Optional[int] = ..., processes: _Optional[int] = ..., usage: _Optional[_Union[_common_pb2.Usage, _Mapping]] = ...) -> None: ...

class EgressTarget(_message.Message):
    __slots__ = ("name_server", "tcp")
    NAME_SERVER_FIELD_NUMBER: _ClassVar[int]
    TCP_FIELD_NUMBER: _ClassVar[int]
    name_server: bool
    tcp: TcpAddress
    def __init__(self, name_server: _Optional[bool] = ..., tcp: _Optional[_Union[TcpAddress, _Mapping]] = ...) -> None: ...

class TcpAddress(_message.Message):
    __slots__ = ("address", "port")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    address: str
    port: int
    def __init__(self, address: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class ProbeEgressRequest(_message.Message):
    __slots__ = ("targets",)
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    targets: _containers.RepeatedCompositeFieldContainer[EgressTarget]
    def __init__(self, targets: _Optional[_Iterable[_Union[EgressTarget, _Mapping]]] = ...) -> None: ...

class ProbeEgressResponse(_message.Message):
    __slots__ = ("reached",)
    REACHED_FIELD_NUMBER: _ClassVar[int]
    reached: _containers.RepeatedScalarFieldContainer[bool]
    def __init__(self, reached: _Optional[_Iterable[bool]] = ...) -> None: ...

class CloseRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CloseResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
