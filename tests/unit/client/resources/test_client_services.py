"""Services as the client sees them, against an executor that lies, breaks or says nothing."""

import json
from collections.abc import AsyncIterator

import grpc
import pytest
import pytest_asyncio
from sandfleet import _portal as portal
from sandfleet import exec_, http, tcp
from sandfleet._fleets.fleet import AsyncFleet
from sandfleet.cli import main
from sandfleet.errors import (
    InvalidArgument,
    LimitReached,
    ProtocolError,
    ServiceNotReadyError,
    UnavailableError,
)
from sandfleet.sandbox import AsyncSandbox
from sandfleet.testing import Breaks, Fails, FakeFleet
from sandfleet.values.services import LogPiece, ServiceSpec, ServiceState
from sandfleet_api.executor.v1 import service_pb2 as pb


@pytest_asyncio.fixture
async def fake() -> AsyncIterator[FakeFleet]:
    async with FakeFleet() as made:
        yield made


@pytest_asyncio.fixture
async def sandbox(fake: FakeFleet) -> AsyncIterator[AsyncSandbox]:
    fleet = await AsyncFleet.connect(fake.address)
    async with await AsyncSandbox.create(fleet=fleet, rpc_timeout=5.0) as made:
        yield made
    await fleet.close()


def chunk(offset: int, data: bytes) -> pb.LogsResponse:
    return pb.LogsResponse(chunk=pb.LogChunk(offset=offset, data=data))


def gap(offset: int, size: int) -> pb.LogsResponse:
    return pb.LogsResponse(gap=pb.LogGap(offset=offset, dropped_bytes=size))


async def test_a_start_declares_a_service_without_removing_others(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    probe = http(80, "/up", status=204, interval=0.5, failures=2)
    await sandbox.services.start(
        "web", ["serve", b"\xff"], ready=probe, live=exec_("true"), after=["db"], restart="always"
    )
    [applied] = fake.called("Apply")
    assert applied.request.keep_others
    [said] = applied.request.services
    assert (said.name, list(said.argv), said.shell, list(said.after), said.restart) == (
        "web",
        [b"serve", b"\xff"],
        b"",
        ["db"],
        pb.RESTART_POLICY_ALWAYS,
    )
    assert (said.readiness.http.port, said.readiness.http.path, said.readiness.http.expected_status) == (80, "/up", 204)
    assert (said.readiness.interval.nanos, said.readiness.failure_threshold) == (500_000_000, 2)
    assert said.liveness.exec.shell == b"true"
    assert not said.HasField("grace")


@pytest.mark.parametrize(
    ("applied", "starts"), [({"started": ["web"]}, 0), ({"restarted": ["web"]}, 0), ({"unchanged": ["web"]}, 1)]
)
async def test_a_service_started_by_its_declaration_is_not_started_again(
    fake: FakeFleet, sandbox: AsyncSandbox, applied: dict[str, list[str]], starts: int
) -> None:
    """It may have come to its end meanwhile; one that was there as declared may stand still."""
    fake.answer_call("Apply", pb.ApplyResponse(**applied))
    await sandbox.services.start("web", "serve")
    assert [list(call.request.names) for call in fake.called("Start")] == [["web"]] * starts


async def test_a_start_without_a_command_declares_nothing(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    await sandbox.services.start("web")
    assert not fake.called("Apply")


async def test_a_whole_set_replaces_the_one_before(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    fake.answer_call("Apply", pb.ApplyResponse(started=["a"], unchanged=["b"]))
    applied = await sandbox.services.apply(
        [ServiceSpec(name="a", cmd="x", ready=tcp(1)), ServiceSpec(name="b", cmd="y")]
    )
    assert (applied.started, applied.unchanged, applied.stopped) == (("a",), ("b",), ())
    assert not fake.called("Apply")[0].request.keep_others


async def test_mistakes_are_seen_before_anything_is_sent(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    with pytest.raises(InvalidArgument):
        await sandbox.services.start("web", "x", restart="sometimes")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        await sandbox.services.stop()
    with pytest.raises(InvalidArgument):
        await sandbox.services.logs("web", tail=0)
    assert not fake.called("Apply")
    assert not fake.called("Stop")


async def test_the_executor_s_refusals_are_typed(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    fake.fail("Apply", Fails(grpc.StatusCode.RESOURCE_EXHAUSTED, "TooManyServices", "cannot declare 65 services"))
    with pytest.raises(LimitReached, match="65"):
        await sandbox.services.apply([])


async def test_wait_ready_raises_with_the_reason_and_the_last_lines(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    service = pb.Service(name="web", state=pb.SERVICE_STATE_FAILED, reason="CrashLoop", message="it ended 10 times")
    fake.answer_call("WaitReady", pb.WaitReadyResponse(service=service, log_tail=b"boom \xff\n"))
    with pytest.raises(ServiceNotReadyError, match="it ended 10 times") as caught:
        await sandbox.services.wait_ready("web", timeout=1)
    assert (caught.value.service.state, caught.value.reason) == (ServiceState.FAILED, "CrashLoop")
    assert caught.value.log == "boom \ufffd\n"


async def test_a_state_of_a_newer_executor_is_unknown(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    fake.answer_call("List", pb.ServiceManagerServiceListResponse(services=[pb.Service(name="a", state=99, ports=[1])]))
    [found] = await sandbox.services.list()
    # Ports without the executor's word are not known.
    assert (found.state, found.ports, found.last_exit) == (ServiceState.UNKNOWN, None, None)


async def test_a_log_is_joined_and_gaps_are_reported_only_while_following(
    fake: FakeFleet, sandbox: AsyncSandbox
) -> None:
    steps = [gap(0, 5), chunk(5, b"ab"), pb.LogsResponse(), chunk(7, b"c")]
    fake.answer_call("Logs", *steps)
    assert await sandbox.services.logs("web") == "abc"
    fake.answer_call("Logs", *steps)
    pieces = [piece async for piece in await sandbox.services.logs("web", follow=True)]
    assert pieces == [LogPiece(0, b"", 5), LogPiece(5, b"ab"), LogPiece(7, b"c")]
    assert pieces[-1].end == 8


@pytest.mark.parametrize("second", [chunk(1, b"x"), chunk(99, b"x"), gap(0, 10)])
async def test_a_log_that_jumps_is_a_broken_protocol(
    fake: FakeFleet, sandbox: AsyncSandbox, second: pb.LogsResponse
) -> None:
    fake.answer_call("Logs", chunk(0, b"abc"), second)
    with pytest.raises(ProtocolError, match="jumps"):
        await sandbox.services.logs("web")


async def test_a_log_without_end_is_given_up(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    mib = b"x" * (1 << 20)
    fake.answer_call("Logs", *(chunk(number << 20, mib) for number in range(40)))
    with pytest.raises(ProtocolError, match="longer"):
        await sandbox.services.logs("web")


async def test_a_connection_that_breaks_is_taken_up_where_it_broke(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    fake.answer_call("Logs", chunk(0, b"ab"), Fails(grpc.StatusCode.UNAVAILABLE))
    fake.answer_call("Logs", chunk(2, b"c"))
    assert await sandbox.services.logs("web", tail=5) == "abc"
    again = fake.called("Logs")[1].request
    assert (again.offset, again.tail_lines) == (2, 0)


async def test_following_a_log_raises_when_the_executor_was_replaced(fake: FakeFleet, sandbox: AsyncSandbox) -> None:
    fake.answer_call("Logs", chunk(0, b"ab"), Breaks())
    with pytest.raises(UnavailableError, match="replaced") as caught:
        await sandbox.services.logs("web")
    assert caught.value.reason == "ExecutorReplaced"


def test_the_command_line_lists_services_and_shows_a_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = FakeFleet()
    portal.run(fake.__aenter__())
    monkeypatch.setenv("SANDFLEET_ADDRESS", fake.address)
    listed = pb.ServiceManagerServiceListResponse(
        services=[
            pb.Service(name="web", state=pb.SERVICE_STATE_READY, pid=7, ports=[80, 81], ports_known=True),
            pb.Service(name="db", state=pb.SERVICE_STATE_BACK_OFF, message="it \x1b[2J ended\n"),
        ]
    )
    fake.answer_call("List", listed)
    assert main(["sandboxes", "services", "s-1"]) == 0
    head, web, db = capsys.readouterr().out.splitlines()
    assert (head.split()[0], web.split()[:5], db.split()[:2]) == (
        "SERVICE",
        ["web", "ready", "0", "7", "80,81"],
        ["db", "back-off"],
    )
    assert "\x1b" not in db
    fake.answer_call("List", listed)
    assert main(["sandboxes", "services", "s-1", "--json"]) == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)] == ["web", "db"]
    for words, shown in ((["--tail", "3"], "ab"), (["--json"], '{"log": "ab"}\n')):
        fake.answer_call("Logs", chunk(0, b"ab"))
        assert main(["sandboxes", "logs", "s-1", "web", *words]) == 0
        assert capsys.readouterr().out == shown
    fake.answer_call("Logs", gap(0, 3), chunk(3, b"ab"))
    assert main(["sandboxes", "logs", "s-1", "web", "--follow", "--json"]) == 0
    assert [json.loads(line)["offset"] for line in capsys.readouterr().out.splitlines()] == [0, 3]
    portal.run(fake.__aexit__(None, None, None))
