"""Pickling and unpickling that misbehave, and copies that lie: a typed end, and a context that goes on."""

import pytest
import pytest_asyncio
from contract.executor.saving import MIB, again, names, reasons, run
from sandfleet import Outcome
from sandfleet.errors import (
    NotFoundError,
    SandboxError,
)

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.usefixtures("forget_states")]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def executor(starting):
    """Rollback would bring the variables back first."""
    async with starting(rollback={"enabled": False}) as made:
        yield made


ATTACKS = {
    "hangs": ("import time; time.sleep(1000)", "TooSlow"),
    "crashes": ("import ctypes; ctypes.string_at(0)", "Crashed"),
    "exits": ("import os; os._exit(7)", "Crashed"),
    "kills itself": ("import os; os.kill(os.getpid(), 9)", "Crashed"),
    "takes all memory": ("x = bytearray(1 << 30); x = [x, bytearray(1 << 31), bytearray(1 << 32)]", "OutOfMemory"),
    "forks": ("import os; os.fork()", "NotPicklable"),
}


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.attack("misbehaves while it is pickled", "named, no harm")
async def test_pickling_that_misbehaves_is_named_and_harms_no_context(executor, sandbox, context, neighbour, attack):
    body, reason = ATTACKS[attack]
    await run(
        sandbox,
        f"good = [1]\nclass A:\n    def __reduce__(self):\n        {body}\n        return list, ()\nbad = A()\nafter = good",
        context,
    )
    saved = await sandbox.states.save(context=context, timeout=8 if attack == "hangs" else 60)
    assert reasons(saved.unsaved)["bad"] == reason
    assert "good" in names(saved.saved)
    if attack != "hangs":
        assert "after" in names(saved.saved)
    assert await run(sandbox, "(good, after is good)", context) == "([1], True)"
    assert (await neighbour.run_code("here")).text == "'untouched'"
    assert not executor.ended


@pytest.mark.parametrize("attack", ["crashes", "exits", "kills itself"])
@pytest.mark.control("misbehaves while it is pickled")
async def test_control_pickling_in_the_context_itself_ends_it(sandbox, context, attack):
    """Why a copy of the interpreter does it."""
    body, _ = ATTACKS[attack]
    await run(sandbox, f"class A:\n    def __reduce__(self):\n        {body}\nbad = A()", context)
    execution = await sandbox.run_code("import pickle; pickle.dumps(bad)", context=context)
    assert execution.outcome is Outcome.KILLED, execution


async def test_the_variables_after_one_that_takes_all_the_time_are_named(sandbox, context):
    slow = "class A:\n    def __reduce__(self):\n        import time; time.sleep(1000)"
    await run(sandbox, f"first = 1\n{slow}\nbad = A()\nlast = 2", context)
    saved = await sandbox.states.save(context=context, timeout=2)
    assert "first" in names(saved.saved)
    assert reasons(saved.unsaved) == {"bad": "TooSlow", "last": "NotReached", "(random state)": "NotReached"}


async def test_what_pickling_prints_is_nowhere(sandbox, context):
    noisy = "import os\nclass A:\n    def __reduce__(self):\n        print('noise'); os.write(1, b'noise'); return list, ()\nbad = A()"
    await run(sandbox, noisy, context)
    await sandbox.states.save(context=context)
    execution = await sandbox.run_code("1", context=context)
    assert (execution.logs.stdout, execution.text) == ("", "1")


async def test_a_thread_that_holds_what_pickling_needs_costs_that_variable_alone_and_is_named(sandbox, context):
    code = """
import threading
lock = threading.Lock()
taken, done = threading.Event(), threading.Event()
def hold():
    with lock: taken.set(); done.wait()
threading.Thread(target=hold, name='holder').start()
taken.wait()
class A:
    def __reduce__(self):
        with lock: return list, ()
bad = A(); good = 1
"""
    await run(sandbox, code, context)
    saved = await sandbox.states.save(context=context, timeout=3)
    assert saved.threads == ("holder",)
    assert reasons(saved.unsaved)["bad"] == "TooSlow"
    assert await run(sandbox, "done.set(); good", context) == "1"


@pytest.mark.attack("hangs while it is restored", "interrupted and named", control="in it")
async def test_restoring_that_hangs_is_interrupted_and_named(sandbox, context):
    slow = "import time\nclass A:\n    def __reduce__(self): return time.sleep, (1000,)"
    await run(sandbox, f"first = 1\n{slow}\nbad = A()\nlast = 2", context)
    await sandbox.states.save(context=context)
    restored = await sandbox.states.restore(context=context, timeout=2)
    assert reasons(restored.unrestored) == {"bad": "TooSlow", "last": "NotReached"}
    assert await run(sandbox, "first", context) == "1"
    # Control: what takes a moment alone is waited for.
    moment = slow.replace("1000", "0.3")
    await run(sandbox, f"{moment}\nbad = A()\nlast = 3", context)
    await sandbox.states.save(context=context)
    assert not (await sandbox.states.restore(context=context, timeout=30)).unrestored


async def test_restoring_that_ends_the_interpreter_is_an_error_that_names_the_variable(sandbox, context):
    await run(sandbox, "import os\nclass A:\n    def __reduce__(self): return os._exit, (1,)\nbad = A()", context)
    await sandbox.states.save(context=context)
    with pytest.raises(SandboxError, match="at bad") as failed:
        await sandbox.states.restore(context=context)
    assert failed.value.reason == "BrokenOff"
    execution = await sandbox.run_code("'bad' in globals()", context=context)
    assert (execution.text, execution.lost) == ("False", ("variables", "processes"))


@pytest.mark.attack("runs code from a pickle", "in its own session alone", control="in it")
async def test_a_pickle_runs_in_the_session_namespace_and_nowhere_else(executor, sandbox, context):
    code = """
import os
class Evil:
    def __reduce__(self):
        return exec, ("import os; seen = (os.getpid(), os.readlink('/proc/self/ns/pid'), os.path.exists('/workspace'))\\nopen('/tmp/evil', 'a').write(repr(seen) + chr(10))",)
evil = Evil()
"""
    saved, restored = await again(sandbox, context, code)
    assert "evil" in names(saved.saved)
    assert "evil" in names(restored.restored)
    # Control: it did run, once and in the context; saving, listing and keeping it ran nothing.
    question = "lines = open('/tmp/evil').read().splitlines(); (len(lines), eval(lines[0]) == (os.getpid(), os.readlink('/proc/self/ns/pid'), True))"
    assert await run(sandbox, question, context) == "(1, True)"


FIND = """
import json, os, socket, struct
def find():
    for name in os.listdir('/proc/self/fd'):
        try:
            sock = socket.socket(fileno=os.dup(int(name)))
            if sock.type == socket.SOCK_SEQPACKET: return sock
        except OSError: pass
def say(word, data=b'', length=None):
    text = word if isinstance(word, bytes) else json.dumps(word).encode()
    find().send(struct.pack('>I', len(text) if length is None else length) + text + data)
"""
LIES = {
    "garbage": "find().send(b'\\xff' * 4096)",
    "an empty packet of two bytes": "find().send(b'ab')",
    "a length beyond the packet": "say(b'{}', length=2**32 - 1)",
    "no JSON": "say(b'{{{')",
    "deep JSON": "say(b'[' * 50_000)",
    "an unknown word": "say({'event': 'root'})",
    "begun once more": "say({'event': 'begun', 'threads': []})",
    "a saved variable of a negative size": "say({'event': 'saved', 'name': 'a', 'kind': 'value', 'size': -1})",
    "a saved variable of a huge size": "say({'event': 'saved', 'name': 'a', 'kind': 'value', 'size': 2**70})",
    "a name that is a list": "say({'event': 'saved', 'name': [], 'kind': 'value'})",
    "a kind of its own": "say({'event': 'saved', 'name': 'a', 'kind': 'root'})",
    "an end in the middle": "say({'event': 'end', 'memo': 0}, b'x')",
    "an end with a giant memo": "say({'event': 'end', 'memo': 2**60})",
    "an early end": "say({'event': 'end', 'memo': 0})",
    "undo and restart": "say({'event': 'undo'}); say({'event': 'restart'})",
    "a lone surrogate": "say({'event': 'unsaved', 'name': '\\ud800', 'kind': 'value', 'reason': '\\udfff', 'message': ''})",
    "more data than was agreed": "sock = find()\n        for _ in range(300): sock.send(bytes(4) + bytes(60_000))",
    "the socket closed": "find().shutdown(2)",
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.attack("lies as a copy of its interpreter", "a typed end")
async def test_a_copy_that_lies_is_heard_to_a_typed_end(executor, sandbox, context, neighbour, lie):
    await run(
        sandbox,
        f"{FIND}\nclass A:\n    def __reduce__(self):\n        {LIES[lie]}\n        return list, ()\nkept = 1\nbad = A()",
        context,
    )
    try:
        saved = await sandbox.states.save("lie", context=context, max_bytes=8 * MIB, timeout=20)
    except SandboxError as error:
        assert error.reason == "BrokenOff"
    else:
        assert len(saved.saved) < 20
        await sandbox.states.restore("lie", context=context)
    assert await run(sandbox, "kept", context) == "1"
    assert (await neighbour.run_code("here")).text == "'untouched'"
    assert not executor.ended


@pytest.mark.control("lies as a copy of its interpreter")
async def test_a_true_word_of_a_copy_is_believed(sandbox, context):
    # Control: the attack reaches the executor, so it is the checks that hold.
    word = "say({'event': 'unsaved', 'name': 'forged', 'kind': 'value', 'reason': 'Forged', 'message': 'by code'})"
    await run(
        sandbox,
        f"{FIND}\nclass A:\n    def __reduce__(self):\n        {word}\n        return list, ()\nbad = A()",
        context,
    )
    saved = await sandbox.states.save(context=context)
    assert reasons(saved.unsaved)["forged"] == "Forged"


REMOVE = "import shutil; shutil.rmtree({!r})"


@pytest.mark.attack("destroys what was saved", "refused")
async def test_code_cannot_destroy_what_was_saved(executor, sandbox, context):
    await run(sandbox, "x = 1", context)
    await sandbox.states.save("kept", context=context)
    execution = await sandbox.run_code(REMOVE.format(executor.config["state_dir"]), context=context)
    assert execution.error.name == "FileNotFoundError"
    await sandbox.states.restore("kept", context=context)


@pytest.mark.control("destroys what was saved")
async def test_without_a_namespace_the_same_code_destroys_it(unprotected):
    # Control: the path is the right one, so it is the namespace that hides it.
    await unprotected.sandbox.run_code("x = 1")
    await unprotected.sandbox.states.save("kept")
    assert (await unprotected.sandbox.run_code(REMOVE.format(unprotected.config["state_dir"]))).outcome is Outcome.OK
    with pytest.raises(NotFoundError):
        await unprotected.sandbox.states.restore("kept")
