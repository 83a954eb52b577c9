"""Results of cells: what IPython displays, within limits."""

import json

import pytest
from sandfleet_executor.worker.base import parts

pytestmark = pytest.mark.process

pytest_plugins = ("support.executor.worker_contexts",)


def test_all_representations_of_a_value_arrive_together(context):
    outcome = context.run(
        "class R:\n    def _repr_html_(self): return '<b>x</b>'\n    def _repr_json_(self): return {'a': [1]}\n"
        "    def _repr_svg_(self): return '<svg/>'\n    def __repr__(self): return 'R!'\nR()"
    )
    assert outcome.main["text/html"] == b"<b>x</b>"
    assert json.loads(outcome.main["application/json"]) == {"a": [1]}
    assert outcome.main["image/svg+xml"] == b"<svg/>"
    assert outcome.text == "R!"


def test_an_object_can_bring_its_own_mime_bundle(context):
    outcome = context.run(
        "class B:\n    def _repr_mimebundle_(self, **k): return {'application/x+json': {'k': 1}, 'text/plain': 'p'}\nB()"
    )
    assert outcome.main == {"application/x+json": b'{"k": 1}', "text/plain": b"p"}


def test_display_publishes_beside_the_main_result_in_order(context):
    outcome = context.run("display('first')\nfrom IPython.display import HTML, display as d\nd(HTML('<i>2</i>'))\n3")
    assert [sorted(result) for result in outcome.results] == [["text/plain"], ["text/html", "text/plain"]]
    assert outcome.text == "3"
    assert outcome.events == ["result", "result", "result", "done"]


def test_what_was_printed_is_in_the_pipe_before_the_result(context):
    outcome = context.run("print('before', end='')\ndisplay(1)\nprint('after', end='')")
    assert outcome.out == "beforeafter"


def test_a_display_with_an_id_is_updated_by_it_also_from_a_later_cell(context):
    outcome = context.run("h = display('a', display_id=True)\nh.update('b')\ndisplay('c', display_id=7)")
    assert [result["text/plain"] for result in outcome.results] == [b"'a'", b"'b'", b"'c'"]
    (made, shown), (updated, is_update), other = outcome.displays
    assert (made == updated, bool(made), shown, is_update, other) == (True, True, False, True, ("7", False))
    later = context.run("from IPython.display import update_display\nupdate_display('d', display_id=7)")
    assert ([result["text/plain"] for result in later.results], later.displays) == ([b"'d'"], [("7", True)])


def test_clearing_is_told_in_its_place(context):
    outcome = context.run(
        "from IPython.display import clear_output\ndisplay(1); clear_output(wait=True); display(2); clear_output()"
    )
    assert outcome.events == ["result", "cleared", "result", "cleared", "done"]
    assert outcome.cleared == [True, False]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("raise ValueError('broken')", "ValueError: broken"),
        ("return 5", "TypeError: __repr__ returned non-string"),
        ("raise SystemExit(1)", "SystemExit: 1"),
        ("return repr(self)", "RecursionError"),
        ("raise KeyboardInterrupt", None),
    ],
)
def test_a_broken_repr_breaks_nothing(context, body, text):
    outcome = context.run(f"class Bad:\n    def __repr__(self): {body}\nBad()")
    if text is None:
        assert (outcome.status, outcome.error["name"]) == ("error", "KeyboardInterrupt")
    else:
        assert outcome.status == "ok"
        assert outcome.text.startswith("<Bad object, cannot show it: ")
        assert text in outcome.text
    assert context.run("1").text == "1"


def test_a_broken_rich_representation_leaves_the_others(context):
    outcome = context.run(
        "class H:\n    def _repr_html_(self): raise ValueError('no html')\n    def __repr__(self): return 'H'\nH()"
    )
    assert outcome.main == {"text/plain": b"H"}
    assert "cannot show" in outcome.err
    assert "ValueError: no html" in outcome.err


def test_above_the_limit_the_largest_representation_is_dropped_and_counted(context):
    outcome = context.run(
        "class L:\n    def _repr_html_(self): return 'h' * (17 << 20)\n    def __repr__(self): return 'L'\nL()"
    )
    assert (outcome.main, outcome.dropped) == ({"text/plain": b"L"}, 17 << 20)
    outcome = context.run("'x' * (20 << 20)")
    assert outcome.dropped == (20 << 20) + 2
    assert "dropped" in outcome.text


@pytest.mark.parametrize(
    ("bundle", "kept", "dropped"),
    [
        ({}, {}, 0),
        ({"text/plain": "ab", "text/html": "abcd"}, ["text/plain", "text/html"], 0),
        ({"text/plain": "ab", "text/html": "x" * 200}, ["text/plain"], 200),
        ({"a/a": b"x" * 60, "b/b": b"y" * 61, "text/plain": "z"}, ["a/a", "text/plain"], 61),
    ],
)
def test_parts_stay_within_the_limit(bundle, kept, dropped):
    found = parts.to_parts(bundle, limit=100)
    assert ([mime for mime, _ in found.parts], found.dropped) == (list(kept), dropped)


def test_the_number_of_representations_is_limited():
    found = parts.to_parts({f"x/{i}": "a" * i for i in range(1000)})
    assert len(found.parts) == parts.MAX_PARTS
    assert found.dropped == sum(range(parts.MAX_PARTS, 1000))


@pytest.mark.parametrize(
    ("mime", "data", "expected"),
    [
        ("text/plain", "é\ud83d", b"\xc3\xa9\\ud83d"),
        ("image/png", "iVBORw0KGgo=", b"\x89PNG\r\n\x1a\n"),
        ("image/png", b"\x89PNG", b"\x89PNG"),
        ("image/png", "not base64!é", "not base64!é".encode()),
        ("image/svg+xml", "<svg/>", b"<svg/>"),
        ("application/json", {"a": {1}}, b'{"a": "{1}"}'),
        ("application/json", [float("nan")], b"[NaN]"),
        ("text/plain", bytearray(b"x"), b"x"),
    ],
)
def test_representations_become_bytes_by_their_type(mime, data, expected):
    assert parts.to_bytes(mime, data) == expected


def test_a_circular_value_is_reported_as_circular():
    value = []
    value.append(value)
    assert b"cannot show application/json" in parts.to_bytes("application/json", value)


def test_results_of_a_cell_are_limited_and_the_main_one_always_arrives(context):
    outcome = context.run("for i in range(1200): display(i)\n'main'")
    assert (len(outcome.results), outcome.text) == (1000, "'main'")
    assert "200 results dropped" in outcome.err
    assert len(context.run("display(1)").results) == 1


def test_updates_and_what_comes_after_a_clearing_are_never_above_the_limit(context):
    updated = context.run(
        "h = display(0, display_id=True)\nfor i in range(1500): h.update(i)\nfor i in range(1000): display(i)"
    )
    assert (len(updated.results), updated.err) == (2500, "1 results dropped: the limit is 1000 a cell\n")
    cleared = context.run(
        "from IPython.display import clear_output\nfor i in range(1500): clear_output(wait=True); display(i)"
    )
    assert (cleared.results[-1]["text/plain"], len(cleared.results), cleared.err) == (b"1499", 1500, "")


def test_figures_are_shown_as_png_at_the_end_of_the_cell_and_closed(context):
    pytest.importorskip("matplotlib")
    outcome = context.run("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nNone")
    assert outcome.status == "ok", outcome.error
    assert [result["image/png"][:4] for result in outcome.results] == [b"\x89PNG"]
    assert context.run("plt.get_fignums()").text == "[]"
    shown = context.run("plt.plot([1]); plt.show()\nprint('after')\nplt.figure(); plt.plot([2]); None")
    assert len(shown.results) == 2
    assert context.run("fig, ax = plt.subplots(); plt.close(fig)\nfig").main["image/png"][:4] == b"\x89PNG"
    assert context.run("plt.plot([1]); 1/0").error["name"] == "ZeroDivisionError"


def test_data_frames_come_as_html_and_text(context):
    pytest.importorskip("pandas")
    outcome = context.run("import pandas as pd\npd.DataFrame({'a': [1, 2]})")
    assert b"<table" in outcome.main["text/html"]
    assert "a" in outcome.text


def test_registered_formatters_are_used_also_for_simple_types(context):
    context.run("get_ipython().display_formatter.formatters['text/html'].for_type(int, lambda i: f'<b>{i}</b>')")
    assert context.run("5").main == {"text/html": b"<b>5</b>", "text/plain": b"5"}
    assert context.run("%precision 2\n3.14159").text == "3.14"


def test_a_displayhook_call_and_nested_cells_publish(context):
    assert context.run("import sys; sys.displayhook(5)").results == [{"text/plain": b"5"}]
    assert context.run("_ = get_ipython().run_cell('6')").results == [{"text/plain": b"6"}]
