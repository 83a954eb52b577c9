"""Figures of Matplotlib as data."""

import json

import pytest
from sandfleet_executor.worker.python.shown import charts

pytest.importorskip("matplotlib")
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
