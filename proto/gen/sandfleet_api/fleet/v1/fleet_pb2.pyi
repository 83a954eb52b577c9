import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from sandfleet_api.executor.v1 import common_pb2 as _common_pb2
from sandfleet_api.executor.v1 import review_pb2 as _review_pb2
from sandfleet_api.executor.v1 import session_pb2 as _session_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SandboxState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SANDBOX_STATE_UNSPECIFIED: _ClassVar[SandboxState]
    SANDBOX_STATE_STARTING: _ClassVar[SandboxState]
    SANDBOX_STATE_WARM: _ClassVar[SandboxState]
    SANDBOX_STATE_CLAIMED: _ClassVar[SandboxState]
    SANDBOX_STATE_RECOVERING: _ClassVar[SandboxState]
    SANDBOX_STATE_ENDED: _ClassVar[SandboxState]
    SANDBOX_STATE_SUSPENDED: _ClassVar[SandboxState]

class Egress(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EGRESS_UNSPECIFIED: _ClassVar[Egress]
    EGRESS_NONE: _ClassVar[Egress]
    EGRESS_TEMPLATE: _ClassVar[Egress]

class EgressState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EGRESS_STATE_UNSPECIFIED: _ClassVar[EgressState]
    EGRESS_STATE_DENIED: _ClassVar[EgressState]
    EGRESS_STATE_OPENING: _ClassVar[EgressState]
    EGRESS_STATE_OPEN: _ClassVar[EgressState]

class OnIdle(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ON_IDLE_UNSPECIFIED: _ClassVar[OnIdle]
    ON_IDLE_END: _ClassVar[OnIdle]
    ON_IDLE_SUSPEND: _ClassVar[OnIdle]
    ON_IDLE_SNAPSHOT: _ClassVar[OnIdle]

class Recovery(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RECOVERY_UNSPECIFIED: _ClassVar[Recovery]
    RECOVERY_WORKSPACE: _ClassVar[Recovery]
    RECOVERY_SNAPSHOT: _ClassVar[Recovery]

class SuspendTo(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SUSPEND_TO_UNSPECIFIED: _ClassVar[SuspendTo]
    SUSPEND_TO_VOLUME: _ClassVar[SuspendTo]
    SUSPEND_TO_SNAPSHOT: _ClassVar[SuspendTo]

class Mark(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MARK_UNSPECIFIED: _ClassVar[Mark]
    MARK_UNTRUSTED: _ClassVar[Mark]
    MARK_SECRET: _ClassVar[Mark]
SANDBOX_STATE_UNSPECIFIED: SandboxState
SANDBOX_STATE_STARTING: SandboxState
SANDBOX_STATE_WARM: SandboxState
SANDBOX_STATE_CLAIMED: SandboxState
SANDBOX_STATE_RECOVERING: SandboxState
SANDBOX_STATE_ENDED: SandboxState
SANDBOX_STATE_SUSPENDED: SandboxState
EGRESS_UNSPECIFIED: Egress
EGRESS_NONE: Egress
EGRESS_TEMPLATE: Egress
EGRESS_STATE_UNSPECIFIED: EgressState
EGRESS_STATE_DENIED: EgressState
EGRESS_STATE_OPENING: EgressState
EGRESS_STATE_OPEN: EgressState
ON_IDLE_UNSPECIFIED: OnIdle
ON_IDLE_END: OnIdle
ON_IDLE_SUSPEND: OnIdle
ON_IDLE_SNAPSHOT: OnIdle
RECOVERY_UNSPECIFIED: Recovery
RECOVERY_WORKSPACE: Recovery
RECOVERY_SNAPSHOT: Recovery
SUSPEND_TO_UNSPECIFIED: SuspendTo
SUSPEND_TO_VOLUME: SuspendTo
SUSPEND_TO_SNAPSHOT: SuspendTo
MARK_UNSPECIFIED: Mark
MARK_UNTRUSTED: Mark
MARK_SECRET: Mark

class Sandbox(_message.Message):
    __slots__ = ("sandbox_id", "sandbox_uid", "template", "state", "labels", "workspace_id", "created", "lease_expires", "isolation", "restarts", "last_restart_reason", "pool", "egress", "suspended_until", "preempted", "contract")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_UID_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    LEASE_EXPIRES_FIELD_NUMBER: _ClassVar[int]
    ISOLATION_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    LAST_RESTART_REASON_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    EGRESS_FIELD_NUMBER: _ClassVar[int]
    SUSPENDED_UNTIL_FIELD_NUMBER: _ClassVar[int]
    PREEMPTED_FIELD_NUMBER: _ClassVar[int]
    CONTRACT_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    sandbox_uid: str
    template: str
    state: SandboxState
    labels: _containers.ScalarMap[str, str]
    workspace_id: str
    created: _timestamp_pb2.Timestamp
    lease_expires: _timestamp_pb2.Timestamp
    isolation: _session_pb2.Isolation
    restarts: int
    last_restart_reason: str
    pool: str
    egress: EgressStatus
    suspended_until: _timestamp_pb2.Timestamp
    preempted: _timestamp_pb2.Timestamp
    contract: str
    def __init__(self, sandbox_id: _Optional[str] = ..., sandbox_uid: _Optional[str] = ..., template: _Optional[str] = ..., state: _Optional[_Union[SandboxState, str]] = ..., labels: _Optional[_Mapping[str, str]] = ..., workspace_id: _Optional[str] = ..., created: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., lease_expires: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., isolation: _Optional[_Union[_session_pb2.Isolation, str]] = ..., restarts: _Optional[int] = ..., last_restart_reason: _Optional[str] = ..., pool: _Optional[str] = ..., egress: _Optional[_Union[EgressStatus, _Mapping]] = ..., suspended_until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., preempted: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., contract: _Optional[str] = ...) -> None: ...

class Access(_message.Message):
    __slots__ = ("address", "ca_pem", "token", "token_expires")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CA_PEM_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOKEN_EXPIRES_FIELD_NUMBER: _ClassVar[int]
    address: str
    ca_pem: bytes
    token: str
    token_expires: _timestamp_pb2.Timestamp
    def __init__(self, address: _Optional[str] = ..., ca_pem: _Optional[bytes] = ..., token: _Optional[str] = ..., token_expires: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class EgressStatus(_message.Message):
    __slots__ = ("state", "reason", "message", "since")
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    state: EgressState
    reason: str
    message: str
    since: _timestamp_pb2.Timestamp
    def __init__(self, state: _Optional[_Union[EgressState, str]] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Gang(_message.Message):
    __slots__ = ("gang_id", "size")
    GANG_ID_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    gang_id: str
    size: int
    def __init__(self, gang_id: _Optional[str] = ..., size: _Optional[int] = ...) -> None: ...

class ClaimRequest(_message.Message):
    __slots__ = ("request_id", "template", "labels", "envs", "lease", "idle_timeout", "workspace_id", "keep_workspace", "max_wait", "limits", "min_isolation", "namespace", "pool", "name", "contract", "egress", "mounts", "queue", "priority", "gang", "ticket", "on_idle", "recovery", "snapshot_period", "egress_names", "credentials", "like", "on_timeout", "image", "user", "image_envs")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
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
    class ImageEnvsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    ENVS_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    IDLE_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    KEEP_WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    MIN_ISOLATION_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONTRACT_FIELD_NUMBER: _ClassVar[int]
    EGRESS_FIELD_NUMBER: _ClassVar[int]
    MOUNTS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    GANG_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    ON_IDLE_FIELD_NUMBER: _ClassVar[int]
    RECOVERY_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_PERIOD_FIELD_NUMBER: _ClassVar[int]
    EGRESS_NAMES_FIELD_NUMBER: _ClassVar[int]
    CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    LIKE_FIELD_NUMBER: _ClassVar[int]
    ON_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    IMAGE_ENVS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    template: str
    labels: _containers.ScalarMap[str, str]
    envs: _containers.ScalarMap[str, str]
    lease: _duration_pb2.Duration
    idle_timeout: _duration_pb2.Duration
    workspace_id: str
    keep_workspace: bool
    max_wait: _duration_pb2.Duration
    limits: _common_pb2.Limits
    min_isolation: _session_pb2.Isolation
    namespace: str
    pool: str
    name: str
    contract: str
    egress: Egress
    mounts: _containers.ScalarMap[str, str]
    queue: str
    priority: str
    gang: Gang
    ticket: bytes
    on_idle: OnIdle
    recovery: Recovery
    snapshot_period: _duration_pb2.Duration
    egress_names: _containers.RepeatedScalarFieldContainer[str]
    credentials: _containers.RepeatedCompositeFieldContainer[EgressCredential]
    like: str
    on_timeout: OnIdle
    image: str
    user: int
    image_envs: _containers.ScalarMap[str, str]
    def __init__(self, request_id: _Optional[str] = ..., template: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., envs: _Optional[_Mapping[str, str]] = ..., lease: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., idle_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., workspace_id: _Optional[str] = ..., keep_workspace: _Optional[bool] = ..., max_wait: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., limits: _Optional[_Union[_common_pb2.Limits, _Mapping]] = ..., min_isolation: _Optional[_Union[_session_pb2.Isolation, str]] = ..., namespace: _Optional[str] = ..., pool: _Optional[str] = ..., name: _Optional[str] = ..., contract: _Optional[str] = ..., egress: _Optional[_Union[Egress, str]] = ..., mounts: _Optional[_Mapping[str, str]] = ..., queue: _Optional[str] = ..., priority: _Optional[str] = ..., gang: _Optional[_Union[Gang, _Mapping]] = ..., ticket: _Optional[bytes] = ..., on_idle: _Optional[_Union[OnIdle, str]] = ..., recovery: _Optional[_Union[Recovery, str]] = ..., snapshot_period: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., egress_names: _Optional[_Iterable[str]] = ..., credentials: _Optional[_Iterable[_Union[EgressCredential, _Mapping]]] = ..., like: _Optional[str] = ..., on_timeout: _Optional[_Union[OnIdle, str]] = ..., image: _Optional[str] = ..., user: _Optional[int] = ..., image_envs: _Optional[_Mapping[str, str]] = ...) -> None: ...

class EgressCredential(_message.Message):
    __slots__ = ("host", "header", "format", "value", "env")
    HOST_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    host: str
    header: str
    format: str
    value: str
    env: str
    def __init__(self, host: _Optional[str] = ..., header: _Optional[str] = ..., format: _Optional[str] = ..., value: _Optional[str] = ..., env: _Optional[str] = ...) -> None: ...

class Queued(_message.Message):
    __slots__ = ("position", "eta", "reason", "message", "eta_p90", "queue", "ticket")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    ETA_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ETA_P90_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    position: int
    eta: _duration_pb2.Duration
    reason: str
    message: str
    eta_p90: _duration_pb2.Duration
    queue: str
    ticket: bytes
    def __init__(self, position: _Optional[int] = ..., eta: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., eta_p90: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., queue: _Optional[str] = ..., ticket: _Optional[bytes] = ...) -> None: ...

class Bound(_message.Message):
    __slots__ = ("sandbox", "access", "warm", "egress")
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    ACCESS_FIELD_NUMBER: _ClassVar[int]
    WARM_FIELD_NUMBER: _ClassVar[int]
    EGRESS_FIELD_NUMBER: _ClassVar[int]
    sandbox: Sandbox
    access: Access
    warm: bool
    egress: EgressState
    def __init__(self, sandbox: _Optional[_Union[Sandbox, _Mapping]] = ..., access: _Optional[_Union[Access, _Mapping]] = ..., warm: _Optional[bool] = ..., egress: _Optional[_Union[EgressState, str]] = ...) -> None: ...

class ClaimResponse(_message.Message):
    __slots__ = ("sequence", "queued", "bound")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    BOUND_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    queued: Queued
    bound: Bound
    def __init__(self, sequence: _Optional[int] = ..., queued: _Optional[_Union[Queued, _Mapping]] = ..., bound: _Optional[_Union[Bound, _Mapping]] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("sandbox_id", "unless_suspended")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    UNLESS_SUSPENDED_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    unless_suspended: bool
    def __init__(self, sandbox_id: _Optional[str] = ..., unless_suspended: _Optional[bool] = ...) -> None: ...

class ReleaseResponse(_message.Message):
    __slots__ = ("released", "journal_heads")
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_HEADS_FIELD_NUMBER: _ClassVar[int]
    released: bool
    journal_heads: _containers.RepeatedCompositeFieldContainer[JournalHead]
    def __init__(self, released: _Optional[bool] = ..., journal_heads: _Optional[_Iterable[_Union[JournalHead, _Mapping]]] = ...) -> None: ...

class JournalHead(_message.Message):
    __slots__ = ("session", "pod_uid", "number", "hash", "time_ms", "key_id", "signature", "public_key", "key_signature")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    POD_UID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_KEY_FIELD_NUMBER: _ClassVar[int]
    KEY_SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    session: str
    pod_uid: str
    number: int
    hash: str
    time_ms: int
    key_id: str
    signature: bytes
    public_key: bytes
    key_signature: bytes
    def __init__(self, session: _Optional[str] = ..., pod_uid: _Optional[str] = ..., number: _Optional[int] = ..., hash: _Optional[str] = ..., time_ms: _Optional[int] = ..., key_id: _Optional[str] = ..., signature: _Optional[bytes] = ..., public_key: _Optional[bytes] = ..., key_signature: _Optional[bytes] = ...) -> None: ...

class CountersignJournalRequest(_message.Message):
    __slots__ = ("sandbox_id",)
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    def __init__(self, sandbox_id: _Optional[str] = ...) -> None: ...

class CountersignJournalResponse(_message.Message):
    __slots__ = ("heads",)
    HEADS_FIELD_NUMBER: _ClassVar[int]
    heads: _containers.RepeatedCompositeFieldContainer[JournalHead]
    def __init__(self, heads: _Optional[_Iterable[_Union[JournalHead, _Mapping]]] = ...) -> None: ...

class SuspendRequest(_message.Message):
    __slots__ = ("sandbox_id", "force", "timeout", "to")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    force: bool
    timeout: _duration_pb2.Duration
    to: SuspendTo
    def __init__(self, sandbox_id: _Optional[str] = ..., force: _Optional[bool] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., to: _Optional[_Union[SuspendTo, str]] = ...) -> None: ...

class SuspendResponse(_message.Message):
    __slots__ = ("sandbox", "suspension", "snapshot_id")
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    SUSPENSION_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    sandbox: Sandbox
    suspension: _session_pb2.Suspension
    snapshot_id: str
    def __init__(self, sandbox: _Optional[_Union[Sandbox, _Mapping]] = ..., suspension: _Optional[_Union[_session_pb2.Suspension, _Mapping]] = ..., snapshot_id: _Optional[str] = ...) -> None: ...

class ResumeRequest(_message.Message):
    __slots__ = ("sandbox_id", "max_wait")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    max_wait: _duration_pb2.Duration
    def __init__(self, sandbox_id: _Optional[str] = ..., max_wait: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ResumeResponse(_message.Message):
    __slots__ = ("sequence", "queued", "bound", "resumption")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    BOUND_FIELD_NUMBER: _ClassVar[int]
    RESUMPTION_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    queued: Queued
    bound: Bound
    resumption: _session_pb2.Resumption
    def __init__(self, sequence: _Optional[int] = ..., queued: _Optional[_Union[Queued, _Mapping]] = ..., bound: _Optional[_Union[Bound, _Mapping]] = ..., resumption: _Optional[_Union[_session_pb2.Resumption, _Mapping]] = ...) -> None: ...

class RenewRequest(_message.Message):
    __slots__ = ("sandbox_id", "lease")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    lease: _duration_pb2.Duration
    def __init__(self, sandbox_id: _Optional[str] = ..., lease: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class RenewResponse(_message.Message):
    __slots__ = ("sandbox", "access", "journal_heads")
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    ACCESS_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_HEADS_FIELD_NUMBER: _ClassVar[int]
    sandbox: Sandbox
    access: Access
    journal_heads: _containers.RepeatedCompositeFieldContainer[JournalHead]
    def __init__(self, sandbox: _Optional[_Union[Sandbox, _Mapping]] = ..., access: _Optional[_Union[Access, _Mapping]] = ..., journal_heads: _Optional[_Iterable[_Union[JournalHead, _Mapping]]] = ...) -> None: ...

class GetRequest(_message.Message):
    __slots__ = ("sandbox_id", "with_access")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    WITH_ACCESS_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    with_access: bool
    def __init__(self, sandbox_id: _Optional[str] = ..., with_access: _Optional[bool] = ...) -> None: ...

class GetResponse(_message.Message):
    __slots__ = ("sandbox", "access")
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    ACCESS_FIELD_NUMBER: _ClassVar[int]
    sandbox: Sandbox
    access: Access
    def __init__(self, sandbox: _Optional[_Union[Sandbox, _Mapping]] = ..., access: _Optional[_Union[Access, _Mapping]] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("label_selector", "page_size", "page_token", "namespace", "warm")
    LABEL_SELECTOR_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    WARM_FIELD_NUMBER: _ClassVar[int]
    label_selector: str
    page_size: int
    page_token: str
    namespace: str
    warm: bool
    def __init__(self, label_selector: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., namespace: _Optional[str] = ..., warm: _Optional[bool] = ...) -> None: ...

class ListResponse(_message.Message):
    __slots__ = ("sandboxes", "next_page_token")
    SANDBOXES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    sandboxes: _containers.RepeatedCompositeFieldContainer[Sandbox]
    next_page_token: str
    def __init__(self, sandboxes: _Optional[_Iterable[_Union[Sandbox, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("label_selector", "namespace")
    LABEL_SELECTOR_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    label_selector: str
    namespace: str
    def __init__(self, label_selector: _Optional[str] = ..., namespace: _Optional[str] = ...) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("sequence", "changed", "removed", "synced", "unreadable")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    SYNCED_FIELD_NUMBER: _ClassVar[int]
    UNREADABLE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    changed: Sandbox
    removed: Sandbox
    synced: bool
    unreadable: UnreadableSandbox
    def __init__(self, sequence: _Optional[int] = ..., changed: _Optional[_Union[Sandbox, _Mapping]] = ..., removed: _Optional[_Union[Sandbox, _Mapping]] = ..., synced: _Optional[bool] = ..., unreadable: _Optional[_Union[UnreadableSandbox, _Mapping]] = ...) -> None: ...

class UnreadableSandbox(_message.Message):
    __slots__ = ("sandbox_id", "reason", "message")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    reason: str
    message: str
    def __init__(self, sandbox_id: _Optional[str] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class Pool(_message.Message):
    __slots__ = ("pool_id", "template", "target_warm", "warm", "starting", "claimed", "waiting", "hit_rate", "reason")
    POOL_ID_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    TARGET_WARM_FIELD_NUMBER: _ClassVar[int]
    WARM_FIELD_NUMBER: _ClassVar[int]
    STARTING_FIELD_NUMBER: _ClassVar[int]
    CLAIMED_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    HIT_RATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    pool_id: str
    template: str
    target_warm: int
    warm: int
    starting: int
    claimed: int
    waiting: int
    hit_rate: float
    reason: str
    def __init__(self, pool_id: _Optional[str] = ..., template: _Optional[str] = ..., target_warm: _Optional[int] = ..., warm: _Optional[int] = ..., starting: _Optional[int] = ..., claimed: _Optional[int] = ..., waiting: _Optional[int] = ..., hit_rate: _Optional[float] = ..., reason: _Optional[str] = ...) -> None: ...

class ListPoolsRequest(_message.Message):
    __slots__ = ("namespace",)
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    def __init__(self, namespace: _Optional[str] = ...) -> None: ...

class ListPoolsResponse(_message.Message):
    __slots__ = ("pools",)
    POOLS_FIELD_NUMBER: _ClassVar[int]
    pools: _containers.RepeatedCompositeFieldContainer[Pool]
    def __init__(self, pools: _Optional[_Iterable[_Union[Pool, _Mapping]]] = ...) -> None: ...

class RouteRequest(_message.Message):
    __slots__ = ("sandbox_id",)
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    def __init__(self, sandbox_id: _Optional[str] = ...) -> None: ...

class RouteResponse(_message.Message):
    __slots__ = ("address", "sandbox_uid", "caller")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_UID_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    address: str
    sandbox_uid: str
    caller: str
    def __init__(self, address: _Optional[str] = ..., sandbox_uid: _Optional[str] = ..., caller: _Optional[str] = ...) -> None: ...

class Quota(_message.Message):
    __slots__ = ("sandboxes", "cpu", "memory")
    SANDBOXES_FIELD_NUMBER: _ClassVar[int]
    CPU_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    sandboxes: int
    cpu: int
    memory: int
    def __init__(self, sandboxes: _Optional[int] = ..., cpu: _Optional[int] = ..., memory: _Optional[int] = ...) -> None: ...

class Queue(_message.Message):
    __slots__ = ("queue_id", "weight", "cohort", "nominal", "borrowing_limit", "lending_limit", "priority_classes", "stop_policy", "pending", "admitted", "usage", "borrowed", "oldest_wait", "share", "reason", "message", "admission_rate")
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    COHORT_FIELD_NUMBER: _ClassVar[int]
    NOMINAL_FIELD_NUMBER: _ClassVar[int]
    BORROWING_LIMIT_FIELD_NUMBER: _ClassVar[int]
    LENDING_LIMIT_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_CLASSES_FIELD_NUMBER: _ClassVar[int]
    STOP_POLICY_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    ADMITTED_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    BORROWED_FIELD_NUMBER: _ClassVar[int]
    OLDEST_WAIT_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ADMISSION_RATE_FIELD_NUMBER: _ClassVar[int]
    queue_id: str
    weight: float
    cohort: str
    nominal: Quota
    borrowing_limit: Quota
    lending_limit: Quota
    priority_classes: _containers.RepeatedScalarFieldContainer[str]
    stop_policy: str
    pending: int
    admitted: int
    usage: Quota
    borrowed: Quota
    oldest_wait: _duration_pb2.Duration
    share: float
    reason: str
    message: str
    admission_rate: float
    def __init__(self, queue_id: _Optional[str] = ..., weight: _Optional[float] = ..., cohort: _Optional[str] = ..., nominal: _Optional[_Union[Quota, _Mapping]] = ..., borrowing_limit: _Optional[_Union[Quota, _Mapping]] = ..., lending_limit: _Optional[_Union[Quota, _Mapping]] = ..., priority_classes: _Optional[_Iterable[str]] = ..., stop_policy: _Optional[str] = ..., pending: _Optional[int] = ..., admitted: _Optional[int] = ..., usage: _Optional[_Union[Quota, _Mapping]] = ..., borrowed: _Optional[_Union[Quota, _Mapping]] = ..., oldest_wait: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., share: _Optional[float] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., admission_rate: _Optional[float] = ...) -> None: ...

class ListQueuesRequest(_message.Message):
    __slots__ = ("namespace",)
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    def __init__(self, namespace: _Optional[str] = ...) -> None: ...

class ListQueuesResponse(_message.Message):
    __slots__ = ("queues",)
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[Queue]
    def __init__(self, queues: _Optional[_Iterable[_Union[Queue, _Mapping]]] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("request_id", "sandbox_id", "claim", "namespace")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    sandbox_id: str
    claim: ClaimRequest
    namespace: str
    def __init__(self, request_id: _Optional[str] = ..., sandbox_id: _Optional[str] = ..., claim: _Optional[_Union[ClaimRequest, _Mapping]] = ..., namespace: _Optional[str] = ...) -> None: ...

class Ahead(_message.Message):
    __slots__ = ("queue", "claims")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    CLAIMS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    claims: int
    def __init__(self, queue: _Optional[str] = ..., claims: _Optional[int] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("verdict", "reason", "message", "queue", "position", "eta", "eta_p90", "ahead", "missing")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    ETA_FIELD_NUMBER: _ClassVar[int]
    ETA_P90_FIELD_NUMBER: _ClassVar[int]
    AHEAD_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    verdict: str
    reason: str
    message: str
    queue: str
    position: int
    eta: _duration_pb2.Duration
    eta_p90: _duration_pb2.Duration
    ahead: _containers.RepeatedCompositeFieldContainer[Ahead]
    missing: Quota
    def __init__(self, verdict: _Optional[str] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., queue: _Optional[str] = ..., position: _Optional[int] = ..., eta: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., eta_p90: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., ahead: _Optional[_Iterable[_Union[Ahead, _Mapping]]] = ..., missing: _Optional[_Union[Quota, _Mapping]] = ...) -> None: ...

class Review(_message.Message):
    __slots__ = ("sandbox_id", "request", "holder", "content_bytes", "approved_before", "lease_expires", "approvals", "approved_by", "edit")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    CONTENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    APPROVED_BEFORE_FIELD_NUMBER: _ClassVar[int]
    LEASE_EXPIRES_FIELD_NUMBER: _ClassVar[int]
    APPROVALS_FIELD_NUMBER: _ClassVar[int]
    APPROVED_BY_FIELD_NUMBER: _ClassVar[int]
    EDIT_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    request: _review_pb2.PendingReview
    holder: str
    content_bytes: int
    approved_before: bytes
    lease_expires: _timestamp_pb2.Timestamp
    approvals: int
    approved_by: _containers.RepeatedScalarFieldContainer[str]
    edit: bytes
    def __init__(self, sandbox_id: _Optional[str] = ..., request: _Optional[_Union[_review_pb2.PendingReview, _Mapping]] = ..., holder: _Optional[str] = ..., content_bytes: _Optional[int] = ..., approved_before: _Optional[bytes] = ..., lease_expires: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., approvals: _Optional[int] = ..., approved_by: _Optional[_Iterable[str]] = ..., edit: _Optional[bytes] = ...) -> None: ...

class ListReviewsRequest(_message.Message):
    __slots__ = ("sandbox_id", "namespace")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    namespace: str
    def __init__(self, sandbox_id: _Optional[str] = ..., namespace: _Optional[str] = ...) -> None: ...

class ListReviewsResponse(_message.Message):
    __slots__ = ("reviews",)
    REVIEWS_FIELD_NUMBER: _ClassVar[int]
    reviews: _containers.RepeatedCompositeFieldContainer[Review]
    def __init__(self, reviews: _Optional[_Iterable[_Union[Review, _Mapping]]] = ...) -> None: ...

class WatchReviewsRequest(_message.Message):
    __slots__ = ("sandbox_id",)
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    def __init__(self, sandbox_id: _Optional[str] = ...) -> None: ...

class WatchReviewsResponse(_message.Message):
    __slots__ = ("reviews",)
    REVIEWS_FIELD_NUMBER: _ClassVar[int]
    reviews: _containers.RepeatedCompositeFieldContainer[Review]
    def __init__(self, reviews: _Optional[_Iterable[_Union[Review, _Mapping]]] = ...) -> None: ...

class Approval(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Edit(_message.Message):
    __slots__ = ("content",)
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    content: bytes
    def __init__(self, content: _Optional[bytes] = ...) -> None: ...

class Denial(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class AnswerReviewRequest(_message.Message):
    __slots__ = ("sandbox_id", "review_id", "digest", "state", "approve", "edit", "deny", "seen_edit")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    REVIEW_ID_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    APPROVE_FIELD_NUMBER: _ClassVar[int]
    EDIT_FIELD_NUMBER: _ClassVar[int]
    DENY_FIELD_NUMBER: _ClassVar[int]
    SEEN_EDIT_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    review_id: str
    digest: bytes
    state: int
    approve: Approval
    edit: Edit
    deny: Denial
    seen_edit: bytes
    def __init__(self, sandbox_id: _Optional[str] = ..., review_id: _Optional[str] = ..., digest: _Optional[bytes] = ..., state: _Optional[int] = ..., approve: _Optional[_Union[Approval, _Mapping]] = ..., edit: _Optional[_Union[Edit, _Mapping]] = ..., deny: _Optional[_Union[Denial, _Mapping]] = ..., seen_edit: _Optional[bytes] = ...) -> None: ...

class AnswerReviewResponse(_message.Message):
    __slots__ = ("missing",)
    MISSING_FIELD_NUMBER: _ClassVar[int]
    missing: int
    def __init__(self, missing: _Optional[int] = ...) -> None: ...

class NoteReceivedRequest(_message.Message):
    __slots__ = ("sandbox_id", "marks")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    marks: _containers.RepeatedScalarFieldContainer[Mark]
    def __init__(self, sandbox_id: _Optional[str] = ..., marks: _Optional[_Iterable[_Union[Mark, str]]] = ...) -> None: ...

class NoteReceivedResponse(_message.Message):
    __slots__ = ("marks",)
    MARKS_FIELD_NUMBER: _ClassVar[int]
    marks: _containers.RepeatedScalarFieldContainer[Mark]
    def __init__(self, marks: _Optional[_Iterable[_Union[Mark, str]]] = ...) -> None: ...

class ReviewCallRequest(_message.Message):
    __slots__ = ("sandbox_id", "tool", "arguments", "execution_id", "context_id", "service", "why", "call_id")
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_ID_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    sandbox_id: str
    tool: str
    arguments: bytes
    execution_id: str
    context_id: str
    service: str
    why: str
    call_id: str
    def __init__(self, sandbox_id: _Optional[str] = ..., tool: _Optional[str] = ..., arguments: _Optional[bytes] = ..., execution_id: _Optional[str] = ..., context_id: _Optional[str] = ..., service: _Optional[str] = ..., why: _Optional[str] = ..., call_id: _Optional[str] = ...) -> None: ...

class ReviewCallResponse(_message.Message):
    __slots__ = ("approved", "reviewer", "reason")
    APPROVED_FIELD_NUMBER: _ClassVar[int]
    REVIEWER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    approved: bool
    reviewer: str
    reason: str
    def __init__(self, approved: _Optional[bool] = ..., reviewer: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...
