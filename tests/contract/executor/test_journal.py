"""The journal of a session, by its executor: what is recorded, that it is a chain, and who sees it."""

import json

import grpc
import pytest
from sandfleet_api.executor.v1 import interpreter_pb2, interpreter_pb2_grpc, journal_pb2, journal_pb2_grpc
from sandfleet_executor.core.journal import records
from sandfleet_executor.core.journal.records import Head

pytestmark = pytest.mark.asyncio(loop_scope="session")


def auth(executor):
    return (("authorization", f"Bearer {executor.token()}"),)


async def journal_of(executor, start=0):
    """The records, each checked to follow the one before; and the head that the executor says."""
    async with executor.channel() as channel:
        stub = journal_pb2_grpc.JournalServiceStub(channel)
        said = await stub.Head(journal_pb2.HeadRequest(), metadata=auth(executor))
        request = journal_pb2.JournalServiceReadRequest(from_number=start)
        data = b"".join([part.lines async for part in stub.Read(request, metadata=auth(executor))])
    found = [records.read(line) for line in data.splitlines()]
    head = Head(found[0].head.number - 1, found[0].prev) if found else Head()
    for record in found:
        assert records.follows(record, head)
        head = record.head
    assert (said.number, said.hash) == (head.number, head.hash)
    return found, said


def bodies(found, kind):
    return [record.body for record in found if record.kind == kind]


async def test_a_session_is_a_chain_of_records(starting):
    async with starting() as executor:
        sandbox = executor.sandbox
        await sandbox.files.write("a.txt", b"one")
        await sandbox.run_code("x = 1\nopen('b.txt', 'w').write('two')\nprint('seen')\nx")
        await sandbox.run_code("y = 1 / 0")
        await sandbox.commands.run("echo hi; exit 3")
        found, said = await journal_of(executor)
        assert found[0].kind == "opened" and found[0].body["session"] == "session" and found[0].body["earlier"] is None
        assert said.session == "session" and said.pod_uid == executor.config["sandbox_uid"]
        (file,) = bodies(found, "file")
        assert file["op"] == "write" and file["path"].endswith("a.txt") and file["content"] == "b25l"
        ok, error, command = bodies(found, "execution")
        assert ok["code"]["text"].startswith("x = 1") and ok["outcome"] == "ok" and ok["stdout"]["text"] == "seen\n"
        assert ok["results"][0]["text"] == "1"
        (changed,) = ok["files"]["changed"]
        assert changed["path"].endswith("b.txt") and changed["size"] == 3
        assert changed["sha256"] == records.hash_of(b"two")
        assert error["error"]["name"] == "ZeroDivisionError"
        assert (
            command["type"] == "command" and command["exit_code"] == 3 and command["code"]["text"] == "echo hi; exit 3"
        )


async def test_a_call_that_changes_the_session_ends_with_the_head(starting):
    async with starting() as executor:
        async with executor.channel() as channel:
            stub = interpreter_pb2_grpc.InterpreterServiceStub(channel)
            call = stub.Execute(interpreter_pb2.ExecuteRequest(execution_id="one", code="1"), metadata=auth(executor))
            async for _ in call:
                pass
            told = dict(await call.trailing_metadata())
            read = stub.ListContexts(interpreter_pb2.ListContextsRequest(), metadata=auth(executor))
            await read
            assert "sandfleet-journal-head" not in dict(await read.trailing_metadata())
        found, said = await journal_of(executor)
        assert told["sandfleet-journal-head"] == f"{said.number}:{said.hash}"
        assert found[-1].body["id"] == "one"


async def test_contexts_have_records(starting):
    async with starting() as executor:
        await executor.sandbox.run_code("x = 1")
        await executor.sandbox.create_context("other")
        await executor.sandbox.fork_context("default")
        await executor.sandbox.restart_context("other")
        found, _ = await journal_of(executor)
        assert [body["op"] for body in bodies(found, "context")] == ["created", "forked", "restarted"]


async def test_reading_goes_on_from_a_number_and_says_when_there_is_none(starting):
    async with starting() as executor:
        for number in range(5):
            await executor.sandbox.run_code(f"{number}")
        found, said = await journal_of(executor, start=4)
        assert found[0].head.number == 4
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await journal_of(executor, start=said.number + 2)
        assert caught.value.code() is grpc.StatusCode.OUT_OF_RANGE


async def test_reading_in_pages_brings_each_line_once(starting):
    async with starting() as executor, executor.channel() as channel:
        for number in range(8):
            await executor.sandbox.files.write("a.txt", f"{number}" + "x" * 30_000)
        found, _ = await journal_of(executor)
        stub = journal_pb2_grpc.JournalServiceStub(channel)
        numbers, first, pages = [], 0, 0
        while True:
            request = journal_pb2.JournalServiceReadRequest(from_number=first, most_bytes=50_000)
            parts = [part async for part in stub.Read(request, metadata=auth(executor))]
            numbers += [records.read(line).head.number for part in parts for line in part.lines.splitlines()]
            assert [part.next_number for part in parts[:-1]] == [0] * (len(parts) - 1)
            pages += 1
            if not (first := parts[-1].next_number):
                break
            assert first == numbers[-1] + 1
        assert numbers == [record.head.number for record in found]
        assert pages > 3


async def test_the_next_executor_on_the_volume_begins_a_journal_that_names_the_old_head(starting):
    async with starting(keeps_workspace=True) as executor:
        await executor.sandbox.run_code("1")
        _, said = await journal_of(executor)
        # So that it writes nothing more.
        executor.kill()
        await executor.exit()
    async with starting(**executor.kept) as later:
        await later.sandbox.run_code("2")
        found, _ = await journal_of(later)
        earlier = found[0].body["earlier"]
        assert (earlier["n"], earlier["hash"], earlier["pod"]) == (
            said.number,
            said.hash,
            executor.config["sandbox_uid"],
        )
        assert earlier["session"] == "session"
        async with later.channel() as channel:
            stub = journal_pb2_grpc.JournalServiceStub(channel)
            request = journal_pb2.JournalServiceReadRequest(pod_uid=earlier["pod"])
            data = b"".join([part.lines async for part in stub.Read(request, metadata=auth(later))])
        assert json.loads(data.splitlines()[-1])["n"] == said.number


async def test_code_finds_neither_the_journals_folder_nor_its_lines(starting):
    look = (
        "import os\n"
        "found = []\n"
        "for folder, _, names in os.walk('/'):\n"
        "    if folder.startswith(('/proc/', '/sys', '/usr')): continue\n"
        "    found += [os.path.join(folder, n) for n in names if n in ('1-1', 'about-1')]\n"
        "print(found)\n"
    )
    async with starting() as executor:
        await executor.sandbox.files.write("1-1", b"planted: what the search would find")
        said = await executor.sandbox.run_code(look)
        # The control: the same search finds a file of this name that user code may see.
        assert said.logs.stdout.strip() == "['/workspace/1-1']"
