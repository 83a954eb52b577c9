"""The stream between the fleet and a snapshotter, over a real gRPC server: jobs, events, and what breaks."""

import asyncio
import json
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from sandfleet_api.fleet.v1 import snapshotter_pb2 as pb
from sandfleet_api.fleet.v1.snapshotter_pb2_grpc import (
    SnapshotterServiceStub,
    add_SnapshotterServiceServicer_to_server,
)
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.cluster.reviews import Caller
from sandfleet_operator.fleet.kubernetes.snapshots.link import MAX_EVENT_BYTES, SnapshotterLink
from sandfleet_operator.fleet.snapshots.dialer import Dialer
from sandfleet_operator.snapshots.aio import AsyncSnapshots
from support.snapshots import flat, save, store_in_memory

PATIENCE = 20.0


class Reviews:
    """Knows one account."""

    async def authenticate(self, token: str) -> Caller:
        return Caller(token)

    async def authorize(self, caller: Caller, verb: str, namespace: str, name: str, subresource: str = "") -> None:
        if (caller.username, verb, namespace, subresource) != ("snapshotter", "create", "system", "snapshotter"):
            raise ClaimReason.FORBIDDEN.error(f"cannot {verb}: {caller.username} may not")


class Known:
    """The places of namespaces."""

    async def cluster(self) -> str:
        return "c-1"

    async def of(self, namespace: str) -> str:
        return f"c-1/u-1/{namespace}"


@asynccontextmanager
async def linked(*, leads: bool = True, patience: float = PATIENCE):
    """A link, and a stub for snapshotters."""

    def check_serving(doing: str) -> None:
        if not leads:
            raise ClaimReason.NOT_SERVING.error(f"cannot {doing}: another fleet leads")

    link: Any = SnapshotterLink(Reviews(), "system", check_serving, Known(), patience=patience)  # type: ignore[arg-type]
    server = grpc.aio.server()
    add_SnapshotterServiceServicer_to_server(link, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield link, SnapshotterServiceStub(channel)
    await server.stop(0)


def dialed(stub: Any, account: str = "snapshotter") -> Any:
    return stub.Work(metadata=(("authorization", f"Bearer {account}"),))


async def called(stub: Any, *, refuses: str = "") -> Any:
    """A snapshotter that has looked at its store."""
    call = dialed(stub)
    assert await job_of(call) == {"id": 0, "op": "own", "cluster": "c-1"}
    await call.write(pb.WorkRequest(event=said({"id": 0}, "owned", message=refuses)))
    return call


async def job_of(call: Any) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE):
        while not (response := await call.read()).job:
            pass
        return json.loads(response.job)


def said(job: dict[str, Any], event: str, **more: Any) -> bytes:
    return json.dumps({"id": job["id"], "event": event, **more}).encode()


async def endless(call: Any) -> None:
    part = pb.WorkRequest(event=b" " * 250_000, continues=True)
    try:
        for _ in range(MAX_EVENT_BYTES // 250_000 + 2):
            await call.write(part)
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        pass


async def test_a_job_goes_to_the_snapshotter_and_its_events_come_back_whole() -> None:
    async with linked() as (link, stub):
        call = await called(stub)
        answer = asyncio.create_task(link.answer("get", tenant="team", snapshot="mine"))
        job = await job_of(call)
        assert job == {"id": job["id"], "op": "get", "tenant": "c-1/u-1/team", "snapshot": "mine"}
        await call.write(pb.WorkRequest(event=said({"id": 999}, "done")))
        text = said(job, "done", facts="x" * 700_000)
        await call.write(pb.WorkRequest(event=text[:300_000], continues=True))
        await call.write(pb.WorkRequest(event=text[300_000:600_000], continues=True))
        await call.write(pb.WorkRequest(event=text[600_000:]))
        assert len((await answer)["facts"]) == 700_000


async def test_a_job_that_is_left_is_cancelled_there() -> None:
    async with linked() as (link, stub):
        call = await called(stub)
        events = link.run("export", tenant="team", snapshot="mine")
        first = asyncio.create_task(anext(events))
        job = await job_of(call)
        await call.write(pb.WorkRequest(event=said(job, "piece"), data=b"12"))
        assert (await first)["data"] == b"12"
        await events.aclose()
        assert await job_of(call) == {"id": job["id"], "op": "cancel"}


@pytest.mark.parametrize(
    "breaks",
    [
        lambda call: call.cancel(),
        lambda call: call.write(pb.WorkRequest(event=b"no JSON")),
        lambda call: call.write(pb.WorkRequest(event=b"[1]")),
        endless,
    ],
    ids=["it goes", "no JSON", "no event", "an event without an end"],
)
async def test_a_stream_that_breaks_fails_its_jobs_and_the_next_snapshotter_goes_on(breaks) -> None:
    async with linked() as (link, stub):
        call = await called(stub)
        answer = asyncio.create_task(link.answer("delete", tenant="team", snapshot="mine"))
        await job_of(call)
        done = breaks(call)
        if asyncio.iscoroutine(done):
            await done
        with pytest.raises(FleetError) as caught:
            await answer
        assert caught.value.problem.reason == "SnapshotStoreUnavailable"
        following = await called(stub)
        answer = asyncio.create_task(link.answer("delete", tenant="team", snapshot="mine"))
        job = await job_of(following)
        await following.write(pb.WorkRequest(event=said(job, "done", existed=True)))
        assert (await answer)["existed"] is True


async def test_each_job_goes_to_the_snapshotter_with_the_fewest() -> None:
    async with linked() as (link, stub):
        calls = [await called(stub), await called(stub)]
        # Both have written that they own the store, which the link may not have read yet.
        async with asyncio.timeout(PATIENCE):
            while link.connected < len(calls):
                await asyncio.sleep(0)
        jobs = [asyncio.create_task(link.answer("list", tenant="team", sandbox="")) for _ in range(2)]
        for call in calls:
            job = await job_of(call)
            await call.write(pb.WorkRequest(event=said(job, "done")))
        await asyncio.gather(*jobs)


async def test_a_snapshotter_of_another_clusters_store_gets_no_job_and_calls_say_why() -> None:
    async with linked(patience=0.05) as (link, stub):
        call = await called(stub, refuses="cannot use the store: it is that of cluster c-2")
        why = ""
        async with asyncio.timeout(PATIENCE):
            # It may not have been heard of yet.
            while "c-2" not in why:
                with pytest.raises(FleetError) as caught:
                    await link.answer("list", tenant="team", sandbox="")
                why = str(caught.value)
        await call.done_writing()
    # Control: one whose store is this cluster's.
    async with linked() as (link, stub):
        call = await called(stub)
        answer = asyncio.create_task(link.answer("delete", tenant="team", snapshot="mine"))
        job = await job_of(call)
        await call.write(pb.WorkRequest(event=said(job, "done", existed=True)))
        assert (await answer)["existed"] is True


async def test_without_a_snapshotter_a_call_waits_and_says_so() -> None:
    async with linked(patience=0.05) as (link, _):
        with pytest.raises(FleetError, match="none is connected"):
            await link.answer("list", tenant="team", sandbox="")


class Direct:
    """The fleet, as a snapshotter dials it."""

    def __init__(self, stub: Any) -> None:
        self._stub = stub

    def open(self, _method: Any, requests: Any, token: str) -> Any:
        return self._stub.Work(requests, metadata=(("authorization", f"Bearer {token}"),))

    def leave(self) -> None:
        pass


@pytest.mark.parametrize(("owner", "says"), [("c-2", "that of cluster c-2"), ("c-1", "listed")])
async def test_a_snapshotter_works_for_the_cluster_of_its_store_alone(owner: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("snapshotter")
    store = store_in_memory()
    store.own(owner)
    made = save(store, "c-1/u-1/team", flat({b"a": b"text"}))
    async with linked(patience=0.2) as (link, stub):
        dialer = Dialer(Direct(stub), tmp_path, AsyncSnapshots(store))  # type: ignore[arg-type]
        running, found = asyncio.create_task(dialer.run()), ""
        async with asyncio.timeout(PATIENCE):
            # It may not have dialed yet.
            while says not in found:
                try:
                    listed = [event async for event in link.run("list", tenant="team", sandbox="")]
                    found = "listed" if listed[0]["snapshot"]["id"] == made.id else "nothing"
                except FleetError as error:
                    found = str(error)
        assert dialer.connected.is_set() == (owner == "c-1")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_stream_that_the_fleet_ends_leaves_nothing_that_waits_to_be_said(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("snapshotter")
    async with linked(leads=False) as (_, stub):
        dialer = Dialer(Direct(stub), tmp_path, AsyncSnapshots(store_in_memory()))  # type: ignore[arg-type]
        with pytest.raises(grpc.aio.AioRpcError, match="UNAVAILABLE"):
            await dialer._work()
        # They are gRPC's, and would wait for ever for what is to be said.
        reading = [one for one in asyncio.all_tasks() if "_consume_request_iterator" in repr(one)]
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*reading)


@pytest.mark.parametrize(
    ("account", "leads", "code"),
    [("agent", True, "PERMISSION_DENIED"), ("snapshotter", False, "UNAVAILABLE"), ("snapshotter", True, "")],
    ids=["another account", "another fleet leads", "control"],
)
async def test_only_its_own_account_is_taken_on_by_the_fleet_that_leads(account: str, leads: bool, code: str) -> None:
    async with linked(leads=leads) as (_, stub):
        call = dialed(stub, account)
        try:
            found = "" if json.loads((await call.read()).job)["op"] == "own" else "else"
        except grpc.aio.AioRpcError as error:
            found = error.code().name
        assert found == code
