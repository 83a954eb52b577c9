"""Tables into contexts of each language and out of them: refusals, streams that break anywhere, and hostile sides."""

import asyncio
import contextlib
import secrets

import grpc
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import pytest_asyncio
from contract.executor.harness import PATIENCE, until
from sandfleet._wire.convert import arrow
from sandfleet.errors import LimitReached, NotFoundError, PreconditionFailed, ProtocolError, SandboxError
from sandfleet_api.executor.v1 import common_pb2, interpreter_pb2, interpreter_pb2_grpc
from sandfleet_executor.worker.languages import LANGUAGES

pytestmark = pytest.mark.asyncio(loop_scope="session")

MIB = 1 << 20
Request = interpreter_pb2.PutTableRequest
# What each language with tables has to say for the same.
COUNT = {"python": "print(len({}))", "sql": "COPY (SELECT count(*) FROM {}) TO '/dev/stdout' (HEADER false)"}
MAKE = {
    "python": "import pandas as pd; {} = pd.DataFrame({{'a': range({})}})",
    "sql": "CREATE OR REPLACE TABLE {} AS SELECT range AS a FROM range({})",
}
SPIN = {"python": "while True: pass", "sql": "SELECT * FROM range(1000000000000) t(x) WHERE x < 0"}
BIG = pa.table({"a": np.arange(1_000_000)})
STREAM = bytes(arrow.streamed(BIG))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def spoken(sandbox):
    """The languages that the sandbox has."""
    found = await sandbox.run_code("import pandas, pyarrow")
    if found.error:
        pytest.skip(f"the sandbox lacks a library: {found.error.value}")
    return set((await sandbox.environment()).languages)


@pytest_asyncio.fixture(loop_scope="session", params=[name for name, each in LANGUAGES.items() if each.tables])
async def mine(request, sandbox, spoken):
    """A context of a language with tables, in which `kept` has 3 rows and `df` has 2."""
    if request.param not in spoken:
        pytest.skip(f"the sandbox has no {request.param}")
    made = await sandbox.create_context(f"c-{secrets.token_hex(4)}", language=request.param)
    for name, rows in (("kept", 3), ("df", 2)):
        assert (await sandbox.run_code(MAKE[made.language].format(name, rows), context=made)).ok
    yield made
    await sandbox.delete_context(made)


@pytest_asyncio.fixture(loop_scope="session")
async def wire(executor):
    """The stub, for what the client would never send, and its metadata."""
    async with executor.channel() as channel:
        stub = interpreter_pb2_grpc.InterpreterServiceStub(channel)
        yield stub, (("authorization", f"Bearer {executor.token()}"),)


async def rows(sandbox, context, name="df"):
    """As the code in the context counts them; in the interpreter that it had from the start."""
    execution = await sandbox.run_code(COUNT[context.language].format(name), context=context, timeout=PATIENCE)
    assert (execution.outcome, execution.lost) == ("ok", ()), execution
    return int(execution.logs.stdout)


async def with_polars(sandbox):
    """Whether code can use it: our image is without."""
    return not (await sandbox.run_code("import polars")).error


def header(context, **options):
    return Request(header=interpreter_pb2.PutTableHeader(context_id=context.context_id, name="df", **options))


def end(size):
    return Request(end=interpreter_pb2.PutTableEnd(size=size))


def reason_of(error):
    detail = dict(error.trailing_metadata())["sandfleet-error-bin"]
    return common_pb2.ErrorDetail.FromString(detail).reason


@pytest.mark.smoke
async def test_a_table_goes_in_and_comes_out_of_each_language(sandbox, mine):
    frame = pd.DataFrame({"id": [1, 2, 3], "name": ["a", None, "é"], "share": [0.5, None, 1.0]})
    await mine.put("df", frame)
    assert await rows(sandbox, mine) == 3
    for library in ("pandas", "polars", "pyarrow"):
        got = await mine.get("df", library=library)
        assert type(got).__module__.partition(".")[0] == library
        assert arrow.as_arrow(got).to_pylist() == [
            {"id": 1, "name": "a", "share": 0.5},
            {"id": 2, "name": None, "share": None},
            {"id": 3, "name": "é", "share": 1.0},
        ]


@pytest.mark.smoke
@pytest.mark.parametrize("language", [name for name, each in LANGUAGES.items() if not each.tables])
async def test_each_language_without_tables_says_so(sandbox, spoken, language):
    if language not in spoken:
        pytest.skip(f"the sandbox has no {language}")
    # What its table of languages says is what it does.
    assert LANGUAGES[language].differs["tables"]
    context = await sandbox.create_context(f"c-{secrets.token_hex(4)}", language=language)
    for call in (context.get("df"), context.put("df", BIG)):
        with pytest.raises(PreconditionFailed, match=f"contexts of {language} have no tables") as raised:
            await call
        assert (raised.value.reason, raised.value.retryable) == ("LanguageCannot", False)
    await sandbox.delete_context(context)


REFUSED = {
    "python": [
        ("bad = 5", "NotATable", "it is no table, but a int"),
        ("import pandas as pd; bad = pd.Series([1])", "NotATable", "it is no table, but a Series"),
        ("import pandas as pd; bad = pd.DataFrame({'good': [1], 'odd': [1j]})", "UnsupportedColumn", "column odd"),
        ("import polars as pl; bad = pl.DataFrame({'odd': [object()]})", "UnsupportedColumn", "column 'odd'"),
        ("import pyarrow as pa; bad = pa.table({'odd': pa.array(['x'], pa.string_view())})", "UnsupportedColumn", "'odd'"),
    ],
    "sql": [
        ("CREATE OR REPLACE TABLE bad AS SELECT 1 AS good, union_value(n := 2) AS odd", "UnsupportedColumn", "'odd'"),
        ("DROP TABLE bad; CREATE VIEW bad AS SELECT CAST(a AS INT) AS a FROM (VALUES ('x')) t(a)", "NotATable", "convert string"),
    ],
}  # fmt: skip


@pytest.mark.smoke
async def test_what_cannot_be_got_is_refused_with_its_reason_and_its_column(sandbox, mine):
    has_polars = await with_polars(sandbox)
    for code, reason, words in REFUSED[mine.language]:
        if "polars" in code and not has_polars:
            continue
        assert (await sandbox.run_code(code, context=mine)).ok
        with pytest.raises(PreconditionFailed, match="cannot get bad") as raised:
            await mine.get("bad")
        assert (raised.value.reason, words in str(raised.value)) == (reason, True), str(raised.value)
    with pytest.raises(NotFoundError, match="cannot get nothing") as raised:
        await mine.get("nothing")
    assert raised.value.reason == "NoTable"
    assert await rows(sandbox, mine, "kept") == 3


@pytest.mark.smoke
async def test_a_column_that_a_language_has_not_is_named_and_replaces_nothing(sandbox, mine):
    if mine.language == "python" and not await with_polars(sandbox):
        pytest.skip("the sandbox has no polars, and a table of Arrow may have two columns of one name")
    wrong = {"sql": pa.table({"odd": pa.array([np.float16(1)])}), "python": pa.table([[1], [2]], names=["odd", "odd"])}
    with pytest.raises(PreconditionFailed, match=r"cannot put df: .*odd") as raised:
        await mine.put("df", wrong[mine.language], library="polars")
    assert raised.value.reason == "UnsupportedColumn"
    assert await rows(sandbox, mine) == 2


@pytest.mark.smoke
async def test_a_table_above_its_limit_is_refused(sandbox, mine):
    await mine.put("df", BIG)
    with pytest.raises(LimitReached, match="limit") as raised:
        await mine.get("df", limit=1000)
    assert raised.value.reason == "TooLarge"
    assert len(await mine.get("df", limit=16 * MIB)) == 1_000_000


CUTS = {
    "only the header": 0,
    "a part of the first batch": 100_000,
    "up to a batch": STREAM.index(b"\xff\xff\xff\xff", 1 << 20),
    "all but the end of Arrow": len(STREAM) - 8,
    "all of it": len(STREAM),
}


@pytest.mark.attack("breaks off a table that it puts", "no variable, the next cell works", control="in it")
@pytest.mark.parametrize("how", ["cancelled", "closed", "of another size"])
@pytest.mark.parametrize("cut", CUTS)
async def test_a_put_that_breaks_anywhere_leaves_the_variable_of_before(sandbox, mine, wire, cut, how):
    stub, metadata = wire
    call = stub.PutTable(None, metadata=metadata, timeout=PATIENCE)
    await call.write(header(mine, kind="pandas"))
    for start in range(0, CUTS[cut], 1 << 18):
        await call.write(Request(data=STREAM[start : min(start + (1 << 18), CUTS[cut])]))
    if how == "cancelled":
        call.cancel()
    elif how == "of another size":
        await call.write(end(len(STREAM) + 1))
    await (call.done_writing() if how != "cancelled" else asyncio.sleep(0))
    with pytest.raises((grpc.aio.AioRpcError, asyncio.CancelledError)) as raised:
        await call
    if how != "cancelled":
        assert reason_of(raised.value) == {"closed": "StreamBroken", "of another size": "InvalidStream"}[how]
    assert (await rows(sandbox, mine), await rows(sandbox, mine, "kept")) == (2, 3)
    # Control: the same with its end is a variable.
    call = stub.PutTable(None, metadata=metadata, timeout=PATIENCE)
    for request in (header(mine), Request(data=STREAM), end(len(STREAM))):
        await call.write(request)
    await call.done_writing()
    assert (await call).info.rows == await rows(sandbox, mine) == 1_000_000


@pytest.mark.attack("does not read a table that it gets", "bounded, the next cell works", control="in it")
@pytest.mark.parametrize("read", [1, 2])
async def test_a_get_that_is_not_read_to_its_end_leaves_the_context_as_it_was(executor, sandbox, mine, wire, read):
    assert (await sandbox.run_code(MAKE[mine.language].format("df", 20_000_000), context=mine)).ok
    executor.restart_peak()
    idle = executor.memory()
    stub, metadata = wire
    asked = interpreter_pb2.GetTableRequest(context_id=mine.context_id, name="df")
    call = stub.GetTable(asked, metadata=metadata, timeout=PATIENCE)
    for _ in range(read):
        assert (await call.read()).WhichOneof("part")
    waiting = asyncio.create_task(sandbox.run_code(COUNT[mine.language].format("kept"), context=mine))
    # The executor has what it may have of it, and a cell waits for the context.
    await asyncio.sleep(0.2)
    assert executor.peak_memory() < idle + 48 * MIB
    call.cancel()
    assert (await waiting).logs.stdout == "3\n"
    assert await rows(sandbox, mine) == 20_000_000
    # Control: what is read to its end comes.
    assert len(await mine.get("df")) == 20_000_000


@pytest.mark.smoke
async def test_a_put_that_stalls_ends_at_its_deadline(sandbox, mine, wire):
    stub, metadata = wire
    call = stub.PutTable(None, metadata=metadata, timeout=PATIENCE)
    ask = header(mine, kind="pandas")
    ask.header.timeout.FromMilliseconds(500)
    await call.write(ask)
    await call.write(Request(data=STREAM[:100_000]))
    with pytest.raises(grpc.aio.AioRpcError, match=r"cannot put df: it was not done within 0\.5 s") as raised:
        await call
    assert (raised.value.code(), reason_of(raised.value)) == (grpc.StatusCode.ABORTED, "NoAnswer")
    assert (await rows(sandbox, mine), await rows(sandbox, mine, "kept")) == (2, 3)


async def test_calls_that_are_cancelled_at_any_moment_leave_whole_tables_only(sandbox, mine):
    for step in range(12):
        for call in (mine.put("df", BIG), mine.get("df")):
            task = asyncio.create_task(call)
            await asyncio.sleep(step * 0.01)
            task.cancel()
            # One that was over before is as it would be.
            with contextlib.suppress(asyncio.CancelledError):
                await task
            assert await rows(sandbox, mine) in (2, 1_000_000)
    assert await rows(sandbox, mine, "kept") == 3


async def test_a_cell_waits_for_a_table_and_a_table_does_not_wait_for_a_cell(sandbox, mine, wire):
    stub, metadata = wire
    call = stub.PutTable(None, metadata=metadata, timeout=PATIENCE)
    await call.write(header(mine))
    long = bytes(arrow.streamed(pa.table({"a": np.zeros(8_000_000)})))
    # So much is nowhere but in the interpreter: it has begun.
    for start in range(0, 48 * MIB, MIB):
        await call.write(Request(data=long[start : start + MIB]))
    waiting = asyncio.create_task(sandbox.run_code(COUNT[mine.language].format("df"), context=mine))

    async def queued():
        return (await sandbox.usage()).running_executions == 1

    await until(queued)
    with pytest.raises(PreconditionFailed, match="is busy") as raised:
        await mine.get("kept")
    assert (raised.value.reason, raised.value.retryable) == ("ContextBusy", True)
    for start in range(48 * MIB, len(long), MIB):
        await call.write(Request(data=long[start : start + MIB]))
    await call.write(end(len(long)))
    await call.done_writing()
    await call
    assert (await waiting).logs.stdout == "8000000\n"
    cell = asyncio.create_task(sandbox.run_code(SPIN[mine.language], context=mine))

    async def busy():
        return any(
            each.context_id == mine.context_id and each.state == "busy" for each in await sandbox.list_contexts()
        )

    await until(busy)
    for call in (mine.get("kept"), mine.put("df", BIG)):
        with pytest.raises(PreconditionFailed, match="is busy"):
            await call
    await sandbox.interrupt(mine)
    await cell
    assert len(await mine.get("kept")) == 3


async def test_as_many_tables_as_allowed_are_moved_at_once(sandbox, spoken, wire):
    stub, metadata = wire
    contexts = [await sandbox.create_context(f"c-{secrets.token_hex(4)}") for _ in range(5)]
    calls = {}
    refusals = []

    async def begun():
        for context in contexts[:4]:
            call = calls.get(context)
            # A transfer of an earlier test may not have ended, so that one is refused.
            if call is None or call.done():
                calls[context] = call = stub.PutTable(None, metadata=metadata, timeout=PATIENCE)
                with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                    await call.write(header(context))
                    await call.write(Request(data=STREAM[:1000]))

    async def full():
        await begun()
        return await refused()

    async def refused():
        refusals.clear()
        try:
            await contexts[4].put("df", BIG)
        except LimitReached as error:
            refusals.append(error)
        return refusals

    await until(full)
    (refusal,) = refusals
    assert (refusal.reason, refusal.retryable) == ("TooMany", True)
    assert "4 are being moved" in str(refusal)
    for call in calls.values():
        call.cancel()

    async def free():
        return not await refused()

    await until(free)
    for context in contexts:
        await sandbox.delete_context(context)


@pytest.mark.parametrize("language", ["python", "sql"])
async def test_a_table_for_which_the_sandbox_has_no_memory_costs_no_variables(starting, language):
    async with starting(limits={"memory_bytes": 512 * MIB}) as small:
        sandbox = small.sandbox
        context = await sandbox.create_context("c", language=language)
        assert (await sandbox.run_code(MAKE[language].format("kept", 3), context=context)).ok
        for size in (250 * MIB, 700 * MIB):
            table = pa.table({"a": np.zeros(size // 8)})
            with pytest.raises(LimitReached, match=r"cannot put df: .*memory") as raised:
                await context.put("df", table, library="pandas")
            assert (raised.value.reason, raised.value.retryable) == ("OutOfMemory", False)
        assert await rows(sandbox, context, "kept") == 3
        # Control: one for which there is memory comes.
        await context.put("df", BIG)
        assert await rows(sandbox, context) == 1_000_000


async def test_what_fills_the_memory_on_its_way_out_says_so(starting):
    async with starting(limits={"memory_bytes": 384 * MIB}) as small:
        hoard = "[b'x' * (8 << 20) for _ in range(1000)]"
        code = (
            f"class Hoard:\n    columns = []\n    def __arrow_c_stream__(self, *_): self.all = {hoard}\nbad = Hoard()"
        )
        assert (await small.sandbox.run_code(code)).ok
        with pytest.raises(LimitReached, match="no memory for it") as raised:
            await small.sandbox.tables.get("bad")
        assert raised.value.reason == "OutOfMemory"
        assert (await small.sandbox.run_code("1 + 1")).text == "2"


@pytest.mark.smoke
async def test_a_library_that_is_missing_is_named_and_found_when_it_is_there(sandbox, spoken, context):
    await sandbox.run_code(
        "import sys; there = sys.modules.get('pyarrow'); sys.modules['pyarrow'] = None", context=context
    )
    for call in (sandbox.tables.put("df", BIG, context=context), sandbox.tables.get("there", context=context)):
        with pytest.raises(PreconditionFailed, match="the sandbox has no pyarrow") as raised:
            await call
        assert raised.value.reason == "LibraryMissing"
    await sandbox.run_code(
        "if there: sys.modules['pyarrow'] = there\nelse: del sys.modules['pyarrow']", context=context
    )
    await sandbox.tables.put("df", BIG, context=context)


# A hostile interpreter. It finds the worker's own part, and does something else in its place.

TABLES = """
import socket, signal, os
moved = type(sql).__getitem__.__globals__['tables']
frames, said = moved.frames, {'event': 'table', 'kind': 'pandas', 'rows': 2, 'columns': 1, 'bytes': 16}
import pyarrow as pa
def stream(table, **options):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer: writer.write_table(table)
    return sink.getvalue().to_pybytes()
right = stream(pa.table({'a': [1, 2]}))
kept = df = 1
"""
# What it sends, and what the error says.
GETS = {
    "nothing": ("pass", "broke off"),
    "garbage": ("sock.sendall(b'\\xff' * 4096)", "too long"),
    "text": ("sock.sendall(b'GET / HTTP/1.1\\r\\n\\r\\n' * 9)", "too long"),
    "half a word": ("sock.sendall(b'\\0\\0\\0\\x20\\0\\0\\0\\0{')", "broke off"),
    "a word of a megabyte": ("frames.send(sock, said | {'more': 'x' * 1000000})", "too long"),
    "a word with a payload": ("frames.send(sock, said, b'x')", "too long"),
    "a word that is a list": ("sock.sendall(b'\\0\\0\\0\\x02\\0\\0\\0\\0[]')", "no object"),
    "an unknown library": ("frames.send(sock, said | {'kind': 'os'}); sock.sendall(right)", "cannot read what the interpreter says"),
    "a negative count": ("frames.send(sock, said | {'rows': -1}); sock.sendall(right)", "not a count"),
    "a size above the limit": ("frames.send(sock, said | {'bytes': 2**60}); sock.sendall(right)", "larger than was asked for"),
    "a refusal without a reason": ("frames.send(sock, {'event': 'refused', 'message': 'no'})", "cannot read what the interpreter says"),
    "a refusal of a made-up reason": ("frames.send(sock, {'event': 'refused', 'reason': 'Root', 'message': 'no'})", "cannot read what the interpreter says"),
    "a table without its end": ("frames.send(sock, said); sock.sendall(right[:-8])", "broke off"),
    "half a table": ("frames.send(sock, said); sock.sendall(right[:-20])", "broke off"),
    "no bytes": ("frames.send(sock, said)", "broke off"),
    "bytes that are no Arrow": ("frames.send(sock, said); sock.sendall(b'x' * 1000 + moved.END)", "cannot read a table"),
    "more rows than there are": ("frames.send(sock, said | {'rows': 3}); sock.sendall(right)", "2 rows came of 3"),
    "a compressed table": ("frames.send(sock, said); sock.sendall(stream(pa.table({'a': [0, 0]}), compression='zstd'))", "it is compressed"),
    "a few bytes that unfold to a list of a billion": ("lists = pa.ListArray.from_arrays(pa.array([0, 0, 10**9], pa.int32()), pa.Array.from_buffers(pa.struct([]), 10**9, [None]))\n    frames.send(sock, said); sock.sendall(stream(pa.table({'a': lists})))", "type struct<>"),
    "an extension's name": ("field = pa.field('a', pa.int64(), metadata={'ARROW:extension:name': 'polars.object'})\n    frames.send(sock, said | {'kind': 'polars'})\n    sock.sendall(stream(pa.table([[1, 2]], schema=pa.schema([field]))))", "extension type polars.object"),
    "no end of bytes": ("frames.send(sock, said)\n    while True: sock.sendall(b'x' * (1 << 20))", "sends more than it said"),
    "no end of bytes, and it ignores interrupts": ("signal.signal(signal.SIGINT, signal.SIG_IGN); frames.send(sock, said)\n    while True: sock.sendall(b'x' * (1 << 20))", "sends more than it said"),
    "its own end": ("os._exit(3)", "ended with exit code 3"),
}  # fmt: skip
LIMIT = 16 * MIB


@pytest.mark.attack("lies about a table that it is asked for", "a typed error, the next cell works")
@pytest.mark.parametrize("attack", GETS)
async def test_a_table_that_is_none_is_a_typed_error(executor, sandbox, context, neighbour, spoken, attack):
    code = f"{TABLES}\ndef send(sock, header, value):\n    {GETS[attack][0]}\nmoved.send = send"
    assert (await sandbox.run_code(code, context=context)).ok
    executor.restart_peak()
    idle = executor.memory()
    with pytest.raises(SandboxError, match="cannot") as raised:
        await sandbox.tables.get("df", context=context, limit=LIMIT, timeout=5)
    assert GETS[attack][1] in str(raised.value)
    is_from_client = isinstance(raised.value, ProtocolError)
    assert raised.value.reason in (("NotArrow", "UnsupportedColumn") if is_from_client else ("NoAnswer",))
    assert executor.peak_memory() < idle + 64 * MIB
    after = await sandbox.run_code("1 + 1", context=context, timeout=30)
    assert (after.outcome, after.text) == ("ok", "2")
    assert (await neighbour.run_code("here")).text == "'untouched'"
    assert (await sandbox.health()).ready
    assert not executor.ended


@pytest.mark.control("lies about a table that it is asked for", "lies about a table that it is given")
async def test_control_a_forged_table_that_is_right_is_believed(sandbox, context, spoken):
    right = "frames.send(sock, said); sock.sendall(right)"
    await sandbox.run_code(f"{TABLES}\ndef send(sock, header, value): {right}\nmoved.send = send", context=context)
    # It is not what the variable holds: the attacks reach executor and client.
    assert (await sandbox.tables.get("df", context=context)).a.tolist() == [1, 2]
    taking = "frames.send(sock, said); raise SystemExit"
    await sandbox.run_code(f"{TABLES}\ndef take(sock, name): {taking}\nmoved.take = take", context=context)
    await sandbox.tables.put("df", pa.table({"a": [1]}), context=context)
    assert (await sandbox.run_code("df", context=context)).text == "1"


PUTS = {
    "says nothing": "raise SystemExit",
    "says nothing for ever": "while True: pass",
    "says nothing for ever, and ignores interrupts": "signal.signal(signal.SIGINT, signal.SIG_IGN)\n    while True: pass",
    "answers with garbage": "sock.sendall(b'\\xff' * 4096); raise SystemExit",
    "answers with a refusal of a made-up reason": "frames.send(sock, {'event': 'refused', 'reason': 'Root'}); raise SystemExit",
    "answers with a negative count": "frames.send(sock, said | {'rows': -1}); raise SystemExit",
    "ends": "os._exit(3)",
}


@pytest.mark.attack("lies about a table that it is given", "a typed error, the next cell works")
@pytest.mark.parametrize("attack", PUTS)
async def test_an_interpreter_that_does_not_take_a_table_is_a_typed_error(
    executor, sandbox, context, neighbour, spoken, attack
):
    code = f"{TABLES}\ndef take(sock, name):\n    {PUTS[attack]}\nmoved.take = take"
    assert (await sandbox.run_code(code, context=context)).ok
    executor.restart_peak()
    idle = executor.memory()
    with pytest.raises(SandboxError, match="cannot") as raised:
        await sandbox.tables.put("df", pa.table({"a": np.zeros(4_000_000)}), context=context, timeout=3)
    assert raised.value.reason == "NoAnswer"
    assert executor.peak_memory() < idle + 64 * MIB
    after = await sandbox.run_code("1 + 1", context=context, timeout=30)
    assert (after.outcome, after.text) == ("ok", "2")
    assert (await neighbour.run_code("here")).text == "'untouched'"
    assert not executor.ended
