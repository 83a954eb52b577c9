"""Code that breaks the interpreter it runs in: the execution ends with a typed outcome and the next cell works."""

import pytest
import pytest_asyncio
from sandfleet import Outcome

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def executor(starting):
    """Without copies of contexts: what a killed cell loses then is the subject here."""
    async with starting(rollback={"enabled": False}) as made:
        yield made


LOST = ("variables", "processes")


@pytest.mark.parametrize(
    ("code", "reason", "exit_code", "signal"),
    [
        ("import os; os._exit(3)", "InterpreterExited", 3, ""),
        ("import os; os._exit(0)", "InterpreterExited", 0, ""),
        ("import ctypes; ctypes.string_at(0)", "InterpreterCrashed", 139, "SIGSEGV"),
        ("import os; os.abort()", "InterpreterCrashed", 134, "SIGABRT"),
        ("import os; os.kill(os.getpid(), 9)", "InterpreterCrashed", 137, "SIGKILL"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "InterpreterCrashed", 143, "SIGTERM"),
        ("import os; os.execvp('true', ['true'])", "InterpreterExited", 0, ""),
        (
            "import sys; sys.setrecursionlimit(10**9)\ndef f(): f()\nclass A:\n    def __getattr__(s, n): return getattr(s, n + 'a')\nimport ctypes; ctypes.memset(id(f), 0, 4096); f()",
            "InterpreterCrashed",
            139,
            "SIGSEGV",
        ),
    ],
)
async def test_the_end_of_the_interpreter_is_an_outcome(sandbox, context, code, reason, exit_code, signal):
    await sandbox.run_code("x = 1", context=context)
    execution = await sandbox.run_code(f"print('said before', flush=True)\n{code}", context=context)
    assert (execution.outcome, execution.blame, execution.reason) == ("killed", "code", reason)
    assert (execution.exit_code, execution.signal, execution.lost) == (exit_code, signal, LOST)
    assert execution.logs.stdout == "said before\n"
    after = await sandbox.run_code("1 + 1", context=context)
    assert (after.text, after.lost) == ("2", LOST)


@pytest.mark.parametrize(
    "code",
    [
        "import os; os.close(1); os.close(2)",
        "import os; os.closerange(0, 800)",
        "import sys; sys.stdout = None; sys.stderr = 3",
        "import sys; sys.stdout.close(); sys.stderr.close(); sys.stdin.close()",
        "import sys\nclass Evil:\n    def write(self, text): raise SystemExit\n    flush = write\nsys.stdout = sys.stderr = Evil()",
        "import os; fd = os.open('/dev/null', os.O_WRONLY); os.dup2(fd, 1); os.dup2(fd, 2)",
        "import sys; sys.path.clear(); sys.meta_path.clear()",
        "import sys; sys.settrace(lambda *a: 1/0); sys.setprofile(lambda *a: 1/0)",
        "import signal; [signal.signal(n, signal.SIG_IGN) for n in (2, 3, 13, 14, 15, 17)]",
        "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())",
        "import os; os.chdir('/tmp'); os.environ.clear()",
        "import resource; resource.setrlimit(resource.RLIMIT_CPU, (3600, 3600)); resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))",
        "import os; os.umask(0o777)",
        "import threading; [threading.Thread(target=lambda: __import__('time').sleep(3600), daemon=True).start() for _ in range(20)]",
        "import atexit, os; atexit.register(os._exit, 9)",
        "__builtins__ = None; __name__ = 'x'; get_ipython = None",
        "import gc; gc.disable(); import sys; sys.setswitchinterval(1000)",
        "import asyncio; asyncio.get_event_loop_policy().set_event_loop(None); asyncio.run(asyncio.sleep(0))",
    ],
)
async def test_what_a_cell_does_to_its_interpreter_does_not_keep_the_next_from_working(sandbox, context, code):
    await sandbox.run_code("kept = 5", context=context)
    await sandbox.run_code(code, context=context, timeout=60)
    after = await sandbox.run_code(
        "import sys, asyncio\nprint('out')\nprint('err', file=sys.stderr)\nawait asyncio.sleep(0)\nkept",
        context=context,
        timeout=60,
    )
    assert (after.outcome, after.text, after.lost) == (Outcome.OK, "5", ())
    assert (after.logs.stdout, after.logs.stderr) == ("out\n", "err\n")
    assert (await sandbox.run_code("while True: pass", context=context, timeout=0.2)).outcome is Outcome.TIMEOUT


@pytest.mark.parametrize(
    "code",
    ["import builtins; builtins.len = builtins.str = None; del builtins.__import__", "import sys; sys.modules.clear()"],
)
async def test_an_interpreter_that_code_has_ruined_works_again_after_a_restart(sandbox, context, code):
    await sandbox.run_code(code, context=context)
    ruined = await sandbox.run_code("import json; len('a')", context=context, timeout=60)
    assert ruined.outcome in (Outcome.OK, Outcome.ERROR, Outcome.KILLED)
    await sandbox.restart_context(context)
    assert (await sandbox.run_code("import json; len('a')", context=context)).text == "1"


async def test_output_of_a_cell_that_closed_its_streams_is_simply_missing(sandbox, context):
    execution = await sandbox.run_code("import os\nprint('a')\nos.close(1)\nos.write(2, b'b\\n')", context=context)
    assert execution.outcome is Outcome.OK
    assert (execution.logs.stdout, execution.logs.stderr) == ("a\n", "b\n")


async def test_a_forked_child_that_runs_on_into_the_worker_ends_alone(sandbox, context):
    execution = await sandbox.run_code(
        "import os\npid = os.fork()\nprint('twice')\nif pid: os.waitpid(pid, 0)\n7", context=context
    )
    assert (execution.outcome, execution.text) == (Outcome.OK, "7")
    assert execution.logs.stdout == "twice\n7\ntwice\n" or execution.logs.stdout.count("twice") == 2
    assert (await sandbox.run_code("1", context=context)).text == "1"


async def test_background_processes_of_a_cell_live_on_until_the_context_ends(sandbox, context):
    pid = (
        await sandbox.run_code("import subprocess; p = subprocess.Popen(['sleep', '1000']); p.pid", context=context)
    ).text
    alive = f"import os; os.path.exists('/proc/{pid}')"
    assert (await sandbox.run_code(alive, context=context)).text == "True"
    await sandbox.restart_context(context)
    assert (await sandbox.run_code(alive, context=context)).text == "False"


async def test_what_is_written_between_two_cells_comes_with_the_next(sandbox, context):
    await sandbox.run_code("import threading\nthreading.Timer(0.05, print, ('late',)).start()", context=context)
    seen = ""
    for _ in range(100):
        seen += (await sandbox.run_code("import time; time.sleep(0.05)", context=context)).logs.stdout
        if seen:
            break
    assert seen == "late\n"
