"""The fleet's loop and its gRPC face over a backend that starts nothing: what callers see."""

import asyncio
import time
from collections import Counter

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from opentelemetry import trace
from sandfleet_api.fleet.v1 import fleet_pb2 as pb
from sandfleet_operator.api.egress import Credential
from sandfleet_operator.api.kinds.queue import QueueSpec, Quota
from sandfleet_operator.api.reasons import SuspendReason
from sandfleet_operator.api.values import Claim, Exit, Isolation, RequestKey, State, Template
from sandfleet_operator.fleet import convert, driver
from sandfleet_operator.fleet.backend import Exited, Made
from sandfleet_operator.plan.snapshots.claims import KEPT
from support.fleet.builders import a_claim
from support.fleet.driven import a_service, detail

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
async def service(tmp_path):
    async with a_service(tmp_path) as made:
        yield made


async def test_a_refusal_for_now_says_when_to_come_back_in_its_own_detail_and_in_the_standard_one(service):
    service.fleet.do(service.scheduler.queues.put("team", QueueSpec(nominal=Quota(sandboxes=1), max_length=0), 0.0))
    await service.bound(queue="team")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await service.claim("r2", queue="team")
    said = detail(caught.value)
    assert (caught.value.code(), said.reason, said.retryable) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "QueueFull", True)
    assert said.retry_after == Duration(seconds=5)
    standard = dict(caught.value.trailing_metadata())["grpc-status-details-bin"]
    # google.rpc.Status: the code, the message, and google.rpc.RetryInfo in an Any.
    message = said.message.encode()
    kind = b"type.googleapis.com/google.rpc.RetryInfo"
    packed = b"\x0a" + bytes([len(kind)]) + kind + b"\x12\x04\x0a\x02\x08\x05"
    assert standard == b"\x08\x08\x12" + bytes([len(message)]) + message + b"\x1a" + bytes([len(packed)]) + packed


async def test_a_refusal_for_good_says_no_time(service):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await service.claim("r1", queue="none")
    assert not detail(caught.value).HasField("retry_after")
    assert "grpc-status-details-bin" not in dict(caught.value.trailing_metadata())


async def test_others_get_their_turn_among_thousands_of_events(service, monkeypatch):
    """After a takeover there is one for each warm sandbox, and each begins a task."""
    await service.until(lambda: service.fleet._serving)
    monkeypatch.setattr(driver, "EVENTS_PART", 3)
    loop, turns, heard = asyncio.get_running_loop(), [0], []

    def turn():
        turns[0] += 1
        if len(heard) < 100:
            loop.call_soon(turn)

    def made(uid, _now):
        heard.append(turns[0])
        return []

    monkeypatch.setattr(service.scheduler, "made", made)
    turn()
    for number in range(100):
        service.world.events.put_nowait(Made(f"s{number}"))
    await service.until(lambda: len(heard) == 100)
    assert max(Counter(heard).values()) <= 3


async def test_many_claims_are_told_where_they_stand_in_parts_each_of_them_and_after_each_change(tmp_path, monkeypatch):
    monkeypatch.setattr(driver, "STANDINGS_PART", 3)
    monkeypatch.setattr(driver, "STANDINGS_EVERY", 0.01)
    async with a_service(tmp_path, target_warm=0, max_sandboxes=1) as service:
        service.world.hold = True
        await service.until(lambda: service.fleet._serving)
        watches = [service.fleet.claim(a_claim(f"r{number}")) for number in range(8)]
        said = [[(await watch.next()).position] for watch in watches]
        assert [one[0] for one in said] == list(range(1, 9))
        told, parts = [], []
        tell, publish = service.fleet._watches.tell, service.fleet._publish_standings

        def noted(key, queued, now):
            told.append(key)
            return tell(key, queued, now)

        monkeypatch.setattr(service.fleet._watches, "tell", noted)

        def counted():
            before = len(told)
            publish()
            parts.append(len(told) - before)

        monkeypatch.setattr(service.fleet, "_publish_standings", counted)
        watches[0].leave()
        for place, watch in enumerate(watches[1:], 1):
            async with asyncio.timeout(60):
                while (news := await watch.next()).position != place:
                    pass
            assert news.position == place
        assert max(parts) <= 3
        for watch in watches[1:]:
            watch.leave()


async def test_a_claim_on_a_warm_pool_is_bound_at_once_with_access(service):
    (only,) = await service.claim(labels={"team": "blue"}, lease=Duration(seconds=50))
    bound = only.bound
    assert (only.sequence, bound.warm, bound.sandbox.state) == (1, True, pb.SANDBOX_STATE_CLAIMED)
    assert bound.access.address == f"unix:///{bound.sandbox.sandbox_uid}"
    assert bound.access.token == f"token for {bound.sandbox.sandbox_uid}"
    assert dict(bound.sandbox.labels) == {"team": "blue"}
    ((sandbox, lease),) = service.world.opened.values()
    assert sandbox.claim.key.holder == "uid:7"
    assert 49 < lease <= 50


async def test_a_claim_that_waits_is_told_where_it_stands_until_it_is_bound(tmp_path):
    async with a_service(tmp_path, target_warm=0) as service:
        service.world.hold = True
        first = asyncio.create_task(service.claim("r1"))
        await service.until(lambda: len(service.scheduler.inventory.waiting) == 1)
        second = asyncio.create_task(service.claim("r2"))
        await service.until(lambda: len(service.world.held) == 2)
        service.world.let_go()
        said = [await first, await second]
        assert [events[0].queued.position for events in said] == [1, 2]
        assert {events[0].queued.reason for events in said} == {"PoolEmpty"}
        for events in said:
            assert [event.sequence for event in events] == list(range(1, len(events) + 1))
            assert events[-1].bound.sandbox.sandbox_id
            assert not events[-1].bound.warm


async def test_the_same_request_id_gives_the_same_sandbox_to_all_who_ask(service):
    answers = await asyncio.gather(*(service.bound("r1") for _ in range(5)))
    assert len({one.sandbox.sandbox_id for one in answers}) == 1
    assert (await service.bound("r1")).sandbox == answers[0].sandbox


async def test_a_claim_like_a_session_has_what_that_asked_for_and_says_the_rest(service):
    asked = {"envs": {"A": "1", "B": "2"}, "mounts": {"/data": "big"}, "labels": {"run": "7"}, "on_idle": 2}
    times = {"lease": Duration(seconds=1000), "idle_timeout": Duration(seconds=600)}
    origin = await service.bound("r1", **asked, **times)
    own = {"envs": {"B": "3"}, "labels": {"copy": "1"}, "idle_timeout": Duration(seconds=60)}
    copy = await service.bound("r2", like=origin.sandbox.sandbox_id, **own)
    claim = service.scheduler.inventory.get(copy.sandbox.sandbox_id).claim
    assert dict(claim.envs) == {"A": "1", "B": "3"}
    assert dict(claim.mounts) == {"/data": "big"}
    assert dict(claim.labels) == {"run": "7", "copy": "1"}
    assert (claim.lease, claim.idle_timeout, claim.on_idle) == (1000, 60, "suspend")
    # The session itself, and its workspace, are its own.
    assert (copy.sandbox.sandbox_id == origin.sandbox.sandbox_id, claim.workspace_id) == (False, "")


async def test_a_claim_like_a_session_that_has_ended_is_refused(service):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await service.claim(like="gone")
    assert (caught.value.code(), detail(caught.value).reason) == (grpc.StatusCode.NOT_FOUND, "SandboxNotFound")


def test_nothing_that_a_snapshot_keeps_of_a_claim_is_lost_in_one_like_it():
    origin = Claim(
        key=RequestKey("uid:7", "r1", "python"),
        labels={"run": "7"},
        envs={"A": "1"},
        mounts={"/data": "big"},
        lease=1000.5,
        idle_timeout=60.0,
        queue="team/night",
        priority="low",
        egress=False,
        egress_names=("example.org:443",),
        credentials=(Credential("example.org", "Authorization", "Bearer {key}", "secret", "TOKEN"),),
        on_idle="snapshot",
        on_timeout="suspend",
        snapshot_period=90.0,
        min_isolation=Isolation.GVISOR,
    )
    unset = Claim(key=origin.key)
    request = convert.like(pb.ClaimRequest(request_id="r1", template="python"), origin)
    copy = convert.claim(request, "uid:7", Template(), "")
    # A workspace that is kept belongs to one session; the queue's namespace and the egress are said by the API.
    compared = {*KEPT, "labels", "credentials", "min_isolation"} - {"keep_workspace", "queue", "egress"}
    assert {name: getattr(copy, name) for name in compared} == {name: getattr(origin, name) for name in compared}
    assert not [name for name in compared if getattr(origin, name) == getattr(unset, name)]
    assert (request.queue, request.egress) == ("night", pb.EGRESS_NONE)
    # Another list of hosts takes the place of the list, and gets no secret that was for the old one.
    other = convert.like(pb.ClaimRequest(egress_names=["other.org"]), origin)
    assert (list(other.egress_names), list(other.credentials)) == (["other.org"], [])


async def test_many_claims_at_once_get_different_sandboxes(tmp_path):
    async with a_service(tmp_path, max_sandboxes=70) as service:
        answers = await asyncio.gather(*(service.bound(f"r{number}") for number in range(64)))
        assert len({one.sandbox.sandbox_id for one in answers}) == 64
        released = await asyncio.gather(
            *(service.stub.Release(pb.ReleaseRequest(sandbox_id=one.sandbox.sandbox_id)) for one in answers)
        )
        assert all(one.released for one in released)
        await service.until(lambda: service.states() == ["Warm", "Warm"])
        await service.until(lambda: len(service.world.alive) == 2)


async def test_a_caller_that_goes_away_while_waiting_leaves_nothing(tmp_path):
    async with a_service(tmp_path, target_warm=0) as service:
        service.world.hold = True
        call = service.stub.Claim(pb.ClaimRequest(request_id="r1"))
        await call.read()
        call.cancel()
        await service.until(lambda: not service.scheduler.inventory.waiting)
        service.world.let_go()
        await service.until(lambda: not service.world.alive)
        assert service.states() == []


async def test_a_claim_stays_while_one_of_its_callers_does(tmp_path):
    async with a_service(tmp_path, target_warm=0) as service:
        service.world.hold = True
        patient = asyncio.create_task(service.claim("r1"))
        call = service.stub.Claim(pb.ClaimRequest(request_id="r1"))
        await call.read()
        call.cancel()
        await asyncio.gather(call.code())
        service.world.let_go()
        assert (await patient)[-1].bound.sandbox.sandbox_id


async def test_a_failure_says_code_reason_and_whether_to_retry(service):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await service.claim("r 1")
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details().startswith("cannot claim: ")
    said = detail(caught.value)
    assert (said.reason, said.retryable, said.message) == ("InvalidId", False, caught.value.details())


async def test_a_claim_that_nothing_can_serve_in_its_time_fails_with_a_type(tmp_path):
    async with a_service(tmp_path, target_warm=1, max_sandboxes=1) as service:
        await service.bound("r1")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await service.claim("r2", max_wait=Duration(nanos=1_000_000))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (detail(caught.value).reason, detail(caught.value).retryable) == ("SandboxLimit", True)


async def test_an_unexpected_executor_is_never_handed_out(service):
    service.world.unfit = "cannot hand out a sandbox: it isolates with 1"
    warm = {one.sandbox_id for one in service.scheduler.inventory.all()}
    for number in range(2):
        assert (await service.bound(f"r{number}")).sandbox.sandbox_id in warm
    with pytest.raises(grpc.aio.AioRpcError, match="it isolates with 1"):
        await service.claim("r3")


async def test_a_trace_goes_on_to_the_executor_and_a_broken_one_does_not(service, monkeypatch):
    monkeypatch.setattr("sandfleet_operator.telemetry.tracing._TRACER", trace.NoOpTracer())
    await service.claim("r1", metadata=(("traceparent", TRACEPARENT),))
    await service.claim("r2", metadata=(("traceparent", "nonsense"),))
    traces = {sandbox.claim.key.request_id: sandbox.claim.traceparent for sandbox, _ in service.world.opened.values()}
    assert traces == {"r1": TRACEPARENT, "r2": ""}


async def test_get_waits_for_the_replacement_of_a_dead_executor(service):
    bound = await service.bound()
    service.world.hold = True
    service.world.end(bound.sandbox.sandbox_uid, Exit(signal="SIGKILL"))
    getting = asyncio.ensure_future(
        service.stub.Get(pb.GetRequest(sandbox_id=bound.sandbox.sandbox_id, with_access=True))
    )
    await service.until(lambda: "Recovering" in service.states())
    assert not getting.done()
    service.world.let_go()
    answer = await getting
    assert (answer.sandbox.restarts, answer.sandbox.last_restart_reason) == (1, "Killed")
    assert answer.sandbox.sandbox_uid != bound.sandbox.sandbox_uid
    assert answer.access.token == f"token for {answer.sandbox.sandbox_uid}"
    assert answer.sandbox.workspace_id == bound.sandbox.workspace_id


async def test_get_gives_no_access_to_an_executor_that_is_dead_but_not_reported_yet(service):
    bound = await service.bound()
    corpse = service.world.alive.pop(bound.sandbox.sandbox_uid)
    getting = asyncio.ensure_future(service.stub.Get(pb.GetRequest(sandbox_id=corpse.sandbox_id, with_access=True)))
    await asyncio.sleep(0.05)
    assert not getting.done()
    service.world.events.put_nowait(Exited(corpse.sandbox_uid, Exit(signal="SIGKILL")))
    assert (await getting).sandbox.sandbox_uid != corpse.sandbox_uid


async def test_renewing_opens_the_executor_again_and_moves_the_end_of_the_lease(service):
    bound = await service.bound(lease=Duration(seconds=10))
    answer = await service.stub.Renew(pb.RenewRequest(sandbox_id=bound.sandbox.sandbox_id, lease=Duration(seconds=500)))
    assert service.world.opened[bound.sandbox.sandbox_uid][1] == 500
    assert 480 < answer.sandbox.lease_expires.seconds - bound.sandbox.lease_expires.seconds < 500
    assert answer.access.token


@pytest.mark.parametrize("method", ["Get", "Renew"])
async def test_an_unknown_sandbox_is_not_found(service, method):
    request = {"Get": pb.GetRequest, "Renew": pb.RenewRequest}[method](sandbox_id="nobody")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await getattr(service.stub, method)(request)
    assert (caught.value.code(), detail(caught.value).reason) == (grpc.StatusCode.NOT_FOUND, "SandboxNotFound")


async def test_a_released_sandbox_is_not_listed_and_releasing_it_again_is_no_error(service):
    bound = await service.bound()
    release = pb.ReleaseRequest(sandbox_id=bound.sandbox.sandbox_id)
    assert (await service.stub.Release(release)).released
    assert bound.sandbox.sandbox_uid not in service.world.alive
    assert not (await service.stub.Release(release)).released
    listed = (await service.stub.List(pb.ListRequest())).sandboxes
    assert bound.sandbox.sandbox_id not in {one.sandbox_id for one in listed}
    assert service.world.dropped == [bound.sandbox.workspace_id]


async def test_a_list_is_paged_by_id_and_filtered_by_label(service):
    for number in range(4):
        await service.bound(f"r{number}", labels={"even": "yes" if number % 2 == 0 else "no"})
    await service.until(lambda: service.states() == ["Claimed"] * 4 + ["Warm"] * 2)
    pages, token = [], ""
    while not pages or token:
        page = await service.stub.List(pb.ListRequest(page_size=4, page_token=token, warm=True))
        pages.append([one.sandbox_id for one in page.sandboxes])
        token = page.next_page_token
    assert [len(page) for page in pages] == [4, 2]
    assert pages[0] + pages[1] == sorted(one.sandbox_id for one in service.scheduler.inventory.all())
    claimed = await service.stub.List(pb.ListRequest())
    assert len(claimed.sandboxes) == 4
    even = await service.stub.List(pb.ListRequest(label_selector="even=yes"))
    assert [dict(one.labels) for one in even.sandboxes] == [{"even": "yes"}] * 2


@pytest.mark.parametrize("fields", [{"label_selector": "a"}, {"page_token": "a b"}, {"label_selector": "x" * 20_000}])
async def test_a_malformed_list_is_refused(service, fields):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await service.stub.List(pb.ListRequest(**fields))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_waiting_callers_are_told_when_the_fleet_ends(tmp_path):
    async with a_service(tmp_path, target_warm=0) as service:
        service.world.hold = True
        waiting = asyncio.create_task(service.claim())
        await service.until(lambda: service.scheduler.inventory.waiting)
        await service.fleet.close()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await waiting
        assert (caught.value.code(), detail(caught.value).retryable) == (grpc.StatusCode.UNAVAILABLE, True)
        assert service.world.closed


# Suspension


async def suspend(service, sandbox, **fields):
    return await service.stub.Suspend(pb.SuspendRequest(sandbox_id=sandbox.sandbox_id, **fields))


async def resume(service, sandbox, **fields):
    """All that the stream says."""
    call = service.stub.Resume(pb.ResumeRequest(sandbox_id=sandbox.sandbox_id, **fields))
    try:
        return [response async for response in call]
    finally:
        # gRPC leaves the call open where its reader is cancelled in the moment in which its request has gone out.
        call.cancel()


async def refused(call):
    """Code and reason of a call that fails."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), detail(caught.value).reason


async def test_a_suspended_session_is_listed_holds_no_place_and_goes_on_under_its_id(tmp_path):
    async with a_service(tmp_path, target_warm=0, max_sandboxes=1) as service:
        first = (await service.bound("r1")).sandbox
        answer = await suspend(service, first)
        assert (answer.sandbox.state, list(answer.suspension.services)) == (pb.SANDBOX_STATE_SUSPENDED, ["web"])
        assert 3590 < answer.sandbox.suspended_until.seconds - time.time() <= 3600
        assert service.world.alive == {}
        (listed,) = (await service.stub.List(pb.ListRequest())).sandboxes
        assert (listed.state, listed.workspace_id) == (pb.SANDBOX_STATE_SUSPENDED, first.workspace_id)
        # Its place is another one's now, which it waits for.
        second = (await service.bound("r2")).sandbox
        coming = asyncio.create_task(resume(service, first))
        await service.until(lambda: len(service.scheduler.inventory.waiting) == 1)
        await service.stub.Release(pb.ReleaseRequest(sandbox_id=second.sandbox_id))
        *waited, last = await coming
        assert [event.queued.reason for event in waited] == ["SandboxLimit"]
        assert [event.sequence for event in (*waited, last)] == [1, 2]
        again = last.bound.sandbox
        assert (again.sandbox_id, again.workspace_id) == (first.sandbox_id, first.workspace_id)
        assert again.sandbox_uid != first.sandbox_uid
        assert list(last.resumption.services) == ["web"]
        assert again.restarts == 0


async def test_a_suspended_session_says_so_to_all_who_want_to_use_it(service):
    sandbox = (await service.bound("r1")).sandbox
    await suspend(service, sandbox)
    gone = (grpc.StatusCode.FAILED_PRECONDITION, "SandboxSuspended")
    of = {"sandbox_id": sandbox.sandbox_id}
    assert await refused(service.stub.Get(pb.GetRequest(with_access=True, **of))) == gone
    assert await refused(service.stub.Renew(pb.RenewRequest(**of))) == gone
    assert await refused(service.claim("r1")) == gone
    assert (await service.stub.Get(pb.GetRequest(**of))).sandbox.state == pb.SANDBOX_STATE_SUSPENDED


async def test_what_the_executor_has_against_a_suspension_reaches_the_caller_and_nothing_has_changed(service):
    sandbox = (await service.bound("r1")).sandbox
    running = SuspendReason.EXECUTION_RUNNING.error("cannot suspend the sandbox: e1 is running", passing=True)
    service.world.executors.in_the_way = running
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await suspend(service, sandbox)
    said = detail(caught.value)
    assert (caught.value.code(), said.reason, said.retryable) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "ExecutionRunning",
        True,
    )
    present = await service.stub.Get(pb.GetRequest(sandbox_id=sandbox.sandbox_id, with_access=True))
    assert present.sandbox.state == pb.SANDBOX_STATE_CLAIMED
    assert (await suspend(service, sandbox, force=True)).sandbox.state == pb.SANDBOX_STATE_SUSPENDED


async def test_suspending_and_resuming_twice_is_no_error(service):
    sandbox = (await service.bound("r1")).sandbox
    answers = await asyncio.gather(*(suspend(service, sandbox) for _ in range(3)))
    assert {one.sandbox.state for one in answers} == {pb.SANDBOX_STATE_SUSPENDED}
    assert await suspend(service, sandbox) == answers[0]
    comings = await asyncio.gather(*(resume(service, sandbox) for _ in range(3)))
    (uid,) = {one[-1].bound.sandbox.sandbox_uid for one in comings}
    assert (await resume(service, sandbox))[-1].bound.sandbox.sandbox_uid == uid


async def test_a_resume_whose_caller_leaves_is_undone(service):
    sandbox = (await service.bound("r1")).sandbox
    await suspend(service, sandbox)
    service.world.hold = True
    coming = asyncio.create_task(resume(service, sandbox))
    await service.until(lambda: service.scheduler.inventory.get(sandbox.sandbox_id).state is State.RESUMING)
    coming.cancel()
    await service.until(lambda: service.scheduler.inventory.get(sandbox.sandbox_id).state is State.SUSPENDED)
    service.world.let_go()
    assert (await resume(service, sandbox))[-1].bound.sandbox.sandbox_id == sandbox.sandbox_id


async def test_a_resume_that_finds_no_place_in_time_leaves_the_session_suspended(tmp_path):
    async with a_service(tmp_path, target_warm=0, max_sandboxes=1) as service:
        first = (await service.bound("r1")).sandbox
        await suspend(service, first)
        await service.bound("r2")
        nanos = Duration(nanos=300_000_000)
        assert await refused(resume(service, first, max_wait=nanos)) == (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "SandboxLimit",
        )
        assert service.scheduler.inventory.get(first.sandbox_id).state is State.SUSPENDED


async def test_a_session_that_cannot_be_started_again_stays_suspended_and_the_caller_hears_why(tmp_path):
    async with a_service(tmp_path, target_warm=0) as service:
        sandbox = (await service.bound("r1")).sandbox
        await suspend(service, sandbox)
        service.world.unfit = "cannot hand out a sandbox: it is another one"
        assert await refused(resume(service, sandbox)) == (grpc.StatusCode.INTERNAL, "SandboxUnfit")
        await service.until(lambda: service.scheduler.inventory.get(sandbox.sandbox_id).state is State.SUSPENDED)
        service.world.unfit = ""
        assert (await resume(service, sandbox))[-1].bound.sandbox.sandbox_id == sandbox.sandbox_id


async def test_a_released_suspended_session_is_gone_with_its_workspace_and_so_is_who_waits_for_it(tmp_path):
    async with a_service(tmp_path, target_warm=0, max_sandboxes=1) as service:
        sandbox = (await service.bound("r1")).sandbox
        await suspend(service, sandbox)
        await service.bound("r2")
        coming = asyncio.create_task(refused(resume(service, sandbox)))
        await service.until(lambda: len(service.scheduler.inventory.waiting) == 1)
        of = {"sandbox_id": sandbox.sandbox_id}
        assert not (await service.stub.Release(pb.ReleaseRequest(unless_suspended=True, **of))).released
        assert (await service.stub.Release(pb.ReleaseRequest(**of))).released
        assert await coming == (grpc.StatusCode.NOT_FOUND, "SandboxNotFound")
        await service.until(lambda: service.world.dropped == [sandbox.workspace_id])


async def test_a_suspension_ends_after_the_time_that_was_asked_for(tmp_path):
    async with a_service(tmp_path, longest_suspension=100.0) as service:
        kept, short = (await service.bound("r1")).sandbox, (await service.bound("r2")).sandbox
        await suspend(service, kept, timeout=Duration(seconds=1000))
        await suspend(service, short, timeout=Duration(nanos=600_000_000))
        await service.until(lambda: service.world.dropped == [short.workspace_id])
        until = service.scheduler.inventory.get(kept.sandbox_id).suspended_until
        assert 90 < until - time.time() <= 100
        assert await refused(resume(service, short)) == (grpc.StatusCode.NOT_FOUND, "SandboxNotFound")


async def test_no_more_sessions_are_suspended_than_the_fleet_keeps(tmp_path):
    async with a_service(tmp_path, max_suspended=1) as service:
        first, second = (await service.bound("r1")).sandbox, (await service.bound("r2")).sandbox
        await suspend(service, first)
        assert await refused(suspend(service, second)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "TooManySuspended")
