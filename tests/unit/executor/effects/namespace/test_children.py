"""Children forked ahead of their use: who gets a spare, and what happens to one that does not begin."""

import asyncio
import os
import socket
from dataclasses import replace

import pytest
from sandfleet_executor.core.errors import BadRequest
from sandfleet_executor.effects.namespace import children
from sandfleet_executor.effects.namespace.children import COMMAND, CONTEXT, Children, Exit, NamespaceError
from sandfleet_executor.worker.base import frames

pytestmark = pytest.mark.asyncio

KILLED = Exit(137, 9, memory=False)


class Spawner:
    """Forks nothing: the test has the other end of each child's socket."""

    def __init__(self):
        self.ended = False
        self.sockets = {}
        self.kinds = []
        self.exits = {}
        self.killed = []
        self.full = False

    async def prepare(self, kind, control):
        if self.full:
            raise NamespaceError("cannot start a process: there are too many")
        pid = len(self.sockets) + 2
        self.sockets[pid] = socket.socket(fileno=os.dup(control))
        self.kinds.append(kind)
        return pid

    def watch(self, pid, on_exit, on_sample):
        self.exits[pid] = on_exit

    def kill(self, pid):
        self.killed.append(pid)
        self.end(pid)

    def end(self, pid):
        self.sockets[pid].close()
        self.exits.pop(pid)(KILLED)

    def says(self, pid, **header):
        frames.send(self.sockets[pid], header)


class User:
    """Who a child works for."""

    def __init__(self):
        self.heard = []
        self.ended = []

    def on_data(self): ...
    def on_channel_end(self, error): ...
    def on_sample(self, sample): ...

    def on_frame(self, frame):
        self.heard.append(frame.header["event"])

    def on_exit(self, ended):
        self.ended.append(ended)


@pytest.fixture
async def spawner():
    made = Spawner()
    yield made
    for each in made.sockets.values():
        each.close()


@pytest.fixture
async def family(spawner, monkeypatch):
    monkeypatch.setattr(children, "SPARE_SECONDS", 0.05)
    monkeypatch.setattr(children, "REFILL_SECONDS", 0.0)
    made = Children(spawner)
    made.fill()
    await turns()
    yield made
    spawner.ended = True
    made.close()


async def turns():
    for _ in range(20):
        await asyncio.sleep(0)


def starting(family, kind, user):
    return asyncio.create_task(family.start(kind, {}, b"", (), user))


async def begun(family, spawner, kind, user, pid):
    task = starting(family, kind, user)
    await turns()
    spawner.says(pid, event="begun")
    return await task


async def test_one_of_each_kind_waits_and_the_supervisor_is_forked_first(spawner, family):
    assert spawner.kinds == [COMMAND, CONTEXT]
    assert family.spares == [2, 3]


async def test_a_context_takes_the_spare_and_the_next_is_forked_behind_it(spawner, family):
    child = await begun(family, spawner, CONTEXT, User(), 3)
    await asyncio.sleep(0.01)
    assert child.pid == 3
    assert family.spares == [2, 4]


async def test_a_supervisor_comes_back_and_no_other_is_forked(spawner, family):
    first, second = User(), User()
    child = await begun(family, spawner, COMMAND, first, 2)
    spawner.says(2, event="exited")
    await asyncio.sleep(0.01)
    family.give_back(child, 0)
    assert await begun(family, spawner, COMMAND, second, 2) is child
    spawner.says(2, event="failed")
    await asyncio.sleep(0.01)
    assert (first.heard, second.heard) == (["exited"], ["failed"])
    assert spawner.kinds == [COMMAND, CONTEXT]


async def test_what_a_supervisor_wrote_for_others_is_not_charged_to_whom_it_works_for_when_it_is_killed(
    spawner, family
):
    first, second = User(), User()
    child = await begun(family, spawner, COMMAND, first, 2)
    family.give_back(child, 100)
    await begun(family, spawner, COMMAND, second, 2)
    spawner.exits.pop(2)(replace(KILLED, written=130))
    assert (first.ended, second.ended) == ([], [replace(KILLED, written=30)])


async def test_of_two_supervisors_that_come_back_one_is_let_go(spawner, family):
    both = [await begun(family, spawner, COMMAND, User(), pid) for pid in (2, 4)]
    for child in both:
        family.give_back(child, 0)
    assert family.spares == [3, 2]
    assert frames.receive(spawner.sockets[4]).header["op"] == "begin"
    assert frames.receive(spawner.sockets[4]) is None


async def test_a_killed_spare_is_replaced_without_any_failure(spawner, family):
    user = User()
    task = starting(family, COMMAND, user)
    await turns()
    spawner.end(2)
    await turns()
    spawner.says(4, event="begun")
    assert (await task).pid == 4
    assert user.ended == []


async def test_a_spare_that_was_stopped_is_killed_and_replaced(spawner, family):
    task = starting(family, COMMAND, User())
    await asyncio.sleep(0.1)
    spawner.says(4, event="begun")
    assert (await task).pid == 4
    assert spawner.killed == [2]


async def test_the_end_of_one_that_has_begun_is_told_after_what_it_said(spawner, family):
    user = User()
    await begun(family, spawner, COMMAND, user, 2)
    spawner.says(2, event="exited")
    spawner.end(2)
    assert (user.heard, user.ended) == (["exited"], [KILLED])


async def test_what_a_child_refuses_is_a_bad_request(spawner, family):
    task = starting(family, CONTEXT, User())
    await turns()
    spawner.says(3, event="refused", message="cannot work in /nowhere")
    with pytest.raises(BadRequest, match="cannot work in /nowhere"):
        await task


async def test_where_no_process_can_be_forked_it_is_said(spawner, family):
    spawner.full = True
    await begun(family, spawner, COMMAND, User(), 2)
    with pytest.raises(NamespaceError, match="there are too many"):
        await family.start(COMMAND, {}, b"", (), User())


async def test_after_a_while_no_context_is_kept_ahead_and_the_next_one_brings_it_back(spawner, family, monkeypatch):
    monkeypatch.setattr(children, "KEPT_SECONDS", 0.05)
    await begun(family, spawner, CONTEXT, User(), 3)
    while len(family.spares) > 1:
        await asyncio.sleep(0.01)
    # The supervisor stays, which is small; the other one is told to end.
    assert family.spares == [2]
    spawner.sockets[4].setblocking(False)
    assert spawner.sockets[4].recv(1) == b""
    monkeypatch.setattr(children, "KEPT_SECONDS", 1000.0)
    await begun(family, spawner, CONTEXT, User(), 5)
    await asyncio.sleep(0.01)
    assert family.spares == [2, 6]


async def test_before_any_context_the_first_one_waits_however_long_it_takes(spawner, family, monkeypatch):
    monkeypatch.setattr(children, "KEPT_SECONDS", 0.0)
    await asyncio.sleep(0.05)
    assert family.spares == [2, 3]
