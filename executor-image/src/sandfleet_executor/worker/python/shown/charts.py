"""What a figure of Matplotlib shows, as data beside its image: kinds, labels and points of its axes; Altair's, too.

The figure is the user's object: whatever fails, there is no data, and the image comes alone. Nothing of Matplotlib is
imported. The form is that of `CHART`, which the client reads (sandfleet/charts.py):
  {"type", "title", "x_label", "y_label", "elements": […], "left_out": count}
  line, scatter  {"label", "points": [[x, y], …]}        bar  {"label", "group", "value"}
  pie            {"label", "share"}
  box            {"label", "min", "q1", "median", "q3", "max", "outliers"}, and "mean" where it is drawn
  several        "charts" in the place of "elements": one for each of the axes
All but pies have "x_axis" and "y_axis" as well: {"scale", "unit", "ticks", "tick_labels"}.
"""

import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

CHART = "application/vnd.sandfleet.chart.v1+json"
VEGA_LITE = "application/vnd.vegalite."
# Where Altair's charts come from, by its versions.
ALTAIR = tuple(f"altair.vegalite.v{number}.api" for number in (5, 6, 7))
SCHEMA = re.compile(r"/vega-lite/v(\d{1,2})[./]")
MAX_AXES = 16
# Points and bars of one figure; the others are counted.
MAX_POINTS = 10_000
MAX_TEXT = 500
MAX_TICKS = 100
# Units stand in parentheses or brackets at the end of an axis' label: "Time (s)".
UNIT = re.compile(r"[(\[]([^()\[\]]{1,40})[)\]]\s*$")
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
            drawn = {} if kind == "pie" else {"x_axis": _axis(axes.xaxis), "y_axis": _axis(axes.yaxis)}
            return {"type": kind, **{name: _text(text) for name, text in labels.items()}, **drawn, "elements": elements}
    return None


def _lines(axes: Any, room: _Room) -> Iterator[Element]:
    for line in axes.get_lines():
        # Lines across the whole axes (axhline, axvline) have places of the axes in the place of data.
        is_data = all(line.get_transform().contains_branch_seperately(axes.transData))
        points = _points(line.get_xdata(), line.get_ydata(), room) if is_data else []
        if points:
            yield {"label": _label(line), "points": points}


def _scatter(axes: Any, room: _Room) -> Iterator[Element]:
    for each in axes.collections:
        if type(each).__name__ == "PathCollection":
            to_x, to_y = _places(axes.xaxis, {}), _places(axes.yaxis, {})
            yield {"label": _label(each), "points": [[to_x(x), to_y(y)] for x, y in room.cut(each.get_offsets())]}


def _bars(axes: Any, room: _Room) -> Iterator[Element]:
    for container in axes.containers:
        if type(container).__name__ != "BarContainer":
            continue
        upright = getattr(container, "orientation", "vertical") != "horizontal"
        axis = axes.xaxis if upright else axes.yaxis
        name = _places(axis, _tick_names(axis))
        for bar in room.cut(list(container.patches)):
            middle = bar.get_x() + bar.get_width() / 2 if upright else bar.get_y() + bar.get_height() / 2
            value = bar.get_height() if upright else bar.get_width()
            yield {"label": _text(name(middle)), "group": _label(container), "value": _number(value)}


def _pie(axes: Any, room: _Room) -> Iterator[Element]:
    wedges = [each for each in axes.patches if type(each).__name__ == "Wedge"]
    for wedge in room.cut(wedges):
        yield {"label": _label(wedge), "share": _number((wedge.theta2 - wedge.theta1) / 360)}


class _Line(NamedTuple):
    """A line or a patch, as a box plot lies: the places across it, and the values along it."""

    across: list[float]
    along: list[float]
    artist: Any

    def is_at(self, place: float) -> bool:
        """Whether all its points lie at one place, as those of whiskers, means and outliers do."""
        return all(_close(each, place) for each in self.across)

    def is_over(self, place: float) -> bool:
        """Whether it lies across this place at one value, as caps and medians do."""
        return (
            len(self.across) == 2
            and not _close(*self.across)
            and _close(sum(self.across) / 2, place)
            and _close(*self.along)
        )


class _Box(NamedTuple):
    """One box: its place, its values by name, and how many artists draw it."""

    place: float
    values: dict[str, float]
    outliers: list[float]
    artists: int


def _boxes(axes: Any, room: _Room) -> Iterator[Element]:
    """Boxes of `boxplot`, from its artists.

    It draws each box as its outline, two whiskers, two caps, the median, the mean and the outliers, in this order;
    outline, caps, mean and outliers may be missing. Lines in another order are lines of the user's.
    """
    artists = [each for each in axes.get_children() if type(each).__name__ in ("Line2D", "PathPatch")]
    upright = [line for line in map(_line, artists) if line]
    flat = [_Line(each.along, each.across, each.artist) for each in upright]
    boxes = [(axis, box) for lines, axis in ((upright, axes.xaxis), (flat, axes.yaxis)) for box in _sorted_out(lines)]
    for axis, box in room.cut(boxes):
        label = _places(axis, _tick_names(axis))(box.place)
        values = {name: _number(value) for name, value in box.values.items()}
        outliers = [_number(each) for each in room.cut(box.outliers)]
        yield {"label": _text(label), **values, "outliers": outliers}


def _sorted_out(lines: Sequence[_Line]) -> Iterator[_Box]:
    """Each box, and after it what follows its last artist."""
    start = 0
    while start < len(lines):
        found = _box(lines[start : start + 8])
        start += found.artists if found else 1
        if found:
            yield found


def _line(artist: Any) -> _Line | None:
    """The points of a line or an outline; None for one whose places are no numbers."""
    try:
        if type(artist).__name__ == "Line2D":
            xs, ys = artist.get_xdata(), artist.get_ydata()
        else:
            # The last vertex only closes the outline.
            xs, ys = artist.get_path().vertices[:-1].T
        # An outline with notches has 11 points; outliers have any number, and no line.
        if len(xs) > 11 and not _is_loose(artist):
            return None
        return _Line([float(x) for x in xs], [float(y) for y in ys], artist)
    except (TypeError, ValueError):
        return None


def _box(lines: Sequence[_Line]) -> _Box | None:
    """The box whose first artist is the first one."""
    outline = lines[0].along if len(lines[0].across) in (5, 11) else []
    rest = list(lines[1:] if outline else lines)
    if len(rest) < 3 or any(len(each.across) != 2 for each in rest[:3]):
        return None
    low, high = rest.pop(0), rest.pop(0)
    place, corners = low.across[0], (low.along[0], high.along[0])
    if not (low.is_at(place) and high.is_at(place)):
        return None
    ends = (low.along[1], high.along[1])
    has_caps = len(rest) > 2 and all(map(_is_cap, rest, ends, (place, place))) and rest[2].is_over(place)
    if has_caps:
        del rest[:2]
    if outline and not all(any(_close(each, corner) for each in outline) for corner in corners):
        return None
    median = rest.pop(0)
    if not median.is_over(place) or not (outline or has_caps):
        return None
    box = {"min": ends[0], "q1": corners[0], "median": median.along[0], "q3": corners[1], "max": ends[1]}
    if rest and _is_mean(rest[0], median, place):
        box["mean"] = rest.pop(0).along[0]
    outliers = rest.pop(0).along if rest and _is_loose(rest[0].artist) and rest[0].is_at(place) else []
    return _Box(place, box, outliers, len(lines) - len(rest))


def _is_cap(line: _Line, end: float, place: float) -> bool:
    return line.is_over(place) and _close(line.along[0], end)


def _is_mean(line: _Line, median: _Line, place: float) -> bool:
    """Whether it is a mean: it lies as high above the box as the median, and outliers do not."""
    on_top = line.artist.get_zorder() == median.artist.get_zorder()
    return on_top and (line.is_over(place) or (len(line.across) == 1 and line.is_at(place)))


def _is_loose(artist: Any) -> bool:
    """Whether it is points without a line."""
    return type(artist).__name__ == "Line2D" and str(artist.get_linestyle()) in ("None", "", " ")


def _close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12) or (math.isnan(one) and math.isnan(other))


def _axis(axis: Any) -> dict[str, Any]:
    """The scale, the unit and the ticks of one axis, as they are drawn."""
    low, high = sorted(axis.get_view_interval())
    texts = [each.get_text() for each in axis.get_ticklabels()]
    to_place = _places(axis, {})
    drawn = [pair for pair in zip(axis.get_ticklocs(), texts, strict=False) if low <= pair[0] <= high][:MAX_TICKS]
    unit = UNIT.search(axis.get_label_text())
    scale = {"datetime": _is_date(axis), "categorical": _categories(axis) is not None}
    return {
        "scale": next((name for name, holds in scale.items() if holds), _text(axis.get_scale())),
        "unit": _text(unit[1]) if unit else "",
        "ticks": [to_place(place) for place, _ in drawn],
        "tick_labels": [_text(text) for _, text in drawn],
    }


def _converter(axis: Any) -> Any:
    """The converter of an axis, which Matplotlib before 3.10 has as an attribute alone."""
    return axis.get_converter() if hasattr(axis, "get_converter") else axis.converter


def _is_date(axis: Any) -> bool:
    return "Date" in type(_converter(axis)).__name__


def _categories(axis: Any) -> dict[float, str] | None:
    """The names of places of an axis of categories."""
    if "StrCategory" not in type(_converter(axis)).__name__:
        return None
    return {place: str(name) for name, place in axis.units._mapping.items()}  # noqa: SLF001  no other list is public


def _places(axis: Any, names: Mapping[float, str]) -> Callable[[Any], Any]:
    """A function that turns a place on an axis into what its user gave: a date, a category, a name, or a number."""
    if _is_date(axis):
        to_date = sys.modules["matplotlib.dates"].num2date
        return lambda place: _number(to_date(place).replace(tzinfo=None))
    known: Mapping[float, str] = _categories(axis) or names
    return lambda place: known.get(round(float(place), 6), _number(place))


def _tick_names(axis: Any) -> dict[float, str]:
    """Names that the user has set at ticks: those that Matplotlib writes are rounded numbers."""
    if type(axis.get_major_formatter()).__name__ not in ("FixedFormatter", "FuncFormatter"):
        return {}
    texts = [each.get_text() for each in axis.get_ticklabels()]
    return {round(float(place), 6): text for place, text in zip(axis.get_ticklocs(), texts, strict=False) if text}


def _points(xs: Any, ys: Any, room: _Room) -> list[list[Any]]:
    return [[_number(x), _number(y)] for x, y in room.cut(list(zip(xs, ys, strict=False)))]


def _label(artist: Any) -> str:
    """The name of an artist; "" for those that Matplotlib makes up."""
    text = str(artist.get_label())
    return "" if text.startswith("_") else _text(text)


def _number(value: Any) -> Any:
    """A number or a text, as JSON has it; dates in ISO's form, None for what is no number."""
    if getattr(getattr(value, "dtype", None), "kind", "") == "M":
        # As a number of nanoseconds it would be taken for a number.
        value = value.astype("datetime64[us]").item()
    if hasattr(value, "isoformat"):
        return _text(value.isoformat())
    try:
        found = float(value)
    except (TypeError, ValueError):
        return _text(value)
    if not math.isfinite(found):
        return None
    return int(found) if found.is_integer() and abs(found) < 1 << 53 else found


def _text(value: object) -> str:
    return str(value)[:MAX_TEXT]
