"""Errors of cells: the frames of the user's own code, and the traceback as Python prints it, within limits."""

import json
import sys

import pytest
from sandfleet_executor.worker.base import frames
from sandfleet_executor.worker.python import errors

pytestmark = pytest.mark.process

pytest_plugins = ("support.executor.worker_contexts",)


def test_the_traceback_is_pythons_with_only_the_users_frames(context):
    context.run("def inner(x):\n    return 1 / x")
    outcome = context.run("def outer():\n    return inner(0)\nouter()")
    assert outcome.error["traceback"] == (
        "Traceback (most recent call last):\n"
        '  File "<cell 2>", line 3, in <module>\n'
        "    outer()\n"
        '  File "<cell 2>", line 2, in outer\n'
        "    return inner(0)\n"
        "           ^^^^^^^^\n"
        '  File "<cell 1>", line 2, in inner\n'
        "    return 1 / x\n"
        "           ~~^~~\n"
        "ZeroDivisionError: division by zero\n"
    )
    assert outcome.error["frames"] == [
        {"file": "<cell 2>", "line": 3, "function": "<module>", "source": "outer()"},
        {"file": "<cell 2>", "line": 2, "function": "outer", "source": "return inner(0)"},
        {"file": "<cell 1>", "line": 2, "function": "inner", "source": "return 1 / x"},
    ]
    assert (outcome.status, outcome.error["name"], outcome.error["value"]) == (
        "error",
        "ZeroDivisionError",
        "division by zero",
    )
    assert outcome.err == ""


def test_frames_of_an_environment_are_a_librarys_wherever_it_is(tmp_path, monkeypatch):
    for name, failure in (("project/.venv/lib/package.py", "1 / 0"), ("project/own.py", "1 / 0")):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(failure)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "project/.venv"))
    reporter = errors.Reporter((str(tmp_path),))

    def files(path):
        with pytest.raises(ZeroDivisionError) as caught:
            exec(compile(path.read_text(), str(path), "exec"), {})
        return [frame["file"] for frame in reporter.describe(caught.value)["frames"]]

    assert files(tmp_path / "project/own.py") == [str(tmp_path / "project/own.py")]
    assert files(tmp_path / "project/.venv/lib/package.py") == []


def test_frames_of_the_users_files_are_listed_and_those_of_libraries_are_not(context, fork):
    (fork.workspace / "own.py").write_text("import json\ndef load(text):\n    return json.loads(text)\n")
    outcome = context.run("import own\nown.load('{')")
    assert [(frame["file"], frame["line"]) for frame in outcome.error["frames"]] == [
        ("<cell 1>", 2),
        (str(fork.workspace / "own.py"), 3),
    ]
    assert "json/decoder.py" in outcome.error["traceback"]


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("\n\n\n1/0", 4),
        ("\n\n!true\n1/0", 4),
        ("\n  \n  x = !true\n  1/0", 4),
        ("%time 1\n\n1/0", 3),
        ("import asyncio\nawait asyncio.sleep(0)\n1/0", 3),
        ("async def f():\n    1/0\nawait f()", 2),
    ],
)
def test_line_numbers_are_those_of_the_sent_code(context, code, line):
    outcome = context.run(code)
    assert (outcome.error["name"], outcome.error["frames"][-1]["line"]) == ("ZeroDivisionError", line)
    assert "worker" not in outcome.error["traceback"]
    assert "IPython" not in outcome.error["traceback"]
    assert "asyncio" not in outcome.error["traceback"]


def test_a_syntax_error_names_its_line(context):
    outcome = context.run("x = 1\ny = (2\nz = 3")
    assert outcome.error["frames"] == [{"file": "<cell 1>", "line": 2, "function": "<module>", "source": "y = (2"}]
    assert (
        outcome.error["traceback"]
        == "  File \"<cell 1>\", line 2\n    y = (2\n        ^\nSyntaxError: '(' was never closed\n"
    )


def test_chained_exceptions_and_notes_are_in_the_traceback(context):
    outcome = context.run(
        "try:\n    {}['k']\nexcept KeyError as e:\n    n = ValueError('v'); n.add_note('a note')\n    raise n from e"
    )
    text = outcome.error["traceback"]
    assert "KeyError: 'k'" in text
    assert "direct cause" in text
    assert text.endswith("ValueError: v\na note\n")
    outcome = context.run("try:\n    1/0\nexcept ZeroDivisionError:\n    undefined_name")
    assert "During handling" in outcome.error["traceback"]


def test_exception_groups_work(context):
    outcome = context.run(
        "import asyncio\nasync def f(): raise OSError('x')\nasync with asyncio.TaskGroup() as g:\n    g.create_task(f())\n    g.create_task(f())"
    )
    assert outcome.error["name"] == "ExceptionGroup"
    assert outcome.error["traceback"].count("OSError: x") == 2
    assert context.run("raise BaseExceptionGroup('b', [KeyboardInterrupt()])").status == "error"


@pytest.mark.parametrize(
    ("code", "name", "value"),
    [
        ("raise SystemExit(3)", "SystemExit", "3"),
        ("raise KeyboardInterrupt('by code')", "KeyboardInterrupt", "by code"),
        ("raise GeneratorExit", "GeneratorExit", ""),
        ("import asyncio; raise asyncio.CancelledError('c')", "CancelledError", "c"),
        ("import asyncio\nawait asyncio.sleep(0)\nraise asyncio.CancelledError", "CancelledError", ""),
        ("import asyncio\nawait asyncio.sleep(0)\nraise SystemExit(4)", "SystemExit", "4"),
        ("import asyncio\nawait asyncio.sleep(0)\nraise KeyboardInterrupt", "KeyboardInterrupt", ""),
        ("class Mine(BaseException): pass\nraise Mine('m', 1)", "Mine", "('m', 1)"),
        ("raise MemoryError", "MemoryError", ""),
        ("raise StopIteration(1)", "StopIteration", "1"),
        (
            "import asyncio\nawait asyncio.sleep(0)\nraise StopIteration(1)",
            "RuntimeError",
            "coroutine raised StopIteration",
        ),
        ("{}['k']", "KeyError", "'k'"),
        ("raise ValueError('')", "ValueError", ""),
        ("import bdb; raise bdb.BdbQuit", "BdbQuit", ""),
    ],
)
def test_every_exception_is_an_outcome_and_the_session_goes_on(context, code, name, value):
    context.run("x = 5")
    outcome = context.run(code)
    assert (outcome.status, outcome.error["name"], outcome.error["value"]) == ("error", name, value)
    assert outcome.err == ""
    again = context.run("import asyncio\nawait asyncio.sleep(0)\nx")
    assert (again.status, again.text, again.err) == ("ok", "5", "")


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("raise ValueError('no')", "<cannot show the value: __str__ raised ValueError>"),
        ("raise SystemExit", "<cannot show the value: __str__ raised SystemExit>"),
        ("return 5", "<cannot show the value: __str__ raised TypeError>"),
        ("return self.__str__()", "<cannot show the value: __str__ raised RecursionError>"),
    ],
)
def test_an_exception_with_a_broken_str_is_reported_as_such(context, body, value):
    outcome = context.run(f"class Bad(Exception):\n    def __str__(self): {body}\nraise Bad")
    assert (outcome.error["name"], outcome.error["value"]) == ("Bad", value)
    assert context.run("1").text == "1"


def test_lone_surrogates_do_not_break_the_frame(context):
    outcome = context.run("raise ValueError('\\ud83d \\udcff')")
    assert outcome.error["value"] == "\\ud83d \\udcff"
    assert context.run("'\\ud83d'").text == "'\\ud83d'"


@pytest.mark.parametrize(("more", "left_out"), [(0, 0), (1, 2), (1000, 2000)])
def test_a_value_is_exact_up_to_its_limit_and_the_rest_is_counted(context, more, left_out):
    most = errors.MAX_VALUE_BYTES // 2
    outcome = context.run(f"raise ValueError('é' * {most + more})")
    assert (outcome.error["value"], outcome.error["left_out"]) == ("é" * most, left_out)
    assert len(outcome.error["traceback"]) < 66_000
    assert "bytes left out" in outcome.error["traceback"]


def test_the_report_of_endless_recursion_is_limited(context):
    outcome = context.run("def f(n):\n    return f(n + 1)\nf(0)")
    assert outcome.error["name"] == "RecursionError"
    assert "Previous line repeated" in outcome.error["traceback"]
    assert len(outcome.error["frames"]) <= 32
    outcome = context.run("import sys\nsys.setrecursionlimit(60_000)\nf(0)")
    assert outcome.error["name"] == "RecursionError"
    mutual = "def a(n): return b(n)\ndef b(n): return a(n)\nsys.setrecursionlimit(3000)\na(0)"
    assert len(context.run(mutual).error["traceback"]) < 66_000


def test_the_report_of_thousands_of_chained_exceptions_is_limited(context):
    code = "e = None\nfor i in range(3000):\n    n = ValueError('x' * 100)\n    n.__cause__ = e\n    e = n\nraise e"
    outcome = context.run(code)
    assert (outcome.error["name"], len(outcome.error["traceback"]) < 66_000) == ("ValueError", True)
    assert (
        context.run("a = ValueError(); a.__context__ = b = ValueError(); b.__cause__ = a\nraise a").error["name"]
        == "ValueError"
    )


def test_the_largest_error_fits_into_a_frame():
    # Six bytes of JSON a byte of text is the most that the escapes cost.
    text = errors.cut("\x00" * (1 << 20), errors.MAX_TRACEBACK_BYTES)
    field = errors.cut("\x00" * 5000, errors.MAX_FRAME_FIELD_BYTES)
    frame = {"file": field, "line": 10**9, "function": field, "source": field}
    report = {
        "event": "error",
        "name": field,
        "left_out": 10**9,
        "traceback": text,
        "frames": [frame] * errors.MAX_FRAMES,
    }
    assert len(json.dumps(report)) < frames.MAX_HEADER_BYTES


@pytest.mark.parametrize("text", ["é" * 100_000, "€" * 100_000, "𝄞" * 50_000, "a" + "é" * 99_999])
def test_a_cut_never_splits_a_character(text):
    data = errors.cut(text, 1001)
    assert "\ufffd" not in data
    assert len(data.encode()) < 1100


def test_an_error_in_a_file_that_is_run_shows_its_line(context, fork):
    (fork.workspace / "script.py").write_text("x = 1\n1 / 0\n")
    outcome = context.run("%run script.py")
    shown = str(outcome.error) + outcome.err
    assert "ZeroDivisionError" in shown
    assert "script.py" in shown
    assert "interactiveshell" not in shown


def test_an_error_after_linecache_was_cleared_still_reports(context):
    outcome = context.run("import linecache; linecache.clearcache()\n1/0")
    assert outcome.error["frames"][0]["line"] == 2


@pytest.mark.parametrize(
    "code",
    [
        "%run script.py",
        "%%time\n1/0",
        "%%capture\n1/0",
        "get_ipython().run_cell('1/0'); None",
        "%timeit 1/0",
        "%time 1/0",
    ],
)
def test_an_error_that_ipython_would_only_show_fails_the_cell(context, fork, code):
    (fork.workspace / "script.py").write_text("1 / 0\n")
    outcome = context.run(code)
    assert (outcome.status, outcome.error["name"]) == ("error", "ZeroDivisionError")
    assert "IPython" not in outcome.error["traceback"]
    assert context.run("1").status == "ok"
