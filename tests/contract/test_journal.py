"""The journal of a session, from a real executor through a real fleet to the client that checks it."""

import asyncio
import json
import shutil

import grpc
import pytest
from sandfleet import AsyncFleet, AsyncSandbox
from sandfleet._wire.heads import hear
from sandfleet.errors import InvalidArgument, NotFoundError
from sandfleet.journal import headfile, statements
from sandfleet.journal.heads import KeptHeads
from sandfleet.journal.verify import verify
from sandfleet_api.executor.v1 import session_pb2, session_pb2_grpc
from support.fleet.process import a_fleet

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fleet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SANDFLEET_AUDIT", str(folder / "audit.jsonl"))
        patch.setenv("SANDFLEET_JOURNAL_RECORDS", "3")
        with a_fleet(folder / "f") as process:
            yield process, folder


@pytest.fixture
async def fleet(served):
    async with await AsyncFleet.connect(f"unix:{served[0].state_dir}/fleet.sock") as connected:
        yield connected


def audited(served):
    lines = [json.loads(line) for line in (served[1] / "audit.jsonl").read_text().splitlines()]
    return [one for one in lines if one["decision"] == "journal"]


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.02)


@pytest.mark.smoke
async def test_an_export_is_whole_and_proved_by_client_and_fleet(fleet, tmp_path):
    path = tmp_path / "session.journal"
    async with AsyncSandbox.create(fleet=fleet) as sandbox:
        await sandbox.files.write("a.txt", b"one")
        await sandbox.run_code("print('seen')")
        exported = await sandbox.journal.export(path)
        told = await sandbox.journal.head()
        assert [record.kind async for record in sandbox.journal.records()] == ["opened", "file", "execution"]
        assert [record.number async for record in sandbox.journal.records(3)] == [3]
    assert exported.verification.ok and exported.is_signed
    assert exported.path.stat().st_size == exported.size
    heads = headfile.load(exported.heads_path.read_bytes())
    found = verify([path.read_bytes()], heads)
    assert (found.kept, found.signed, found.head) == (3, 3, told.head)
    assert (heads.exported.sandbox, heads.exported.template) == (sandbox.sandbox_id, "python")
    # Nothing else was left in the folder.
    assert sorted(each.name for each in tmp_path.iterdir()) == ["session.journal", "session.journal.heads"]


@pytest.mark.smoke
async def test_each_reply_brings_a_head(fleet):
    async with AsyncSandbox.create(fleet=fleet) as sandbox:
        assert sandbox.journal.kept_head is None
        await sandbox.files.write("a.txt", b"one")
        assert sandbox.journal.kept_head.head.number == 2
        await sandbox.run_code("1")
        await until(lambda: sandbox.journal.kept_head.head.number == 3)
        await sandbox.commands.run("true")
        await sandbox.create_context("other")
        assert sandbox.journal.kept_head.head == (await sandbox.journal.head()).head
        assert {one.pod_uid for one in sandbox.journal.kept_heads} == {sandbox.journal.kept_head.pod_uid}


async def test_the_fleet_signs_at_a_renewal_and_at_the_release_and_audits_it(fleet, served):
    before = len(audited(served))
    async with AsyncSandbox.create(fleet=fleet) as sandbox:
        await sandbox.set_timeout(60)
        await asyncio.sleep(0.3)
        await sandbox.set_timeout(60)
        # The control: one record is not enough for a signature.
        assert sandbox.journal.signed_heads == ()
        for _ in range(3):
            await sandbox.run_code("1")
        await sandbox.set_timeout(60)
        await until(lambda: len(audited(served)) > before)
        await sandbox.set_timeout(60)
        (first,) = sandbox.journal.signed_heads
        assert first.head.number == 4
        await sandbox.run_code("2")
    *_, last = sandbox.journal.signed_heads
    assert (last.head.number, last.session) == (5, sandbox.sandbox_id)
    # Both are in the audit log, and hold with the keys that the fleet publishes.
    keys = statements.read_keys((served[0].state_dir / "keys.json").read_bytes())
    heads = headfile.load((served[1] / "audit.jsonl").read_bytes())
    mine = [one for one in heads.signed if one.session == sandbox.sandbox_id]
    assert [one.head for one in mine] == [first.head, last.head]
    assert all(keys.holds(one) for one in mine)
    assert {(one["actor"]["username"], one["verdict"]) for one in audited(served)} == {("", "allowed")}


@pytest.mark.smoke
async def test_the_last_head_is_signed_before_a_lease_ends(fleet, served):
    """Without a release: the audit log has the last record nevertheless."""
    sandbox = await AsyncSandbox.create(fleet=fleet, timeout=60)
    try:
        await sandbox.run_code("1")
        await sandbox.set_timeout(6)
        await until(lambda: any(one["sandbox"] == sandbox.sandbox_id for one in audited(served)))
    finally:
        await sandbox.close()
    (last,) = [one for one in audited(served) if one["sandbox"] == sandbox.sandbox_id]
    assert last["details"]["number"] == 2


async def test_an_executor_that_was_told_to_forget_is_found_out(fleet, served, tmp_path):
    """Its state folder is replaced under it: the records that were signed are gone."""
    async with AsyncSandbox.create(fleet=fleet) as sandbox:
        for number in range(3):
            await sandbox.run_code(f"{number}")
        (signed,) = await sandbox.journal.countersign()
        exported = await sandbox.journal.export(tmp_path / "session.journal")
    lines = exported.path.read_bytes().splitlines(keepends=True)
    heads = headfile.load(exported.heads_path.read_bytes())
    assert verify([b"".join(lines)], heads).signed == signed.head.number
    assert verify([b"".join(lines[:-1])], heads).faults[0].number == signed.head.number


@pytest.mark.smoke
async def test_a_signed_head_opens_nothing(fleet):
    """The fleet's keys also sign tokens: what it signs of a journal is none."""
    async with AsyncSandbox.create(fleet=fleet) as sandbox:
        await sandbox.run_code("1")
        (signed,) = await sandbox.journal.countersign()
        body, mark = statements.statement(signed), statements.base64url(signed.signature)
        access = (await fleet.access(sandbox.sandbox_id, wait=10))[1]
        async with grpc.aio.insecure_channel(access.address) as channel:
            stub = session_pb2_grpc.SessionServiceStub(channel)
            header = access.token.split(".")[0]
            for token in (f"{statements.base64url(body)}.{mark}", f"{header}.{statements.base64url(body)}.{mark}"):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await stub.Describe(session_pb2.DescribeRequest(), metadata=(("authorization", f"Bearer {token}"),))
                assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
            # The control: the fleet's token does.
            said = await stub.Describe(
                session_pb2.DescribeRequest(), metadata=(("authorization", f"Bearer {access.token}"),)
            )
            assert said.sandbox_uid == signed.pod_uid


@pytest.mark.smoke
async def test_what_is_not_there_has_its_error(fleet, tmp_path):
    path = tmp_path / "session.journal"
    path.write_bytes(b"an older export")
    async with AsyncSandbox.create(fleet=fleet) as sandbox:
        await sandbox.run_code("1")
        with pytest.raises(InvalidArgument):
            _ = [record async for record in sandbox.journal.records(100)]
        with pytest.raises(NotFoundError):
            await sandbox.journal.head(pod_uid="another")
        with pytest.raises(NotFoundError):
            await sandbox.journal.export(path, pod_uid="another")
        with pytest.raises(FileNotFoundError):
            await sandbox.journal.export(tmp_path / "missing" / "session.journal")
    # An export that fails leaves what was there.
    assert path.read_bytes() == b"an older export"
    assert [each.name for each in tmp_path.iterdir()] == ["session.journal"]


@pytest.mark.smoke
async def test_a_call_that_ends_without_a_head_keeps_none():
    class Call:
        async def trailing_metadata(self):
            return (("sandfleet-journal-head", "no head"), ("other", "1:" + "a" * 64))

    kept = KeptHeads()
    await hear(kept, "pod", Call())
    assert kept.newest is None
