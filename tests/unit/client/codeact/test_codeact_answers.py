from decimal import Decimal
from fractions import Fraction

import pytest
from sandfleet.codeact.answers import is_empty, missing_values

STANDS = [
    ("a printed float and its rounding", "0.6", "slope 0.6000000000000001"),
    ("a rounding to the decimals that the answer shows", "2.2", "intercept: 2.1999999999999997"),
    ("a float", 0.6, "slope 0.6"),
    ("a Decimal", Decimal("1.50"), "total 1.5"),
    ("a fraction as text", Fraction(6, 5), "that is 6/5"),
    ("separators of thousands on one side", "1,234.50", "margin 1234.5"),
    ("separators of thousands on the other side", 1234567, "1,234,567 rows"),
    ("a cell of a table with commas", 123, "5,123"),
    ("the same table read as one number", 5123, "5,123"),
    ("a whole number printed as a float", 47, "47.0"),
    ("a percent sign and a currency", "$12.50", "costs 12.50"),
    ("a negative number", -0.25, "change=-0.25"),
    ("a typographic minus", "\u22120.25", "-0.25"),
    ("scientific notation", "1.5e-07", "p = 0.00000015"),
    ("a number at the end of a sentence", 7, "It is 7."),
    ("a number in brackets", 7, "(5, 7)"),
    ("text by containment", "Ran 6 tests", "…\nRan 6 tests in 0.001s"),
    ("text across white space", "2003-09-19  open", "2003-09-19\nopen"),
    ("a date as text", "2003-09-19", "day 2003-09-19 was a Friday"),
    ("a labelled value", "slope = 0.6", "0.6"),
    ("several labelled values", "slope = 0.6; intercept = 2.2", "0.6 and 2.2"),
]


@pytest.mark.parametrize(("what", "value", "output"), STANDS, ids=[case[0] for case in STANDS])
def test_an_answer_stands_when_its_value_is_in_the_output(what: str, value: object, output: str) -> None:
    assert missing_values([value], output) == ()


MISSING = [
    ("another number", "0.7", "slope 0.6"),
    ("more decimals than were printed", "0.6123", "slope 0.61"),
    ("a whole number that is a rounding", 47, "46.8"),
    ("a number inside a longer one", 7, "1729"),
    ("a number inside a word", 7, "x7 utf7"),
    ("a part of a date", 19, "2003-09-19"),
    ("a part of a version", "1.2", "v1.2.3"),
    ("the other sign", -3, "3"),
    ("a percentage that was printed as a share", "52.3 %", "0.523"),
    ("text that is not there", "Paris", "London"),
    ("one of several values", "0.6; 9.9", "0.6"),
    ("anything in an empty output", "0", ""),
]


@pytest.mark.parametrize(("what", "value", "output"), MISSING, ids=[case[0] for case in MISSING])
def test_an_answer_is_missing_when_its_value_is_not_in_the_output(what: str, value: object, output: str) -> None:
    assert len(missing_values([value], output)) == 1


def test_what_is_missing_is_told_as_it_was_written() -> None:
    assert missing_values(["0.6; median 7", 9.25], "0.6") == ("median 7", "9.25")


def test_each_of_several_values_has_to_stand() -> None:
    assert missing_values([1, 2, "x"], "1 2 x") == ()


def test_a_number_of_a_thousand_digits_is_text() -> None:
    digits = "7" * 1000
    assert missing_values([digits], f"2**n = {digits}") == ()
    assert missing_values([digits[:-1] + "8"], digits) != ()


@pytest.mark.parametrize("value", ["", "  \n ", " ; "])
def test_an_answer_of_nothing_is_empty(value: str) -> None:
    assert is_empty([value])


def test_zero_is_not_nothing() -> None:
    assert not is_empty([0])


def test_of_a_huge_output_the_head_and_the_tail_count() -> None:
    filler = "x" * (2 * 1024 * 1024)
    assert missing_values([41, 43], f"41\n{filler}\n43") == ()
    assert missing_values([42], f"{filler}\n42\n{filler}") == ("42",)
