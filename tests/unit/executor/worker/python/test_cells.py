"""Cells: Python with IPython's conveniences, where each cell builds on those before."""

import base64
import time
import zipfile

import pytest
from sandfleet_executor.worker.python.cells import ends_with_semicolon

pytestmark = pytest.mark.process

pytest_plugins = ("support.executor.worker_contexts",)


def test_variables_imports_functions_and_the_directory_persist(context):
    context.run("import math, os\nx = 20\nos.mkdir('d'); os.chdir('d')\ndef double(y): return y * 2")
    assert context.run("double(x) + math.floor(2.5), os.path.basename(os.getcwd())").text == "(42, 'd')"


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("1 + 1", "2"),
        ("x = 3\nx", "3"),
        ("x = 3", None),
        ("None", None),
        ("'a'", "'a'"),
        ("1;", None),
        ("1;  # no result", None),
        ("';'", "';'"),
        ("if True:\n    5", None),
        ("5\nif True: pass", None),
        ("", None),
        ("  \n\n", None),
        ("# nothing", None),
        ("\n\n  7", "7"),
        (">>> 1 + 2", "3"),
        ("In [1]: 1 + 3", "4"),
        ("def f():\n    '''%%time !x ?'''\n    return 8\nf()", "8"),
        ("'%s!' % 'a'\n", "'a!'"),
        ("a, *b = 1, 2, 3\nb", "[2, 3]"),
    ],
)
def test_the_last_expression_is_the_result(context, code, text):
    outcome = context.run(code)
    assert (outcome.status, outcome.text) == ("ok", text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1;", True),
        ("1; # c", True),
        ("';'", False),
        ("1", False),
        ("x = ';'", False),
        ("a;\n\n", True),
        ("a; b", False),
    ],
)
def test_a_semicolon_counts_only_at_the_very_end(text, expected):
    assert ends_with_semicolon(text) is expected


def test_underscore_is_the_last_result_until_code_uses_the_name(context):
    context.run("41")
    assert context.run("_ + 1").text == "42"
    context.run("_ = 'mine'")
    context.run("99")
    assert context.run("_").text == "'mine'"


def test_future_imports_hold_for_later_cells(context):
    context.run("from __future__ import annotations")
    assert context.run("def f(x: NotThere): pass\nf.__annotations__").text == "{'x': 'NotThere'}"


def test_a_syntax_error_runs_nothing(context):
    context.run("ran = False")
    for broken in ("ran = True\ndef f(:\n", "ran = True\nreturn 1", "ran = True\nnonlocal x", "ran = True\nx = '"):
        outcome = context.run(broken)
        assert (outcome.status, outcome.error["name"]) == ("error", "SyntaxError"), broken
    assert context.run("ran").text == "False"


def test_top_level_await_works_and_tasks_go_on_in_later_cells(context):
    context.run(
        "import asyncio\nseen = []\nasync def work():\n    await asyncio.sleep(0.01)\n    seen.append(1)\ntask = None"
    )
    context.run("task = asyncio.ensure_future(work())\nawait asyncio.sleep(0)")
    assert context.run("await task\nseen").text == "[1]"
    assert context.run("[x async for x in agen()]").error["name"] == "NameError"


def test_asyncio_run_works_in_a_cell_and_does_not_disturb_later_awaits(context):
    context.run("import asyncio\nasync def f(): return 5\nawait asyncio.sleep(0)")
    assert context.run("asyncio.run(f())").text == "5"
    assert context.run("asyncio.get_event_loop().run_until_complete(f())").text == "5"
    assert context.run("await f()").text == "5"


def test_shell_lines_write_in_order_with_prints(fork):
    context = fork(merged=True)
    outcome = context.run("print('a')\n!echo b; echo c >&2\nprint('d')\nimport os; os.write(1, b'e\\n'); print('f')")
    assert outcome.out + outcome.err == "a\nb\nc\nd\ne\nf\n"


def test_shell_lines_see_variables_no_terminal_and_no_input(context):
    assert context.run("name = 'world'\n!echo hello $name {1 + 1}").out == "hello world 2\n"
    assert context.run("!test -t 0 || test -t 1 || echo none; cat").out == "none\n"
    context.run("!exit 7")
    assert context.run("_exit_code").text == "7"
    context.run("!kill -9 $$")
    assert context.run("_exit_code").text == "-9"


def test_shell_output_can_be_assigned_to_a_variable(context):
    assert context.run("x = !printf 'a\\nb\\n'; echo c >&2\nlist(x)").text == "['a', 'b', 'c']"
    outcome = context.run("%%capture got\nprint('p')\n!echo s")
    assert (outcome.out, context.run("got.stdout").text) == ("", "'p\\ns\\n'")


def test_a_bash_cell_runs_without_threads(context):
    assert context.run("%%bash\nx=5\necho $x\n").out == "5\n"
    outcome = context.run("%%bash\nexit 3")
    assert (outcome.error["name"], context.run("_exit_code").text) == ("ScriptFailed", "3")
    assert context.run("import threading; threading.active_count()").text == "1"


@pytest.mark.parametrize(
    ("code", "out"),
    [
        ("%time 1 + 1", "Wall time"),
        ("%timeit -n1 -r1 1 + 1", "per loop"),
        ("%%time\nfor i in range(3): pass", "Wall time"),
        ("%%writefile note.txt\nhello\n", "Writing note.txt"),
        ("%who", ""),
        ("x = 1\n?x", "Type"),
        ("len?", "number of items"),
        ("%pwd", ""),
        ("%cd /", "/"),
        ("ls", ""),
        ("%lsmagic", ""),
        ("%load_ext autoreload\n%autoreload 2", ""),
        ("%matplotlib inline", ""),
        ("%env A_VALUE=3", "A_VALUE"),
        ("%history", ""),
        ("%run -i script.py", "ran"),
    ],
)
def test_magics_work(context, fork, code, out):
    (fork.workspace / "script.py").write_text("print('ran')\n")
    outcome = context.run(code)
    assert outcome.status == "ok", outcome.error
    assert out in outcome.out + str(outcome.results) + str(outcome.text)


@pytest.mark.parametrize(
    "code", ["%no_such_magic", "%%no_such\nx", "%reset", "%pastebin x", "%edit", "%debug", "%store x"]
)
def test_magics_that_cannot_work_end_with_an_error_or_a_message_and_never_wait(context, code):
    outcome = context.run(code)
    assert outcome.error or outcome.out or outcome.err
    assert context.run("1").text == "1"


def test_environment_variables_of_an_execution_are_gone_after_it(context):
    assert context.run("import os; os.environ['A'], os.getenv('B')", {"A": "1", "B": "2"}).text == "('1', '2')"
    assert context.run("os.getenv('A'), os.getenv('B')").text == "(None, None)"
    context.run("os.environ['A'] = 'mine'")
    assert context.run("!echo $A", {"A": "theirs"}).out == "theirs\n"
    assert context.run("os.environ['A']").text == "'mine'"


def test_modules_of_the_workspace_can_be_imported_and_shadow_nothing(context, fork):
    (fork.workspace / "json.py").write_text("raise SystemExit('planted')")
    (fork.workspace / "own.py").write_text("VALUE = 1\n")
    assert context.run("import json, csv, own\njson.dumps(own.VALUE)").text == "'1'"


def test_a_new_context_reads_an_edited_module_again(context, fork):
    for value in range(1, 4):
        # Same size, same second: a compiled file would hide the edit.
        (fork.workspace / "own.py").write_text(f"VALUE = {value}\n")
        assert fork().run("import own; own.VALUE").text == str(value)
    assert not (fork.workspace / "__pycache__").exists()


def test_a_cell_can_import_a_module_that_the_cell_before_wrote(context):
    context.run("import importlib.util as u\nu.find_spec('later')\nopen('later.py', 'w').write('V = 5')")
    assert context.run("import later; later.V").text == "5"


def test_packages_are_installed_into_the_workspace_and_imported_last(context, fork):
    wheel = make_wheel(fork.workspace, "tinypack", "VALUE = 'new'")
    shadow = make_wheel(fork.workspace, "colorsys", "VALUE = 'planted'")
    outcome = context.run(f"%pip install --no-index --no-deps {wheel} {shadow}")
    assert outcome.status == "ok", outcome
    assert (fork.packages / "tinypack.py").exists()
    assert context.run("import tinypack, colorsys\ntinypack.VALUE, hasattr(colorsys, 'VALUE')").text == "('new', False)"
    assert context.run("import sys; sys.path[-1]").text == repr(str(fork.packages))
    assert not {".cache", ".local", ".config"} & {path.name for path in fork.workspace.iterdir()}


def test_a_failed_installation_is_an_error_that_names_pip(context):
    outcome = context.run("%pip install --no-index no-such-package-here")
    assert outcome.error["name"] == "CannotInstall"
    assert outcome.error["value"].startswith("cannot install: pip ended with exit code 1")


def make_wheel(folder, name, source):
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", source)
        archive.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(
            f"{name}-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr(f"{name}-1.0.dist-info/RECORD", "")
    return path


@pytest.mark.parametrize("make", ["asyncio.ensure_future", "asyncio.get_event_loop().create_task"])
def test_a_task_that_a_cell_without_await_makes_is_awaited_in_the_next_one(context, make):
    assert context.run(f"import asyncio\nasync def five(): return 5\ntask = {make}(five())").status == "ok"
    assert context.run("await task").text == "5"
    # asyncio.run() unsets the loop, for the rest of its cell.
    context.run("asyncio.run(five())")
    context.run("later = asyncio.ensure_future(five())")
    assert context.run("await later").text == "5"


def test_a_byte_order_mark_before_the_first_line_is_dropped_as_in_a_file(context):
    assert context.run("\ufeffx = 5\nx").text == "5"
    assert context.run("\ufeff%who").status == "ok"
    assert context.run("'\ufeff'").text == r"'\ufeff'"


@pytest.mark.parametrize(
    "code",
    [
        "input('name? ')",
        "import getpass; getpass.getpass()",
        "breakpoint()",
        "import sys; sys.stdin.readline() or input()",
    ],
)
def test_input_fails_at_once_and_names_an_alternative(context, code):
    outcome = context.run(code)
    assert outcome.error["name"] == "StdinNotAvailable"
    assert outcome.error["value"].startswith("cannot ")
    assert context.run("import sys; sys.stdin.read(), list(sys.stdin)").text == "('', [])"
    assert context.run("try: input()\nexcept EOFError: ok = True\nok").text == "True"


def test_cpu_and_peak_memory_are_those_of_the_cell(context):
    big = context.run(
        "x = bytearray(64 << 20)\nx[::4096] = b'a' * len(x[::4096])\ndel x\nfor i in range(300_000): pass"
    )
    small = context.run("1")
    assert big.peak > small.peak + (48 << 20)
    assert big.cpu > small.cpu > 0
    children = context.run("!python3 -S -c 'for i in range(2_000_000): pass' || true")
    assert children.cpu > small.cpu


def test_nothing_is_written_to_the_home_folder(context, fork):
    context.run("import asyncio\nawait asyncio.sleep(0)\n!true\n%time 1\n%who\n?len\n1/0")
    assert list(fork.workspace.iterdir()) == []


def test_exit_is_a_system_exit(context):
    for code in ("exit", "exit()", "quit(3)", "import sys; sys.exit(3)"):
        assert context.run(code).error["name"] == "SystemExit"
    assert context.run("1").text == "1"


def test_a_flood_of_small_prints_is_written_in_blocks(context):
    outcome = context.run("for i in range(200_000): print(i)")
    assert outcome.out == "".join(f"{i}\n" for i in range(200_000))


def test_lines_arrive_while_the_cell_runs(context):
    seen = []

    def on_output(text):
        if text == "first\n" and not seen:
            seen.append(time.monotonic())
            context.interrupt()

    outcome = context.run("print('first')\nimport time\ntime.sleep(50)", on_output=on_output)
    assert (outcome.status, outcome.out) == ("interrupted", "first\n")


def test_bytes_that_are_not_utf8_survive(context):
    outcome = context.run("import os\nprint(os.fsdecode(b'\\xff\\xfe'), '\\ud83d', 'é')")
    assert outcome.out.encode("utf-8", "surrogateescape") == b"\xff\xfe \\ud83d \xc3\xa9\n"


def test_images_are_bytes(context):
    png = base64.b64encode(b"\x89PNG\r\n\x1a\n0000").decode()
    outcome = context.run(f"class P:\n    def _repr_png_(self): return {png!r}\nP()")
    assert outcome.main["image/png"].startswith(b"\x89PNG")
