"""The local backend with executor hosts that misbehave: each start has exactly one end, reported as an event."""

import asyncio
import sys

import pytest
from sandfleet_operator.api.values import Exit, State
from sandfleet_operator.fleet.backend import Exited, Ready
from sandfleet_operator.fleet.local.backend import LocalBackend
from sandfleet_operator.fleet.local.statedir import OwnerDir
from support.fleet.builders import TEMPLATE, a_sandbox

pytestmark = pytest.mark.process

SANDBOX = a_sandbox(State.STARTING)

# Reads requests and answers each with the lines that stand in ANSWERS, then stays until its owner goes, or ends.
HOST = """
import json, os, socket, subprocess, sys
control = socket.socket(fileno=int(sys.argv[-1]))
lines = control.makefile("rw", encoding="ascii")
request = json.loads(lines.readline())
uid = request["config"]["sandbox_uid"]
child = subprocess.Popen(["sleep", "60"], stderr=subprocess.DEVNULL)
for answer in sys.argv[1].split("|"):
    lines.write(answer.replace("UID", json.dumps(uid)).replace("PID", str(child.pid)) + "\\n")
    lines.flush()
if sys.argv[2] == "stay":
    lines.readline(), lines.readline()
    child.kill()
print("last words", file=sys.stderr)
"""
STARTED = '{"event":"started","sandbox_uid":UID,"pid":PID}'
READY = '{"event":"ready","sandbox_uid":UID}'


def a_host(*answers, then="stay"):
    return [sys.executable, "-c", HOST, "|".join(answers), then]


@pytest.fixture
async def begin(tmp_path):
    made = []
    with OwnerDir(tmp_path / "f-1") as directory:

        def begin(host_command):
            backend = LocalBackend(directory, {"python": TEMPLATE}, user_ids=None, host_command=host_command)
            made.append(backend)
            return backend

        yield begin
        for backend in made:
            await backend.close()


async def events(backend, count):
    async with asyncio.timeout(60):
        return [await backend.next_event() for _ in range(count)]


async def test_a_sandbox_gets_ready_and_ends_once(begin, tmp_path):
    backend = begin(a_host(STARTED, READY, '{"event":"exited","sandbox_uid":UID,"code":40,"signal":null}'))
    await backend.start(SANDBOX)
    address = f"unix://{tmp_path}/f-1/s/u1/x.sock"
    assert await events(backend, 2) == [Ready("u1", address), Exited("u1", Exit(code=40))]


async def test_a_host_that_is_no_program_is_a_failed_start(begin):
    backend = begin(["/nonexistent/host"])
    await backend.start(SANDBOX)
    (ended,) = await events(backend, 1)
    assert "No such file" in ended.end.message


async def test_a_host_that_ends_before_it_started_anything_says_its_last_words(begin):
    backend = begin(a_host("{}", then="end"))
    await backend.start(SANDBOX)
    assert await events(backend, 1) == [Exited("u1", Exit(message="the executor host ended: last words"))]


async def test_the_executors_of_a_host_that_ended_are_ended_and_may_be_replaced(begin):
    backend = begin(a_host(STARTED, READY, then="end"))
    await backend.start(SANDBOX)
    ready, ended = await events(backend, 2)
    assert isinstance(ready, Ready)
    assert ended.end.code == 42
    await backend.start(a_sandbox(State.STARTING, sandbox_uid="u2"))
    assert [type(one) for one in await events(backend, 2)] == [Ready, Exited]


async def test_a_refused_start_says_why(begin):
    backend = begin(a_host('{"event":"failed","sandbox_uid":UID,"message":"cannot take the configuration"}'))
    await backend.start(SANDBOX)
    assert await events(backend, 1) == [Exited("u1", Exit(message="cannot take the configuration"))]


async def test_a_failed_start_ends_when_its_process_does(begin):
    failed = '{"event":"failed","sandbox_uid":UID,"message":"cannot make the namespace"}'
    backend = begin(a_host(STARTED, failed, '{"event":"exited","sandbox_uid":UID,"code":43,"signal":null}'))
    await backend.start(SANDBOX)
    assert await events(backend, 1) == [Exited("u1", Exit(code=43, message="cannot make the namespace"))]


async def test_unreadable_and_foreign_events_of_a_host_are_ignored(begin, caplog):
    noise = [
        '{"event":"ready","sandbox_uid":"stranger"}',
        "no json",
        "[1]",
        '{"event":"error","message":"cannot read"}',
    ]
    backend = begin(a_host(*noise, STARTED, READY))
    await backend.start(SANDBOX)
    assert [type(one) for one in await events(backend, 1)] == [Ready]
    assert "cannot understand the executor host: b'no json" in caplog.text
    assert "the executor host says: cannot read" in caplog.text


async def test_a_sandbox_that_is_stopped_before_its_host_is_there_never_starts(begin):
    backend = begin(a_host(STARTED, READY))
    starting = asyncio.create_task(backend.start(SANDBOX))
    await asyncio.sleep(0)
    await backend.stop("u1")
    await starting
    assert await events(backend, 1) == [Exited("u1", Exit(message="it was stopped before it was started"))]
    await backend.stop("u1")


async def test_a_state_directory_whose_paths_are_too_long_is_a_failed_start(tmp_path):
    with OwnerDir(tmp_path / ("x" * 90) / "f-1") as directory:
        backend = LocalBackend(directory, {"python": TEMPLATE}, user_ids=None)
        await backend.start(SANDBOX)
        (ended,) = await events(backend, 1)
        assert "107 are possible" in ended.end.message
