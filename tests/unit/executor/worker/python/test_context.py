"""After code that interrupts, breaks or replaces parts of the context, the next cell works."""

import os
import signal
import socket
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

pytest_plugins = ("support.executor.worker_contexts",)


def interrupt_at(context, mark):
    """Sends SIGINT once the mark has been printed."""
    sent = []

    def on_output(text):
        if mark in text and not sent:
            sent.append(True)
            context.interrupt()

    return on_output


@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "import time; time.sleep(50)",
        "!sleep 50",
        "x = !sleep 50",
        "%%bash\ntrap '' INT\necho ready\nsleep 50",
        "import subprocess; subprocess.run(['sleep', '50'])",
        "import asyncio\nawait asyncio.sleep(50)",
        "import asyncio\nasync def f():\n    while True: await asyncio.sleep(0)\nawait f()",
        "import asyncio\nasyncio.run(asyncio.sleep(50))",
        "import threading; threading.Event().wait(50)",
        "class R:\n    def __repr__(self):\n        while True: pass\nR()",
        "class E(Exception):\n    def __str__(self):\n        while True: pass\nraise E",
        "%timeit -n100000000 pass",
        "%%time\nprint('ready', flush=True)\nwhile True: pass",
        "while True: print('x', end='')",
    ],
)
def test_an_interrupt_ends_the_cell_and_not_the_session(context, code):
    context.run("kept = 7")
    ready = "" if code.startswith("%%") else "print('ready', flush=True)\n"
    outcome = context.run(ready + code, on_output=interrupt_at(context, "ready"))
    assert (outcome.status, outcome.error["name"]) == ("interrupted", "KeyboardInterrupt")
    assert context.run("kept").text == "7"


def test_an_interrupt_ends_a_cell_while_it_handles_an_unshowable_error(context):
    outcome = context.run(
        "class E(Exception):\n    def __str__(self):\n        while True: pass\n"
        "try:\n    raise E\nexcept E:\n    print('ready', flush=True)\n    while True: pass",
        on_output=interrupt_at(context, "ready"),
    )
    assert (outcome.status, outcome.error["name"]) == ("interrupted", "KeyboardInterrupt")


def test_an_interrupted_cell_reports_its_line(context):
    outcome = context.run(
        "def spin():\n    print('ready', flush=True)\n    while True: pass\nspin()",
        on_output=interrupt_at(context, "ready"),
    )
    assert [frame["function"] for frame in outcome.error["frames"]] == ["<module>", "spin"]
    assert "signals.py" not in outcome.error["traceback"]


def test_code_that_swallows_an_interrupt_goes_on(context):
    code = "import time\ntry:\n    print('ready', flush=True)\n    time.sleep(50)\nexcept KeyboardInterrupt: print('swallowed')\n'end'"
    outcome = context.run(code, on_output=interrupt_at(context, "ready"))
    assert (outcome.status, outcome.text, outcome.out) == ("ok", "'end'", "ready\nswallowed\n")


def test_an_interrupt_of_an_idle_context_is_ignored(context):
    context.run("x = 1")
    for _ in range(20):
        context.interrupt()
    assert context.run("x").text == "1"
    assert context.run("raise KeyboardInterrupt").status == "error"


def test_interrupts_never_break_a_frame(context):
    context.run("def spin():\n    print('ready', flush=True)\n    while True: display('x' * 10_000)")
    for _ in range(20):
        outcome = context.run("spin()", on_output=interrupt_at(context, "ready"))
        assert outcome.status == "interrupted"
    assert context.run("1").text == "1"


@pytest.mark.parametrize("handler", ["signal.SIG_IGN", "signal.SIG_DFL", "lambda *a: None"])
def test_the_next_cell_restores_a_replaced_or_blocked_signal(context, handler):
    context.run(
        f"import signal; signal.signal(signal.SIGINT, {handler}); signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])"
    )
    context.interrupt()
    outcome = context.run("print('ready', flush=True)\nwhile True: pass", on_output=interrupt_at(context, "ready"))
    assert outcome.status == "interrupted"


def test_tasks_of_an_interrupted_cell_run_their_finally(context):
    code = "import asyncio\ntry:\n    print('ready', flush=True)\n    await asyncio.sleep(50)\nfinally:\n    print('cleaned')"
    outcome = context.run(code, on_output=interrupt_at(context, "ready"))
    assert (outcome.status, outcome.out) == ("interrupted", "ready\ncleaned\n")


@pytest.mark.parametrize(
    "code",
    [
        "import os; os.close(0); os.close(1); os.close(2)",
        "import os; os.dup2(os.open('/dev/null', os.O_RDWR), 1); os.dup2(1, 2)",
        "import sys; sys.stdout = sys.stderr = None",
        "import sys; del sys.stdout, sys.stderr, sys.stdin",
        "import sys; sys.stdout.close(); sys.stderr.close(); sys.stdin.close()",
        "import sys; sys.stdout.detach(); sys.stderr.detach()",
        "import sys, io; sys.stdout = io.TextIOWrapper(sys.stdout.buffer); sys.stderr = io.TextIOWrapper(sys.stderr.detach())",
        "import sys, io; sys.stdout = sys.stderr = io.StringIO()",
        "class W:\n    def __getattr__(self, name): raise ValueError\nimport sys; sys.stdout = sys.stderr = W()",
        "import sys; sys.displayhook = sys.excepthook = None",
        "import sys; sys.stdout.write = None; sys.stdout.flush = None",
        "import builtins; builtins.input = None; del builtins.len; builtins.print = print",
        "import builtins; vars(builtins).clear()",
        "get_ipython = None",
        "del get_ipython, __builtins__",
        "__builtins__ = {}",
        "globals().clear()",
        "__name__ = 5; __doc__ = None; _ = 1; del _, In, Out",
        "import os, shutil; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')",
        "import sys; sys.path.clear(); sys.path = None",
        "import os; os.environ.clear()",
        "import os; os.environ = None",
        "import sys; sys.setrecursionlimit(40)",
        "import sys; sys.settrace(lambda *a: 1 / 0)",
        "import sys; sys.setprofile(lambda *a: exit())",
        "import sys\nfor name in list(sys.modules):\n    if name not in ('sys', 'builtins'): sys.modules[name] = None",
        "import sys; sys.modules.clear()",
        "import os, socket, time, traceback\nos.getpid = lambda: 1\nsocket.socket = time.monotonic = traceback.format_exception = None",
        "import asyncio; asyncio.set_event_loop_policy(None); asyncio.get_event_loop().close()",
        "import asyncio\nawait asyncio.sleep(0)\nasyncio.get_running_loop().stop()",
        "import gc; gc.disable(); gc.set_threshold(1, 1, 1); gc.set_debug(gc.DEBUG_STATS); gc.set_debug(0)",
        "import warnings; warnings.simplefilter('error')",
        "import locale, os; os.environ['LC_ALL'] = 'xx'; os.umask(0o777)",
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (16, 4096))",
        "import signal; signal.setitimer(signal.ITIMER_REAL, 0); signal.signal(signal.SIGPIPE, signal.SIG_DFL)",
        "ip = get_ipython(); ip.user_ns.clear()",
        "get_ipython().reset()",
        "%reset -f",
        "import os; os.closerange(3, 800)",
        "import faulthandler; faulthandler.disable()",
        "import logging; logging.disable(); logging.shutdown()",
        "type(get_ipython()).clear_instance()",
    ],
)
def test_the_next_cell_works_after_a_destructive_one(context, code):
    context.run("1")
    context.run(code)
    outcome = context.run("print('out'); import sys; print('err', file=sys.stderr)\n6 * 7")
    assert (outcome.status, outcome.text, outcome.out, outcome.err) == ("ok", "42", "out\n", "err\n"), outcome.error
    assert context.run("[][1]").error["name"] == "IndexError"


@pytest.mark.parametrize("code", ["import os; os.close(1); print('x')", "import sys; sys.stdout.close(); print('x')"])
def test_printing_to_a_closed_stream_fails_the_cell(context, code):
    assert context.run(code).error["name"] in {"OSError", "ValueError"}
    assert context.run("print('again')").out.endswith("again\n")


def test_a_forked_child_never_answers_for_the_context(fork):
    context = fork(merged=True)
    code = "import os\nprint('once')\npid = os.fork()\nif pid == 0:\n    display('in the child')\n    print('child')\nelse:\n    os.waitpid(pid, 0)\n'result'"
    outcome = context.run(code)
    assert (outcome.status, outcome.text, outcome.results) == ("ok", "'result'", [])
    text = outcome.out + outcome.err
    assert text.count("once") == 1
    assert text.count("child\n") == 1
    assert context.run("1").text == "1"


@pytest.mark.parametrize(
    ("child", "status"),
    [
        ("raise SystemExit(7)", 7),
        ("1/0", 1),
        ("raise SystemExit('text')", 1),
        ("pass", 0),
        ("raise SystemExit", 0),
        ("import os; os._exit(9)", 9),
    ],
)
def test_a_forked_child_ends_as_a_script_would(context, child, status):
    code = f"import os\ncode = 0\npid = os.fork()\nif pid == 0:\n    {child}\nelse:\n    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])\ncode"
    outcome = context.run(code)
    assert outcome.text == str(status)
    assert ("ZeroDivisionError" in outcome.err) is (child == "1/0")


def test_process_pools_work(context):
    code = "from concurrent.futures import ProcessPoolExecutor\ndef f(x): return x * 2\nwith ProcessPoolExecutor(2) as p: r = list(p.map(f, range(4)))\nr"
    assert context.run(code).text == "[0, 2, 4, 6]"


def test_threads_that_outlive_their_cell_disturb_nothing(context):
    context.run(
        "import threading, time\nstop = False\ndef work():\n    while not stop:\n        print('t'); display(1); time.sleep(0.001)\n"
        "threading.Thread(target=work).start()"
    )
    for _ in range(20):
        assert context.run("time.sleep(0.002)\n6").text == "6"
    context.run("stop = True")
    assert context.run("threading.active_count() <= 2").text == "True"


def test_children_of_children_stay_in_the_tree(context):
    context.run("!(setsid sleep 50 >/dev/null 2>&1 & echo $! > pid)")
    pid = int(context.run("int(open('pid').read())").text)
    try:
        assert f"PPid:\t{context.pid}\n" in Path(f"/proc/{pid}/status").read_text()
    finally:
        os.kill(pid, signal.SIGKILL)


def test_private_descriptors_are_high_and_not_inherited(context):
    seen = context.run(
        "import os\nlow = sorted(int(n) for n in os.listdir('/proc/self/fd'))\n[n for n in low if 2 < n < 500]"
    ).text
    assert len(eval(seen)) == 1  # the listing itself
    assert eval(context.run("x = !ls /proc/self/fd\n[int(n) for n in x]").text) == [0, 1, 2, 3]


def test_the_context_ends_with_its_socket(context):
    context.run(
        "import atexit, threading, time\natexit.register(lambda: time.sleep(50))\nthreading.Thread(target=time.sleep, args=(50,)).start()"
    )
    context.control.shutdown(socket.SHUT_RDWR)
    deadline = time.monotonic() + 30
    while is_alive(context.pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def test_a_native_crash_prints_where_it_was(context):
    context.send("def f():\n    import ctypes; ctypes.string_at(0)\nf()")
    assert context.control.recv(1) == b""
    text = os.read(context.err, 65536).decode()
    assert "Segmentation fault" in text
    assert '"<cell 1>", line 2' in text


def test_running_out_of_memory_is_an_error_and_the_session_goes_on(context):
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 29, -1))\nkept = 5"
    context.run(limit)
    for code in (
        "x = bytearray(1 << 30)",
        "x = []\nwhile True: x.append(bytearray(1 << 20))",
        "def f():\n    y = []\n    while True: y.append([0] * 1000)\nf()",
    ):
        outcome = context.run(code)
        assert (outcome.status, outcome.error["name"]) == ("error", "MemoryError")
        context.run("x = None")
    assert context.run("kept").text == "5"


def test_an_endless_flood_of_output_can_be_interrupted(context):
    outcome = context.run("while True: print('flood' * 100)", on_output=interrupt_at(context, "flood"))
    assert outcome.status == "interrupted"
    assert context.run("1").text == "1"


def test_orphans_are_reaped_and_exit_codes_of_the_users_children_are_kept(context):
    context.run("import subprocess\nown = subprocess.Popen(['sh', '-c', 'exit 9'])")
    context.run("import os\nfor i in range(30): os.system('sh -c true &')\nimport time; time.sleep(0.2)")
    # Other processes of the machine come and go.
    look = "import glob\ndef look(path):\n    try:\n        return open(path).read()\n    except OSError:\n        return ''\n"
    count = look + "sum(') Z %d ' % os.getpid() in look(p) for p in glob.glob('/proc/[0-9]*/stat'))"
    assert int(context.run(count).text) > 16
    for _ in range(8):
        context.run("1")
    assert context.run(count).text == "1"
    assert context.run("own.wait()").text == "9"


def test_a_signal_handler_that_displays_never_breaks_a_frame_or_blocks(context):
    code = (
        "import signal\nsignal.signal(signal.SIGVTALRM, lambda *a: display('alarm'))\n"
        "signal.setitimer(signal.ITIMER_VIRTUAL, 0.002, 0.002)\nfor i in range(300): display('x' * 100_000)\n"
        "signal.setitimer(signal.ITIMER_VIRTUAL, 0)"
    )
    outcome = context.run(code)
    assert outcome.status == "ok", outcome.error
    assert sum(len(result["text/plain"]) > 1000 for result in outcome.results) == 300


def test_printing_goes_on_when_the_other_stream_is_closed(context):
    outcome = context.run("import os, sys\nos.close(2)\nsys.stderr.write('lost')\nprint('kept')")
    assert (outcome.status, outcome.out) == ("ok", "kept\n")
