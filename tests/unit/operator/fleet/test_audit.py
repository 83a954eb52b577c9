"""Each call of the fleet that decides something leaves exactly one record, and so do ends and preemptions."""

import asyncio

import grpc
import jwt
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from sandfleet_api.fleet.v1 import fleet_pb2 as pb
from sandfleet_api.fleet.v1 import snapshot_pb2 as snapshots
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.api.values import State
from sandfleet_operator.cluster.reviews import Caller
from sandfleet_operator.fleet.audit import calls
from sandfleet_operator.fleet.audit.calls import AuditInterceptor
from sandfleet_operator.fleet.audit.rules import RULES, SNAPSHOT_RULES, of_action
from sandfleet_operator.plan.audit import Decision, Verdict
from sandfleet_operator.plan.scheduler.actions import Gone, Stop, Suspend
from support.fleet.builders import a_sandbox

SERVICE = pb.DESCRIPTOR.services_by_name["FleetService"]
SNAPSHOTS = snapshots.DESCRIPTOR.services_by_name["SnapshotService"]
METHODS = {**SERVICE.methods_by_name, **SNAPSHOTS.methods_by_name}
SAVED = snapshots.Snapshot(snapshot_id="s1", name="kept", reason="fork", bytes=9, stored_bytes=3)
TRACE = "0af7651916cd43dd8448eb211c80319c"
LATER = Timestamp(seconds=1_700_000_060)
# A token has an id, which is no secret.
TOKEN = jwt.encode({"jti": "t1", "sub": "SECRET"}, "SECRET" * 8, algorithm="HS256")
ACCESS = pb.Access(token=TOKEN, token_expires=LATER)
BOUND = pb.Bound(
    sandbox=pb.Sandbox(sandbox_id="team/one", sandbox_uid="u1", pool="p", template="t", lease_expires=LATER),
    access=ACCESS,
)
REQUESTS = {
    "Claim": pb.ClaimRequest(request_id="r1", namespace="team", pool="p"),
    "Release": pb.ReleaseRequest(sandbox_id="team/one"),
    "Renew": pb.RenewRequest(sandbox_id="team/one"),
    "Suspend": pb.SuspendRequest(sandbox_id="team/one", force=True),
    "Resume": pb.ResumeRequest(sandbox_id="team/one"),
    "Get": pb.GetRequest(sandbox_id="team/one", with_access=True),
    "Route": pb.RouteRequest(sandbox_id="team/one"),
    "NoteReceived": pb.NoteReceivedRequest(sandbox_id="team/one", marks=[pb.MARK_UNTRUSTED]),
    "AnswerReview": pb.AnswerReviewRequest(
        sandbox_id="team/one", review_id="v1", digest=b"\x01", approve=pb.Approval()
    ),
    "CreateSnapshot": snapshots.CreateSnapshotRequest(sandbox_id="team/one", name="kept", reason="fork"),
    "RestoreSnapshot": snapshots.RestoreSnapshotRequest(sandbox_id="team/one", snapshot="kept", force=True),
    "DeleteSnapshot": snapshots.DeleteSnapshotRequest(snapshot="s1"),
    "UndeleteSnapshot": snapshots.UndeleteSnapshotRequest(snapshot="s1"),
    "ExportSnapshot": snapshots.ExportSnapshotRequest(snapshot="s1"),
    "ImportSnapshot": iter([snapshots.ImportSnapshotRequest(data=b"SECRET")]),
}
# Of no sandbox.
ALONE = {"DeleteSnapshot", "UndeleteSnapshot", "ExportSnapshot", "ImportSnapshot"}
ANSWERS = {
    "Claim": pb.ClaimResponse(bound=BOUND),
    "Resume": pb.ResumeResponse(bound=BOUND),
    "Get": pb.GetResponse(sandbox=BOUND.sandbox, access=ACCESS),
    "Renew": pb.RenewResponse(sandbox=BOUND.sandbox, access=ACCESS),
    "Route": pb.RouteResponse(address="10.0.0.1:50051", sandbox_uid="u1"),
    "Suspend": pb.SuspendResponse(sandbox=BOUND.sandbox, snapshot_id="s1"),
    "CreateSnapshot": snapshots.CreateSnapshotResponse(snapshot=SAVED),
    "RestoreSnapshot": snapshots.RestoreSnapshotResponse(
        restored=snapshots.RestoreSnapshotResponse.Restored(snapshot=SAVED)
    ),
    "ExportSnapshot": snapshots.ExportSnapshotResponse(data=b"SECRET"),
    "ImportSnapshot": snapshots.ImportSnapshotResponse(snapshot=SAVED),
}
ISSUED = {"token_id": "t1", "expires": LATER.seconds}
LEASED = {"sandbox_uid": "u1", "lease_expires": LATER.seconds, **ISSUED}
DETAILS = {
    "Claim": {"request_id": "r1", "pool": "p", "template": "t", **LEASED},
    "Release": {},
    "Suspend": {"force": True, "snapshot_id": "s1"},
    "Resume": LEASED,
    "Renew": LEASED,
    "Get": {"by": "Get", "sandbox_uid": "u1", **ISSUED},
    "Route": {"by": "Route", "sandbox_uid": "u1"},
    "NoteReceived": {"marks": "untrusted"},
    "AnswerReview": {"review_id": "v1", "digest": "01", "answer": "approve"},
    "CreateSnapshot": {"snapshot_id": "s1", "name": "kept", "purpose": "fork", "bytes": 9, "stored_bytes": 3},
    "RestoreSnapshot": {"snapshot_id": "s1", "purpose": "manual", "force": True},
    "DeleteSnapshot": {"snapshot_id": "s1", "purpose": "manual"},
    "UndeleteSnapshot": {"snapshot_id": "s1", "purpose": "undelete"},
    "ExportSnapshot": {"snapshot_id": "s1"},
    "ImportSnapshot": {"snapshot_id": "s1", "name": "kept", "bytes": 9},
}
NAMED = [name for name, rule in {**RULES, **SNAPSHOT_RULES}.items() if rule is not None]


WAITING = {
    "Claim": [pb.ClaimResponse(queued=pb.Queued())],
    "Resume": [pb.ResumeResponse(queued=pb.Queued())],
    "CreateSnapshot": [snapshots.CreateSnapshotResponse(progress=snapshots.SnapshotProgress())],
    "RestoreSnapshot": [snapshots.RestoreSnapshotResponse(progress=snapshots.SnapshotProgress())],
}


def a_session(name, **changes):
    return a_sandbox(State.CLAIMED, sandbox_id=name, **changes)


class Served:
    """Calls as gRPC makes them, through the interceptor."""

    def __init__(self):
        self.records = []
        self.callbacks = []

    def add_done_callback(self, callback):
        self.callbacks.append(callback)

    def call(self, name, request, serve):
        """Runs `serve(request, context)` as the RPC; what it raises is raised."""
        return asyncio.run(self._call(name, request, serve))

    async def _call(self, name, request, serve):
        method = METHODS[name]
        streams = method.server_streaming
        make = grpc.unary_stream_rpc_method_handler if streams else grpc.unary_unary_rpc_method_handler
        handler = grpc.stream_unary_rpc_method_handler(serve) if method.client_streaming else make(serve)

        async def continuation(_details):
            return handler

        class Details:
            method = f"/{METHODS[name].containing_service.full_name}/{name}"
            invocation_metadata = (("traceparent", f"00-{TRACE}-b7ad6b7169203331-01"),)

        wrapped = await AuditInterceptor(self.records.append).intercept_service(continuation, Details)
        try:
            if streams:
                return [message async for message in wrapped.unary_stream(request, self)]
            return await (wrapped.unary_unary or wrapped.stream_unary)(request, self)
        finally:
            for callback in self.callbacks:
                callback(None)


def answering(name, *messages):
    async def unary(_request, _context):
        calls.is_from(Caller("agent", "u-9"))
        return ANSWERS.get(name)

    async def stream(_request, _context):
        calls.is_from(Caller("agent", "u-9"))
        for message in (*messages, ANSWERS[name]):
            yield message

    return stream if METHODS[name].server_streaming else unary


def ending(name, error, problem=None):
    async def unary(_request, _context):
        if problem is not None:
            calls.is_refused(problem)
        raise error

    async def stream(_request, _context):
        for waiting in WAITING.get(name, ()):
            yield waiting
        await unary(_request, _context)

    return stream if METHODS[name].server_streaming else unary


def test_the_table_has_each_rpc_of_the_fleet():
    assert set(RULES) == {method.name for method in SERVICE.methods}
    assert set(SNAPSHOT_RULES) == {method.name for method in SNAPSHOTS.methods}
    assert set(NAMED) == set(REQUESTS)


@pytest.mark.parametrize("name", NAMED)
def test_an_allowed_call_has_one_record_with_who_and_what(name):
    served = Served()
    served.call(name, REQUESTS[name], answering(name))
    (record,) = served.records
    assert (record.verdict, record.actor.username, record.actor.uid) == (Verdict.ALLOWED, "agent", "u-9")
    sandbox = ("", "") if name in ALONE else ("team", "one")
    assert (record.namespace, record.sandbox, record.trace_id) == (*sandbox, TRACE)
    assert record.details == DETAILS[name]
    assert "SECRET" not in repr(record)
    assert TOKEN not in repr(record)


@pytest.mark.parametrize("name", NAMED)
def test_a_refused_call_has_one_record_with_the_reason_and_without_the_message(name):
    served = Served()
    problem = ClaimReason.FORBIDDEN.problem("cannot claim: the environment has SECRET")
    with pytest.raises(RuntimeError):
        served.call(name, REQUESTS[name], ending(name, RuntimeError(), problem))
    (record,) = served.records
    assert (record.verdict, record.reason) == (Verdict.REFUSED, "Forbidden")
    assert record.namespace == ("" if name in ALONE else "team")
    assert "SECRET" not in repr(record)


@pytest.mark.parametrize("name", NAMED)
def test_a_defect_of_the_fleet_is_a_refusal_too(name):
    served = Served()
    with pytest.raises(RuntimeError):
        served.call(name, REQUESTS[name], ending(name, RuntimeError()))
    assert [(one.verdict, one.reason) for one in served.records] == [(Verdict.REFUSED, "Internal")]


@pytest.mark.parametrize("name", NAMED)
def test_a_caller_who_leaves_has_withdrawn(name):
    served = Served()
    with pytest.raises(asyncio.CancelledError):
        served.call(name, REQUESTS[name], ending(name, asyncio.CancelledError()))
    assert [one.verdict for one in served.records] == [Verdict.WITHDRAWN]


def test_a_claim_is_recorded_when_it_is_bound_and_not_while_it_waits():
    served = Served()
    waiting = pb.ClaimResponse(queued=pb.Queued())
    served.call("Claim", REQUESTS["Claim"], answering("Claim", waiting, waiting))
    assert [one.verdict for one in served.records] == [Verdict.ALLOWED]


@pytest.mark.parametrize(("name", "request_"), [("Get", pb.GetRequest(sandbox_id="team/one")), ("List", None)])
def test_calls_that_decide_nothing_have_no_record(name, request_):
    served = Served()
    served.call(name, request_, answering(name))
    assert served.records == []


def test_the_end_of_a_session_is_recorded_with_its_reason_and_holder():
    record = of_action(Gone(a_session("team/one", ended_reason="LeaseExpired", restarts=3)))
    assert (record.decision, record.reason, record.namespace) == (Decision.END, "LeaseExpired", "team")
    assert record.details["holder"] == "uid:1000"
    assert record.details["restarts"] == 3


def test_a_sentence_is_no_reason():
    assert of_action(Gone(a_session("one", ended_reason="SECRET of an executor"))).reason == "Other"


def test_a_preemption_is_recorded_and_a_suspension_by_its_call_alone():
    assert of_action(Suspend(a_session("one", preempted=5.0))).decision is Decision.PREEMPTION
    assert of_action(Suspend(a_session("one"))) is None


def test_warm_sandboxes_that_end_are_no_sessions():
    assert of_action(Gone(a_session("one", bound=False))) is None
    assert of_action(Stop(a_session("one"))) is None
