"""The record of a claim on its pod: all that a fleet needs after a crash. Times are seconds since the epoch.

Fleets of two releases read each other's records. What a release does not know it keeps, and patches test the text that
was read, not how this release would spell it. A new field is written only where it is set, so that the release before
reads and spells all other records as this one does. A release that changes the meaning of a field raises `VERSION`.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import Annotated

from sandfleet_operator.api.egress import parse_all
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.kinds.mounts import check as check_mounts
from sandfleet_operator.api.kinds.template import Contract, Retention
from sandfleet_operator.api.limits import Limits
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.api.table import as_type, at, decode, number, unreadable
from sandfleet_operator.api.validate import MAX_LEASE, check_envs, check_id, check_labels, trace_parent
from sandfleet_operator.api.values import Amount, Claim, Gang, Mark, RequestKey, marks_of

# Of what this release writes. It is not written as long as it is the first one.
VERSION = 1
NAME_DIGITS = 20
# Bytes of its text, for who writes it as for who reads it. All annotations of an object may have 256 KiB.
MAX_RECORD = 192 << 10
MAX_TEXT = 256
# Characters of an image's reference, as the schema of a template has it.
MAX_IMAGE = 512
# Of a Lease's leaseTransitions.
MAX_FENCING = (1 << 31) - 1
# Seconds since the epoch: the year 5138.
MAX_TIME = 1e11
MAX_LIMIT = (1 << 63) - 1
# Claims of one gang.
MAX_GANG = 10_000
ON_IDLE = ("end", "suspend", "snapshot")
# Names of CodeSandboxes and volume claims.
NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def _text(value: object, path: str, *, most: int = MAX_TEXT) -> str:
    text = as_type(value, str, path)
    if len(text) > most:
        raise unreadable(path, f"it is longer than {most} characters")
    _check_unicode(text, path)
    return text


def _request(value: object, path: str) -> str:
    text = as_type(value, str, path)
    check_id(text, "request id", doing="read a claim")
    return text


def _name(value: object, path: str) -> str:
    text = as_type(value, str, path)
    if text and not NAME.fullmatch(text):
        raise unreadable(path, f"{text[:40]!r} is not the name of an object")
    return text


def _within(least: float, most: float, value: object, path: str) -> float:
    found = number(value, path)
    # A comparison with NaN is false.
    if not least <= found <= most:
        raise unreadable(path, f"{found:g} is not between {least:g} and {most:g}")
    return found


def _fencing(value: object, path: str) -> int:
    return int(_within(0, MAX_FENCING, as_type(value, int, path), path))


def _contract(value: object, path: str) -> str:
    text = as_type(value, str, path)
    if text not in {one.value for one in Contract}:
        raise unreadable(path, f"{text[:40]!r} is no contract")
    return text


def _on_idle(value: object, path: str) -> str:
    text = as_type(value, str, path)
    if text not in ON_IDLE:
        raise unreadable(path, f"{text[:40]!r} is none of {', '.join(ON_IDLE)}")
    return text


def _labels(value: object, path: str) -> dict[str, str]:
    labels = {key: as_type(one, str, f"{path}.{key}") for key, one in as_type(value, dict, path).items()}
    check_labels(labels, doing="read the labels of a claim")
    return labels


def _envs(value: object, path: str) -> dict[str, str]:
    envs = {key: as_type(one, str, f"{path}.{key}") for key, one in as_type(value, dict, path).items()}
    check_envs(envs, doing="read the environment of a claim")
    for name, one in envs.items():
        _check_unicode(one, f"{path}.{name}")
    return envs


def _mounts(value: object, path: str) -> dict[str, str]:
    found = {key: as_type(one, str, f"{path}.{key}") for key, one in as_type(value, dict, path).items()}
    check_mounts(found)
    return found


def _egress_names(value: object, path: str) -> tuple[str, ...]:
    found = tuple(as_type(one, str, path) for one in as_type(value, list, path))
    parse_all(found)
    return found


def _check_unicode(text: str, path: str) -> None:
    """JSON can spell half a surrogate pair, which no protocol takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise unreadable(path, "it is not Unicode text") from None


def _limits(value: object, path: str) -> Limits:
    given, found = as_type(value, dict, path), {}
    for one in fields(Limits):
        if one.name in given:
            limit = _within(0, MAX_LIMIT, given[one.name], f"{path}.{one.name}")
            found[one.name] = limit if isinstance(one.default, float) else int(limit)
    return Limits(**found)  # type: ignore[arg-type]


def _amount(value: object, path: str) -> Amount | None:
    given, found = as_type(value, dict, path), {}
    for one in fields(Amount):
        if one.name in given:
            found[one.name] = int(_within(0, MAX_LIMIT, given[one.name], f"{path}.{one.name}"))
    return Amount(**found)


def _gang(value: object, path: str) -> Gang | None:
    given = as_type(value, dict, path)
    size = _within(1, MAX_GANG, as_type(given.get("size"), int, f"{path}.size"), f"{path}.size")
    return Gang(_text(given.get("id"), f"{path}.id"), int(size))


def _received(value: object, path: str) -> frozenset[Mark]:
    return marks_of(as_type(one, str, path) for one in as_type(value, list, path))


_duration = partial(_within, 0.0, MAX_LEASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What a pod says of its claim. `lease` is infinite for a sandbox that ends with its CodeSandbox only."""

    # Name of the CodeSandbox.
    object: Annotated[str, at("object", _name, required=True)]
    request: Annotated[str, at("request", _request, required=True)]
    holder: Annotated[str, at("holder", _text, required=True)]
    # The number of the fleet that bound it; a higher one took over later.
    fencing: Annotated[int, at("fencing", _fencing, required=True)]
    at: Annotated[float, at("at", partial(_within, 0.0, MAX_TIME), required=True)]
    lease: Annotated[float, at("lease", _duration)] = math.inf
    idle: Annotated[float | None, at("idle", _duration)] = None
    # What becomes of it then: end, suspend or snapshot.
    on_idle: Annotated[str, at("on_idle", _on_idle)] = "end"
    # The same when its lease is over.
    on_timeout: Annotated[str, at("on_timeout", _on_idle)] = "end"
    # Seconds between two automatic snapshots.
    snapshots: Annotated[float | None, at("snapshots", _duration)] = None
    labels: Annotated[Mapping[str, str], at("labels", _labels)] = field(default_factory=dict)
    envs: Annotated[Mapping[str, str], at("envs", _envs)] = field(default_factory=dict)
    contract: Annotated[str, at("contract", _contract)] = Contract.AUTONOMOUS.value
    # Whether what the template allows may be reached.
    egress: Annotated[bool, at("egress")] = True
    # Hosts that alone may be reached instead, by name.
    egress_names: Annotated[tuple[str, ...], at("egress_names", _egress_names)] = ()
    # The workspace stays after the release.
    keep: Annotated[bool, at("keep")] = False
    # Name of the volume claim of an earlier session; empty: a new workspace.
    workspace: Annotated[str, at("workspace", _name)] = ""
    # What its pod has in the place of its template's image; empty: that one.
    image: Annotated[str, at("image", partial(_text, most=MAX_IMAGE))] = ""
    limits: Annotated[Limits, at("limits", _limits)] = field(default_factory=Limits)
    mounts: Annotated[Mapping[str, str], at("mounts", _mounts)] = field(default_factory=dict)
    # Of the CodeSandbox where it was there before the claim; empty: the fleet makes it.
    uid: Annotated[str, at("uid", _text)] = ""
    traceparent: Annotated[str, at("traceparent", _text)] = ""
    # NAMESPACE/NAME of the queue whose quota it uses; empty: none.
    queue: Annotated[str, at("queue", _text)] = ""
    priority: Annotated[str, at("priority", _text)] = ""
    # What it uses of that quota, as its template was then.
    amount: Annotated[Amount | None, at("amount", _amount)] = None
    gang: Annotated[Gang | None, at("gang", _gang)] = None
    # What its sandbox was filled with had received.
    received: Annotated[frozenset[Mark], at("received", _received)] = frozenset()
    # The number of the fleet that took it over before it was written down; 0: it is still that of who bound it.
    keeper: Annotated[int, at("keeper", _fencing)] = 0
    # Of the release that wrote it.
    version: Annotated[int, at("version", _fencing)] = VERSION
    # As it was read; empty: it was made here.
    text: str = field(default="", compare=False, repr=False)

    @property
    def number(self) -> int:
        """Of the last fleet that had it."""
        return max(self.fencing, self.keeper)

    def kept_by(self, number: int) -> "Record":
        """The record once the fleet of this number has taken it over, with all that another release wrote in it."""
        text = _spelled({**json.loads(self.text), "keeper": number}) if self.text else ""
        return replace(self, keeper=number, text=text)

    def key(self, pool: str) -> RequestKey:
        """`pool` is NAMESPACE/NAME, of the pod."""
        return RequestKey(self.holder, self.request, pool)


def object_name(key: RequestKey) -> str:
    """Of the CodeSandbox: the same request has the same name, so that of two bindings of it one is refused."""
    said = json.dumps([key.holder, key.request_id, key.pool])
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
        on_idle=claim.on_idle,
        on_timeout=claim.on_timeout,
        snapshots=claim.snapshot_period,
        labels=dict(claim.labels),
        envs=dict(claim.envs),
        contract=claim.contract,
        egress=claim.egress,
        egress_names=tuple(claim.egress_names),
        keep=claim.keep_workspace,
        workspace=volume_of_workspace(claim.workspace_id),
        image=claim.pod_image,
        limits=claim.limits,
        mounts=dict(claim.mounts),
        uid=claim.object_uid,
        traceparent=trace_parent(claim.traceparent),
        queue=claim.queue,
        priority=claim.priority,
        amount=claim.amount if claim.queue else None,
        gang=claim.gang,
        received=claim.received,
    )


def claim_of(record: Record, pool: str) -> Claim:
    """The claim again, after a restart. `pool` is NAMESPACE/NAME."""
    return Claim(
        key=record.key(pool),
        pool=pool,
        labels=record.labels,
        envs=record.envs,
        lease=record.lease,
        idle_timeout=record.idle,
        on_idle=record.on_idle,
        on_timeout=record.on_timeout,
        snapshot_period=record.snapshots,
        workspace_id=workspace_key(pool.partition("/")[0], record.workspace) if record.workspace else "",
        keep_workspace=record.keep,
        pod_image=record.image,
        limits=record.limits,
        mounts=record.mounts,
        traceparent=record.traceparent,
        name=record.object,
        object_uid=record.uid,
        contract=record.contract,
        egress=record.egress,
        egress_names=record.egress_names,
        queue=record.queue,
        priority=record.priority,
        amount=record.amount,
        gang=record.gang,
        received=record.received,
    )


def workspace_key(namespace: str, claim: str) -> str:
    """What the engine calls the workspace on this volume claim."""
    return f"{namespace}/{claim}"


def volume_of_workspace(key: str) -> str:
    """Name of the volume claim; empty for a new workspace."""
    return key.partition("/")[2]


def record_text(record: Record) -> str:
    """The text that was read. For a new one the same in all releases: newer fields are written only if they are set."""
    if record.text:
        return record.text
    said = asdict(record)
    del said["text"]
    if record.version == 1:
        del said["version"]
    if record.limits == Limits():
        del said["limits"]
    elif not record.limits.cpus:
        del said["limits"]["cpus"]
    said["lease"] = None if math.isinf(record.lease) else record.lease
    if record.gang is not None:
        said["gang"] = {"id": record.gang.gang_id, "size": record.gang.size}
    for word in ("on_idle", "on_timeout"):
        if said[word] == "end":
            del said[word]
    said["received"] = sorted(one.value for one in record.received)
    for newer in (
        "workspace",
        "image",
        "mounts",
        "keeper",
        "queue",
        "priority",
        "amount",
        "gang",
        "snapshots",
        "received",
        "egress_names",
    ):
        if not said[newer]:
            del said[newer]
    return _spelled(said)


def checked_size(claim: Claim) -> Claim:
    """Asked of each claim before it is taken: a larger one would bind no pod, or no other fleet could read it."""
    size = len(record_text(record_of(claim, MAX_FENCING, MAX_TIME)).encode())
    if size > MAX_RECORD:
        why = f"its record of {size} bytes is larger than {MAX_RECORD}"
        raise ClaimReason.INVALID_CLAIM.error(f"cannot claim: {why}")
    return claim


def short_text(record: Record) -> str:
    """Without what the CodeSandbox's spec has as well."""
    return _spelled(
        {name: value for name, value in json.loads(record_text(record)).items() if name not in {"envs", "mounts"}}
    )


def _spelled(said: Mapping[str, object]) -> str:
    return json.dumps(said, sort_keys=True, separators=(",", ":"))


def read_record(text: str) -> Record | None:
    """None if the text is no record. The fleet writes records, but people may break or forge them: any text is safe."""
    try:
        said = json.loads(text) if len(text) <= MAX_RECORD and len(text.encode()) <= MAX_RECORD else None
        # What is nested too deeply to be written again is no record.
        _spelled(as_type(said, dict, ""))
        return replace(decode(Record, said, ""), text=text)
    except (ValueError, RecursionError, FleetError):
        return None


def retention(record: Record) -> Retention:
    return Retention.RETAIN if record.keep else Retention.DELETE
