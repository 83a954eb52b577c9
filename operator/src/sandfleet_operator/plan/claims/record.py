"""The record of a claim on its pod: all that a fleet needs after a crash. Times are seconds since the epoch."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields

from sandfleet_operator.api.kinds.template import Contract, Retention
from sandfleet_operator.api.limits import Limits
from sandfleet_operator.api.values import Claim, RequestKey

NAME_DIGITS = 20
MAX_RECORD = 192 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What a pod says of its claim. `lease` is infinite for a sandbox that ends with its CodeSandbox only."""

    # Name of the CodeSandbox.
    object: str
    request: str
    holder: str
    # The number of the fleet that bound it; a higher one took over later.
    fencing: int
    at: float
    lease: float
    idle: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    envs: Mapping[str, str] = field(default_factory=dict)
    contract: str = Contract.AUTONOMOUS.value
    # Whether what the template allows may be reached.
    egress: bool = True
    # The workspace stays after the release.
    keep: bool = False
    # Name of the volume claim of an earlier session; empty: a new workspace.
    workspace: str = ""
    limits: Limits = field(default_factory=Limits)
    # Of the CodeSandbox where it was there before the claim; empty: the fleet makes it.
    uid: str = ""
    traceparent: str = ""
    # The number of the fleet that took it over before it was written down; 0: it is still that of who bound it.
    keeper: int = 0

    @property
    def number(self) -> int:
        """Of the last fleet that had it."""
        return max(self.fencing, self.keeper)

    @property
    def key(self) -> RequestKey:
        return RequestKey(self.holder, self.request)


def object_name(key: RequestKey) -> str:
    """Of the CodeSandbox: the same request has the same name, so that of two bindings of it one is refused."""
    said = json.dumps([key.holder, key.request_id])
    return f"claim-{hashlib.sha256(said.encode()).hexdigest()[:NAME_DIGITS]}"


def object_of(claim: Claim) -> str:
    """Name of the CodeSandbox of a claim."""
    return claim.name or object_name(claim.key)


def record_of(claim: Claim, fencing: int, now: float) -> Record:
    return Record(
        object=object_of(claim),
        request=claim.key.request_id,
        holder=claim.key.holder,
        fencing=fencing,
        at=now,
        lease=claim.lease,
        idle=claim.idle_timeout,
        labels=dict(claim.labels),
        envs=dict(claim.envs),
        contract=claim.contract,
        egress=claim.egress,
        keep=claim.keep_workspace,
        workspace=volume_of_workspace(claim.workspace_id),
        limits=claim.limits,
        uid=claim.object_uid,
        traceparent=claim.traceparent,
    )


def claim_of(record: Record, pool: str) -> Claim:
    """The claim again, after a restart. `pool` is NAMESPACE/NAME."""
    return Claim(
        key=record.key,
        pool=pool,
        labels=record.labels,
        envs=record.envs,
        lease=record.lease,
        idle_timeout=record.idle,
        workspace_id=workspace_key(pool.partition("/")[0], record.workspace) if record.workspace else "",
        keep_workspace=record.keep,
        limits=record.limits,
        traceparent=record.traceparent,
        name=record.object,
        object_uid=record.uid,
        contract=record.contract,
        egress=record.egress,
    )


def workspace_key(namespace: str, claim: str) -> str:
    """What the engine calls the workspace on this volume claim."""
    return f"{namespace}/{claim}"


def volume_of_workspace(key: str) -> str:
    """Name of the volume claim; empty for a new workspace."""
    return key.partition("/")[2]


def record_text(record: Record) -> str:
    """The same record gives the same text in all versions: newer fields are written only if they are set."""
    said = asdict(record)
    if not record.workspace:
        del said["workspace"]
    if record.limits == Limits():
        del said["limits"]
    said["lease"] = None if math.isinf(record.lease) else record.lease
    if not record.keeper:
        del said["keeper"]
    return json.dumps(said, sort_keys=True, separators=(",", ":"))


def read_record(text: str) -> Record | None:
    """None if the text is no record: the fleet writes records, but people may break them."""
    try:
        said = json.loads(text) if len(text) <= MAX_RECORD else None
        if not isinstance(said, dict):
            return None
        known = {one.name for one in fields(Record)}
        given = {name: value for name, value in said.items() if name in known}
        given["lease"] = math.inf if given.get("lease") is None else float(given["lease"])
        given["limits"] = Limits(**given.get("limits", {}))
        return Record(**given)
    except (ValueError, TypeError):
        return None


def retention(record: Record) -> Retention:
    return Retention.RETAIN if record.keep else Retention.DELETE
