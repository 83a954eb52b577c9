"""What a cell shows: values, rich results, output, errors; in which order; and that the same run twice is the same."""

import struct

import pytest
from sandfleet import Outcome

pytestmark = pytest.mark.asyncio(loop_scope="session")

SHOWS = """
class Shown:
    def _repr_html_(self): return '<b>é</b>'
    def _repr_png_(self): return b'\\x89PNG\\r\\n\\x1a\\n\\x00\\xff'
    def _repr_json_(self): return {'a': [1, None]}
    def __repr__(self): return 'shown'
"""


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("1 + 1", "2"),
        ("x = 3\nx", "3"),
        ("'é\\u2603'", "'é☃'"),
        ("1;", None),
        ("None", None),
        ("x = 1", None),
        ("", None),
        ("# nothing", None),
        ("import asyncio\nawait asyncio.sleep(0, 'late')", "'late'"),
        ("async def f(): return 5\nawait f()", "5"),
        ("[n async for n in agen()]", None),
    ],
)
async def test_the_last_expression_s_value_is_the_result(sandbox, context, code, text):
    await sandbox.run_code("async def agen():\n    for n in (): yield n", context=context)
    execution = await sandbox.run_code(code, context=context)
    assert execution.outcome is Outcome.OK
    assert execution.text == ("[]" if "agen" in code else text)


async def test_rich_results_come_as_their_own_types_and_images_as_raw_bytes(sandbox, context):
    execution = await sandbox.run_code(f"{SHOWS}\ndisplay(Shown())\nShown()", context=context)
    first, last = execution.results
    assert (first.is_main_result, last.is_main_result) == (False, True)
    assert last.png == b"\x89PNG\r\n\x1a\n\x00\xff"
    assert (last.html, last.text, last.json) == ("<b>é</b>", "shown", '{"a": [1, null]}')
    assert dict(first.parts) == dict(last.parts)


async def test_updates_replace_what_was_shown_and_are_told_as_updates(sandbox, context):
    told = []
    code = "h = display('first', display_id='bar')\ndisplay('beside')\nfor n in range(1500): h.update(n)"
    execution = await sandbox.run_code(code, context=context, on_result=told.append)
    assert [(each.text, each.display_id) for each in execution.results] == [("1499", "bar"), ("'beside'", "")]
    assert [each.is_update for each in told] == [False, False, *[True] * 1500]
    later = await sandbox.run_code("h.update('later')", context=context)
    assert [(each.text, each.display_id, each.is_update) for each in later.results] == [("'later'", "bar", True)]


async def test_what_is_cleared_is_neither_in_the_results_nor_in_the_logs(sandbox, context):
    told = []
    code = """
from IPython.display import clear_output
for n in range(1200):
    print('text', n); display(n); clear_output(wait=True)
print('kept'); display('kept too')
"""
    execution = await sandbox.run_code(code, context=context, on_clear=lambda cleared: told.append(cleared.wait))
    assert (execution.logs.stdout, [each.text for each in execution.results]) == ("kept\n", ["'kept too'"])
    assert told == [True] * 1200
    assert execution.usage.stdout_bytes > 1200 * len("text ")
    waiting = await sandbox.run_code("print('a'); clear_output(wait=True)", context=context)
    assert waiting.logs.stdout == "a\n"


async def test_many_large_figures_that_replace_each_other_end_with_the_last(sandbox, context):
    # Together they are far above what the results of one execution may have.
    code = """
h = display(None, display_id=True)
for n in range(20):
    display({'application/octet-stream': bytes([n]) * (8 << 20)}, raw=True, display_id=h.display_id, update=True)
"""
    execution = await sandbox.run_code(code, context=context, timeout=60)
    [shown] = execution.results
    data = shown.parts["application/octet-stream"]
    assert (len(data), data[:1], shown.dropped_bytes) == (8 << 20, b"\x13", 0)


async def test_values_of_earlier_cells_are_found_in_out_and_sources_in_in(sandbox, context):
    await sandbox.run_code("21 * 2", context=context)
    execution = await sandbox.run_code("_ + _1 + Out[1], In[1]", context=context)
    assert execution.text == "(126, '21 * 2')"


async def test_a_matplotlib_figure_is_a_png_without_any_display(sandbox, context):
    code = "import matplotlib.pyplot as plt\nplt.figure(figsize=(2, 1), dpi=50)\nplt.plot([1, 2, 3])\nplt.show()"
    execution = await sandbox.run_code(code, context=context, timeout=100)
    [png] = [result.png for result in execution.results if result.png]
    assert png.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", png[16:24])
    assert width > height > 0


async def test_output_comes_in_order_and_before_the_results_that_follow_it(sandbox, context):
    seen = []
    await sandbox.run_code(
        "import sys\nfor n in range(3):\n    print('out', n)\n    print('err', n, file=sys.stderr)\n    display(n)\nprint('end', end='')",
        context=context,
        on_stdout=lambda text: seen.append(("out", text)),
        on_stderr=lambda text: seen.append(("err", text)),
        on_result=lambda result: seen.append(("result", result.text)),
    )
    of_a_kind = [[text for kind, text in seen if kind == wanted] for wanted in ("out", "err", "result")]
    assert ["".join(texts) for texts in of_a_kind] == ["out 0\nout 1\nout 2\nend", "err 0\nerr 1\nerr 2\n", "012"]
    # What was written before a result comes before it.
    positions = {line: index for index, (_, text) in enumerate(seen) for line in text.splitlines()}
    for n in range(3):
        assert max(positions[f"out {n}"], positions[f"err {n}"]) < positions[str(n)], seen


async def test_output_of_children_and_of_c_code_is_output_of_the_cell(sandbox, context):
    code = "import os, subprocess\nprint('a')\nsubprocess.run(['echo', 'b'])\nos.write(1, b'c\\n')\n!echo d\nprint('e')"
    assert (await sandbox.run_code(code, context=context)).logs.stdout == "a\nb\nc\nd\ne\n"


async def test_an_error_has_its_exact_name_its_full_value_and_the_line_of_the_user_s_code(sandbox, context):
    code = "class Odd(BaseException): pass\ndef f():\n    raise Odd('x' * 5000)\nf()"
    execution = await sandbox.run_code(code, context=context)
    assert (execution.outcome, execution.blame, execution.reason) == ("error", "code", "Exception")
    assert (execution.error.name, execution.error.value) == ("Odd", "x" * 5000)
    assert [(frame.file, frame.line, frame.function) for frame in execution.error.frames] == [
        ("<cell 1>", 4, "<module>"),
        ("<cell 1>", 3, "f"),
    ]
    assert "\x1b" not in execution.error.traceback


async def test_a_cell_with_a_syntax_error_runs_nothing(sandbox, context):
    execution = await sandbox.run_code(
        "print('before')\nopen('/workspace/made', 'w')\nif True print(1)", context=context
    )
    assert (execution.outcome, execution.error.name, execution.logs.stdout) == ("error", "SyntaxError", "")
    assert execution.error.frames[-1].line == 3
    assert not await sandbox.files.exists("made")


@pytest.mark.parametrize(
    ("code", "name", "value"),
    [
        ("raise SystemExit(3)", "SystemExit", "3"),
        ("import sys; sys.exit('no more')", "SystemExit", "no more"),
        ("raise KeyboardInterrupt('mine')", "KeyboardInterrupt", "mine"),
        ("raise GeneratorExit", "GeneratorExit", ""),
        ("class Mine(BaseException): __str__ = lambda self: 'é' * 3\nraise Mine", "Mine", "ééé"),
        ("class Rude(Exception):\n    def __str__(self): raise SystemExit\nraise Rude", "Rude", None),
        ("raise Exception('\\ud800')", "Exception", "\\ud800"),
        ("def f(): f()\nf()", "RecursionError", None),
        ("input('name? ')", "StdinNotAvailable", None),
        ("breakpoint()", "StdinNotAvailable", None),
        ("raise MemoryError('mine')", "MemoryError", "mine"),
    ],
)
async def test_any_exception_of_code_is_an_outcome_and_the_session_goes_on(sandbox, context, code, name, value):
    await sandbox.run_code("kept = 1", context=context)
    execution = await sandbox.run_code(code, context=context)
    assert execution.outcome is (Outcome.MEMORY if name == "MemoryError" else Outcome.ERROR)
    assert (execution.error.name, execution.lost) == (name, ())
    assert value is None or execution.error.value == value
    assert (await sandbox.run_code("kept", context=context)).text == "1"


async def test_results_above_the_limit_are_dropped_and_counted(sandbox, context):
    execution = await sandbox.run_code(
        "class Big:\n    def _repr_html_(self): return 'x' * (20 << 20)\n    def __repr__(self): return 'big'\nBig()",
        context=context,
    )
    [result] = execution.results
    assert (result.text, result.html, result.dropped_bytes) == ("big", None, 20 << 20)


async def test_all_results_of_one_execution_together_are_bounded(sandbox, context):
    code = "class Big:\n    def _repr_html_(self): return 'x' * (15 << 20)\n    def __repr__(self): return 'big'\n"
    execution = await sandbox.run_code(f"{code}for _ in range(6): display(Big())", context=context)
    kept = sum(len(part) for result in execution.results for part in result.parts.values())
    dropped = sum(result.dropped_bytes for result in execution.results)
    assert execution.outcome is Outcome.OK
    assert kept <= 64 << 20
    assert len(execution.results) == 6
    assert kept + dropped >= 6 * (15 << 20)


async def test_text_that_is_no_utf_8_comes_as_replacement_characters(sandbox, context):
    execution = await sandbox.run_code("import os; os.write(1, b'a\\xff\\xfeb\\n'); print('\\ud800')", context=context)
    assert execution.outcome is Outcome.OK
    assert execution.logs.stdout.startswith("a\ufffd\ufffdb\n")


async def test_each_execution_has_its_own_usage(sandbox, context):
    big = await sandbox.run_code("x = bytearray(b'1' * (200 << 20)); y = sum(x[::64]); del x", context=context)
    small = await sandbox.run_code("1", context=context)
    assert big.usage.peak_memory_bytes > 200 << 20
    assert 0 < small.usage.peak_memory_bytes < 150 << 20
    assert big.usage.cpu_seconds > small.usage.cpu_seconds >= 0
    assert big.usage.wall_seconds > 0


async def test_usage_counts_what_was_written(sandbox, context):
    execution = await sandbox.run_code("import sys; print('x' * 99); sys.stderr.write('y' * 10)", context=context)
    assert (execution.usage.stdout_bytes, execution.usage.stderr_bytes) == (100, 10)


async def test_two_sandboxes_run_alike(sandbox, context, neighbour):
    code = (
        "import os, sys, time, locale\n"
        "names = sorted(name for name in os.environ if name.endswith('THREADS'))\n"
        "print(hash('a'), list({'x', 'y', 'z'}), time.tzname, os.environ['TZ'], os.environ['LC_ALL'])\n"
        "print(sys.getdefaultencoding(), locale.getpreferredencoding(), [(name, os.environ[name]) for name in names])"
    )
    one = (await sandbox.run_code(code, context=context)).logs.stdout
    other = (await neighbour.run_code(code)).logs.stdout
    assert one == other
    assert "UTC C.UTF-8" in one
    assert "'OMP_NUM_THREADS', '1'" in one
    # Control: without a fixed seed two interpreters differ.
    seeds = [
        (await sandbox.run_code("!PYTHONHASHSEED=random python3 -c 'print(hash(\"a\"))'", context=context)).logs.stdout
        for _ in range(2)
    ]
    assert seeds[0] != seeds[1]


@pytest.mark.parametrize("size", [100_000, 5 << 20])
async def test_the_value_of_an_error_is_exact_up_to_megabytes(sandbox, context, size):
    """Frameworks pass final answers through it."""
    ran = await sandbox.run_code(f"raise ValueError('é' + ''.join(map(str, range({size}))))", context=context)
    value = "é" + "".join(map(str, range(size)))
    assert (ran.error.value == value[: len(ran.error.value)], ran.error.truncated) == (
        True,
        max(0, len(value.encode()) - (8 << 20)),
    )
    again = await sandbox.attach(ran.execution_id)
    assert again.error == ran.error


# As Altair is by default: a page that draws the chart elsewhere, and no data.
ALTAIR = """
class TopLevelMixin:
    def _repr_mimebundle_(self, *args, **kwargs):
        return {"text/plain": "alt.Chart(...)", "text/html": "<script></script>"}
    def to_dict(self):
        return self.spec
class Chart(TopLevelMixin):
    def __init__(self, **spec):
        self.spec = spec
"""


async def test_a_figure_comes_as_an_image_and_as_data(sandbox):
    draw = "import matplotlib.pyplot as plt\nplt.bar(['a', 'b'], [1, 2]); plt.title('T'); plt.show()"
    (shown,) = (await sandbox.run_code(draw)).results
    assert shown.png.startswith(b"\x89PNG")
    assert (shown.chart.type, shown.chart.title) == ("bar", "T")
    assert [(each["label"], each["value"]) for each in shown.chart.elements] == [("a", 1), ("b", 2)]
    execution = await sandbox.run_code("figure, axes = plt.subplots(); axes.plot([3, 4]); plt.close(); figure")
    shown = execution.results[-1]
    assert (shown.chart.type, shown.chart.elements[0]["points"]) == ("line", ((0, 3), (1, 4)))


@pytest.mark.parametrize("version", ["5.20.1", "6.4.1"])
async def test_a_chart_of_altair_has_its_data(sandbox, version):
    await sandbox.files.write(f"altair/vegalite/v{version[0]}/api.py", ALTAIR)
    schema = f"https://vega.github.io/schema/vega-lite/v{version}.json"
    spec = {"$schema": schema, "mark": "line", "data": {"values": [{"m": 1, "t": 2}]}}
    spec["encoding"] = {"x": {"field": "m", "type": "quantitative"}, "y": {"field": "t", "type": "quantitative"}}
    begin = f"import sys; sys.path.insert(0, '/workspace')\nfrom altair.vegalite.v{version[0]}.api import Chart\n"
    (shown,) = (await sandbox.run_code(f"{begin}Chart(**{spec!r})")).results
    assert shown.html == "<script></script>"
    assert (shown.chart.type, shown.chart.elements[0]["points"]) == ("line", ((1, 2),))
    # What has no specification is shown all the same.
    (shown,) = (await sandbox.run_code(f"{begin}Chart()")).results
    assert (shown.html, shown.chart) == ("<script></script>", None)


# The parts of Plotly that show a figure: it looks at the version of nbformat, and its page holds the script each time.
PLOTLY = """
from copy import copy
nbformat = None
class MimetypeRenderer: ...
class PlotlyRenderer(MimetypeRenderer):
    def to_mimebundle(self, figure):
        return {"application/vnd.plotly.v1+json": figure}
class NotebookRenderer(MimetypeRenderer):
    include_plotlyjs = True
    def to_mimebundle(self, figure):
        return {"text/html": f"<script>{self.include_plotlyjs}</script>"}
class Renderers(dict):
    default, render_on_display = "plotly_mimetype+notebook", False
renderers = Renderers({"plotly_mimetype": PlotlyRenderer(), "notebook": NotebookRenderer()})
def show(figure):
    from IPython.display import display
    bundle = {}
    for name in renderers.default.split("+"):
        bundle |= copy(renderers[name]).to_mimebundle(figure)
    if not nbformat:
        raise ValueError("Mime type rendering requires nbformat>=4.2.0 but it is not installed")
    display(bundle, raw=True)
"""


async def test_a_figure_of_plotly_is_one_result_and_brings_its_script_once(sandbox):
    await sandbox.files.write("plotly/io/_renderers.py", PLOTLY)
    await sandbox.run_code("import sys; sys.path.insert(0, '/workspace')\nfrom plotly.io._renderers import show")
    draw = "show({'data': [{'type': 'bar', 'x': ['a'], 'y': [2]}]})"
    pages = []
    for _ in range(2):
        execution = await sandbox.run_code(draw)
        assert execution.error is None
        (shown,) = execution.results
        assert (shown.chart.type, shown.chart.elements[0]["value"]) == ("bar", 2)
        pages.append(shown.html)
    assert pages == ["<script>True</script>", "<script>cdn</script>"]
    # Code that has chosen a renderer keeps it.
    chosen = "import plotly.io._renderers as io; io.renderers.default = 'notebook'; show({})"
    (shown,) = (await sandbox.run_code(chosen)).results
    assert shown.html == "<script>True</script>"
