"""Quantities and times as Kubernetes writes them."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandfleet_operator.api.errors import Code, FleetError
from sandfleet_operator.api.quantities import MOST, bytes_text, cores_text, parse_bytes, parse_cores, parse_quantity
from sandfleet_operator.api.times import parse_time, time_text


@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("0", 0),
        (2, 2),
        ("+2", 2),
        ("1.5Gi", 1610612736),
        ("500M", 500000000),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1E", 10**18),
        ("1e-3", Fraction(1, 1000)),
        ("250m", Fraction(1, 4)),
        ("1u", Fraction(1, 10**6)),
        ("1n", Fraction(1, 10**9)),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("0.1Ki", Fraction(1024, 10)),
        ("7Ei", 7 << 60),
        (str(MOST), MOST),
    ],
)
def test_a_quantity_is_read_exactly(written: object, number: object):
    assert parse_quantity(written, "x") == number


@pytest.mark.parametrize(
    "written",
    ["", "Gi", "1 Gi", "1gi", "1K", "1GB", "-1", -1, "1e", "1e999999999", "1e99", "8Ei", "1.5.1", "1_0", "٣", "NaN", "0x1",
     "1\n", "1" * 33, True, None, 1.5, [], {}],
)  # fmt: skip
def test_what_is_no_quantity_is_refused_with_the_name_of_its_field(written: object):
    with pytest.raises(FleetError) as caught:
        parse_quantity(written, "spec.size")
    problem = caught.value.problem
    assert (problem.code, problem.reason, problem.subject) == (Code.INVALID_ARGUMENT, "InvalidQuantity", "spec.size")
    assert problem.message.startswith("cannot read spec.size: ")


@pytest.mark.parametrize(("written", "whole"), [("1500m", 2), ("0.1Ki", 103), ("1n", 1), ("0", 0), ("1Mi", 1 << 20)])
def test_what_is_left_of_a_byte_is_a_byte(written: str, whole: int):
    assert parse_bytes(written, "x") == whole


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1, "1"),
        (1024, "1Ki"),
        (1536 << 20, "1536Mi"),
        (5 * 10**8, "500M"),
        (1024000, "1000Ki"),
        (1500, "1500"),
    ],
)
def test_bytes_are_written_with_the_largest_unit_that_divides_them(value: int, text: str):
    assert bytes_text(value) == text


@pytest.mark.parametrize(
    ("cores", "text"), [(0, "0"), (2.0, "2"), (0.25, "250m"), (0.1 + 0.2, "300m"), (1.0001, "1001m"), (1e-9, "1m")]
)
def test_cores_are_written_in_thousandths_at_most(cores: float, text: str):
    assert cores_text(cores) == text


@given(st.integers(0, MOST))
def test_bytes_survive_being_written(value: int):
    assert parse_bytes(bytes_text(value), "x") == value


@given(st.integers(0, 10**6))
def test_thousandths_of_a_core_survive_being_written(thousandths: int):
    text = cores_text(thousandths / 1000)
    assert parse_quantity(text, "x") == Fraction(thousandths, 1000)
    assert parse_cores(text, "x") == thousandths / 1000


@given(st.integers(0, 10**6), st.sampled_from(["", "m", "k", "M", "G", "Ki", "Mi", "Gi", "e2", "E-2"]))
def test_a_zero_behind_the_point_changes_nothing(number: int, unit: str):
    assert parse_quantity(f"{number}.0{unit}", "x") == parse_quantity(f"{number}{unit}", "x")


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str):
    try:
        assert 0 <= parse_quantity(text, "x") <= MOST
    except FleetError as error:
        assert str(error).startswith("cannot read x: ")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0.0),
        ("2026-11-21T10:00:00Z", 1795255200.0),
        ("2026-11-21T10:00:00.25Z", 1795255200.25),
        ("2026-11-21T10:00:00.250000Z", 1795255200.25),
        ("2026-11-21T11:30:00+01:30", 1795255200.0),
    ],
)
def test_a_time_is_seconds_since_the_epoch(text: str, seconds: float):
    assert parse_time(text, "x") == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-11-21",
        "2026-11-21 10:00:00Z",
        "2026-11-21T10:00:00",
        "2026-02-31T10:00:00Z",
        "0001-01-01T00:00:00+99:00",
    ],
)
def test_what_is_no_time_is_refused(text: str):
    with pytest.raises(FleetError, match=r"cannot read status\.time: .* is no time"):
        parse_time(text, "status.time")


@given(st.integers(0, 250 * 10**15))
def test_a_time_survives_being_written(microseconds: int):
    seconds = microseconds / 10**6
    assert parse_time(time_text(seconds), "x") == pytest.approx(seconds, abs=1e-4)
    assert parse_time(time_text(float(int(seconds))), "x") == int(seconds)
