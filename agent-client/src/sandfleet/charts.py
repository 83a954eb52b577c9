"""Charts as data: what a figure shows, for programs and models that check what they have drawn. Pure.

Figures of Matplotlib are read in the sandbox; those of Plotly and of Vega-Lite (Altair) have their data with them. All
of it comes from code in the sandbox: what is not as it has to be is no chart.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

CHART = "application/vnd.sandfleet.chart.v1+json"
PLOTLY = "application/vnd.plotly.v1+json"
VEGA = "application/vnd.vegalite."
KINDS = ("line", "scatter", "bar", "pie", "box", "several")
_MOST = 10_000
_DEPTH = 4
_TYPES = {"i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "f4": "f", "f8": "d"}
_VEGA_KINDS = {
    "line": "line",
    "trail": "line",
    "area": "line",
    "point": "scatter",
    "circle": "scatter",
    "square": "scatter",
    "bar": "bar",
    "arc": "pie",
    "boxplot": "box",
}
_UNIT = re.compile(r"[(\[]([^()\[\]]{1,40})[)\]]\s*$")
_COMPUTED = ("aggregate", "bin", "timeUnit", "impute")


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a chart.

    scale        "linear", "log", "datetime", "categorical" or another of Matplotlib's names; "" where its library says
                 none.
    unit         what stands in parentheses at the end of its label: "s" of "Time (s)".
    ticks        the places of its ticks, and `tick_labels` what is written there.
    """

    scale: str = ""
    unit: str = ""
    ticks: tuple[Any, ...] = ()
    tick_labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """What one figure shows.

    type      "line", "scatter", "bar", "pie", "box", or "several" for a figure of several charts.
    elements  by type:
              line, scatter  {"label", "points": ((x, y), …)}
              bar            {"label", "group", "value"}
              pie            {"label", "share"}, from 0 to 1
              box            {"label", "min", "q1", "median", "q3", "max", "outliers"}, and "mean" where it is drawn
    x_axis    scale, unit and ticks; `y_axis` as well. A pie has none.
    charts    of "several".
    left_out  how many points, bars or other elements are missing: at most 10,000 come.

    Places are numbers or texts, as dates; None where there is no number.
    """

    type: str
    title: str = ""
    x_label: str = ""
    y_label: str = ""
    elements: tuple[Mapping[str, Any], ...] = ()
    charts: tuple[Chart, ...] = ()
    left_out: int = 0
    x_axis: Axis | None = None
    y_axis: Axis | None = None


def of_parts(parts: Mapping[str, str | bytes]) -> Chart | None:
    """Read the chart of a result's representations; None where it is none, or of another kind."""
    for mime, data in parts.items():
        read = _read_own if mime == CHART else _read_plotly if mime == PLOTLY else None
        read = _read_vega if mime.startswith(VEGA) else read
        if read is None:
            continue
        try:
            said = json.loads(data)
            found = read(said) if isinstance(said, dict) else None
        except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError, OverflowError):
            continue
        if found is not None:
            return found
    return None


def _read_own(said: Mapping[str, Any], depth: int = 0) -> Chart | None:
    if said.get("type") not in KINDS or depth > 1:
        return None
    charts = tuple(found for each in said.get("charts", ())[:_MOST] if (found := _read_own(each, depth + 1)))
    elements = tuple(_frozen(each) for each in said.get("elements", ())[:_MOST] if isinstance(each, dict))
    left_out = said.get("left_out", 0)
    title, x_label, y_label = (str(said.get(name, "")) for name in ("title", "x_label", "y_label"))
    left_out = left_out if isinstance(left_out, int) else 0
    axes = (_read_axis(said.get("x_axis")), _read_axis(said.get("y_axis")))
    return Chart(said["type"], title, x_label, y_label, elements, charts, left_out, *axes)


def _read_axis(said: Any) -> Axis | None:
    if not isinstance(said, Mapping):
        return None
    ticks, texts = (tuple(said.get(name) or ())[:_MOST] for name in ("ticks", "tick_labels"))
    return Axis(str(said.get("scale", "")), str(said.get("unit", "")), ticks, tuple(map(str, texts)))


def _frozen(element: Mapping[str, Any]) -> Mapping[str, Any]:
    points = element.get("points")
    if not isinstance(points, list):
        return dict(element)
    return {**element, "points": tuple((each[0], each[1]) for each in points)}


def _several(charts: Sequence[Chart], title: str, labels: tuple[str, str]) -> Chart | None:
    """One chart of those of one figure: those of one kind are one."""
    if not charts:
        return None
    if len({each.type for each in charts}) == 1:
        elements = tuple(each for chart in charts for each in chart.elements)
        return _cut(Chart(charts[0].type, title, *labels, elements))
    return Chart("several", title, *labels, charts=tuple(map(_cut, charts)))


def _cut(chart: Chart) -> Chart:
    """The chart with as many points, bars or others as may come."""
    room, left_out, elements = _MOST, 0, []
    for each in chart.elements:
        points = each.get("points")
        count = 1 if points is None else len(points)
        left_out += max(0, count - room)
        if room:
            elements.append(each if points is None else {**each, "points": points[:room]})
        room = max(0, room - count)
    return replace(chart, elements=tuple(elements), left_out=left_out)


# Plotly


def _read_plotly(said: Mapping[str, Any]) -> Chart | None:
    layout = said.get("layout") or {}
    labels = (_title(layout.get("xaxis")), _title(layout.get("yaxis")))
    charts = [found for trace in said.get("data", ()) if (found := _trace(trace))]
    found = _several(charts, _title(layout), labels)
    if found is None or found.type == "pie":
        return found
    x_axis, y_axis = (
        _plotly_axis(layout.get(name), label) for name, label in zip(("xaxis", "yaxis"), labels, strict=True)
    )
    return replace(found, x_axis=x_axis, y_axis=y_axis)


def _plotly_axis(said: Any, label: str) -> Axis:
    axis = said if isinstance(said, Mapping) else {}
    unit, scale = _UNIT.search(label), str(axis.get("type") or "")
    scale = {"date": "datetime", "category": "categorical", "-": ""}.get(scale, scale)
    ticks, texts = (tuple(_values(axis.get(name))) for name in ("tickvals", "ticktext"))
    return Axis(scale, unit[1] if unit else "", ticks, tuple(map(str, texts)))


def _title(holder: Any) -> str:
    title = holder.get("title") if isinstance(holder, Mapping) else None
    return str(title.get("text") or "") if isinstance(title, Mapping) else str(title or "")


def _trace(trace: Mapping[str, Any]) -> Chart | None:
    kind, name = trace.get("type", "scatter"), str(trace.get("name") or "")
    xs, ys = _values(trace.get("x")), _values(trace.get("y"))
    match kind:
        case "scatter" | "scattergl":
            xs = xs or list(range(len(ys)))
            is_line = "lines" in str(trace.get("mode") or "lines")
            points = tuple((_place(x), _place(y)) for x, y in zip(xs, ys, strict=False))
            return Chart("line" if is_line else "scatter", elements=({"label": name, "points": points},))
        case "bar":
            labels, values = (ys, xs) if trace.get("orientation") == "h" else (xs, ys)
            bars = zip(labels or range(len(values)), values, strict=False)
            return Chart("bar", elements=tuple(_bar(label, name, value) for label, value in bars))
        case "pie":
            return Chart("pie", elements=tuple(_shares(_values(trace.get("labels")), _values(trace.get("values")))))
        case "box":
            return Chart("box", elements=tuple(_boxes(zip(xs or [name] * len(ys), ys, strict=False))))
    return None


def _values(given: Any) -> list[Any]:
    """An array of Plotly: a list, or its bytes in Base64."""
    if isinstance(given, Mapping):
        try:
            found = array(_TYPES[given["dtype"]], base64.b64decode(given["bdata"]))
        except (KeyError, binascii.Error):
            return []
        return found.tolist()
    return list(given) if isinstance(given, (list, tuple)) else []


# Vega-Lite


def _read_vega(said: Mapping[str, Any]) -> Chart | None:
    datasets = said.get("datasets")
    charts = list(_views(said, datasets if isinstance(datasets, Mapping) else {}, None, 0))
    labels = next(((each.x_label, each.y_label) for each in charts), ("", ""))
    title = said.get("title")
    return _several(charts, str(title.get("text", "") if isinstance(title, Mapping) else title or ""), labels)


def _views(spec: Any, datasets: Mapping[str, Any], rows: Any, depth: int) -> Iterator[Chart]:
    if not isinstance(spec, Mapping) or depth > _DEPTH:
        return
    data = spec.get("data")
    if isinstance(data, Mapping):
        rows = data.get("values", datasets.get(str(data.get("name"))))
    for name in ("layer", "hconcat", "vconcat", "concat"):
        inner = spec.get(name)
        for each in inner if isinstance(inner, list) else ():
            shared = {"encoding": {**_part(spec, "encoding"), **_part(each, "encoding")}}
            yield from _views({**each, **shared}, datasets, rows, depth + 1)
    mark = spec.get("mark")
    kind = _VEGA_KINDS.get(str(mark.get("type") if isinstance(mark, Mapping) else mark))
    if kind and isinstance(rows, list) and not _computes(spec):
        yield _view(kind, _part(spec, "encoding"), [row for row in rows if isinstance(row, Mapping)])


def _computes(spec: Mapping[str, Any]) -> bool:
    """Whether its rows are not what it shows: the library that draws it works with them first."""
    channels = spec.get("encoding")
    used = channels.values() if isinstance(channels, Mapping) else ()
    return bool(spec.get("transform")) or any(
        isinstance(each, Mapping) and any(each.get(name) for name in _COMPUTED) for each in used
    )


def _part(spec: Any, name: str) -> Mapping[str, Any]:
    found = spec.get(name) if isinstance(spec, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _view(kind: str, encoding: Mapping[str, Any], rows: list[Mapping[str, Any]]) -> Chart:
    fields = {name: str(_part(encoding, name).get("field", "")) for name in ("x", "y", "color", "theta")}
    labels = tuple(str(_part(encoding, name).get("title") or fields[name]) for name in ("x", "y"))
    xs, ys, groups = ([row.get(fields[name]) for row in rows] for name in ("x", "y", "color"))
    elements: Iterator[Mapping[str, Any]]
    match kind:
        case "bar":
            flat = _part(encoding, "y").get("type") in ("nominal", "ordinal")
            sides = zip(*((ys, xs) if flat else (xs, ys)), groups, strict=True)
            elements = (_bar(label, "" if group is None else str(group), value) for label, value, group in sides)
        case "pie":
            elements = _shares(groups, [row.get(fields["theta"]) for row in rows])
        case "box":
            elements = _boxes(zip(xs, ys, strict=True))
        case _:
            elements = _series(zip(groups, xs, ys, strict=True))
    return Chart(kind, "", labels[0], labels[1], tuple(elements))


def _series(rows: Iterator[tuple[Any, Any, Any]]) -> Iterator[Mapping[str, Any]]:
    found: dict[str, list[tuple[Any, Any]]] = {}
    for group, x, y in rows:
        found.setdefault("" if group is None else str(group), []).append((_place(x), _place(y)))
    yield from ({"label": label, "points": tuple(points)} for label, points in found.items())


# All of them


def _bar(label: Any, group: str, value: Any) -> Mapping[str, Any]:
    return {"label": str(label), "group": group, "value": _place(value)}


def _shares(labels: Sequence[Any], values: Sequence[Any]) -> Iterator[Mapping[str, Any]]:
    numbers = [value if isinstance(value, (int, float)) and math.isfinite(value) else 0 for value in values]
    total = math.fsum(numbers) or 1
    yield from ({"label": str(label), "share": value / total} for label, value in zip(labels, numbers, strict=False))


def _boxes(rows: Any) -> Iterator[Mapping[str, Any]]:
    """Boxes with the quartiles of linear interpolation, and whiskers at the last value within 1.5 of their distance."""
    groups: dict[str, list[float]] = {}
    for label, value in rows:
        if isinstance(value, (int, float)) and math.isfinite(value):
            groups.setdefault(str(label), []).append(value)
    for label, values in groups.items():
        values.sort()
        q1, median, q3 = (_quantile(values, share) for share in (0.25, 0.5, 0.75))
        reach = 1.5 * (q3 - q1)
        inside = [each for each in values if q1 - reach <= each <= q3 + reach]
        outliers = tuple(each for each in values if not q1 - reach <= each <= q3 + reach)
        ends = {"min": inside[0], "q1": q1, "median": median, "q3": q3, "max": inside[-1]}
        yield {"label": label, **ends, "outliers": outliers}


def _quantile(values: Sequence[float], share: float) -> float:
    place = share * (len(values) - 1)
    low = math.floor(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)


def _place(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (int, float, str)) or value is None else str(value)
