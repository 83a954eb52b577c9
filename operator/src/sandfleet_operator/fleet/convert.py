"""Between the API's messages and the domain's values. Raises FleetError for what no value can hold."""

import math
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, TypeGuard

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from sandfleet_api.executor.v1 import common_pb2, session_pb2
from sandfleet_api.fleet.v1 import egress_pb2, fleet_pb2

from sandfleet_operator.api.egress import Credential, canonical
from sandfleet_operator.api.kinds.template import Contract
from sandfleet_operator.api.limits import TIMES, Limits
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.api.validate import MAX_WAIT, check_duration, trace_parent
from sandfleet_operator.api.values import Claim, Gang, Image, Isolation, Mark, RequestKey, Sandbox, State, Template
from sandfleet_operator.executors.calls import duration
from sandfleet_operator.executors.tokens import Token
from sandfleet_operator.plan.egress.reports import HostReport
from sandfleet_operator.plan.scheduler.claim_queue import Queued
from sandfleet_operator.plan.scheduler.pool_queues import PoolSummary
from sandfleet_operator.plan.scheduler.refill import Pool

DEFAULT_PAGE, MAX_PAGE = 100, 1000
# Seconds that a claim or a resume waits, unless it says otherwise.
DEFAULT_WAIT = 60.0
# Seconds that a caller may ask for; the fleet's own bound is lower.
MAX_SUSPENSION = 365 * 86400.0
# Of automatic snapshots, in seconds.
SNAPSHOT_PERIOD, LEAST_SNAPSHOT_PERIOD = 300.0, 1.0
# In a cluster, where many sessions have one store.
LEAST_SHARED_PERIOD = 60.0
MAX_SELECTOR_BYTES = 16 << 10
MAX_USER = 65_535
STATES = {
    State.STARTING: fleet_pb2.SANDBOX_STATE_STARTING,
    State.WARM: fleet_pb2.SANDBOX_STATE_WARM,
    State.CLAIMED: fleet_pb2.SANDBOX_STATE_CLAIMED,
    State.RECOVERING: fleet_pb2.SANDBOX_STATE_RECOVERING,
    State.SUSPENDING: fleet_pb2.SANDBOX_STATE_SUSPENDED,
    State.SUSPENDED: fleet_pb2.SANDBOX_STATE_SUSPENDED,
    # As the operator shows it: it has never been lost.
    State.RESUMING: fleet_pb2.SANDBOX_STATE_STARTING,
    State.ENDED: fleet_pb2.SANDBOX_STATE_ENDED,
}
ISOLATIONS = {
    Isolation.NONE: session_pb2.ISOLATION_NONE,
    Isolation.NAMESPACE: session_pb2.ISOLATION_NAMESPACE,
    Isolation.GVISOR: session_pb2.ISOLATION_GVISOR,
}


def seconds(message: Message, field: str) -> float | None:
    """The duration in a field, or None where it is unset."""
    if not message.HasField(field):
        return None
    value: Duration = getattr(message, field)
    return value.seconds + value.nanos / 1_000_000_000


ON_IDLE = {fleet_pb2.ON_IDLE_SUSPEND: "suspend", fleet_pb2.ON_IDLE_SNAPSHOT: "snapshot"}
MARKS = {Mark.UNTRUSTED: fleet_pb2.MARK_UNTRUSTED, Mark.SECRET: fleet_pb2.MARK_SECRET}


def contract(request: fleet_pb2.ClaimRequest) -> Contract | None:
    """The contract that the claim asks for; None: the template's first. Raises FleetError."""
    found = next((one for one in Contract if one.value == request.contract), None)
    if request.contract and found is None:
        words = ", ".join(one.value for one in Contract)
        why = f"there is no contract {request.contract[:40]!r}, only {words}"
        raise ClaimReason.CONTRACT_NOT_SUPPORTED.error(f"cannot claim: {why}")
    return found


def claim(request: fleet_pb2.ClaimRequest, holder: str, template: Template, traceparent: str) -> Claim:
    """The claim with the defaults of its template; its contract is checked before."""
    lease, longest = seconds(request, "lease"), seconds(request, "max_wait")
    name = request.template or Template().name
    return Claim(
        key=RequestKey(holder, request.request_id, name),
        pool=name,
        labels=dict(request.labels),
        envs=dict(request.envs),
        mounts=dict(request.mounts),
        image=template.image,
        lease=template.lease if lease is None else lease,
        idle_timeout=seconds(request, "idle_timeout"),
        workspace_id=request.workspace_id,
        keep_workspace=request.keep_workspace,
        max_wait=DEFAULT_WAIT if longest is None else longest,
        limits=limits(request.limits),
        min_isolation=_isolation(request.min_isolation),
        traceparent=trace_parent(traceparent),
        egress_names=tuple(request.egress_names),
        credentials=tuple(
            Credential(canonical(one.host), one.header, one.format or "{key}", one.value, one.env)
            for one in request.credentials
        ),
        queue=request.queue,
        priority=request.priority,
        contract=template.contract,
        gang=Gang(request.gang.gang_id, request.gang.size) if request.HasField("gang") else None,
        on_idle=ON_IDLE.get(request.on_idle, "end"),
        on_timeout=ON_IDLE.get(request.on_timeout, "end"),
        snapshot_period=_snapshot_period(request),
    )


def image(request: fleet_pb2.ClaimRequest) -> Image:
    """The root that the claim asks for. Raises FleetError."""
    if not request.image.startswith("/") or "\0" in request.image or request.user > MAX_USER:
        why = f"it is the absolute path of a folder, and its user a number up to {MAX_USER}"
        raise ClaimReason.IMAGE_UNAVAILABLE.error(f"cannot claim with the image {request.image[:200]!r}: {why}")
    return Image(request.image, request.user, tuple(sorted(request.image_envs.items())))


def like(request: fleet_pb2.ClaimRequest, origin: Claim) -> fleet_pb2.ClaimRequest:
    """The request, and what the claim of another session asked for where the request says nothing."""
    period = origin.snapshot_period
    merged = fleet_pb2.ClaimRequest(
        labels=origin.labels,
        envs=origin.envs,
        mounts=origin.mounts,
        image=origin.image.path if origin.image else origin.pod_image,
        user=origin.image.user if origin.image else None,
        image_envs=dict(origin.image.envs) if origin.image else {},
        lease=duration(origin.lease) if math.isfinite(origin.lease) else None,
        idle_timeout=None if origin.idle_timeout is None else duration(origin.idle_timeout),
        on_idle=next((number for number, word in ON_IDLE.items() if word == origin.on_idle), None),
        on_timeout=next((number for number, word in ON_IDLE.items() if word == origin.on_timeout), None),
        recovery=None if period is None else fleet_pb2.RECOVERY_SNAPSHOT,
        snapshot_period=None if period is None else duration(period),
        min_isolation=ISOLATIONS[origin.min_isolation],
        egress=fleet_pb2.EGRESS_UNSPECIFIED if origin.egress else fleet_pb2.EGRESS_NONE,
        # A list is taken as a whole: adding to that of the origin would allow more than either asks for.
        egress_names=() if request.egress_names else origin.egress_names,
        # In a cluster queues are named NAMESPACE/NAME, and the namespace is that of the request.
        queue=origin.queue.rpartition("/")[2],
        priority=origin.priority,
    )
    if not request.credentials and not request.egress_names:
        merged.credentials.extend(
            fleet_pb2.EgressCredential(
                host=one.host, header=one.header, format=one.format, value=one.value, env=one.env
            )
            for one in origin.credentials
        )
    merged.MergeFrom(request)
    return merged


def _snapshot_period(request: fleet_pb2.ClaimRequest) -> float | None:
    """Raises FleetError."""
    if request.recovery != fleet_pb2.RECOVERY_SNAPSHOT:
        return None
    asked = seconds(request, "snapshot_period")
    if asked is None:
        return SNAPSHOT_PERIOD
    check_duration(asked, "time between two snapshots", most=MAX_SUSPENSION, doing="claim")
    return max(asked, LEAST_SNAPSHOT_PERIOD)


def max_wait(request: fleet_pb2.ResumeRequest, *, doing: str) -> float:
    """Seconds. Raises FleetError."""
    longest = seconds(request, "max_wait")
    if longest is None:
        return DEFAULT_WAIT
    check_duration(longest, "longest wait", most=MAX_WAIT, doing=doing, zero=True)
    return longest


def suspension_seconds(request: fleet_pb2.SuspendRequest) -> float | None:
    """How long the session may stay suspended; None: as long as the fleet allows. Raises FleetError."""
    asked = seconds(request, "timeout")
    if asked is not None:
        check_duration(asked, "longest suspension", most=MAX_SUSPENSION, doing="suspend")
    return asked


def page_size(request: fleet_pb2.ListRequest) -> int:
    return min(request.page_size or DEFAULT_PAGE, MAX_PAGE)


def check_selector_length(selector: str) -> None:
    """Raises FleetError where the selector of a List is too long to be looked at."""
    if len(selector) > MAX_SELECTOR_BYTES:
        raise ClaimReason.INVALID_SELECTOR.error(
            f"cannot list: the selector is longer than {MAX_SELECTOR_BYTES} characters"
        )


def limits(message: common_pb2.Limits) -> Limits:
    """A limit that is not set is 0: as the template says."""
    found: dict[str, Any] = {
        one.name: seconds(message, one.name) or 0.0 if one.name in TIMES else getattr(message, one.name)
        for one in fields(Limits)
    }
    return Limits(**found)


def _isolation(number: int) -> Isolation:
    if number == session_pb2.ISOLATION_UNSPECIFIED:
        return Isolation.NAMESPACE
    try:
        return Isolation(number)
    except ValueError:
        raise ClaimReason.INVALID_ISOLATION.error(f"cannot claim: there is no isolation {number}") from None


def sandbox_message(sandbox: Sandbox) -> fleet_pb2.Sandbox:
    return fleet_pb2.Sandbox(
        sandbox_id=sandbox.sandbox_id,
        sandbox_uid=sandbox.sandbox_uid,
        template=sandbox.template,
        state=STATES[sandbox.state],
        labels=sandbox.labels,
        workspace_id=sandbox.workspace_id,
        created=_timestamp(sandbox.created),
        lease_expires=_timestamp(sandbox.lease_expires) if _is_moment(sandbox.lease_expires) else None,
        isolation=ISOLATIONS[sandbox.isolation],
        restarts=sandbox.restarts,
        last_restart_reason=sandbox.last_restart_reason,
        suspended_until=None if sandbox.suspended_until is None else _timestamp(sandbox.suspended_until),
        preempted=None if sandbox.preempted is None else _timestamp(sandbox.preempted),
        contract=sandbox.contract,
    )


def _is_moment(lease_expires: float | None) -> TypeGuard[float]:
    """Not of what ends with its object only."""
    return lease_expires is not None and math.isfinite(lease_expires)


def marks(request: fleet_pb2.NoteReceivedRequest) -> frozenset[Mark]:
    """What the session has received by the host's word. Raises FleetError."""
    found = {one for one in Mark if MARKS[one] in request.marks}
    if len(found) != len(set(request.marks)):
        raise ClaimReason.INVALID_MARK.error("cannot mark the session: a mark of the request is unknown")
    return frozenset(found)


def received_message(received: frozenset[Mark]) -> fleet_pb2.NoteReceivedResponse:
    return fleet_pb2.NoteReceivedResponse(marks=[MARKS[one] for one in Mark if one in received])


def access_message(address: str, token: Token) -> fleet_pb2.Access:
    return fleet_pb2.Access(address=address, token=token.text, token_expires=_timestamp(token.expires))


def queued_message(queued: Queued, ticket: bytes = b"", note: str = "") -> fleet_pb2.Queued:
    """`note` is added to what people read."""
    return fleet_pb2.Queued(
        position=queued.position,
        eta=None if queued.eta is None else duration(queued.eta.p50),
        eta_p90=None if queued.eta is None else duration(queued.eta.p90),
        reason=queued.reason,
        message=f"{queued.message}; {note}" if note else queued.message,
        queue=queued.queue,
        ticket=ticket,
    )


def pool_message(pool: Pool, level: PoolSummary) -> fleet_pb2.Pool:
    return fleet_pb2.Pool(
        pool_id=pool.name,
        template=pool.template.name,
        target_warm=pool.target_warm,
        warm=level.warm,
        starting=level.starting,
        claimed=level.claimed,
        waiting=level.waiting,
        hit_rate=level.hit_rate,
        reason=level.reason,
    )


def host_report(report: HostReport) -> egress_pb2.HostReport:
    return egress_pb2.HostReport(
        host=report.host,
        port=report.port,
        reason=report.reason,
        address=report.address,
        connections=report.connections,
        open=max(0, report.open),
        sent_bytes=report.sent,
        received_bytes=report.received,
        first=_timestamp(report.first),
        last=_timestamp(report.last),
    )


def _timestamp(moment: float) -> Timestamp:
    timestamp = Timestamp()
    timestamp.FromDatetime(datetime.fromtimestamp(moment, UTC))
    return timestamp
