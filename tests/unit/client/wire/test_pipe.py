"""The client's end of a tunnel: what it makes of programs here that leave, and of executors that lie."""

import asyncio
import socket

import pytest
from sandfleet._wire import api
from sandfleet._wire.pipe import Pipe
from sandfleet.errors import ProtocolError

DATA = b"x" * 100_000


class Call:
    """An RPC whose answers are a script; it ends when both have said all."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.written = []
        self.ended = asyncio.Event()
        self.cancelled = False

    async def write(self, message):
        # As slow as a network.
        await asyncio.sleep(0.01)
        self.written.append(message)
        if message.WhichOneof("message") == "end":
            self.ended.set()

    async def read(self):
        if self.answers:
            return self.answers.pop(0)
        await self.ended.wait()
        return api.aio.EOF

    def cancel(self):
        self.cancelled = True

    @property
    def sent(self):
        return b"".join(message.data for message in self.written)


def data(text):
    return api.port.TunnelResponse(data=text)


END = api.port.TunnelResponse(end=api.port.TunnelEnd())
OPENED = api.port.TunnelResponse(opened=api.port.TunnelOpened())


def local():
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    return ours, theirs


async def test_both_ends_are_waited_for():
    ours, theirs = local()
    call = Call(data(b"answer"), END)
    with ours, theirs:
        theirs.sendall(DATA)
        theirs.shutdown(socket.SHUT_WR)
        await Pipe(call, api.port.TunnelRequest).carry(ours)
        assert theirs.recv(100) == b"answer"
        assert theirs.recv(100) == b""
    assert call.sent == DATA


async def test_data_sent_before_a_program_left_arrives_in_any_case():
    ours, theirs = local()
    call = Call(data(b"too late"), END)
    with ours:
        theirs.sendall(DATA)
        theirs.close()
        with pytest.raises(BrokenPipeError):
            await Pipe(call, api.port.TunnelRequest).carry(ours)
    assert call.sent == DATA
    assert call.ended.is_set()
    assert call.cancelled


async def test_a_program_that_left_is_not_waited_for_without_end(monkeypatch):
    monkeypatch.setattr("sandfleet._wire.pipe._LINGER", 0.05)
    ours, theirs = local()
    call = Call(data(b"too late"))
    call.ended.wait = asyncio.Event().wait
    with ours:
        theirs.close()
        with pytest.raises(BrokenPipeError):
            await Pipe(call, api.port.TunnelRequest).carry(ours)
    assert call.cancelled


@pytest.mark.parametrize(
    "answers", [(END, data(b"more")), (OPENED,), (END, END)], ids=["data after the end", "opened twice", "two ends"]
)
async def test_an_executor_that_breaks_the_protocol_is_told_so(answers):
    ours, theirs = local()
    with ours, theirs, pytest.raises(ProtocolError):
        await Pipe(Call(*answers), api.port.TunnelRequest).carry(ours)


async def test_a_call_that_ends_without_the_end_of_its_bytes_is_an_error():
    ours, theirs = local()
    call = Call(data(b"part"))
    call.ended.set()
    with ours, theirs, pytest.raises(ProtocolError):
        await Pipe(call, api.port.TunnelRequest).carry(ours)
