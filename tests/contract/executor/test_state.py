"""Variables that outlive their interpreter, their executor, and whatever their pickling does."""

import pytest
import pytest_asyncio
from contract.executor.harness import until
from sandfleet import Autosave, Outcome
from sandfleet.errors import (
    InvalidArgument,
    LimitReached,
    NotFoundError,
    PreconditionFailed,
    SandboxError,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")
MIB = 1 << 20


@pytest_asyncio.fixture(loop_scope="session")
async def context(sandbox):
    """The name of a new context in the file's sandbox; its state goes with it."""
    made = await sandbox.create_context()
    yield made.context_id
    await sandbox.delete_context(made)
    await sandbox.states.delete(made.context_id)


async def run(sandbox, code, context, **options):
    execution = await sandbox.run_code(code, context=context, **options)
    assert execution.outcome is Outcome.OK, execution
    return execution.text


async def again(sandbox, context, code, *, name=None):
    """Runs code, saves, restores into a fresh interpreter; what was saved, and what was restored."""
    await run(sandbox, code, context)
    saved = await sandbox.states.save(name, context=context)
    await sandbox.restart_context(context)
    return saved, await sandbox.states.restore(name, context=context)


def names(items):
    return {item.name for item in items}


def reasons(items):
    return {item.name: item.reason for item in items}


KINDS = {
    "plain values": (
        "a = 1; b = 'text'; c = [1, {'x': (2.5, None)}]; d = {1, 2}",
        "(a, b, c, d)",
        "(1, 'text', [1, {'x': (2.5, None)}], {1, 2})",
    ),
    "an array": (
        "import numpy as np; a = np.arange(200_000); a[0] = 7",
        "(int(a.sum()), a.flags.writeable, np.__name__)",
        "(19999900007, True, 'numpy')",
    ),
    "a data frame": (
        "import pandas as pd; df = pd.DataFrame({'x': range(50_000), 'y': ['t'] * 50_000})",
        "(df.shape, int(df.x.sum()), df.y.iloc[-1])",
        "((50000, 2), 1249975000, 't')",
    ),
    "functions that call each other": (
        "def even(n): return n == 0 or odd(n - 1)\ndef odd(n): return n != 0 and even(n - 1)",
        "(even(10), odd(10))",
        "(True, False)",
    ),
    "recursion": ("def fact(n): return 1 if n < 2 else n * fact(n - 1)", "fact(10)", "3628800"),
    "a lambda": ("k = 3\ntimes = lambda x: x * k", "times(5)", "15"),
    "a closure": (
        "def counter():\n    n = 0\n    def up():\n        nonlocal n\n        n += 1\n        return n\n    return up\nup = counter(); up()",
        "up()",
        "2",
    ),
    "a class with an instance": (
        "class A:\n    total = 0\n    def __init__(self, x): self.x = x\n    def double(self): return helper(self.x)\ndef helper(x): return 2 * x\na = A(4)",
        "(a.double(), type(a) is A, A(5).double())",
        "(8, True, 10)",
    ),
    "a subclass": (
        "class A:\n    def f(self): return 1\nclass B(A):\n    def f(self): return super().f() + 1\nb = B()",
        "(b.f(), isinstance(b, A))",
        "(2, True)",
    ),
    "a dataclass": (
        "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n    y: int = 2\np = P(1)",
        "(p, p == P(1))",
        "(P(x=1, y=2), True)",
    ),
    "an enum": ("import enum\nclass C(enum.Enum):\n    RED = 1\nc = C.RED", "(c, c is C.RED)", "(<C.RED: 1>, True)"),
    "modules under their names": (
        "import json as j, os.path, collections.abc",
        "(j.dumps([1]), os.path.sep, collections.abc.Sized.__name__)",
        "('[1]', '/', 'Sized')",
    ),
    "a variable with a leading underscore": ("_mine = 5", "_mine", "5"),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_what_was_saved_is_there_in_a_fresh_interpreter(sandbox, context, kind):
    code, question, answer = KINDS[kind]
    saved, restored = await again(sandbox, context, code)
    assert not saved.unsaved
    assert not restored.unrestored
    assert await run(sandbox, question, context) == answer


async def test_what_variables_share_they_share_again(sandbox, context):
    code = """
a = b = []
pair = (a, [a])
def make():
    box = []
    return box.append, lambda: box
put, look = make()
class Node: pass
n = Node(); n.me = n; m = n
"""
    await again(sandbox, context, code)
    question = "a.append(1); put(2); (b, pair[0] is a, pair[1][0] is b, look(), n.me is n, m is n, type(m) is Node)"
    assert await run(sandbox, question, context) == "([1], True, True, [2], True, True, True)"


async def test_what_is_shared_stays_so_also_around_a_variable_that_cannot_be_saved(sandbox, context):
    code = "a = [1]\nbad = [a, [2], (x for x in a)]\nb = {'a': a}\nc = bad[1]\nd = c"
    saved, _ = await again(sandbox, context, code)
    assert names(saved.unsaved) == {"bad"}
    assert (
        await run(sandbox, "(b['a'] is a, a, c, c is d, 'bad' in globals())", context)
        == "(True, [1], [2], True, False)"
    )


async def test_a_function_sees_the_variables_of_its_new_context(sandbox, context):
    await again(sandbox, context, "limit = 1\ndef over(x): return x > limit")
    await run(sandbox, "limit = 100", context)
    assert await run(sandbox, "over(50)", context) == "False"


async def test_directory_environment_path_and_chance_are_as_they_were(sandbox, context):
    code = """
import os, random, sys, numpy as np
os.makedirs('sub', exist_ok=True); os.chdir('sub')
os.environ['MINE'] = 'yes'; del os.environ['LANG']
sys.path.append('/workspace/lib')
random.seed(5); random.random(); np.random.seed(6)
"""
    await run(sandbox, code, context)
    await sandbox.states.save(context=context)
    question = "(os.getcwd(), os.environ.get('MINE'), 'LANG' in os.environ, '/workspace/lib' in sys.path, random.random(), float(np.random.rand()))"
    expected = await run(sandbox, question, context)
    await sandbox.restart_context(context)
    await sandbox.states.restore(context=context)
    assert await run(sandbox, question, context) == expected
    assert "/workspace/sub', 'yes', False, True" in expected


UNSAVABLE = {
    "a generator": "bad = (x for x in [1])",
    "an open file": "bad = open('/tmp/f', 'w')",
    "a lock": "import threading; bad = threading.Lock()",
    "a socket": "import socket; bad = socket.socket()",
    "a database connection": "import sqlite3; bad = sqlite3.connect(':memory:')",
    "a lock deep inside": "import threading; bad = {'a': [threading.Lock()]}",
    "a module that nobody can import": "import types; bad = types.ModuleType('nowhere')",
    "the namespace": "bad = globals()",
    "code that fails": "class A:\n    def __getstate__(self): raise ValueError('no, ' * 1000)\nbad = A()",
    "an error that cannot be shown": "class E(BaseException):\n    def __str__(self): raise SystemExit\nclass A:\n    def __reduce__(self): raise E\nbad = A()",
    "an exit": "class A:\n    def __reduce__(self): raise SystemExit(3)\nbad = A()",
    "recursion without an end": "bad = []\nfor _ in range(100_000): bad = [bad]",
}


@pytest.mark.parametrize("kind", UNSAVABLE)
async def test_what_cannot_be_saved_is_named_and_costs_nothing_else(sandbox, context, kind):
    await run(sandbox, f"good = 1\n{UNSAVABLE[kind]}\nafter = good", context)
    saved = await sandbox.states.save(context=context)
    (bad,) = [item for item in saved.unsaved if item.name == "bad"]
    assert bad.reason == "NotPicklable"
    assert bad.message
    assert len(bad.message) <= 400
    assert {"good", "after"} <= names(saved.saved)
    # The context itself was not touched.
    assert await run(sandbox, "(good, 'bad' in globals())", context) == "(1, True)"


ATTACKS = {
    "hangs": ("import time; time.sleep(1000)", "TooSlow"),
    "crashes": ("import ctypes; ctypes.string_at(0)", "Crashed"),
    "exits": ("import os; os._exit(7)", "Crashed"),
    "kills itself": ("import os; os.kill(os.getpid(), 9)", "Crashed"),
    "takes all memory": ("x = bytearray(1 << 30); x = [x, bytearray(1 << 31), bytearray(1 << 32)]", "OutOfMemory"),
    "forks": ("import os; os.fork()", "NotPicklable"),
}


@pytest.mark.parametrize("attack", ATTACKS)
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


async def test_ten_thousand_variables_are_saved_and_restored(sandbox, context):
    saved, restored = await again(sandbox, context, "globals().update({f'v{i}': [i] for i in range(10_000)})")
    assert len(saved.saved) == len(restored.restored) == 10_000
    assert await run(sandbox, "sum(globals()[f'v{i}'][0] for i in range(10_000))", context) == "49995000"


async def test_a_variable_over_its_limit_and_what_is_over_the_limit_of_all_are_left_out(sandbox, context):
    await run(
        sandbox,
        "import numpy as np\nbig = np.zeros(1 << 19)\none = np.ones(1 << 17)\ntwo = one + 1\nsmall = 1",
        context,
    )
    saved = await sandbox.states.save(context=context, max_variable_bytes=2 * MIB)
    assert reasons(saved.unsaved) == {"big": "TooLarge"}
    saved = await sandbox.states.save(context=context, max_bytes=3 * MIB // 2)
    assert reasons(saved.unsaved) == {"big": "TooLarge", "two": "NoRoom"}
    assert {"one", "small"} <= names(saved.saved)
    with pytest.raises(InvalidArgument):
        await sandbox.states.save(context=context, max_bytes=1 << 40)


async def test_restoring_goes_into_any_context_and_says_what_it_overwrote(sandbox, context):
    await run(sandbox, "a = 1; b = 2", context)
    await sandbox.states.save("two", context=context)
    other = (await sandbox.create_context()).context_id
    await run(sandbox, "a = 'mine'; c = 3", other)
    restored = await sandbox.states.restore("two", context=other)
    assert {item.name: item.overwrote for item in restored.restored} == {"a": True, "b": False}
    assert await run(sandbox, "(a, b, c)", other) == "(1, 2, 3)"
    await sandbox.delete_context(other)


async def test_what_cannot_be_restored_is_named_and_what_shares_with_it_too(sandbox, context):
    await run(sandbox, "open('mod.py', 'w').write('class M: pass')", context)
    code = "import mod\nshared = [0]\nx = mod.M()\nx.inner = inner = [1]\nlone = [2]\ny = [lone, shared]"
    await run(sandbox, code, context)
    await sandbox.states.save(context=context)
    await sandbox.restart_context(context)
    await sandbox.files.remove("mod.py")
    restored = await sandbox.states.restore(context=context)
    # `inner` was first met inside of x.
    assert reasons(restored.unrestored) == {"mod": "ModuleMissing", "x": "ModuleMissing", "inner": "SharesWithMissing"}
    assert (
        await run(sandbox, "(y, y[0] is lone, y[1] is shared, 'x' in globals())", context)
        == "([[2], [0]], True, True, False)"
    )
    assert restored.lost == ("variables: mod, x, inner",)


async def test_restoring_that_hangs_is_interrupted_and_named(sandbox, context):
    slow = "import time\nclass A:\n    def __reduce__(self): return time.sleep, (1000,)"
    await run(sandbox, f"first = 1\n{slow}\nbad = A()\nlast = 2", context)
    await sandbox.states.save(context=context)
    restored = await sandbox.states.restore(context=context, timeout=2)
    assert reasons(restored.unrestored) == {"bad": "TooSlow", "last": "NotReached"}
    assert await run(sandbox, "first", context) == "1"


async def test_restoring_that_ends_the_interpreter_is_an_error_that_names_the_variable(sandbox, context):
    await run(sandbox, "import os\nclass A:\n    def __reduce__(self): return os._exit, (1,)\nbad = A()", context)
    await sandbox.states.save(context=context)
    with pytest.raises(SandboxError, match="at bad") as failed:
        await sandbox.states.restore(context=context)
    assert failed.value.reason == "BrokenOff"
    execution = await sandbox.run_code("'bad' in globals()", context=context)
    assert (execution.text, execution.lost) == ("False", ("variables", "processes"))


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


async def test_names_are_checked_and_states_are_listed_and_deleted(sandbox, context):
    await run(sandbox, "x = 1", context)
    for name in ("../../etc/passwd", "a/b", "x" * 65, "é"):
        with pytest.raises(InvalidArgument):
            await sandbox.states.save(name, context=context)
    await sandbox.states.save("..", context=context)
    listed = {state.name: state for state in await sandbox.states.list()}
    assert (listed[".."].context_id, listed[".."].saved) == (context, 1)
    await sandbox.states.delete("..")
    await sandbox.states.delete("..")
    assert ".." not in {state.name for state in await sandbox.states.list()}
    with pytest.raises(NotFoundError):
        await sandbox.states.restore("..", context=context)
    with pytest.raises(NotFoundError):
        await sandbox.states.save(context="nobody")


async def test_states_are_bounded_in_number(fresh):
    sandbox = fresh.sandbox
    await sandbox.run_code("x = 1")
    for number in range(32):
        await sandbox.states.save(f"s{number}")
    with pytest.raises(LimitReached) as failed:
        await sandbox.states.save("one-more")
    assert failed.value.reason == "TooManyStates"
    await sandbox.states.save("s0")


async def test_a_context_without_an_interpreter_has_nothing_to_save(sandbox, context):
    await sandbox.run_code("import os; os._exit(1)", context=context)
    with pytest.raises(PreconditionFailed):
        await sandbox.states.save(context=context)


async def test_without_a_directory_for_states_it_says_so(starting):
    async with starting(state_dir=None) as made:
        await made.sandbox.run_code("x = 1")
        for call in (made.sandbox.states.save, made.sandbox.states.restore, made.sandbox.states.list):
            with pytest.raises(PreconditionFailed):
                await call()
        with pytest.raises(PreconditionFailed):
            await made.sandbox.create_context(autosave=True)


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


async def test_large_variables_pass_through_in_pieces(executor, sandbox, context):
    await run(sandbox, "import numpy as np; a = np.arange(16 << 20)", context)
    idle = executor.memory()
    executor.restart_peak()
    saved = await sandbox.states.save(context=context, timeout=60)
    assert saved.state.size > 128 * MIB
    await sandbox.restart_context(context)
    await sandbox.states.restore(context=context)
    assert executor.peak_memory() < idle + 64 * MIB
    assert await run(sandbox, "int(a[-1])", context) == str((16 << 20) - 1)


@pytest.mark.parametrize("moment", ["while", "right after"])
async def test_states_outlive_an_executor_that_is_killed(starting, moment):
    async with starting(restarts=True) as made:
        sandbox = made.sandbox
        await sandbox.run_code("x = [1]; y = x")
        await sandbox.states.save("kept")
        if moment == "while":
            await sandbox.run_code("import numpy as np; big = np.zeros(8 << 20); x.append(2)")
            call = sandbox._link.connection()
            connection = await call
            request = __import__("sandfleet")._api.interpreter.SaveStateRequest(name="kept")
            running = connection.interpreter.SaveState(request, metadata=connection.metadata())
            await until(lambda: True)
            made.kill()
            await made.back()
            with pytest.raises(Exception, match=""):
                await running
        else:
            made.kill()
            await made.back()
        await sandbox.states.restore("kept")
        assert (await sandbox.run_code("(x[0], y is x)")).text == "(1, True)"


async def saved_automatically(sandbox, cell, context="default"):
    async def newest():
        found = {each.context_id: each for each in await sandbox.list_contexts()}[context].autosaved
        return found and found.state and found.state.cell_number >= cell and found

    return await until(newest)


async def test_with_autosave_a_crash_costs_only_what_cannot_be_saved(sandbox):
    context = await sandbox.create_context(autosave=True)
    await run(sandbox, "x = [1]; y = x\ngen = (i for i in x)\nimport json", context)
    await saved_automatically(sandbox, 1, context.context_id)
    crashed = await sandbox.run_code("x.append(2); import os; os._exit(1)", context=context)
    assert crashed.lost == ("variables: gen", "processes")
    execution = await sandbox.run_code("(x, y is x, json.dumps(1), 'gen' in globals())", context=context)
    assert execution.text == "([1], True, '1', False)"
    assert execution.lost == ("variables: gen", "processes")
    assert execution.restored == "3 variables, as after cell 1"
    assert (await sandbox.run_code("1", context=context)).restored == ""
    await sandbox.delete_context(context)


async def test_without_autosave_the_same_crash_costs_all(sandbox, context):
    await run(sandbox, "x = [1]", context)
    await sandbox.run_code("import os; os._exit(1)", context=context)
    execution = await sandbox.run_code("'x' in globals()", context=context)
    assert (execution.text, execution.lost, execution.restored) == ("False", ("variables", "processes"), "")


async def test_an_automatic_save_that_ends_the_interpreter_is_tried_once(sandbox):
    context = await sandbox.create_context(autosave=True)
    await run(
        sandbox, "import os\nclass A:\n    def __reduce__(self): return os._exit, (1,)\nbad = A(); x = 1", context
    )
    await saved_automatically(sandbox, 1, context.context_id)
    await sandbox.run_code("os._exit(1)", context=context)
    execution = await sandbox.run_code("'x' in globals()", context=context)
    assert (execution.outcome, execution.text, execution.lost) == (Outcome.OK, "False", ("variables", "processes"))
    await run(sandbox, "y = 1", context)
    await saved_automatically(sandbox, 4, context.context_id)
    await sandbox.delete_context(context)


async def test_an_automatic_save_that_is_behind_says_so(sandbox):
    context = await sandbox.create_context(autosave=True)
    await run(sandbox, "x = 1", context)
    await saved_automatically(sandbox, 1, context.context_id)
    hang = "class A:\n    def __reduce__(self):\n        import time; time.sleep(1000)\nstuck = A(); x = 2"
    await run(sandbox, hang, context)
    crashed = await sandbox.run_code("import os; os._exit(1)", context=context)
    assert crashed.lost == ("variables since cell 1", "processes")
    execution = await sandbox.run_code("x", context=context)
    assert (execution.text, execution.lost) == ("1", ("variables since cell 1", "processes"))
    await sandbox.delete_context(context)


async def test_a_cell_does_not_wait_for_an_automatic_save(sandbox):
    context = await sandbox.create_context(autosave=True)
    hang = "class A:\n    def __reduce__(self):\n        import time; open('/tmp/pickling', 'w'); time.sleep(1000)\nstuck = A()"
    await run(sandbox, hang, context)
    await until(lambda: sandbox.files.exists("/tmp/pickling"))
    # It hangs for as long as one variable may take; the cell's deadline is far below.
    assert await run(sandbox, "1 + 1", context, timeout=5) == "2"
    await sandbox.delete_context(context)


async def test_a_context_that_was_restarted_or_deleted_brings_nothing_back(sandbox):
    context = await sandbox.create_context("forgets", autosave=True)
    await run(sandbox, "x = 1", context)
    await saved_automatically(sandbox, 1, "forgets")
    await sandbox.restart_context(context)
    execution = await sandbox.run_code("'x' in globals()", context=context)
    assert (execution.text, execution.lost) == ("False", ())
    await sandbox.delete_context(context)
    await sandbox.create_context("forgets", autosave=True)
    assert await run(sandbox, "'x' in globals()", "forgets") == "False"
    await sandbox.delete_context("forgets")


async def test_on_another_executor_the_default_context_has_its_variables(starting):
    async with starting(restarts=True) as made:
        client = made.client(autosave=Autosave(max_bytes=64 * MIB))
        assert (await client.run_code("x = [1]; y = x; gen = (i for i in x)")).lost == ()
        await saved_automatically(client, 1)
        made.kill()
        await made.back()
        execution = await client.run_code("(x, y is x)")
        assert execution.text == "([1], True)"
        assert execution.restored == "2 variables, as after cell 1"
        assert "variables" not in execution.lost
        assert "variables: gen" in execution.lost
        assert execution.cell_number == 2
