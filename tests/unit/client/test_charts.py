"""Charts of results: of Matplotlib as the sandbox says them, of Plotly and Vega-Lite from their own data."""

import base64
import json
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet import charts
from sandfleet.charts import CHART, PLOTLY, Chart, of_parts
from sandfleet.values.execution import Result

VEGA = "application/vnd.vegalite.v5+json"


def chart(mime, said):
    return Result({"image/png": b"", mime: json.dumps(said)}).chart


def test_a_chart_of_the_sandbox():
    said = {"type": "line", "title": "t", "elements": [{"label": "a", "points": [[1, 2]]}], "left_out": 3}
    assert chart(CHART, said) == Chart("line", "t", elements=({"label": "a", "points": ((1, 2),)},), left_out=3)
    both = {"type": "several", "charts": [said, {"type": "none"}]}
    assert [each.type for each in chart(CHART, both).charts] == ["line"]


def test_axes_of_a_chart():
    axis = {"scale": "log", "unit": "s", "ticks": [1, 10], "tick_labels": ["1", "10"]}
    found = chart(CHART, {"type": "line", "x_axis": axis, "y_axis": 3})
    assert (found.x_axis, found.y_axis) == (charts.Axis("log", "s", (1, 10), ("1", "10")), None)
    layout = {"xaxis": {"type": "date", "title": "Day"}, "yaxis": {"title": {"text": "Load [kW]"}, "tickvals": [1]}}
    found = chart(PLOTLY, {"data": [{"y": [1]}], "layout": layout})
    assert (found.x_axis, found.y_axis) == (charts.Axis("datetime"), charts.Axis(unit="kW", ticks=(1,)))


def packed(numbers):
    return {"dtype": "f8", "bdata": base64.b64encode(array("d", numbers).tobytes()).decode()}


LAYOUT = {"title": {"text": "t"}, "xaxis": {"title": {"text": "x"}}}


@pytest.mark.parametrize(
    ("data", "kind", "elements"),
    [
        (
            [{"mode": "lines", "name": "a", "x": [1, 2], "y": packed([3, 4])}],
            "line",
            ({"label": "a", "points": ((1, 3.0), (2, 4.0))},),
        ),
        ([{"type": "scatter", "mode": "markers", "y": [5]}], "scatter", ({"label": "", "points": ((0, 5),)},)),
        (
            [{"type": "bar", "orientation": "h", "y": ["p"], "x": [2]}],
            "bar",
            ({"label": "p", "group": "", "value": 2},),
        ),
        (
            [{"type": "pie", "labels": ["p", "q"], "values": [1, 3]}],
            "pie",
            ({"label": "p", "share": 0.25}, {"label": "q", "share": 0.75}),
        ),
        (
            [{"type": "box", "name": "b", "y": [1, 2, 3, 4, 40]}],
            "box",
            ({"label": "b", "min": 1, "q1": 2, "median": 3, "q3": 4, "max": 4, "outliers": (40,)},),
        ),
    ],
)
def test_a_figure_of_plotly(data, kind, elements):
    found = chart(PLOTLY, {"data": data, "layout": LAYOUT})
    assert (found.type, found.title, found.x_label) == (kind, "t", "x")
    assert found.elements == elements


def test_traces_of_several_kinds_are_several_charts():
    found = chart(PLOTLY, {"data": [{"type": "bar", "y": [1]}, {"type": "scatter", "y": [1]}, {"type": "surface"}]})
    assert (found.type, [each.type for each in found.charts]) == ("several", ["bar", "line"])


ROWS = {"datasets": {"d": [{"a": "p", "b": 1, "c": "x"}, {"a": "q", "b": 3, "c": "y"}]}, "data": {"name": "d"}}
ENCODING = {"x": {"field": "a", "type": "nominal"}, "y": {"field": "b", "title": "B"}, "color": {"field": "c"}}


@pytest.mark.parametrize(
    ("spec", "kind", "elements"),
    [
        ({"mark": "bar"}, "bar", ({"label": "p", "group": "x", "value": 1}, {"label": "q", "group": "y", "value": 3})),
        (
            {"mark": {"type": "line"}},
            "line",
            ({"label": "x", "points": (("p", 1),)}, {"label": "y", "points": (("q", 3),)}),
        ),
        (
            {"mark": "arc", "encoding": {"theta": {"field": "b"}, "color": {"field": "a"}}},
            "pie",
            ({"label": "p", "share": 0.25}, {"label": "q", "share": 0.75}),
        ),
    ],
)
def test_a_chart_of_vega_lite(spec, kind, elements):
    found = chart(VEGA, {**ROWS, "encoding": ENCODING, "title": "t", **spec})
    assert (found.type, found.title, found.elements) == (kind, "t", elements)


def test_layers_share_their_data_and_encoding():
    found = chart(
        VEGA, {**ROWS, "encoding": ENCODING, "layer": [{"mark": "line"}, {"mark": "point"}, {"mark": "rule"}]}
    )
    assert [each.type for each in found.charts] == ["line", "scatter"]
    assert (found.charts[0].x_label, found.charts[0].y_label) == ("a", "B")


@pytest.mark.parametrize(
    "spec",
    [
        {"encoding": {"x": {"field": "a"}, "y": {"field": "b", "aggregate": "sum"}}},
        {"encoding": {"x": {"field": "a", "bin": True}, "y": {"field": "b"}}},
        {"encoding": ENCODING, "transform": [{"filter": "datum.b > 1"}]},
    ],
)
def test_rows_that_are_not_what_is_drawn_are_no_data(spec):
    assert chart(VEGA, {**ROWS, "mark": "bar", **spec}) is None
    assert chart(VEGA, {**ROWS, "mark": "bar", "encoding": ENCODING}) is not None


def test_points_above_the_limit_are_counted():
    found = chart(PLOTLY, {"data": [{"y": list(range(6000))}, {"y": list(range(6000))}]})
    assert (sum(len(each["points"]) for each in found.elements), found.left_out) == (10_000, 2_000)


def test_a_result_without_a_chart_has_none():
    assert Result({"text/plain": "x"}).chart is None


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "data",
                    "x",
                    "y",
                    "mark",
                    "layer",
                    "encoding",
                    "field",
                    "values",
                    "dtype",
                    "bdata",
                    "elements",
                    "points",
                    "charts",
                    "layout",
                    "title",
                    "box",
                    "bar",
                    "datasets",
                    "name",
                    "theta",
                    "color",
                ]
            ),
            inner,
            max_size=6,
        )
    ),
    max_leaves=20,
)


@given(
    st.sampled_from([CHART, PLOTLY, VEGA]),
    st.dictionaries(
        st.sampled_from(["type", "data", "mark", "encoding", "layer", "elements", "charts", "layout"]), ANYTHING
    ),
)
def test_whatever_a_sandbox_says_is_a_chart_or_none(mime, said):
    found = of_parts({mime: json.dumps(said)})
    assert found is None or isinstance(found, charts.Chart)
