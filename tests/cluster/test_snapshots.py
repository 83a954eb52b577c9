"""Snapshots of sessions in gVisor pods: saved to a real S3 server by a snapshotter that dials the fleet."""

import asyncio
import contextlib
import os
import time

import pytest
from cluster.access_bed import a_grant, an_object
from cluster.harness.api import path_of
from cluster.operators import lend, template
from cluster.snapshot_bed import bucket_of, connected, s3_server, snapshot_bed
from sandfleet import AsyncSandbox
from sandfleet.errors import (
    AccessDenied,
    NotFoundError,
    PreconditionFailed,
    SandboxSuspended,
    SandfleetError,
    UnavailableError,
)
from sandfleet.values.suspension import Snapshot

FRAME = "import pandas as pd, os\ndf = pd.DataFrame({'a': range(1000)})\nopen('rows.csv', 'w').write(df.to_csv())"
SEEN = "int(df.a.sum()), os.path.getsize('rows.csv')"

# Sessions that sleep at the same time, and copies of one: SANDFLEET_PARKED=20 is the whole of it.
PARKED = int(os.environ.get("SANDFLEET_PARKED", "4"))
COPIES = max(3, PARKED // 2)
# Of these so many are put to sleep and woken side by side.
AT_ONCE = 3

# Beside ten other pods an interpreter that is restored may not begin in time, which the restore then says.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.alone(on="cluster")]


@pytest.fixture(scope="module")
def bed(images, kinds, tmp_path_factory):
    with (
        s3_server(tmp_path_factory.mktemp("s3")) as server,
        snapshot_bed(images, server, tmp_path_factory.mktemp("bed")) as made,
    ):
        yield made


async def test_a_session_is_saved_rolled_back_and_forked_and_its_snapshot_outlives_it(bed, tmp_path):
    async with connected(bed, tmp_path) as fleet:
        async with AsyncSandbox.create(fleet=fleet, pool="fast", max_wait=240) as sandbox:
            assert (await sandbox.run_code(FRAME)).outcome == "ok"
            seen = (await sandbox.run_code(SEEN)).text
            await fleet.note_received(sandbox.sandbox_id, ["untrusted"])
            taken = await sandbox.snapshot("after-etl")
            assert isinstance(taken, Snapshot)
            assert (taken.sandbox_id, taken.received) == (sandbox.sandbox_id, ("untrusted",))
            await sandbox.run_code("df = None; os.unlink('rows.csv')")
            assert (await sandbox.rollback("after-etl")).lost == ()
            assert (await sandbox.run_code(SEEN)).text == seen
            first, second = await sandbox.fork(2)
            assert [(await one.run_code(SEEN)).text for one in (first, second)] == [seen, seen]
            # A copy has received what its origin had.
            assert await fleet.note_received(first.sandbox_id, []) == {"untrusted"}
            for one in (first, second):
                await one.kill()
        # The pod is gone, and its workspace with it.
        assert "after-etl" in [one.name for one in await fleet.snapshots.list()]
        async with AsyncSandbox.create(fleet=fleet, pool="fast", snapshot="after-etl", max_wait=240) as again:
            assert (await again.run_code(SEEN)).text == seen
        assert await fleet.snapshots.delete("after-etl")
        with pytest.raises(NotFoundError):
            await fleet.snapshots.get("after-etl")


async def test_a_snapshot_moves_as_a_file_by_an_account_that_may(bed, tmp_path):
    async with connected(bed, tmp_path) as fleet, connected(bed, tmp_path, "mover") as mover:
        async with AsyncSandbox.create(fleet=fleet, pool="fast", max_wait=240) as sandbox:
            await sandbox.run_code("import os; open('large', 'wb').write(os.urandom(3 << 20)); x = 5")
            await sandbox.snapshot("mine")
            with pytest.raises(AccessDenied, match="export"):
                await fleet.snapshots.export("mine", tmp_path / "mine.snapshot")
            assert await mover.snapshots.export("mine", tmp_path / "mine.snapshot") > 3 << 20
            with pytest.raises(AccessDenied, match="import"):
                await fleet.snapshots.import_file(tmp_path / "mine.snapshot", name="theirs")
            imported = await mover.snapshots.import_file(tmp_path / "mine.snapshot", name="theirs")
            assert imported.received == ("untrusted",)
            await sandbox.rollback("theirs")
            assert (await sandbox.run_code("os.path.getsize('large'), x")).text == f"({3 << 20}, 5)"
            # A mover saves nothing: to look and to move are other rights.
            with pytest.raises(AccessDenied, match="create"):
                await mover.snapshots.take_snapshot(sandbox.sandbox_id, name="", labels={}, reason="manual")
        for name in ("mine", "theirs"):
            await fleet.snapshots.delete(name)


async def test_a_killed_snapshotter_costs_its_jobs_and_the_next_one_goes_on(bed, tmp_path):
    async with (
        connected(bed, tmp_path) as fleet,
        AsyncSandbox.create(fleet=fleet, pool="fast", max_wait=240) as sandbox,
    ):
        await sandbox.run_code("x = 1")
        bed.snapshotter.kill()
        with pytest.raises(UnavailableError, match="snapshotter"):
            await sandbox.snapshot("lost")
        bed.snapshotter.start()
        deadline = time.monotonic() + 60
        while True:
            try:
                await sandbox.snapshot("found")
                break
            except (UnavailableError, PreconditionFailed):
                assert time.monotonic() < deadline
        assert [one.name for one in await fleet.snapshots.list(sandbox.sandbox_id)] == ["found"]
        await fleet.snapshots.delete("found")


async def test_the_bucket_policy_of_the_how_to_gives_no_more_than_that(s3):
    """That it gives enough, all tests here show: it is the snapshotter's."""
    from botocore.exceptions import ClientError
    from sandfleet_operator.snapshots.backends.s3 import connect

    (bucket, account), (other, _) = bucket_of(s3), bucket_of(s3)
    client = connect(s3.endpoint, s3.region, (account.access_key, account.secret_key))
    client.put_object(Bucket=bucket, Key="mine", Body=b"1")
    refused = (
        lambda: client.put_object(Bucket=other, Key="mine", Body=b"1"),
        lambda: client.list_objects_v2(Bucket=other),
        lambda: client.get_bucket_policy(Bucket=bucket),
        lambda: client.put_bucket_policy(Bucket=bucket, Policy="{}"),
        lambda: client.delete_bucket(Bucket=bucket),
    )
    for call in refused:
        with pytest.raises(ClientError, match="AccessDenied"):
            call()


async def test_no_account_but_the_snapshotters_takes_jobs(bed, tmp_path):
    import grpc
    from sandfleet_api.fleet.v1.snapshotter_pb2_grpc import SnapshotterServiceStub

    ca = bed.cluster.api.get("ConfigMap", "sandfleet-ca", bed.namespace)["data"]["ca.crt"].encode()

    async def begun(token):
        async with grpc.aio.secure_channel(f"127.0.0.1:{bed.port}", grpc.ssl_channel_credentials(ca)) as channel:
            call = SnapshotterServiceStub(channel).Work(metadata=[("authorization", f"Bearer {token}")], timeout=20)
            try:
                return b'"own"' in (await call.read()).job
            except grpc.aio.AioRpcError as error:
                return error.code().name

    assert await begun(bed.token(bed.work, "agent")) == "PERMISSION_DENIED"
    assert await begun("no token") == "UNAUTHENTICATED"
    # Control: the snapshotter's own account is taken on.
    assert await begun(bed.token(bed.namespace, "snapshotter")) is True


def _named(bed, sandbox_id):
    return bed.cluster.api.get("CodeSandbox", sandbox_id.partition("/")[2], bed.work)


def _is_there(bed, sandbox_id):
    there = bed.cluster.api.list("CodeSandbox", bed.work)
    return sandbox_id.partition("/")[2] in [one["metadata"]["name"] for one in there]


async def eventually(what, seconds=120):
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.5)
    return found


async def test_a_session_sleeps_in_a_snapshot_without_pod_and_volume_and_goes_on(bed, tmp_path):
    async with connected(bed, tmp_path) as fleet:
        sandbox = await AsyncSandbox.create(fleet=fleet, pool="fast", max_wait=240, labels={"task": "margins"})
        await sandbox.run_code(FRAME)
        seen = (await sandbox.run_code(SEEN)).text
        kept = await sandbox.suspend(to="snapshot")
        assert kept.lost == ()
        made = await eventually(
            lambda: (one := _named(bed, sandbox.sandbox_id)) and one["status"].get("restoresFrom") and one
        )
        assert made["spec"]["suspend"] == {"to": "Snapshot"}
        assert made["status"]["restoresFrom"] == made["status"]["snapshot"]["id"]
        await eventually(lambda: not bed.volumes_of(sandbox.sandbox_id))
        with pytest.raises(SandboxSuspended):
            await sandbox.run_code("1")
        # Nothing is left of its last pod, and the pool has another one.
        await eventually(lambda: not _named(bed, sandbox.sandbox_id)["status"].get("workspaceClaimName"))
        pool = ("SandboxPool", "fast", bed.work)
        await eventually(lambda: bed.cluster.api.get(*pool)["status"].get("warm"), 240)
        async with await AsyncSandbox.resume(sandbox.sandbox_id, fleet=fleet, max_wait=240) as again:
            # It goes on in a pod that was warm, of another name than its own.
            assert _named(bed, sandbox.sandbox_id)["status"]["podName"].startswith("fast-")
            assert again.resumption.lost == ()
            assert (await again.run_code(SEEN)).text == seen
            assert (await again.get_info()).labels == {"task": "margins"}
            await eventually(lambda: "snapshot" not in _named(bed, sandbox.sandbox_id)["status"])
            assert [one for one in await fleet.snapshots.list() if one.reason == "suspend"] == []
            # And again, from the volume that it was given.
            await again.run_code("y = 7")
            await again.suspend(to="snapshot")
            await eventually(lambda: not bed.volumes_of(sandbox.sandbox_id))
            last = await AsyncSandbox.resume(sandbox.sandbox_id, fleet=fleet, max_wait=240)
            assert (await last.run_code(SEEN + ", y")).text == seen[:-1] + ", 7)"
            await last.kill()


async def test_kubectl_puts_a_session_into_a_snapshot_and_takes_it_out(bed, tmp_path):
    async with (
        connected(bed, tmp_path) as fleet,
        AsyncSandbox.create(fleet=fleet, pool="fast", max_wait=240) as sandbox,
    ):
        await sandbox.run_code("x = 41")

        def patch(spec):
            path = path_of("CodeSandbox", bed.work, sandbox.sandbox_id.partition("/")[2])
            bed.cluster.api.call("PATCH", path, {"spec": spec}, "application/merge-patch+json")

        # Not while its claim is young.
        await eventually(lambda: _is_there(bed, sandbox.sandbox_id))
        patch({"operatingMode": "Suspended", "suspend": {"to": "Snapshot"}})
        await eventually(lambda: _named(bed, sandbox.sandbox_id).get("status", {}).get("restoresFrom"))
        await eventually(lambda: not bed.volumes_of(sandbox.sandbox_id))
        patch({"operatingMode": "Running"})
        again = await AsyncSandbox.connect(sandbox.sandbox_id, fleet=fleet)
        assert (await again.run_code("x + 1")).text == "42"


async def test_the_snapshot_of_a_session_that_is_given_up_goes(bed, tmp_path):
    async with connected(bed, tmp_path) as fleet:
        sandbox = await AsyncSandbox.create(fleet=fleet, pool="fast", max_wait=240)
        await sandbox.suspend(to="snapshot")
        assert [one.reason for one in await fleet.snapshots.list(sandbox.sandbox_id)] == ["suspend"]
        assert await AsyncSandbox.kill(sandbox.sandbox_id, fleet=fleet)
        deadline = time.monotonic() + 60
        while await fleet.snapshots.list(sandbox.sandbox_id):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.5)


async def test_an_idle_session_falls_asleep_in_a_snapshot_and_its_next_call_wakes_it(bed, tmp_path):
    async with (
        connected(bed, tmp_path) as fleet,
        AsyncSandbox.create(fleet=fleet, pool="fast", max_wait=240, idle_timeout=5.0, on_idle="snapshot") as sandbox,
    ):
        await sandbox.run_code("x = 41")
        await eventually(lambda: _is_there(bed, sandbox.sandbox_id))
        await eventually(lambda: _named(bed, sandbox.sandbox_id).get("status", {}).get("restoresFrom"))
        assert _named(bed, sandbox.sandbox_id)["spec"]["onIdle"] == "Snapshot"
        assert (await sandbox.run_code("x + 1")).text == "42"


@pytest.mark.timeout(300)
async def test_borrowed_quota_of_a_session_without_a_volume_goes_back_and_the_session_is_kept(bed, tmp_path):
    api, work = bed.cluster.api, bed.work
    api.create(template(work, "short", workspace={"ephemeral": True, "size": "64Mi"}))
    may_claim = [{"apiGroups": ["sandfleet.io"], "resources": ["sandboxqueues"], "verbs": ["claim"]}]
    bed.fleet_bed.apply(*a_grant("", "queues", may_claim, (work, "agent"), work))
    lend(api, work, "lender", "borrower", "Suspend")
    async with connected(bed, tmp_path) as fleet:
        busy = await AsyncSandbox.create("short", fleet=fleet, queue="borrower", max_wait=90)
        idle = await AsyncSandbox.create("short", fleet=fleet, queue="borrower", max_wait=90)
        await idle.run_code("rows = [1, 2]; open('file', 'w').write('here')")
        await busy.services.start("web", ["sleep", "1000"])
        owner = await AsyncSandbox.create("short", fleet=fleet, queue="lender", max_wait=120)
        assert (await fleet.get(busy.sandbox_id)).state == "claimed"
        await eventually(lambda: _named(bed, idle.sandbox_id).get("status", {}).get("restoresFrom"))
        call = asyncio.create_task(idle.run_code("sum(rows), open('file').read()"))
        await asyncio.sleep(3)
        assert not call.done()
        await owner.kill()
        assert (await asyncio.wait_for(call, 120)).text == "(3, 'here')"
        assert [one.sandbox_id for one in idle.preemptions] == [idle.sandbox_id]
        await idle.kill()
        await busy.kill()


async def test_a_session_whose_pod_is_lost_goes_back_to_its_last_snapshot(bed, tmp_path):
    def automatic():
        return _named(bed, sandbox.sandbox_id).get("status", {}).get("snapshot", {}).get("automatic")

    async with (
        connected(bed, tmp_path) as fleet,
        AsyncSandbox.create(
            fleet=fleet, pool="fast", max_wait=240, recovery="snapshot", snapshot_period=5.0
        ) as sandbox,
    ):
        await sandbox.run_code("x = 41; open('kept', 'w').write('1')")
        await eventually(lambda: _is_there(bed, sandbox.sandbox_id))
        await eventually(automatic)
        pod = _named(bed, sandbox.sandbox_id)["status"]["podName"]
        bed.cluster.api.delete("Pod", pod, bed.work, grace=0)
        await eventually(lambda: _named(bed, sandbox.sandbox_id)["status"].get("restarts"))
        again = await eventually_runs(sandbox, "x + 1, open('kept').read()")
        assert again.text == "(42, '1')"
        assert [one.reason for one in again.notices] == ["WentBack"]


def _saved(bed, name):
    found = [one for one in bed.cluster.api.list("SandboxSnapshot", bed.work) if one["metadata"]["name"] == name]
    return found[0].get("status", {}) if found else None


def _is_saved(bed, name):
    said = _saved(bed, name)
    return said if said and [one["reason"] for one in said.get("conditions", ())] == ["Saved"] else None


async def test_kubectl_takes_shows_and_deletes_snapshots(bed, tmp_path):
    api, work = bed.cluster.api, bed.work
    async with (
        connected(bed, tmp_path) as fleet,
        AsyncSandbox.create(fleet=fleet, pool="fast", max_wait=240) as sandbox,
    ):
        await sandbox.run_code("x = 41; open('kept', 'w').write('1' * 5000)")
        # What was taken over the API is an object, too.
        taken = await sandbox.snapshot("over-the-api")
        said = await eventually(lambda: _is_saved(bed, "over-the-api"))
        assert (said["snapshotID"], said["owner"]) == (taken.snapshot_id, f"system:serviceaccount:{work}:agent")
        await eventually(lambda: _is_there(bed, sandbox.sandbox_id))
        spec = {"sandboxRef": {"name": sandbox.sandbox_id.partition("/")[2]}, "retention": {"days": 7}}
        api.create(an_object("sandfleet.io/v1alpha1", "SandboxSnapshot", "by-kubectl", work, spec=spec))
        said = await eventually(lambda: _is_saved(bed, "by-kubectl"))
        assert (said["sandbox"], said["size"].endswith("Ki")) == (spec["sandboxRef"]["name"], True)
        await sandbox.run_code("x = 0")
        await sandbox.rollback("by-kubectl")
        assert (await sandbox.run_code("x")).text == "41"
        assert {"over-the-api", "by-kubectl"} <= {one.name for one in await fleet.snapshots.list()}
        # Deleted with kubectl it goes from the store, deleted over the API the object goes.
        api.delete("SandboxSnapshot", "by-kubectl", work)
        await eventually(lambda: _saved(bed, "by-kubectl") is None)
        assert "by-kubectl" not in {one.name for one in await fleet.snapshots.list()}
        assert await fleet.snapshots.delete("over-the-api")
        await eventually(lambda: _saved(bed, "over-the-api") is None)
        nothing = {"sandboxRef": {"name": "nothing"}}
        api.create(an_object("sandfleet.io/v1alpha1", "SandboxSnapshot", "of-nothing", work, spec=nothing))
        await eventually(lambda: (_saved(bed, "of-nothing") or {}).get("conditions"))
        assert _saved(bed, "of-nothing")["conditions"][0]["reason"] == "NotSaved"
        api.delete("SandboxSnapshot", "of-nothing", work)
        await eventually(lambda: _saved(bed, "of-nothing") is None)


async def _asleep(sandbox):
    """A busy node takes longer to end a pod than a call waits."""
    with contextlib.suppress(SandboxSuspended):
        while True:
            try:
                await sandbox.suspend(to="snapshot")
            except UnavailableError:
                await asyncio.sleep(1)
            else:
                return


async def test_a_pool_starts_from_a_snapshot(bed, tmp_path):
    api, work = bed.cluster.api, bed.work
    async with connected(bed, tmp_path) as fleet:
        async with AsyncSandbox.create(fleet=fleet, pool="fast", max_wait=240) as sandbox:
            await sandbox.run_code(FRAME)
            seen = (await sandbox.run_code(SEEN)).text
            await fleet.note_received(sandbox.sandbox_id, ["untrusted"])
            await sandbox.snapshot("prepared")
        spec = {"templateRef": {"name": "python"}, "replicas": 1, "maxSize": 2, "snapshot": "prepared"}
        api.create(an_object("sandfleet.io/v1alpha1", "SandboxPool", "prepared", work, spec=spec))
        try:
            await eventually(lambda: api.get("SandboxPool", "prepared", work).get("status", {}).get("warm"), 240)
            async with AsyncSandbox.create(fleet=fleet, pool="prepared", max_wait=240) as sandbox:
                # The files were there before; no restore is waited for.
                assert (await sandbox.run_code(SEEN)).text == seen
                assert await fleet.note_received(sandbox.sandbox_id, []) == {"untrusted"}
            # The control: a claim of the template has nothing of it.
            async with AsyncSandbox.create(fleet=fleet, pool="fast", max_wait=240) as other:
                assert not await other.files.exists("rows.csv")
            await fleet.snapshots.delete("prepared")

            def says_why():
                said = api.get("SandboxPool", "prepared", work).get("status", {}).get("conditions", [])
                return [one for one in said if "cannot find snapshot" in one.get("message", "")]

            await eventually(says_why, 240)
        finally:
            api.delete("SandboxPool", "prepared", work)


async def test_many_sessions_sleep_without_pods_and_volumes_and_go_on(bed, tmp_path):
    turns, slept, woken, seen = asyncio.Semaphore(AT_ONCE), [], [], {}

    async def asleep(fleet, number):
        async with turns:
            sandbox = await AsyncSandbox.create(fleet=fleet, pool="fast", max_wait=400)
            await sandbox.run_code(f"import pandas as pd\ndf = pd.DataFrame({{'a': range({1000 + number})}})")
            seen[sandbox.sandbox_id] = (await sandbox.run_code("len(df), int(df.a.sum())")).text
            began = time.monotonic()
            await _asleep(sandbox)
            slept.append(time.monotonic() - began)

    async def awake(fleet, sandbox_id):
        async with turns:
            began = time.monotonic()
            sandbox = await AsyncSandbox.resume(sandbox_id, fleet=fleet, max_wait=400)
            assert (await sandbox.run_code("len(df), int(df.a.sum())")).text == seen[sandbox_id]
            woken.append(time.monotonic() - began)
            await sandbox.kill()

    async with connected(bed, tmp_path) as fleet:
        await asyncio.gather(*(asleep(fleet, number) for number in range(PARKED)))
        for sandbox_id in seen:
            await eventually(lambda one=sandbox_id: not bed.volumes_of(one), seconds=300)
        sessions = {one.partition("/")[2] for one in seen}
        pods = {one["metadata"]["name"] for one in bed.cluster.api.list("Pod", bed.work)}
        assert not pods & sessions
        assert len(seen) == PARKED
        await asyncio.gather(*(awake(fleet, sandbox_id) for sandbox_id in seen))
    for what, times in (("suspended", slept), ("resumed, with a first cell", woken)):
        times.sort()
        print(f"{PARKED} sessions {what}: p50 {times[len(times) // 2]:.1f} s, longest {times[-1]:.1f} s")


async def test_a_session_is_forked_into_many(bed, tmp_path):
    async with (
        connected(bed, tmp_path) as fleet,
        AsyncSandbox.create(fleet=fleet, pool="fast", max_wait=400) as sandbox,
    ):
        await sandbox.run_code(FRAME)
        seen, began = (await sandbox.run_code(SEEN)).text, time.monotonic()
        copies = await sandbox.fork(COPIES)
        print(f"a fork of {COPIES}: {time.monotonic() - began:.1f} s")
        assert [(await one.run_code(SEEN)).text for one in copies] == [seen] * COPIES
        await asyncio.gather(*(one.kill() for one in copies))


async def eventually_runs(sandbox, code, seconds=240):
    """The first execution that begins after the sandbox was lost."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            done = await sandbox.run_code(code)
            if done.outcome == "ok":
                return done
        except SandfleetError:
            pass
        assert time.monotonic() < deadline
        await asyncio.sleep(1)
