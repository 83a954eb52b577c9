"""Journals on the real cluster: written under gVisor, signed by the fleet, checked and done again by a client."""

import asyncio

import pytest
from cluster.harness.api import ApiError, has_condition
from cluster.team_bed import team_bed
from sandfleet import AsyncSandbox
from sandfleet._fleets.fleet import AsyncFleet
from sandfleet.errors import SandboxEnded, SandfleetError
from sandfleet.journal import headfile
from sandfleet.journal.verify import verify
from sandfleet.replay import replay

CELLS = ("rows = [3, 4, 5]", "print(sum(rows))", "import time\ntime.time()")


@pytest.fixture(scope="module")
def bed(images, kinds, tmp_path_factory):
    with team_bed(images, tmp_path_factory.mktemp("bed"), "journal", {"replicas": 2}) as made:
        yield made


@pytest.fixture
async def fleet(bed):
    made = await AsyncFleet.connect(
        bed.address, namespace=bed.namespace, ca_file=str(bed.ca), token_file=str(bed.token)
    )
    yield made
    await made.close()


async def test_a_session_is_signed_checked_and_done_again(bed, fleet, tmp_path):
    path = tmp_path / "session.journal"
    async with AsyncSandbox.create(pool="fast", fleet=fleet, max_wait=120) as sandbox:
        await sandbox.files.write("orders.csv", b"a,b\n1,2\n")
        for code in CELLS:
            await sandbox.run_code(code)
        exported = await sandbox.journal.export(path)
        assert exported.verification.ok
        assert exported.is_signed
    # The release was signed too: the newest head of all is the fleet's.
    last = sandbox.journal.signed_heads[-1]
    assert (last.session, last.head.number) == (sandbox.sandbox_id, len(CELLS) + 2)
    whole, heads = path.read_bytes(), headfile.load(exported.heads_path.read_bytes())
    assert verify([whole], heads).signed == len(CELLS) + 2
    # The control: a journal with another past is found out, and where.
    forged = whole.replace(b"sum(rows)", b"max(rows)")
    assert forged != whole
    assert [fault.number for fault in verify([forged], heads).faults][:1] == [4]
    async with AsyncSandbox.create(pool="fast", fleet=fleet, max_wait=120) as fresh:
        done = await replay(path, fresh)
    assert [step.word for step in done.steps] == ["skipped", "same", "same", "same", "same but for"]


async def said(call):
    """The answer, or None while the sandbox has no executor."""
    try:
        return await call()
    except SandfleetError:
        return None


@pytest.mark.timeout(300)
async def test_the_journal_of_a_pod_that_was_killed_verifies_up_to_the_last_head_that_was_told(bed, fleet, tmp_path):
    """Its next pod has the same volume: it serves the old journal, and its own names the old head."""
    api = bed.fleet.cluster.api
    async with AsyncSandbox.create(pool="fast", fleet=fleet, max_wait=120) as sandbox:
        assert (await sandbox.journal.head()).lasting
        uid, name = (await sandbox.get_info()).sandbox_uid, sandbox.sandbox_id.partition("/")[2]
        # A claim whose pod goes before it is on record is over (ADR 14).
        recorded = lambda: has_condition(api.get("CodeSandbox", name, bed.namespace), "Ready")  # noqa: E731
        await asyncio.to_thread(api.wait, "it to be on record", recorded, 60)
        for number in range(20):
            await sandbox.run_code(f"print({number})")
        told = sandbox.journal.kept_head
        assert told.pod_uid == uid
        pod = next(one for one in bed.pods("claimed") if one["metadata"]["uid"] == uid)
        await asyncio.to_thread(api.delete, "Pod", pod["metadata"]["name"], bed.namespace, grace=0)
        async with asyncio.timeout(150):
            while (info := await said(sandbox.get_info)) is None or info.sandbox_uid == uid:
                await asyncio.sleep(0.5)
            while await said(lambda: sandbox.run_code("'again'")) is None:
                await asyncio.sleep(0.5)
        old = await sandbox.journal.export(tmp_path / "old.journal", pod_uid=uid)
        assert old.verification.ok
        assert old.verification.kept >= told.head.number
        (first,) = [record async for record in sandbox.journal.records() if record.number == 1]
        assert first.body["earlier"]["pod"] == uid
        assert first.body["earlier"]["hash"] == old.verification.head.hash


async def test_the_fleet_signs_nothing_of_a_sandbox_that_is_gone(bed, fleet):
    async with AsyncSandbox.create(pool="fast", fleet=fleet, max_wait=120) as sandbox:
        await sandbox.run_code("1")
        name = sandbox.sandbox_id.partition("/")[2]
        assert await sandbox.journal.countersign()
    signed = sandbox.journal.signed_heads[-1].head.number

    def is_gone():
        try:
            bed.fleet.cluster.api.get("CodeSandbox", name, bed.namespace)
        except ApiError:
            return True
        return False

    await asyncio.to_thread(bed.fleet.cluster.api.wait, "it to be gone", is_gone, 60)
    with pytest.raises(SandboxEnded):
        await fleet.sign_journal(sandbox.sandbox_id)
    assert sandbox.journal.signed_heads[-1].head.number == signed
