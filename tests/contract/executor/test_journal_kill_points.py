"""kill -9 of the executor before, inside and behind the write of each record: what was told is kept."""

import itertools
import sys
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
from contract.executor.killed_writer import INSIDE, MOMENTS, NEVER
from contract.executor.local import LocalHost
from contract.executor.test_journal import auth, journal_of
from sandfleet.journal.heads import KeptHead
from sandfleet.journal.records import parse_head, read
from sandfleet.journal.verify import FaultKind, heads_of, verify
from sandfleet_api.executor.v1 import interpreter_pb2, interpreter_pb2_grpc

pytestmark = pytest.mark.asyncio(loop_scope="session")
# A life writes "opened", what its forerunner has left open, and a record for each of its cells.
RECORDS = 5


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def killed(tmp_path_factory):
    plan = tmp_path_factory.mktemp("plan") / "plan"
    plan.write_text(NEVER)
    host = LocalHost()
    host.command = [sys.executable, str(Path(__file__).with_name("killed_writer.py")), str(plan)]
    await host.start()
    yield host, plan
    await host.close()


async def started_again(executor):
    """Whether it came up: its first record may be the one at which it is killed."""
    await executor.exit()
    uid = executor.config["sandbox_uid"]
    executor.host.states.pop(uid, None)
    executor.host.request(op="start", config=executor.config)
    return (await executor.host.started(uid))["event"] == "ready"


def written(executor, journal=1):
    """The bytes of a journal as they lie on the disk."""
    folder = Path(executor.config["state_dir"]) / "journal"
    return b"".join(file.read_bytes() for file in sorted(folder.glob(f"{journal}-*")))


async def run(executor, name):
    """Whether a cell's result came, and the head that its call ended with."""
    came = False
    async with executor.channel() as channel:
        stub = interpreter_pb2_grpc.InterpreterServiceStub(channel)
        request = interpreter_pb2.ExecuteRequest(execution_id=name, code=f"print('{name}')")
        call = stub.Execute(request, metadata=auth(executor))
        try:
            async for answer in call:
                came = came or any(event.HasField("finished") for event in answer.events)
            return came, dict(await call.trailing_metadata())["sandfleet-journal-head"]
        except grpc.aio.AioRpcError:
            return came, None


async def life(executor, name, came, told):
    """Runs cells until the executor is gone."""
    for cell in itertools.count():
        result, head = await run(executor, f"{name}-{cell}")
        if result:
            came.append(f"{name}-{cell}")
        if head is None:
            return
        told.append(KeptHead(executor.config["sandbox_uid"], parse_head(head)))


async def test_it_verifies_up_to_the_last_head_that_was_told_wherever_it_is_killed(killed):
    host, plan = killed
    executor = await host.executor(restarts=True)
    came, told = [], []
    executor.kill()
    for number, moment in itertools.product(range(1, RECORDS + 1), MOMENTS):
        plan.write_text(f"{number} {moment}")
        if await started_again(executor):
            await life(executor, f"at-{number}-{moment}", came, told)
        assert (await executor.exit()).signal == "SIGKILL"
        found = verify([written(executor)], heads_of(told))
        # The last line may be cut off, and nothing else is wrong: no head proves a record that is not there.
        assert [fault.kind for fault in found.faults] == [FaultKind.CUT] * (moment == INSIDE), (number, found.faults)
    plan.write_text(NEVER)
    assert await started_again(executor)
    assert (await run(executor, "last"))[1]
    records, _ = await journal_of(executor)
    known = {record.body["id"]: record for record in records if record.kind == "execution"}
    # What a client has seen of a result has a record, also where the kill came between both.
    assert set(came) <= known.keys()
    # The controls: kills came between them, and inside of lines.
    assert any(known[name].body.get("unrecorded") for name in came)
    assert [record.kind for record in records].count("repaired") >= RECORDS - 1
    assert len(told) >= RECORDS
    await executor.stop()


async def test_the_pod_after_a_killed_one_names_the_last_whole_record_of_its_journal(killed):
    """Each moment ends a pod with all its processes; the next one has another uid and the same volume."""
    host, plan = killed
    kept, uid, before = {}, "", None
    for journal, moment in enumerate((*MOMENTS, None), start=1):
        plan.write_text(f"4 {moment}" if moment else NEVER)
        executor = await host.executor(**kept)
        told = []
        if moment:
            await life(executor, f"pod-{journal}", [], told)
            assert (await executor.exit()).signal == "SIGKILL"
        else:
            assert (await run(executor, "last"))[1]
        await executor.stop()
        data = written(executor, journal)
        found = verify([data], heads_of(told))
        assert [fault.kind for fault in found.faults] == [FaultKind.CUT] * (moment == INSIDE)
        assert found.kept == (told[-1].head.number if told else 0)
        earlier = read(data.splitlines()[0]).body["earlier"]
        assert earlier == (before and {"pod": uid, "session": "session", "n": before.number, "hash": before.hash})
        kept, uid, before = executor.kept, executor.config["sandbox_uid"], found.head
