"""A session that is read into a snapshot, and a sandbox that is filled from one."""

import asyncio

import grpc
import pytest
from contract.executor.harness import until
from contract.executor.saving import run
from contract.executor.service_tools import in_state, one, spec
from contract.executor.snapshots import Snapshot, requests_of, restore, save, send, stub_of
from sandfleet import Outcome, SandboxSuspended
from sandfleet_api.executor.v1 import common_pb2
from sandfleet_api.executor.v1 import snapshot_pb2 as pb
from sandfleet_api.executor.v1.interpreter_pb2 import ExecuteRequest
from sandfleet_api.executor.v1.interpreter_pb2_grpc import InterpreterServiceStub

pytestmark = pytest.mark.asyncio(loop_scope="session")

MAKE = r"""
import os, socket
os.makedirs('data/deep/er'); os.makedirs('closed'); os.makedirs('empty')
open('data/big.bin', 'wb').write(os.urandom(3_000_000))
open('data/deep/er/small.txt', 'w').write('small')
with open('sparse', 'wb') as f:
    f.seek(1 << 30); f.write(b'end')
open('zeros', 'wb').write(bytes(3_000_000))
os.link('data/big.bin', 'closed/other name')
os.symlink('/etc/passwd', 'out'); os.symlink('data/deep', 'in')
open(b'odd \xff\n name', 'w').close()
os.chmod('data/deep/er/small.txt', 0o604); os.chmod('closed', 0o555)
os.utime('data/deep/er/small.txt', ns=(1, 1_234_567_891)); os.utime('empty', ns=(5, -7_000_000_001))
if os.stat('empty').st_mtime_ns != -7_000_000_001:  # gVisor changes moments before 1970.
    os.utime('empty', ns=(5, 7_000_000_001))
os.mkfifo('pipe'); s = socket.socket(socket.AF_UNIX); s.bind('sock'); del s
"""
LOOK = r"""
import hashlib, os
def look(path):
    s = os.lstat(path)
    kind = s.st_mode
    said = os.readlink(path) if os.path.islink(path) else ''
    data = hashlib.sha256(open(path, 'rb').read()).hexdigest() if os.path.isfile(path) and not said else ''
    return (os.fsencode(path), kind, s.st_mtime_ns, s.st_nlink if data else 0, said, data)
found = []
for folder, folders, files in os.walk('.'):
    found += [look(os.path.join(folder, one)) for one in (*folders, *files)]
sorted(found)
"""


# gVisor tells neither holes nor blocks.
TELLS_HOLES = "f = open('sparse', 'rb'); f.seek(0, os.SEEK_HOLE) == 0"


@pytest.mark.smoke
async def test_files_variables_and_services_come_into_another_sandbox(starting):
    async with starting() as first:
        await run(first.sandbox, MAKE, None)
        await run(first.sandbox, "x = [1]; y = x; gen = (i for i in x)", None)
        other = await first.sandbox.create_context("other", envs={"MODE": "fast"})
        await run(first.sandbox, "z = 5", other)
        await first.sandbox.services.apply([spec("web"), spec("off")])
        await first.sandbox.services.stop("off")
        snapshot = await save(first)
        seen = eval((await first.sandbox.run_code(LOOK)).text)
        tells_holes = (await first.sandbox.run_code(TELLS_HOLES)).text == "True"
    assert snapshot.unsaved[b"pipe"] == "Pipe"
    assert snapshot.unsaved[b"sock"] == "Socket"
    assert snapshot.facts.frozen_seconds > 0
    sparse = snapshot.files()[b"sparse"]
    assert sparse.sparse == tells_holes
    assert sum(one.length for one in sparse.extents) < 1 << 20
    async with starting() as second:
        answer = await restore(second, snapshot)
        assert answer.totals == snapshot.totals
        back = await second.resumed()
        saved = {one.report.context_id: one.report.variables for one in snapshot.facts.contexts}
        assert {one.context_id: one.variables for one in back.contexts} == saved
        execution = await second.sandbox.run_code("(x, y is x)")
        assert execution.text == "([1], True)"
        assert "variables: f, gen" in execution.lost
        question = "import os; (z, os.environ['MODE'])"
        assert (await second.sandbox.run_code(question, context="other")).text == "(5, 'fast')"
        await in_state(second.sandbox.services, "web", "ready")
        assert (await one(second.sandbox.services, "off")).state == "stopped"
        again = eval((await second.sandbox.run_code(LOOK)).text)
        left_out = {b"./pipe", b"./sock"}
        assert again == [each for each in seen if each[0] not in left_out]
        question = "os.path.samefile('data/big.bin', 'closed/other name')"
        assert (await second.sandbox.run_code(question)).text == "True"
        question = "os.stat('sparse').st_blocks < 1000 and os.stat('zeros').st_blocks == 0"
        assert (await second.sandbox.run_code(question)).text == str(tells_holes)


PREPARED = """
open('kept', 'w').write('x' * 100_000)
class Loud:
    def __reduce__(self):
        return (print, ('unpickled in the session',))
x = [41]; loud = Loud()
"""


async def test_a_warm_sandbox_is_filled_and_its_variables_come_with_its_session(starting):
    async with starting() as first:
        await run(first.sandbox, PREPARED, None)
        await first.sandbox.services.apply([spec("web")])
        snapshot, session = await save(first), first.config["sandbox_id"]
        # The control: one with a session is not filled for another.
        assert await refusal(restore(first, snapshot, prepare="s-1")) == ("FAILED_PRECONDITION", "SessionOpen")
    async with starting(session=None) as warm:
        assert await refusal(restore(warm, snapshot)) == ("FAILED_PRECONDITION", "NoSession")
        assert (await warm.describe()).prepared == ""
        before = await warm.describe()
        # Again, as by a fleet that does not know whether its call came through.
        for _ in range(2):
            await restore(warm, snapshot, prepare="s-1")
        said = await warm.describe()
        assert (said.prepared, said.session_id, said.kernel) == ("s-1", "", before.kernel)
        await warm.open(session)
        assert (await warm.describe()).prepared == ""
        execution = await warm.sandbox.run_code("x += [1]; (x, len(open('kept').read()))")
        assert execution.text == "([41, 1], 100000)"
        await in_state(warm.sandbox.services, "web", "ready")
        assert await refusal(restore(warm, snapshot, prepare="s-1")) == ("FAILED_PRECONDITION", "SessionOpen")


async def test_a_prepared_sandbox_stays_prepared_when_its_executor_starts_again(starting):
    async with starting() as first:
        await run(first.sandbox, PREPARED, None)
        snapshot = await save(first)
    async with starting(session=None, keeps_workspace=True) as warm:
        await restore(warm, snapshot, prepare="s-1")
        kept = warm.kept
    async with starting(session=None, **kept) as again:
        assert (await again.describe()).prepared == "s-1"
        await again.open("mine")
        assert (await again.sandbox.run_code("x")).text == "[41]"
    # It belongs to that session from then on: another one on this workspace gets the files alone.
    async with starting(session="other", **kept) as other:
        assert (await other.sandbox.run_code("'x' in globals(), len(open('kept').read())")).text == "(False, 100000)"


async def refusal(call):
    """Code and reason of a call that fails."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    said = common_pb2.ErrorDetail.FromString(dict(caught.value.trailing_metadata())["sandfleet-error-bin"])
    return caught.value.code().name, said.reason


@pytest.mark.attack("restores from a hostile stream", "refused, nothing changes", control="in it")
async def test_a_session_is_rolled_back_in_place_and_a_bad_stream_changes_nothing(starting):
    async with starting() as executor:
        sandbox = executor.sandbox
        await run(
            sandbox, "x = 1; open('a', 'w').write('one'); import os; os.mkdir('closed'); os.chmod('closed', 0)", None
        )
        snapshot = await save(executor)
        await run(sandbox, "x = 2; open('a', 'w').write('two'); open('b', 'w').close()", None)
        now = "(x, open('a').read(), sorted(os.listdir('.')))"
        before = (await sandbox.run_code(now)).text

        hostile = Snapshot(list(snapshot.entries), snapshot.data, snapshot.facts)
        hostile.entries.append(pb.SnapshotEntry(tree=2, path=b"../out", kind=1))
        strange = Snapshot(list(snapshot.entries), snapshot.data, snapshot.facts)
        strange.entries.append(pb.SnapshotEntry(tree=2, path=b"zz", kind=9))
        cut = list(requests_of(snapshot))[:-1]
        pickle = Snapshot([*snapshot.entries[:2]], bytearray(b"cos\nsystem\n" * 20), snapshot.facts)
        pickle.entries[1] = pb.SnapshotEntry(tree=1, path=b"default", kind=1, size=len(pickle.data))
        assert [
            await refusal(restore(executor, hostile)),
            await refusal(restore(executor, strange)),
            await refusal(send(executor, cut)),
            await refusal(send(executor, cut[1:])),
            await refusal(restore(executor, snapshot, replace=False)),
            await refusal(restore(executor, pickle)),
            await refusal(send(executor, requests_of(snapshot), scope="session admin interpreter")),
        ] == [
            ("INVALID_ARGUMENT", "InvalidEntry"),
            ("INVALID_ARGUMENT", "InvalidEntry"),
            ("CANCELLED", "StreamBroken"),
            ("INVALID_ARGUMENT", "InvalidStream"),
            ("FAILED_PRECONDITION", "WorkspaceNotEmpty"),
            ("DATA_LOSS", "StateDamaged"),
            ("PERMISSION_DENIED", "ScopeMissing"),
        ]
        assert (await sandbox.run_code(now)).text == before

        await sandbox.run_code("import time")
        cell = asyncio.create_task(sandbox.run_code("time.sleep(60)", execution_id="long"))
        await until(lambda: sandbox.files.exists("b"))
        assert await refusal(restore(executor, snapshot)) == ("FAILED_PRECONDITION", "ExecutionRunning")
        # Control: a good stream changes it.
        assert list((await restore(executor, snapshot, force=True)).ended_executions) == ["long"]
        assert (await cell).outcome is Outcome.INTERRUPTED
        assert (await sandbox.run_code(f"import os; {now}")).text == "(1, 'one', ['a', 'closed'])"


async def test_a_save_does_not_read_again_what_an_earlier_one_has_read(starting):
    async with starting() as executor:
        await run(
            executor.sandbox,
            "import os; open('large', 'wb').write(os.urandom(400_000)); open('b', 'w').write('b')",
            None,
        )
        # Files that are younger than this may change again without a sign.
        await asyncio.sleep(2.1)
        first = await save(executor)
        await run(executor.sandbox, "open('b', 'a').write('b')", None)
        second, files = await save(executor, base=first.facts.save_id, known=True), first.files()
        if not first.facts.save_id:
            pytest.skip("the file system here does not tell what has changed")
        assert [path for path, one in second.files().items() if one.known] == [b"large"]
        assert files[b"large"].size == 400_000
        assert len(second.data) < 400_000
        # One that it does not know counts as none.
        assert not [one for one in (await save(executor, base="0" * 32)).entries if one.known]


async def test_a_restore_that_has_no_room_or_is_left_halfway_changes_nothing(starting):
    async with starting() as large:
        await run(large.sandbox, "import os; open('big', 'wb').write(os.urandom(6_000_000))", None)
        snapshot = await save(large)
    async with starting(limits={"disk_bytes": 4 << 20}) as executor:
        await run(executor.sandbox, "x = 1; open('a', 'w').write('one')", None)
        assert await refusal(restore(executor, snapshot)) == ("RESOURCE_EXHAUSTED", "NoSpace")
        async with executor.channel() as channel:
            stub, metadata = stub_of(executor, channel)
            call = stub.Restore(metadata=metadata)
            for request in list(requests_of(snapshot))[:5]:
                await call.write(request)
            call.cancel()
        # It has ended, and nothing of it stays: neither files nor what they have taken of the limit.
        await until(lambda: is_free(executor))
        now = "import os; (x, sorted(os.listdir('.')), [one for one in os.listdir('.') if 'partial' in one])"
        assert (await executor.sandbox.run_code(now)).text == "(1, ['a'], [])"
        await run(executor.sandbox, "open('b', 'wb').write(bytes(3_000_000))", None)


async def is_free(executor):
    """Whether neither a save nor a restore is at work."""
    try:
        await save(executor)
    except grpc.aio.AioRpcError:
        return False
    return True


async def test_a_last_save_holds_the_session_and_a_failed_one_lets_it_go_on(starting):
    async with starting() as executor:
        sandbox = executor.sandbox
        await run(sandbox, "x = 1", None)
        cell = asyncio.create_task(
            sandbox.run_code(
                "import os, time; open('large', 'wb').write(os.urandom(48 << 20)); open('on', 'w').close(); time.sleep(60)",
                execution_id="long",
            )
        )
        await until(lambda: sandbox.files.exists("on"))
        assert await refusal(save(executor, hold=True)) == ("FAILED_PRECONDITION", "ExecutionRunning")
        async with executor.channel() as channel:
            stub, metadata = stub_of(executor, channel)
            call = stub.Save(pb.SaveRequest(hold=True, force=True), metadata=metadata)
            # So much stays behind it that it cannot have ended before it is left.
            await call.read()
            call.cancel()
        assert (await cell).outcome is Outcome.INTERRUPTED
        await until(lambda: goes_on(sandbox))
        await sandbox.files.remove("large")
        last = await save(executor, hold=True)
        assert list(last.facts.ended_executions) == []
        with pytest.raises(SandboxSuspended):
            await sandbox.run_code("x")
        # It may be repeated; and where it could not be kept, the session goes on.
        await save(executor, hold=True)
        async with executor.channel() as channel:
            stub, metadata = stub_of(executor, channel)
            await stub.Unhold(pb.UnholdRequest(), metadata=metadata)
        assert await goes_on(sandbox)
        # For the owner of its quota: where a service is to run it stays.
        await sandbox.services.apply([spec("web")])
        await in_state(sandbox.services, "web", "ready")
        assert await refusal(save(executor, hold=True, unused=True)) == ("FAILED_PRECONDITION", "ServiceRunning")
        assert await goes_on(sandbox)
        await sandbox.services.stop("web")
        await save(executor, hold=True, unused=True)
        async with executor.channel() as channel:
            stub, metadata = stub_of(executor, channel)
            call = InterpreterServiceStub(channel).Execute(
                ExecuteRequest(execution_id="late", code="x"), metadata=metadata
            )
            assert await refusal(call.read()) == ("UNAVAILABLE", "SandboxPreempted")
            await stub.Unhold(pb.UnholdRequest(), metadata=metadata)
        assert await goes_on(sandbox)


async def goes_on(sandbox):
    try:
        return (await sandbox.run_code("x")).text == "1"
    except SandboxSuspended:
        return False
