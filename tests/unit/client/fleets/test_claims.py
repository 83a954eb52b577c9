"""Claims from a cluster: what is asked of the fleet, and what happens when its connection breaks.

The fleet is a scripted one behind TLS on a real port; kubectl, which knows where it is, is a script.
"""

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import grpc
import pytest
from sandfleet import Sandbox, errors
from sandfleet import _portal as portal
from sandfleet._fleets import connection, embedded
from sandfleet._fleets.connection import FleetConnection
from sandfleet._fleets.fleet import AsyncFleet
from sandfleet._fleets.watch import WatchState, changes
from sandfleet._wire import link
from sandfleet._wire.retry import Backoff
from sandfleet.sandbox import AsyncSandbox
from sandfleet.testing import Fails, FakeFleet, Hangs, queued
from sandfleet.values.fleet import FLEET_UNAVAILABLE, Bound, EgressState, Queued, Quota, SandboxChange
from sandfleet_api.executor.v1 import session_pb2
from sandfleet_api.fleet.v1 import fleet_pb2
from sandfleet_operator.executors.authority import Authority
from support.client.fake_kubectl import Kubectl

pytestmark = pytest.mark.process

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
AWAY = Queued(0, None, FLEET_UNAVAILABLE)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.new(time.time())


@pytest.fixture(scope="module")
def credentials(authority: Authority) -> grpc.ServerCredentials:
    return grpc.ssl_server_credentials([authority.server(["sandfleet-fleet", "127.0.0.1"], time.time(), 3600.0)])


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("SANDFLEET_", "KUBE"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SANDFLEET_STATE", str(tmp_path))
    # As it is, but no test waits long.
    monkeypatch.setattr(FleetConnection, "backoff", Backoff(0.01, 0.01, chance=None))
    monkeypatch.setattr(connection, "_BETWEEN_LOOKS", 0.0)


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, authority: Authority) -> Kubectl:
    (tmp_path / "bin").mkdir()
    made = Kubectl(tmp_path / "bin")
    made.answers["configmap"] = {"data": {"ca.crt": authority.pem.decode()}}
    made.say()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return made


@pytest.fixture
async def fake(credentials: grpc.ServerCredentials, kubectl: Kubectl) -> AsyncIterator[FakeFleet]:
    async with FakeFleet(credentials, sandbox_id="team/one") as made:
        kubectl.point_to(made.address)
        yield made


def no_embedded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "start_or_join", lambda _: pytest.fail("an embedded fleet was started"))


async def test_a_claim_carries_all_options_and_its_sandbox_is_used_kept_and_ended(
    fake: FakeFleet, kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_embedded(monkeypatch)
    news: list[Queued] = []
    fake.answer_call("Claim", queued(2, "PoolEmpty", 7), fake.bound(warm=True, egress=fleet_pb2.EGRESS_STATE_OPENING))
    sandbox = await AsyncSandbox.create(
        pool="fast", name="mine", contract="brokered", egress="none", labels={"a": "b"}, on_queued=news.append
    )
    asked = fake.called("Claim")[0]
    request = asked.request
    assert (request.namespace, request.pool, request.template, request.name) == ("team", "fast", "", "mine")
    assert (request.contract, request.egress, dict(request.labels)) == ("brokered", fleet_pb2.EGRESS_NONE, {"a": "b"})
    # gVisor is more than this, so whatever a template gives satisfies it.
    assert request.min_isolation == session_pb2.ISOLATION_NAMESPACE
    assert asked.metadata["authorization"] == f"Bearer {kubectl.answers['token']}"
    assert news == [Queued(2, 7.0, "PoolEmpty")]
    assert sandbox.bound == Bound(warm=True, egress=EgressState.OPENING)
    assert (await sandbox.run_code("code")).ok
    assert (await sandbox.set_timeout(60)).sandbox_id == sandbox.sandbox_id == "team/one"
    assert (await sandbox.get_info()).sandbox_id == "team/one"
    assert await sandbox.kill()
    assert fake.called("Release")[0].request.sandbox_id == "team/one"


@pytest.mark.parametrize(
    ("wishes", "template"), [({}, "python"), ({"template": "web"}, "web"), ({"template": "web", "pool": "p"}, "web")]
)
async def test_a_claim_without_pool_and_template_asks_for_python(
    fake: FakeFleet, monkeypatch: pytest.MonkeyPatch, wishes: dict[str, str], template: str
) -> None:
    monkeypatch.setenv("SANDFLEET_FLEET", "kubernetes")
    sandbox = await AsyncSandbox.create(**wishes)
    assert fake.called("Claim")[0].request.template == template
    await sandbox.close()


async def test_a_claim_is_sent_again_under_its_id_while_no_fleet_serves(fake: FakeFleet) -> None:
    news: list[Queued] = []
    fake.fail("Claim", Fails(UNAVAILABLE, "NotLeading"), Fails(UNAVAILABLE), Fails(grpc.StatusCode.CANCELLED))
    sandbox = await AsyncSandbox.create(pool="fast", max_wait=30.0, on_queued=news.append)
    requests = [call.request for call in fake.called("Claim")]
    assert len(requests) == 4
    assert len({request.request_id for request in requests}) == 1
    # What is left of the wait, so that the whole does not grow.
    waits = [request.max_wait.ToTimedelta().total_seconds() for request in requests]
    assert waits == sorted(waits, reverse=True)
    assert waits[0] > waits[-1] > 0
    assert news == [AWAY, AWAY, AWAY, Queued(1)]
    assert (await sandbox.run_code("code")).ok
    await sandbox.close()


async def test_a_call_whose_token_comes_late_goes_over_the_channel_of_then(
    fake: FakeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a token is read, another call finds the channel broken, opens a new one, and the old one takes no calls."""
    monkeypatch.setenv("SANDFLEET_FLEET", "kubernetes")
    monkeypatch.setattr(connection, "_OLD_CALLS", 0.0)
    fleet = await AsyncFleet.connect()
    assert fake.address
    reached = fleet._connection
    read = reached.metadata

    async def moves() -> tuple[tuple[str, str], ...]:
        metadata = await read()
        await reached.look_again(reached.stub)
        await asyncio.gather(*reached._closing)
        return metadata

    monkeypatch.setattr(reached, "metadata", moves)
    assert (await fleet.get("team/one")).sandbox_id == "team/one"
    await fleet.close()


async def test_a_claim_follows_a_fleet_that_moves_while_it_waits(fake: FakeFleet, kubectl: Kubectl) -> None:
    fake.answer_call("Claim", queued(3), Hangs())
    first, news = fake.address, []

    async def listen(said: Queued) -> None:
        news.append(said)
        if said.position == 3:
            await fake.move()
            kubectl.point_to(fake.address)

    sandbox = await AsyncSandbox.create(pool="fast", on_queued=listen)
    assert fake.address != first
    assert (news[0], news[-1], set(news[1:-1])) == (Queued(3), Queued(1), {AWAY})
    assert len({call.request.request_id for call in fake.called("Claim")}) == 1
    # And so does everything that comes later.
    await fake.move()
    kubectl.point_to(fake.address)
    await sandbox.set_timeout(60)
    assert await sandbox.kill()


async def test_a_failing_search_for_the_fleet_is_tried_again(fake: FakeFleet, kubectl: Kubectl) -> None:
    fake.fail("Claim", Fails(UNAVAILABLE, "NotServing"))
    sandbox = await AsyncSandbox.create(pool="fast", on_queued=lambda _: kubectl.say(endpointslices=None))
    assert len(fake.called("Claim")) == 2
    await sandbox.close()


async def test_the_wait_for_a_fleet_ends_with_the_wait_for_a_sandbox(
    fake: FakeFleet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, authority: Authority
) -> None:
    (tmp_path / "ca").write_bytes(authority.pem)
    (tmp_path / "token").write_text("token")
    monkeypatch.setenv("SANDFLEET_FLEET", fake.address)
    monkeypatch.setenv("SANDFLEET_FLEET_CA", str(tmp_path / "ca"))
    monkeypatch.setenv("SANDFLEET_TOKEN_FILE", str(tmp_path / "token"))
    fake.fail("Claim", *[Fails(UNAVAILABLE, "NotServing", "cannot claim: starting")] * 1000)
    with pytest.raises(errors.UnavailableError, match="cannot claim: starting") as caught:
        await AsyncSandbox.create(pool="fast", max_wait=0.5)
    assert caught.value.reason == "NotServing"
    assert len(fake.called("Claim")) > 1


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        ("NOT_FOUND", "TemplateNotFound", errors.ClaimError),
        ("FAILED_PRECONDITION", "ClaimEnded", errors.ClaimError),
        ("RESOURCE_EXHAUSTED", "SandboxLimit", errors.ClaimError),
        ("DEADLINE_EXCEEDED", "PoolEmpty", errors.ClaimError),
        ("INTERNAL", "StartsFail", errors.ClaimError),
        ("INVALID_ARGUMENT", "InvalidLabel", errors.InvalidArgument),
        ("UNAUTHENTICATED", "TokenInvalid", errors.AuthenticationError),
        ("PERMISSION_DENIED", "Forbidden", errors.AccessDenied),
    ],
)
async def test_an_answer_is_an_answer_and_is_not_asked_for_twice(
    fake: FakeFleet, code: str, reason: str, kind: type[errors.SandfleetError]
) -> None:
    fake.fail("Claim", Fails(grpc.StatusCode[code], reason, "cannot claim: why"))
    with pytest.raises(kind, match=r"^cannot claim: why$") as caught:
        await AsyncSandbox.create(pool="fast")
    assert caught.value.reason == reason
    assert len(fake.called("Claim")) == 1


FULL = Fails(grpc.StatusCode.RESOURCE_EXHAUSTED, "QueueFull", "cannot claim: 9 claims wait in queue search", 0.2)


@pytest.mark.parametrize("on_one_machine", [False, True])
async def test_a_claim_that_is_told_when_to_come_back_comes_then(
    fake: FakeFleet, monkeypatch: pytest.MonkeyPatch, on_one_machine: bool
) -> None:
    async with FakeFleet() as local:
        served = local if on_one_machine else fake
        if on_one_machine:
            monkeypatch.setenv("SANDFLEET_ADDRESS", local.address)
        served.fail("Claim", FULL, FULL)
        news: list[Queued] = []
        wish = {} if on_one_machine else {"pool": "fast"}
        begun = asyncio.get_running_loop().time()
        sandbox = await AsyncSandbox.create(queue="search", priority="low", on_queued=news.append, **wish)
        assert asyncio.get_running_loop().time() - begun >= 2 * 0.2
        refused = Queued(0, 0.2, "QueueFull", FULL.message)
        assert news == [refused, refused, Queued(1)]
        asked = [call.request for call in served.called("Claim")]
        assert {(one.request_id, one.queue, one.priority) for one in asked} == {(asked[0].request_id, "search", "low")}
        await sandbox.close()


async def test_a_claim_that_would_come_back_too_late_is_refused_at_once(fake: FakeFleet) -> None:
    late = Fails(grpc.StatusCode.RESOURCE_EXHAUSTED, "QueueFull", "cannot claim: full", 40.0)
    fake.fail("Claim", late)
    with pytest.raises(errors.ClaimError, match="cannot claim: full") as caught:
        await AsyncSandbox.create(pool="fast", max_wait=20.0)
    assert (caught.value.reason, caught.value.retryable, caught.value.retry_after) == ("QueueFull", True, 40.0)
    assert len(fake.called("Claim")) == 1


async def test_a_claim_keeps_its_place_at_another_leader_by_its_ticket_and_fails_with_its_place(
    fake: FakeFleet,
) -> None:
    place = {"message": "queue search uses all", "queue": "team/search"}
    fake.answer_call("Claim", queued(3, ticket=b"first"), queued(2, ticket=b"second"), Fails(UNAVAILABLE))
    fake.answer_call("Claim", queued(1, "QuotaReached", 40, **place), Fails(UNAVAILABLE))
    fake.answer_call("Claim", Fails(grpc.StatusCode.DEADLINE_EXCEEDED, "NotBoundInTime", "cannot claim: no time"))
    with pytest.raises(errors.ClaimError) as caught:
        await AsyncSandbox.create(pool="fast", queue="search")
    assert [call.request.ticket for call in fake.called("Claim")] == [b"", b"second", b"second"]
    assert caught.value.queued == Queued(1, 40.0, "QuotaReached", place["message"], queue="team/search")


async def test_on_one_machine_a_fleet_that_is_gone_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeFleet() as fake:
        monkeypatch.setenv("SANDFLEET_ADDRESS", fake.address)
        fake.fail("Claim", Fails(UNAVAILABLE, "Stopping"))
        with pytest.raises(errors.UnavailableError):
            await AsyncSandbox.create()
        assert len(fake.called("Claim")) == 1


async def test_an_unknown_egress_is_refused_before_anything_is_sent(fake: FakeFleet) -> None:
    with pytest.raises(errors.InvalidArgument, match="not 'all'") as caught:
        await AsyncSandbox.create(pool="fast", egress="all")  # type: ignore[arg-type]
    assert caught.value.subject == "egress"
    assert fake.calls == []


async def test_a_claim_is_cancelled_when_its_caller_stops_waiting(fake: FakeFleet) -> None:
    def refuse(_: Queued) -> None:
        raise ValueError("too long")

    fake.answer_call("Claim", queued(9), Hangs())
    with pytest.raises(ValueError, match="too long"):
        await AsyncSandbox.create(pool="fast", on_queued=refuse)
    await until(lambda: fake.left == ["Claim"])

    waits = asyncio.Event()
    fake.answer_call("Claim", queued(9), Hangs())
    claim = asyncio.ensure_future(AsyncSandbox.create(pool="fast", on_queued=lambda _: waits.set()))
    await waits.wait()
    claim.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claim
    await until(lambda: fake.left == ["Claim", "Claim"])


async def test_a_served_claim_does_not_look_cancelled(fake: FakeFleet) -> None:
    sandbox = await AsyncSandbox.create(pool="fast")
    await sandbox.run_code("code")
    await sandbox.close()
    assert fake.left == []


async def test_a_session_continues_without_its_fleet_while_its_token_is_valid(
    fake: FakeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "_EARLY_REFRESH", 0.1)
    monkeypatch.setattr(link, "_REFRESH_PAUSE", 1000.0)
    # Less than the margin, and more than the test takes.
    fake.token_life = 29.0
    sandbox = await AsyncSandbox.create(pool="fast")
    fake.fail("Get", *[Fails(UNAVAILABLE, "NotServing")] * 10_000)
    assert (await sandbox.run_code("code", timeout=1)).ok
    asked = len(fake.called("Get"))
    assert (await sandbox.run_code("more", timeout=1)).ok
    assert len(fake.called("Get")) == asked > 0
    await sandbox.close()


async def test_a_call_waits_until_an_expired_token_is_replaced(fake: FakeFleet) -> None:
    fake.token_life = 0.0
    sandbox = await AsyncSandbox.create(pool="fast")
    fake.token_life = 3600.0
    fake.fail("Get", Fails(UNAVAILABLE, "NotServing"))
    assert (await sandbox.run_code("code")).ok
    assert len(fake.called("Get")) == 2
    await sandbox.close()


async def test_a_connected_sandbox_renews_the_lease_as_claimed(fake: FakeFleet) -> None:
    async with await AsyncSandbox.connect("team/one"):
        await until(lambda: fake.called("Renew"))
    assert not fake.called("Renew")[0].request.HasField("lease")
    assert not fake.ended


async def test_pools_are_listed_where_the_fleet_is_and_everywhere(fake: FakeFleet) -> None:
    pool = fleet_pb2.Pool(
        pool_id="team/fast", template="python", target_warm=3, warm=1, hit_rate=0.5, reason="Starting"
    )
    fake.answer_call("ListPools", fleet_pb2.ListPoolsResponse(pools=[pool, fleet_pb2.Pool(pool_id="team/new")]))
    async with await AsyncFleet.connect("kubernetes") as fleet:
        first, second = await fleet.pools()
        await fleet.pools(namespace="")
        await fleet.list(namespace="other")
    assert (first.pool_id, first.target_warm, first.warm, first.hit_rate, first.reason) == (
        "team/fast",
        3,
        1,
        0.5,
        "Starting",
    )
    assert second.hit_rate is None
    assert [call.request.namespace for call in fake.calls] == ["team", "", "other"]


async def test_queues_are_listed_and_claims_explained(fake: FakeFleet) -> None:
    waits = fleet_pb2.ExplainResponse(
        verdict="WouldWait", reason="QuotaReached", position=2, ahead=[fleet_pb2.Ahead(queue="team/search", claims=1)],
        missing=fleet_pb2.Quota(sandboxes=3),
    )  # fmt: skip
    waits.eta_p90.FromSeconds(9)
    queue = fleet_pb2.Queue(queue_id="team/search", nominal=fleet_pb2.Quota(cpu=1500), priority_classes=["a", "b"])
    fake.answer_call("ListQueues", fleet_pb2.ListQueuesResponse(queues=[queue]))
    for _ in range(3):
        fake.answer_call("Explain", waits)
    async with await AsyncFleet.connect("kubernetes") as fleet:
        (found,) = await fleet.queues()
        expected = await fleet.explain(queue="search", pool="fast", priority="a")
        await fleet.explain(request_id="r")
        await fleet.explain(sandbox_id="team/one")
        with pytest.raises(errors.InvalidArgument, match="more than one thing at once"):
            await fleet.explain(sandbox_id="team/one", queue="search")
        fake.fail("Explain", Fails(grpc.StatusCode.NOT_FOUND, "ClaimNotFound", "cannot explain claim 'r'"))
        with pytest.raises(errors.NotFoundError, match="cannot explain claim 'r'"):
            await fleet.explain(request_id="r")
    assert (found.nominal, found.priority_classes, found.oldest_wait) == (Quota(cpu=1.5), ("a", "b"), None)
    assert (expected.verdict, expected.ahead, expected.missing) == (
        "WouldWait",
        {"team/search": 1},
        Quota(sandboxes=3),
    )
    assert (expected.eta, expected.eta_p90) == (None, 9.0)
    asked = [call.request for call in fake.called("Explain")]
    assert [one.WhichOneof("subject") for one in asked] == ["claim", "request_id", "sandbox_id", "request_id"]
    imagined = asked[0].claim
    assert (imagined.queue, imagined.pool, imagined.priority, imagined.namespace) == ("search", "fast", "a", "team")
    assert asked[1].namespace == "team"


async def test_a_broken_watch_reports_the_missed_changes_after_it_reconnects(fake: FakeFleet) -> None:
    one, other, again = (fleet_pb2.Sandbox(sandbox_id=f"team/{name}") for name in ("one", "other", "one"))
    again.restarts = 1
    synced = fleet_pb2.WatchResponse(synced=True)
    changed = [fleet_pb2.WatchResponse(changed=sandbox) for sandbox in (one, other, again)]
    fake.answer_call("Watch", changed[0], changed[1], synced, Fails(UNAVAILABLE))
    fake.answer_call("Watch", changed[2], synced, fleet_pb2.WatchResponse(removed=again), Hangs())
    heard: list[SandboxChange] = []
    async with await AsyncFleet.connect("kubernetes") as fleet:
        watched = fleet.watch("a=b")
        async for change in watched:
            heard.append(change)
            if len(heard) == 6:
                break
        await watched.aclose()  # type: ignore[attr-defined]
    said = [(change.kind, change.sandbox and (change.sandbox.sandbox_id, change.sandbox.restarts)) for change in heard]
    assert said == [
        ("changed", ("team/one", 0)),
        ("changed", ("team/other", 0)),
        ("synced", None),
        ("changed", ("team/one", 1)),
        ("removed", ("team/other", 0)),
        ("removed", ("team/one", 1)),
    ]
    assert fake.called("Watch")[0].request.label_selector == "a=b"


def test_a_watch_says_why_a_sandbox_cannot_be_read_and_when_it_can_again() -> None:
    state, one = WatchState(), fleet_pb2.Sandbox(sandbox_id="team/one", restarts=1)
    why = fleet_pb2.UnreadableSandbox(sandbox_id="team/one", reason="SandboxUnreadable", message="cannot read spec.a")
    odd = fleet_pb2.UnreadableSandbox(sandbox_id="team/odd", reason="SandboxUnreadable", message="cannot read spec.b")

    def said(**event: object) -> list[tuple[str, int, str]]:
        news = state.feed(fleet_pb2.WatchResponse(**event))
        return [(one.kind, one.sandbox.restarts if one.sandbox else -1, one.message) for one in news]

    state.connect()
    assert said(changed=one) == [("changed", 1, "")]
    assert said(unreadable=odd) == [("unreadable", 0, "cannot read spec.b")]
    assert said(synced=True) == [("synced", -1, "")]
    assert said(unreadable=why) == [("unreadable", 1, "cannot read spec.a")]
    # After a break the fleet reports everything again.
    state.connect()
    assert said(unreadable=why) == []
    assert said(synced=True) == [("removed", 0, "")]
    assert said(changed=one) == [("changed", 1, "")]


class _LeftAsItWasSent:
    """A call whose reader is cancelled in the moment in which its request has gone out: gRPC leaves it open."""

    def __init__(self) -> None:
        self.is_cancelled = False

    async def __aiter__(self) -> AsyncIterator[fleet_pb2.WatchResponse]:
        raise asyncio.CancelledError
        yield

    def cancel(self) -> None:
        self.is_cancelled = True


async def test_a_watch_that_its_caller_leaves_ends_at_the_fleet_too() -> None:
    call = _LeftAsItWasSent()

    class Connection:
        stub = SimpleNamespace(Watch=lambda _request, metadata: call)

        async def metadata(self) -> tuple[()]:
            return ()

    with pytest.raises(asyncio.CancelledError):
        await anext(changes(cast("FleetConnection", Connection()), fleet_pb2.WatchRequest()))
    assert call.is_cancelled


async def test_watching_a_local_fleet_is_refused(fake: FakeFleet) -> None:
    fake.fail("Watch", Fails(grpc.StatusCode.UNIMPLEMENTED, "Unimplemented", "cannot watch: on one machine"))
    async with await AsyncFleet.connect("kubernetes") as fleet:
        with pytest.raises(errors.SandboxError, match="cannot watch: on one machine"):
            await anext(fleet.watch())


@pytest.fixture
def served(credentials: grpc.ServerCredentials, kubectl: Kubectl) -> Iterator[FakeFleet]:
    made = FakeFleet(credentials, sandbox_id="team/one")
    portal.run(made.__aenter__())
    kubectl.point_to(made.address)
    yield made
    portal.run(made.__aexit__(None, None, None))


def test_news_of_a_claim_come_in_the_thread_that_called_which_may_use_other_sandboxes(served: FakeFleet) -> None:
    seen: list[object] = []

    def listen(_: Queued) -> None:
        seen.append(threading.current_thread())
        if len(seen) == 1:
            with Sandbox.create(pool="fast") as other:
                seen.append(other.run_code("code").ok)

    with Sandbox.create(pool="fast", on_queued=listen) as sandbox:
        assert sandbox.bound == Bound(warm=False)
    assert seen == [threading.current_thread(), True]


async def until(true: object) -> None:
    while not true():  # type: ignore[operator]
        await asyncio.sleep(0.01)
