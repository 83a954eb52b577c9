"""A table reads what stands at its places, says where a value is wrong, and writes the same again."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated

import pytest
from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.limits import BOUNDS, TEMPLATE_LIMITS, Limits
from sandfleet_operator.api.table import at, decode, encode, in_bytes, listed, moment, raw, table, variables, whole


class Colour(Enum):
    RED = "red"

    @property
    def word(self) -> str:
        return self.value.capitalize()


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    name: Annotated[str, at("name", required=True)]
    size: Annotated[int, at("size", in_bytes)] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    title: Annotated[str, at("deep.title", required=True)]
    count: Annotated[int | None, at("count")] = None
    share: Annotated[float, at("share")] = 0.5
    seconds: Annotated[float, at("seconds", whole)] = 1.0
    colours: Annotated[tuple[Colour, ...], at("colours")] = (Colour.RED,)
    parts: Annotated[tuple[Part, ...], at("parts")] = ()
    part: Annotated[Part | None, at("deep.part")] = None
    labels: Annotated[Mapping[str, str], at("labels")] = field(default_factory=dict)
    envs: Annotated[Mapping[str, str], at("envs", variables)] = field(default_factory=dict)
    others: Annotated[tuple[Mapping[str, object], ...], at("others", listed(raw))] = ()
    # Without a place: no object has it.
    own: str = "mine"


EVERYTHING = {
    "deep": {"title": "a", "part": {"name": "p", "size": "1Ki"}},
    "count": 3,
    "share": 1,
    "seconds": 2,
    "colours": ["Red", "Red"],
    "parts": [{"name": "q"}],
    "labels": {"a": "b"},
    "envs": [{"name": "A", "value": "1"}, {"name": "B"}],
    "others": [{"x": [1]}],
    "unknown": {"is": "ignored"},
}


def test_everything_is_read_from_its_place():
    assert decode(Whole, EVERYTHING, "") == Whole(
        title="a",
        count=3,
        share=1.0,
        seconds=2.0,
        colours=(Colour.RED, Colour.RED),
        parts=(Part(name="q"),),
        part=Part(name="p", size=1024),
        labels={"a": "b"},
        envs={"A": "1", "B": ""},
        others=({"x": [1]},),
    )


@pytest.mark.parametrize("absent", [{}, dict.fromkeys((*EVERYTHING, "own"))])
def test_an_absent_field_has_the_default_or_what_the_base_has(absent: dict):
    value = {**absent, "deep": {"title": "a"}}
    assert decode(Whole, value, "") == Whole(title="a")
    base = Whole(title="other", count=7, seconds=9.0, part=Part(name="base"))
    assert decode(Whole, value, "", base) == Whole(title="a", count=7, seconds=9.0, part=Part(name="base"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"deep": {}}, "cannot read spec.deep.title: it is missing"),
        ({"deep": None}, "cannot read spec.deep.title: it is missing"),
        ({"deep": {"title": ""}}, "cannot read spec.deep.title: it is missing"),
        ({"deep": []}, "cannot read spec.deep: a list stands where an object should be"),
        ({"deep": {"title": "a", "part": {}}}, "cannot read spec.deep.part.name: it is missing"),
        ({"count": True}, "cannot read spec.count: true or false stands where a whole number should be"),
        ({"count": 1.0}, "cannot read spec.count: a number stands where a whole number should be"),
        ({"share": "1"}, "cannot read spec.share: a text stands where a number should be"),
        ({"seconds": 1.5}, "cannot read spec.seconds: a number stands where a whole number should be"),
        ({"colours": ["Red", "red"]}, "cannot read spec.colours[1]: 'red' is none of Red"),
        (
            {"parts": [{"name": "a"}, {"name": "b", "size": "1x"}]},
            "cannot read spec.parts[1].size: '1x' is no quantity",
        ),
        ({"labels": {"a": 1}}, "cannot read spec.labels.a: a whole number stands where a text should be"),
        ({"envs": [{"value": "1"}]}, "cannot read spec.envs[0].name: it is missing"),
        ({"others": ["x"]}, "cannot read spec.others[0]: a text stands where an object should be"),
    ],
)
def test_a_wrong_value_is_named_with_its_path(change: dict, message: str):
    with pytest.raises(FleetError) as caught:
        decode(Whole, {**EVERYTHING, **change}, "spec")
    assert str(caught.value).startswith(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    time: Annotated[float, at("time", moment)] = 0.0
    kept: Annotated[str, at("kept")] = ""
    null: Annotated[str, at("null", empty="null")] = ""
    left: Annotated[tuple[int, ...], at("left", empty="left out")] = ()
    count: Annotated[int, at("count", empty="null")] = 0
    colour: Annotated[Colour, at("colour")] = Colour.RED
    parts: Annotated[tuple[Part, ...], at("parts")] = ()


def test_empty_values_are_written_as_the_table_says():
    expected = {"time": "1970-01-01T00:00:00Z", "kept": "", "null": None, "count": 0, "colour": "Red", "parts": []}
    assert encode(Status()) == expected


def test_what_is_written_is_read_again():
    status = Status(time=5.5, kept="a", null="b", left=(1, 2), count=3, parts=(Part(name="p", size=7),))
    assert decode(Status, encode(status), "") == status


def test_each_limit_has_one_line_that_says_all_of_it():
    placed = {column.name: column.at.word for column in table(Limits)}
    assert set(BOUNDS) == {*placed, "memory_bytes", "cpus"} == set(Limits.__dataclass_fields__)
    assert all(getattr(TEMPLATE_LIMITS, name) == one.default >= one.least for name, one in BOUNDS.items())
