"""Variables that outlive their interpreter and their executor."""

import asyncio

import pytest
from contract.executor.harness import until
from contract.executor.saving import MIB, again, names, reasons, run
from sandfleet.errors import (
    InvalidArgument,
    LimitReached,
    NotFoundError,
    PreconditionFailed,
    UnavailableError,
)

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.usefixtures("forget_states")]


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


@pytest.mark.smoke
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


@pytest.mark.smoke
async def test_what_is_shared_stays_so_also_around_a_variable_that_cannot_be_saved(sandbox, context):
    code = "a = [1]\nbad = [a, [2], (x for x in a)]\nb = {'a': a}\nc = bad[1]\nd = c"
    saved, _ = await again(sandbox, context, code)
    assert names(saved.unsaved) == {"bad"}
    assert (
        await run(sandbox, "(b['a'] is a, a, c, c is d, 'bad' in globals())", context)
        == "(True, [1], [2], True, False)"
    )


@pytest.mark.smoke
async def test_a_function_sees_the_variables_of_its_new_context(sandbox, context):
    await again(sandbox, context, "limit = 1\ndef over(x): return x > limit")
    await run(sandbox, "limit = 100", context)
    assert await run(sandbox, "over(50)", context) == "False"


@pytest.mark.smoke
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
    "a module that cannot be imported": "import types; bad = types.ModuleType('nowhere')",
    "the namespace": "bad = globals()",
    "code that fails": "class A:\n    def __getstate__(self): raise ValueError('no, ' * 1000)\nbad = A()",
    "an error that cannot be shown": "class E(BaseException):\n    def __str__(self): raise SystemExit\nclass A:\n    def __reduce__(self): raise E\nbad = A()",
    "an exit": "class A:\n    def __reduce__(self): raise SystemExit(3)\nbad = A()",
    "a metaclass that fails": "class M(type):\n    def __getattribute__(cls, name): raise RuntimeError\nclass C(metaclass=M): pass\nbad = object.__new__(C)",
    "a class that it denies": "class D:\n    @property\n    def __class__(self): raise RuntimeError\nbad = D()",
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


async def test_ten_thousand_variables_are_saved_and_restored(sandbox, context):
    saved, restored = await again(sandbox, context, "globals().update({f'v{i}': [i] for i in range(10_000)})")
    assert len(saved.saved) == len(restored.restored) == 10_000
    assert await run(sandbox, "sum(globals()[f'v{i}'][0] for i in range(10_000))", context) == "49995000"


@pytest.mark.smoke
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


@pytest.mark.smoke
async def test_restoring_goes_into_any_context_and_says_what_it_overwrote(sandbox, context):
    await run(sandbox, "a = 1; b = 2", context)
    await sandbox.states.save("two", context=context)
    other = (await sandbox.create_context()).context_id
    await run(sandbox, "a = 'mine'; c = 3", other)
    restored = await sandbox.states.restore("two", context=other)
    assert {item.name: item.overwrote for item in restored.restored} == {"a": True, "b": False}
    assert await run(sandbox, "(a, b, c)", other) == "(1, 2, 3)"
    await sandbox.delete_context(other)


@pytest.mark.smoke
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


@pytest.mark.smoke
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
        await sandbox.states.save(context="unknown")


async def test_states_are_bounded_in_number(fresh):
    sandbox = fresh.sandbox
    await sandbox.run_code("x = 1")
    for number in range(32):
        await sandbox.states.save(f"s{number}")
    with pytest.raises(LimitReached) as failed:
        await sandbox.states.save("one-more")
    assert failed.value.reason == "TooManyStates"
    await sandbox.states.save("s0")


@pytest.mark.smoke
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


@pytest.mark.parametrize("moment", ["while it saves", "right after it"])
async def test_states_outlive_an_executor_that_is_killed(starting, moment):
    async with starting(restarts=True) as made:
        sandbox = made.sandbox
        await sandbox.run_code("x = [1]; y = x")
        await sandbox.states.save("kept")
        saving = None
        if moment == "while it saves":
            hang = (
                "class A:\n    def __reduce__(self):\n        import time; open('/tmp/pickling', 'w'); time.sleep(1000)"
            )
            await sandbox.run_code(f"x.append(2)\n{hang}\nstuck = A()")
            saving = asyncio.create_task(sandbox.states.save("kept"))
            await until(lambda: sandbox.files.exists("/tmp/pickling"))
        made.kill()
        await made.back()
        if saving is not None:
            with pytest.raises(UnavailableError):
                await saving
        await sandbox.states.restore("kept")
        assert (await sandbox.run_code("(x, y is x)")).text == "([1], True)"
        assert [state.name for state in await sandbox.states.list()] == ["kept"]
