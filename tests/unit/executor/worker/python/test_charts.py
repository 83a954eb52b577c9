"""Figures of Matplotlib as data."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sandfleet_executor.worker.python.shown import charts

pytest.importorskip("matplotlib")
import numpy as np
from matplotlib.cbook import boxplot_stats
from matplotlib.figure import Figure


def drawn(draw, **rows):
    figure = Figure()
    draw(figure.subplots(**rows))
    found = charts.describe(figure)
    json.dumps(found)
    return found


def named(axes):
    axes.set_title("t")
    axes.set_xlabel("x")
    axes.set_ylabel("y")


def lines(axes):
    axes.plot([1, 2], [3.5, float("nan")], label="a")
    axes.plot(["p", "q"], [1, 2])
    named(axes)


def test_lines_have_their_names_and_points():
    found = drawn(lines)
    assert (found["type"], found["title"], found["x_label"], found["y_label"]) == ("line", "t", "x", "y")
    assert found["elements"] == [
        {"label": "a", "points": [[1, 3.5], [2, None]]},
        {"label": "", "points": [["p", 1], ["q", 2]]},
    ]


def test_points_of_a_scatter():
    found = drawn(lambda axes: axes.scatter([1, 2], [3, 4], label="s"))
    assert (found["type"], found["elements"]) == ("scatter", [{"label": "s", "points": [[1, 3], [2, 4]]}])


@pytest.mark.parametrize("method", ["bar", "barh"])
def test_bars_have_the_names_of_their_ticks(method):
    found = drawn(lambda axes: getattr(axes, method)(["p", "q"], [3, 4], label="g"))
    assert found["type"] == "bar"
    assert found["elements"] == [
        {"label": "p", "group": "g", "value": 3},
        {"label": "q", "group": "g", "value": 4},
    ]


def test_shares_of_a_pie():
    found = drawn(lambda axes: axes.pie([1, 3], labels=["p", "q"]))
    assert found["type"] == "pie"
    assert [(each["label"], round(each["share"], 5)) for each in found["elements"]] == [("p", 0.25), ("q", 0.75)]


def test_boxes_have_their_quartiles_and_outliers():
    found = drawn(lambda axes: axes.boxplot([[1, 2, 3, 4, 5], [1, 2, 3, 4, 40]]))
    assert found["type"] == "box"
    first, second = found["elements"]
    assert (first["min"], first["q1"], first["median"], first["q3"], first["max"]) == (1, 2, 3, 4, 5)
    assert (second["max"], second["outliers"]) == (4, [40])


def test_axes_of_one_figure_are_several_charts():
    found = drawn(lambda both: (both[0].plot([1], [2]), both[1].bar(["a"], [1])), ncols=2)
    assert (found["type"], [each["type"] for each in found["charts"]]) == ("several", ["line", "bar"])


def test_points_above_the_limit_are_counted():
    found = drawn(lambda axes: axes.plot(range(charts.MAX_POINTS + 5), range(charts.MAX_POINTS + 5)))
    assert (len(found["elements"][0]["points"]), found["left_out"]) == (charts.MAX_POINTS, 5)


class Hostile:
    @property
    def axes(self):
        raise RuntimeError


@pytest.mark.parametrize("figure", [Hostile(), Figure(), None, object()])
def test_what_has_no_data_has_none(figure):
    assert charts.describe(figure) is None


# Values far from each other and equal ones, so that there are whiskers without length and outliers on both sides.
SAMPLES = st.lists(st.integers(-5, 5) | st.integers(-500, 500), min_size=2, max_size=12)
WAYS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("notch", "patch_artist", "showmeans", "meanline", "showfliers"), st.booleans()),
        "showcaps": st.booleans(),
        "orientation": st.sampled_from(["vertical", "horizontal"]),
    },
)


@settings(max_examples=25)
@given(st.lists(SAMPLES, min_size=1, max_size=4), WAYS)
def test_boxes_are_what_was_plotted(samples, ways):
    names = [f"n{number}" for number in range(len(samples))]
    found = drawn(lambda axes: axes.boxplot(samples, tick_labels=names, **ways))
    assert (found["type"], [each["label"] for each in found["elements"]]) == ("box", names)
    for element, stats in zip(found["elements"], boxplot_stats(samples), strict=True):
        wanted = {"min": "whislo", "q1": "q1", "median": "med", "q3": "q3", "max": "whishi"}
        wanted |= {"mean": "mean"} if ways.get("showmeans") else {}
        expected = {name: stats[key] for name, key in wanted.items()}
        expected["outliers"] = list(stats["fliers"]) if ways.get("showfliers", True) else []
        assert {name: value for name, value in element.items() if name != "label"} == expected


def test_a_closed_line_is_a_line():
    square = ([0, 1, 1, 0, 0], [0, 0, 1, 1, 0])
    found = drawn(lambda axes: axes.plot(*square))
    assert (found["type"], found["elements"][0]["points"]) == (
        "line",
        [list(each) for each in zip(*square, strict=True)],
    )


def test_lines_beside_boxes_are_no_parts_of_them():
    def both(axes):
        axes.plot([1, 1], [0, 9])
        axes.boxplot([[1, 2, 3, 4, 5]])
        axes.plot([1], [7], "o")

    (box,) = drawn(both)["elements"]
    assert (box["min"], box["max"], box["outliers"]) == (1, 5, [])


def test_axes_have_their_scales_units_and_ticks():
    def timed(axes):
        axes.plot([1, 2], [10, 100])
        axes.set_yscale("log")
        axes.set_xlabel("Time (s)")
        axes.set_xticks([1, 2], ["a", "b"])

    found = drawn(timed)
    assert found["x_axis"] == {"scale": "linear", "unit": "s", "ticks": [1, 2], "tick_labels": ["a", "b"]}
    assert (found["y_axis"]["scale"], found["y_axis"]["unit"]) == ("log", "")


@pytest.mark.parametrize("draw", ["plot", "scatter", "bar"])
def test_dates_are_in_isos_form(draw):
    days = np.array(["2024-01-01", "2024-01-02"], dtype="datetime64[ns]")
    found = drawn(lambda axes: getattr(axes, draw)(days, [1, 2]))
    places = [each.get("label") or [x for x, _ in each["points"]] for each in found["elements"]]
    dates = ["2024-01-01T00:00:00", "2024-01-02T00:00:00"]
    assert (found["x_axis"]["scale"], places) == ("datetime", dates if draw == "bar" else [dates])


def test_bars_between_ticks_have_their_places():
    found = drawn(lambda axes: axes.hist([1, 1, 2], bins=[0, 1.5, 3]))
    assert [(each["label"], each["value"]) for each in found["elements"]] == [("0.75", 2), ("2.25", 1)]


def test_a_line_across_the_axes_has_no_data():
    found = drawn(lambda axes: (axes.plot([5, 6], [7, 8]), axes.axhline(7.5)))
    assert [each["points"] for each in found["elements"]] == [[[5, 7], [6, 8]]]
