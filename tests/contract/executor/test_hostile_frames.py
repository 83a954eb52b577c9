"""Code that finds the interpreter's line to the executor and speaks on it."""

import asyncio
import select
import socket
import subprocess

import pytest
from contract.executor.harness import PATIENCE, until
from sandfleet import Outcome
from sandfleet_api.executor.v1 import interpreter_pb2, interpreter_pb2_grpc

pytestmark = pytest.mark.asyncio(loop_scope="session")

# Whatever socket the interpreter has: scanned for, not known.
FIND = """
import json, os, socket, struct
found = []
for name in os.listdir('/proc/self/fd'):
    try:
        if os.readlink(f'/proc/self/fd/{name}').startswith('socket:'): found.append(int(name))
    except OSError: pass
assert found, 'no socket to attack'
def say(header, payload=b'', lengths=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    for fd in found:
        os.write(fd, struct.pack('>II', *(lengths or (len(text), len(payload)))) + text + payload)
"""
ATTACKS = {
    "garbage": "for fd in found: os.write(fd, b'\\xff' * 4096)",
    "text": "for fd in found: os.write(fd, b'GET / HTTP/1.1\\r\\n\\r\\n' * 9)",
    "a huge length": "say(b'{}', lengths=(2**32 - 1, 2**32 - 1))",
    "a header that is no JSON": "say(b'{{{')",
    "a header that is a list": "say([1])",
    "JSON a hundred thousand levels deep": "say(b'[' * 100_000)",
    "an unknown event": "say({'event': 'root', 'a': 1})",
    "no event": "say({})",
    "an event that is a list": "say({'event': ['done']})",
    "done without its fields": "say({'event': 'done'})",
    "done with an infinite time": 'say(b\'{"event":"done","status":"ok","cpu":Infinity,"peak":0}\')',
    "done with no number": 'say(b\'{"event":"done","status":"ok","cpu":NaN,"peak":0}\')',
    "done with a giant number": "say({'event': 'done', 'status': 'ok', 'cpu': 10**400, 'peak': 0})",
    "done with a negative peak": "say({'event': 'done', 'status': 'ok', 'cpu': 0, 'peak': -1})",
    "done with an unknown status": "say({'event': 'done', 'status': 'root', 'cpu': 0, 'peak': 0})",
    "a fake done": "say({'event': 'done', 'status': 'ok', 'cpu': 0, 'peak': 0})",
    "many fake dones": "for _ in range(50): say({'event': 'done', 'status': 'ok', 'cpu': 0, 'peak': 0})",
    "a result that is longer than it says": "say({'event': 'result', 'main': True, 'parts': [{'mime': 'a/b', 'size': 9}], 'dropped': 0}, b'x')",
    "a result of a negative size": "say({'event': 'result', 'main': True, 'parts': [{'mime': 'a/b', 'size': -9}], 'dropped': 0}, b'x')",
    "a result with parts that are no list": "say({'event': 'result', 'main': True, 'parts': 'abc', 'dropped': 0})",
    "a result with a lone surrogate": "say({'event': 'result', 'main': True, 'parts': [{'mime': '\\ud800', 'size': 0}], 'dropped': 0})",
    "an error with a lone surrogate": "say({'event': 'error', 'name': '\\ud800', 'value': '\\udfff', 'traceback': '', 'frames': []})",
    "an error with a giant line": "say({'event': 'error', 'name': 'a', 'value': '', 'traceback': '', 'frames': [{'file': '', 'line': 2**40, 'function': '', 'source': ''}]})",
    "an error with frames that are numbers": "say({'event': 'error', 'name': 'a', 'value': '', 'traceback': '', 'frames': [1, 2]})",
    "a request for input that is none": "say({'event': 'input', 'id': [], 'prompt': 1, 'password': 0})",
    "requests for input whose answers are not read": "for _ in range(20_000): say({'event': 'input', 'id': 'x', 'prompt': 'y' * 4000, 'password': False})",
    "clears whose answers are not read": "for _ in range(100_000): say({'event': 'cleared', 'wait': False, 'answer': True})",
    "half a frame": "for fd in found: os.write(fd, struct.pack('>II', 100, 100) + b'{')",
    "the end of the stream": "for fd in found: socket.socket(fileno=os.dup(fd)).shutdown(socket.SHUT_RDWR)",
    "a closed socket": "for fd in found: os.close(fd)",
    "another file in its place": "null = os.open('/dev/null', os.O_RDWR)\nfor fd in found: os.dup2(null, fd)",
    "no reader any more": "for fd in found: socket.socket(fileno=os.dup(fd)).shutdown(socket.SHUT_RD)",
    "its own requests eaten": "import fcntl\nfor fd in found:\n    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NONBLOCK)",
}


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.attack("forges the frames of its interpreter", "a typed end, the next cell works")
async def test_the_execution_ends_in_a_typed_way_and_the_next_cell_works(executor, sandbox, context, neighbour, attack):
    await sandbox.run_code("kept = 1")
    execution = await sandbox.run_code(
        f"{FIND}\n{ATTACKS[attack]}\nimport time; time.sleep(0.2)\n'end'", context=context, timeout=4
    )
    assert execution.outcome in (Outcome.OK, Outcome.ERROR, Outcome.KILLED, Outcome.TIMEOUT)
    assert execution.blame != "platform"
    assert execution.error is None or execution.error.name != "AssertionError"
    after = await sandbox.run_code("1 + 1", context=context, timeout=30)
    if after.text != "2":
        # What was left of the attack came in the next cell's time; the one after it is clean.
        assert after.outcome in (Outcome.OK, Outcome.ERROR, Outcome.KILLED, Outcome.TIMEOUT)
        after = await sandbox.run_code("1 + 1", context=context, timeout=30)
    assert (after.outcome, after.text) == (Outcome.OK, "2")
    # Nothing but the attacker's own context was touched.
    assert (await sandbox.run_code("kept")).text == "1"
    assert (await neighbour.run_code("here")).text == "'untouched'"
    assert (await sandbox.health()).ready
    assert not executor.ended


@pytest.mark.control("forges the frames of its interpreter", "floods with forged results", "floods with forged errors")
async def test_frames_that_are_right_are_believed(sandbox, context):
    # Control: the attack reaches the executor, so it is the checks that hold.
    forged = (
        "say({'event': 'result', 'main': True, 'parts': [{'mime': 'text/plain', 'size': 6}], 'dropped': 0}, b'forged')"
    )
    execution = await sandbox.run_code(f"{FIND}\n{forged}", context=context)
    assert execution.text == "forged"


@pytest.mark.attack("lies about what it has used", "bounded by the samples", control="in it")
async def test_what_an_interpreter_says_of_its_use_is_bounded_by_what_was_seen(host, sandbox, context):
    burn = "import time\nend = time.process_time() + {seconds}\nwhile time.process_time() < end: pass"
    # Control: the truth is believed, also of what no look has seen.
    assert 0.03 < (await sandbox.run_code(burn.format(seconds=0.04), context=context)).usage.cpu_seconds < 1
    lie = "say({'event': 'done', 'status': 'ok', 'cpu': 0, 'peak': 2**60, 'written': 2**60})"
    code = f"{FIND}\n{burn.format(seconds=1.5)}\n{lie}\ntime.sleep(1)"
    usage = (await sandbox.run_code(code, context=context, timeout=30)).usage
    # The last look may be a while old.
    assert 0.8 < usage.cpu_seconds < 10
    assert usage.peak_memory_bytes < 2 << 30
    assert not host.counts_writes or usage.written_bytes < 2 << 30


@pytest.mark.attack("floods with forged results", "bounded")
async def test_a_flood_of_forged_results_is_bounded(executor, sandbox, context):
    executor.restart_peak()
    idle = executor.memory()
    flood = "part = b'x' * (1 << 20)\nfor _ in range(300): say({'event': 'result', 'main': False, 'parts': [{'mime': 'a/b', 'size': len(part)}], 'dropped': 0}, part)"
    execution = await sandbox.run_code(f"{FIND}\n{flood}", context=context, timeout=60)
    assert sum(len(data) for result in execution.results for data in result.parts.values()) <= 64 << 20
    assert executor.peak_memory() < idle + (96 << 20)


@pytest.mark.attack("floods with forged errors", "bounded")
async def test_a_flood_of_forged_errors_without_a_reader_is_bounded(executor, context):
    """What is heavy in them is not their text, but the frames below it."""
    executor.restart_peak()
    idle = executor.memory()
    flood = (
        "frames = [{'file': str(n), 'line': n, 'function': 'f', 'source': 's' * 4500} for n in range(200)]\n"
        "while True: say({'event': 'error', 'name': 'E', 'value': '', 'traceback': '', 'frames': frames})"
    )
    request = interpreter_pb2.ExecuteRequest(
        execution_id=f"errors-{context}", context_id=context, code=f"{FIND}\n{flood}"
    )
    request.timeout.FromSeconds(5)
    async with executor.channel() as channel:
        call = interpreter_pb2_grpc.InterpreterServiceStub(channel).Execute(
            request, metadata=(("authorization", f"Bearer {executor.token()}"),), timeout=PATIENCE
        )
        assert (await call.read()).events

        async def is_over():
            return (await executor.sandbox.usage()).running_executions == 0

        await until(is_over)
        assert executor.peak_memory() < idle + (64 << 20)
        sizes, end = [], None
        while message := await call.read():
            sizes.append(message.ByteSize())
            end = message.events[-1]
    assert end.finished.outcome
    # A message of what is small by its count and large in truth would be too large for anybody.
    assert max(sizes) < 8 << 20


@pytest.mark.attack("speaks for the supervisor of a command", "without effect")
async def test_a_command_s_supervisor_cannot_be_spoken_for(sandbox):
    # Its socket is not inherited: there is nothing to find.
    result = await sandbox.commands.run("ls -l /proc/self/fd/ /proc/$PPID/fd/ 2>&1 | grep -c socket:")
    assert result.stdout == "0\n"


@pytest.mark.control("looks for descriptors of the executor", "speaks for the supervisor of a command")
async def test_control_a_child_that_inherits_descriptors_sees_them():
    one, other = socket.socketpair()
    with one, other, select.epoll() as looked:
        listed = await asyncio.create_subprocess_exec(
            "ls", "-l", "/proc/self/fd/", stdout=subprocess.PIPE, pass_fds=(one.fileno(), looked.fileno())
        )
        said, _ = await listed.communicate()
    assert (said.count(b"socket:"), said.count(b"anon_inode:[eventpoll]")) == (1, 1)


@pytest.mark.attack("looks for descriptors of the executor", "none is there")
async def test_descriptors_of_the_executor_are_not_inherited(sandbox, context):
    code = "import os\nsorted(os.readlink(f'/proc/self/fd/{name}').split(':')[0] for name in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{name}'))"
    kinds = (await sandbox.run_code(code, context=context)).text
    assert kinds.count("socket") == 1
    assert "anon_inode" not in kinds
    assert "/w" not in kinds.replace("/workspace", "")
