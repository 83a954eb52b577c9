"""Tables on their way between an interpreter and a caller, where one of the two breaks off."""

import asyncio
import contextlib
import socket
from dataclasses import dataclass, field

import pytest
from sandfleet_executor.core.contexts import tables as rules
from sandfleet_executor.core.contexts.frames import BadFrame
from sandfleet_executor.core.contexts.tables import GIVE, TAKE, NoTableError, check
from sandfleet_executor.effects.contexts import tables
from sandfleet_executor.effects.contexts.interpreter_slot import ContextSpec
from sandfleet_executor.effects.contexts.looks import CannotLookError, ContextBusyError, NoAnswerError
from sandfleet_executor.effects.contexts.queue import CellQueue
from sandfleet_executor.effects.namespace.children import Exit
from sandfleet_executor.worker.base import frames

SAID = {"event": "table", "kind": "pandas", "rows": 1, "columns": 1, "bytes": 8}
GET, PUT = check(GIVE, "df", 5.0, 100), check(TAKE, "df", 5.0)


@dataclass
class Interpreter:
    """One that does on its end of the socket what a test says."""

    part: object
    alive: bool = True
    told: list = field(default_factory=list)
    tasks: list = field(default_factory=list)
    busy_now: int = 0

    def __post_init__(self):
        self.ended = asyncio.get_running_loop().create_future()

    def tell(self, header, fd):
        self.told.append(header)
        sock = socket.socket(fileno=socket.dup(fd))
        sock.setblocking(False)
        self.tasks.append(asyncio.ensure_future(self._play(sock)))

    async def _play(self, sock):
        with sock, contextlib.suppress(ConnectionError):
            await self.part(sock)

    async def interrupt_now(self):
        self.told.append("interrupt")
        for task in self.tasks:
            task.cancel()

    def kill(self):
        self.told.append("kill")

    @contextlib.contextmanager
    def busy(self):
        self.busy_now += 1
        yield
        self.busy_now -= 1


def made(part, *, language="python", room=1 << 40):
    """The tables of a context whose interpreter does this, the interpreter, and how often variables have changed."""
    interpreter, changes = Interpreter(part), []

    async def start():
        return interpreter

    async def left(size):
        return room

    around = tables.Around(start, lambda: changes.append(1), left)
    return tables.Tables(ContextSpec("c", "/", language=language), CellQueue(), around), interpreter, changes


def loop():
    return asyncio.get_running_loop()


async def say(sock, header, data=b""):
    await loop().sock_sendall(sock, frames.encode(header) + data)


async def read_all(sock):
    data = b""
    while piece := await loop().sock_recv(sock, 1 << 20):
        data += piece
    return data


async def of(*parts):
    for part in parts:
        yield part


async def got(found):
    pieces = []

    async def hand(piece):
        pieces.append(piece)

    await found.get(GET, hand)
    return pieces


async def test_a_table_goes_through_and_the_context_is_busy_meanwhile():
    async def give(sock):
        assert interpreter.busy_now == 1
        await say(sock, SAID, b"data" + rules.END)

    found, interpreter, changes = made(give)
    first, *data = await got(found)
    assert (first.rows, b"".join(data)) == (1, b"data" + rules.END)
    assert (interpreter.told, interpreter.busy_now, changes) == ([GET.header], 0, [])


async def test_a_table_comes_in_and_is_a_change():
    came = []

    async def take(sock):
        came.append(await read_all(sock))
        await say(sock, SAID)

    found, interpreter, changes = made(take)
    assert (await found.put(PUT, of(b"a", b"b"))).rows == 1
    assert came[0].endswith(b"ab")
    assert (interpreter.told, changes) == ([PUT.header], [1])


@pytest.mark.parametrize(
    ("header", "data", "error"),
    [
        (SAID, b"", NoAnswerError),
        # Up to a batch: a reader of Arrow takes that for all.
        (SAID, b"data", NoAnswerError),
        (SAID, b"data" + rules.END[:-1], NoAnswerError),
        (SAID | {"bytes": 101}, b"", BadFrame),
        (SAID | {"rows": -1}, b"", BadFrame),
        ({"event": "done"}, b"", BadFrame),
        (SAID | {"more": "x" * (1 << 15)}, b"", BadFrame),
    ],
)
async def test_half_a_table_and_one_that_is_badly_announced_is_none(header, data, error):
    found, interpreter, _ = made(lambda sock: say(sock, header, data))
    with pytest.raises(error):
        await got(found)
    assert "kill" not in interpreter.told


async def test_an_interpreter_that_sends_without_end_is_stopped_and_keeps_its_life(monkeypatch):
    monkeypatch.setattr(tables, "STREAM_SLACK", 1 << 20)
    monkeypatch.setattr(tables, "PART_SECONDS", 0.01)

    async def flood(sock):
        await say(sock, SAID)
        while True:
            await loop().sock_sendall(sock, b"x" * (1 << 16))

    found, interpreter, _ = made(flood)
    with pytest.raises(BadFrame, match="sends more than it said"):
        await got(found)
    assert interpreter.told == [GET.header, "interrupt"]


async def test_one_that_goes_on_after_an_interrupt_is_killed(monkeypatch):
    monkeypatch.setattr(tables, "PART_SECONDS", 0.01)
    monkeypatch.setattr(tables, "SETTLE_SECONDS", 0.01)
    over = asyncio.Event()

    async def deaf(sock):
        while not over.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await over.wait()

    found, interpreter, _ = made(deaf)
    with pytest.raises(NoAnswerError, match=r"within 0\.05 s"):
        await found.get(check(GIVE, "df", 0.05), lambda piece: None)
    assert interpreter.told[-2:] == ["interrupt", "kill"]
    over.set()


@pytest.mark.parametrize(
    ("ended", "error", "words"),
    [
        (Exit(137, 9, memory=True), NoTableError, "no memory for it"),
        (Exit(137, 9, memory=False), NoAnswerError, "the interpreter ended with signal 9"),
        (None, NoAnswerError, "the interpreter broke off"),
    ],
)
async def test_the_end_of_an_interpreter_says_why(monkeypatch, ended, error, words):
    monkeypatch.setattr(tables, "END_SECONDS", 0.01)

    async def die(sock):
        if ended:
            interpreter.ended.set_result(ended)

    found, interpreter, _ = made(die)
    with pytest.raises(error, match=words) as raised:
        await got(found)
    assert raised.value.reason == ("OutOfMemory" if error is NoTableError else "NoAnswer")


async def test_a_stream_that_breaks_is_ended_without_an_interrupt():
    came = []

    async def take(sock):
        came.append(await read_all(sock))
        await say(sock, {"event": "refused", "reason": "NotArrow", "message": "no end"})

    async def broken():
        yield b"half"
        raise ConnectionAbortedError("the client has gone")

    found, interpreter, changes = made(take)
    # It is no failure of the interpreter's socket.
    with pytest.raises(ConnectionAbortedError):
        await found.put(PUT, broken())
    assert came[0].endswith(b"half")
    assert (interpreter.told, changes) == ([PUT.header], [])


async def test_an_interpreter_that_refuses_is_heard_before_it_has_read_all():
    async def refuse(sock):
        await loop().sock_recv(sock, 10)
        await say(sock, {"event": "refused", "reason": "LibraryMissing", "message": "no pyarrow"})

    async def much():
        for _ in range(100):
            yield b"x" * (1 << 20)

    found, interpreter, _ = made(refuse)
    with pytest.raises(NoTableError, match="no pyarrow"):
        await found.put(PUT, much())
    assert interpreter.told == [PUT.header]


async def test_a_cancellation_after_the_whole_table_interrupts_at_once():
    whole = asyncio.Event()

    async def take(sock):
        await read_all(sock)
        whole.set()
        await asyncio.sleep(1000)

    found, interpreter, changes = made(take)
    task = asyncio.create_task(found.put(PUT, of(b"all")))
    await whole.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (interpreter.told, changes) == ([PUT.header, "interrupt"], [])


async def test_a_second_cancellation_does_not_leave_a_transfer_half_done(monkeypatch):
    monkeypatch.setattr(tables, "PART_SECONDS", 0.05)
    begun = asyncio.Event()

    async def slow(sock):
        begun.set()
        await asyncio.sleep(1000)

    found, interpreter, _ = made(slow)
    task = asyncio.create_task(got(found))
    await begun.wait()
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
        # The next cell has no turn while the interpreter is not ready.
        assert interpreter.told[-1] == "interrupt" or found._queue.lock.locked()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert interpreter.told == [GET.header, "interrupt"]
    assert not found._queue.lock.locked()


async def test_a_table_for_which_there_is_no_memory_is_refused_on_its_way(monkeypatch):
    monkeypatch.setattr(tables, "LARGE_BYTES", 10)

    async def take(sock):
        if (await read_all(sock)).endswith(b"all of it, in pieces"):
            await say(sock, SAID)

    parts = (b"all of it, ", b"in pieces")
    found, _, changes = made(take, room=8)
    with pytest.raises(NoTableError, match="more than the memory that is left") as raised:
        await found.put(check(TAKE, "df", 5.0, kind="polars"), of(*parts))
    assert (raised.value.reason, changes) == ("OutOfMemory", [])
    # Control: with as much room as it needs it comes; pandas needs it twice.
    found, _, changes = made(take, room=9)
    await found.put(check(TAKE, "df", 5.0, kind="polars"), of(*parts))
    assert changes == [1]
    with pytest.raises(NoTableError):
        await made(take, room=9)[0].put(check(TAKE, "df", 5.0, kind="pandas"), of(*parts))


async def test_a_table_that_is_announced_as_too_large_for_the_memory_is_refused_at_its_first_piece(monkeypatch):
    monkeypatch.setattr(tables, "LARGE_BYTES", 10)
    given = []

    async def parts():
        for each in (b"a", b"b"):
            given.append(each)
            yield each

    found, _, _ = made(read_all, room=50)
    with pytest.raises(NoTableError, match="its 1000 bytes are more than"):
        await found.put(check(TAKE, "df", 5.0, kind="polars", size=1000), parts())
    assert given == [b"a"]


async def test_a_busy_context_and_one_without_tables_are_not_asked():
    found, interpreter, _ = made(read_all, language="bash")
    with pytest.raises(CannotLookError, match="contexts of bash have no tables"):
        await got(found)
    found, interpreter, _ = made(read_all)
    found._queue.running = object()
    with pytest.raises(ContextBusyError):
        await got(found)
    assert interpreter.told == []
