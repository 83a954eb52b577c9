"""What a figure of Matplotlib shows, as data beside its image: kinds, labels and points of its axes; Altair's, too.

The figure is the user's object: whatever fails, there is no data, and the image comes alone. Nothing of Matplotlib is
imported. The form is that of `CHART`, which the client reads (sandfleet/charts.py):
  {"type", "title", "x_label", "y_label", "elements": […], "left_out": count}
  line, scatter  {"label", "points": [[x, y], …]}        bar  {"label", "group", "value"}
  pie            {"label", "share"}                      box  {"label", "min", "q1", "median", "q3", "max", "outliers"}
  several        "charts" in the place of "elements": one for each of the axes
"""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

CHART = "application/vnd.sandfleet.chart.v1+json"
VEGA_LITE = "application/vnd.vegalite."
# Where Altair's charts come from, by its versions.
ALTAIR = tuple(f"altair.vegalite.v{number}.api" for number in (5, 6, 7))
SCHEMA = re.compile(r"/vega-lite/v(\d{1,2})[./]")
MAX_AXES = 16
# Points and bars of one figure; the others are counted.
MAX_POINTS = 10_000
MAX_TEXT = 500
Element = dict[str, Any]


def describe(figure: Any) -> dict[str, Any] | None:
    """The figure as data; None for one without data of a known kind."""
    try:
        return _described(figure)
    except Exception:  # noqa: BLE001  code may replace any part of a figure
        return None


def with_data(chart: Any) -> Any:
    """The MIME bundle of a chart of Altair, with its specification: by default it has only a page that draws it."""
    bundle = chart._repr_mimebundle_()
    try:
        if not isinstance(bundle, dict) or not bundle or any(str(each).startswith(VEGA_LITE) for each in bundle):
            return bundle
        spec = chart.to_dict()
        found = SCHEMA.search(str(spec["$schema"]))
        return bundle if found is None else bundle | {f"{VEGA_LITE}v{found[1]}+json": spec}
    except Exception:  # noqa: BLE001  too many rows, or a chart that is not whole
        return bundle


def _described(figure: Any) -> dict[str, Any] | None:
    room = _Room(MAX_POINTS)
    charts = [found for each in list(figure.axes)[:MAX_AXES] if (found := _chart(each, room))]
    if not charts:
        return None
    if len(charts) == 1:
        return charts[0] | {"left_out": room.left_out}
    title = _text(getattr(getattr(figure, "_suptitle", None), "get_text", str)())
    return {"type": "several", "title": title, "charts": charts, "left_out": room.left_out}


class _Room:
    """How many points there is room for."""

    def __init__(self, most: int) -> None:
        self._left = most
        self.left_out = 0

    def cut(self, items: Sequence[Any]) -> Sequence[Any]:
        kept = items[: self._left]
        self._left -= len(kept)
        self.left_out += len(items) - len(kept)
        return kept


def _chart(axes: Any, room: _Room) -> dict[str, Any] | None:
    for kind, find in (("pie", _pie), ("box", _boxes), ("bar", _bars), ("line", _lines), ("scatter", _scatter)):
        if elements := list(find(axes, room)):
            labels = {"title": axes.get_title(), "x_label": axes.get_xlabel(), "y_label": axes.get_ylabel()}
            return {"type": kind, **{name: _text(text) for name, text in labels.items()}, "elements": elements}
    return None


def _lines(axes: Any, room: _Room) -> Iterator[Element]:
    for line in axes.get_lines():
        points = _points(line.get_xdata(), line.get_ydata(), room)
        if points:
            yield {"label": _label(line), "points": points}


def _scatter(axes: Any, room: _Room) -> Iterator[Element]:
    for each in axes.collections:
        if type(each).__name__ == "PathCollection":
            offsets = each.get_offsets()
            yield {"label": _label(each), "points": _points(offsets[:, 0], offsets[:, 1], room)}


def _bars(axes: Any, room: _Room) -> Iterator[Element]:
    for container in axes.containers:
        if type(container).__name__ != "BarContainer":
            continue
        upright = getattr(container, "orientation", "vertical") != "horizontal"
        names = _tick_names(axes.xaxis if upright else axes.yaxis)
        for bar in room.cut(list(container.patches)):
            middle = bar.get_x() + bar.get_width() / 2 if upright else bar.get_y() + bar.get_height() / 2
            value = bar.get_height() if upright else bar.get_width()
            label = names.get(round(float(middle), 6), _number(middle))
            yield {"label": _text(label), "group": _label(container), "value": _number(value)}


def _pie(axes: Any, room: _Room) -> Iterator[Element]:
    wedges = [each for each in axes.patches if type(each).__name__ == "Wedge"]
    for wedge in room.cut(wedges):
        yield {"label": _label(wedge), "share": _number((wedge.theta2 - wedge.theta1) / 360)}


def _boxes(axes: Any, room: _Room) -> Iterator[Element]:
    """Boxes of `boxplot`, which leaves nothing but their lines."""
    lines = _plain(axes)
    boxes = [(xs, ys) for xs, ys in lines if len(xs) == 5 and len(set(xs)) == len(set(ys)) == 2 and xs[0] == xs[-1]]
    names = _tick_names(axes.xaxis)
    for xs, ys in room.cut(boxes):
        low, high, middle = min(ys), max(ys), (min(xs) + max(xs)) / 2
        level = [y[0] for x, y in lines if len(x) == 2 and y[0] == y[1] and x[0] == min(xs) and low <= y[0] <= high]
        ends = [end for x, y in lines if len(x) == 2 and x[0] == x[1] and abs(x[0] - middle) < 1e-9 for end in y]
        far = [value for x, y in lines if x and set(x) == {middle} and len(x) != 2 for value in y]
        yield {
            "label": _text(names.get(round(middle, 6), _number(middle))),
            "min": _number(min([low, *ends])),
            "q1": _number(low),
            "median": _number(level[0]) if level else None,
            "q3": _number(high),
            "max": _number(max([high, *ends])),
            "outliers": [_number(each) for each in room.cut(far)],
        }


def _plain(axes: Any) -> list[tuple[list[float], list[float]]]:
    """The places of lines that may be parts of boxes: few enough, without names of their own, and all numbers."""
    lines = list(axes.get_lines())
    if len(lines) > 20 * MAX_AXES or not all(str(each.get_label()).startswith("_") for each in lines):
        return []
    try:
        return [(list(map(float, each.get_xdata())), list(map(float, each.get_ydata()))) for each in lines]
    except (TypeError, ValueError):
        return []


def _tick_names(axis: Any) -> dict[float, str]:
    """What stands at the ticks, where these are names."""
    texts = [each.get_text() for each in axis.get_ticklabels()]
    return {round(float(place), 6): text for place, text in zip(axis.get_ticklocs(), texts, strict=False) if text}


def _points(xs: Any, ys: Any, room: _Room) -> list[list[Any]]:
    return [[_number(x), _number(y)] for x, y in room.cut(list(zip(xs, ys, strict=False)))]


def _label(artist: Any) -> str:
    """The name of an artist; "" for those that Matplotlib makes up."""
    text = str(artist.get_label())
    return "" if text.startswith("_") else _text(text)


def _number(value: Any) -> Any:
    """A number or a text, as JSON has it; None for what is no number."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        return _text(value)
    if not math.isfinite(found):
        return None
    return int(found) if found.is_integer() and abs(found) < 1 << 53 else found


def _text(value: object) -> str:
    return str(value)[:MAX_TEXT]
