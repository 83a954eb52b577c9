"""Whether an answer stands in the output it rests on. Pure.

The interpreter computes, the model does not: a final answer names an execution, and each of its values has to be found
in what that execution printed or returned. Numbers are compared by value, within the precision in which the answer is
written; anything else has to be contained in the output, white space aside.
"""

import re
from collections.abc import Iterable, Iterator
from decimal import Decimal, InvalidOperation
from fractions import Fraction

# A number that stands alone: not inside a word, not a part of a date, a time, a version or a path. Longer ones are
# text.
_NUMBER = re.compile(
    r"""(?<![\w.])(?<!\d[-:/])
        [-+\u2212]?
        (?:\d{1,3}(?:,\d{3}){1,12}(?!\d)|\d{1,40})
        (?:\.\d{1,40})?
        (?:[eE][-+]?\d{1,4})?
        (?!\w)(?![-:/.]\d)
    """,
    re.VERBOSE,
)
_LOOSE_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?")
# Of a longer output only the head and the tail are looked at: the check must not stop an event loop that drives many
# agents.
_LOOKED_AT = 256 * 1024
# What people write around a number without changing its value.
_DECORATION = re.compile(r"^[\s$€£¥≈~]+|[\s%°.!]+$")
_LABEL = re.compile(r"^[^=:]{1,80}[=:]\s*(?=\S)")

AnswerValue = str | int | float | Decimal | Fraction


def missing_values(values: Iterable[AnswerValue], output: str) -> tuple[str, ...]:
    """The parts of an answer that do not stand in `output`, as they were written; empty when all do.

    Of an output over 512 KiB only the first and last 256 KiB count.
    """
    seen = output if len(output) <= 2 * _LOOKED_AT else f"{output[:_LOOKED_AT]}\n\n{output[-_LOOKED_AT:]}"
    numbers = tuple(_numbers_in(seen))
    plain = _squeeze(seen)
    return tuple(part for value in values for part in _parts(value) if not _stands(part, plain, numbers))


def loose_numbers(text: str) -> tuple[float, ...]:
    """The numbers in a text, in order; "a = 1; b = 2" has two. For checkers, which know what they look for."""
    return tuple(float(number.replace(",", "")) for number in _LOOSE_NUMBER.findall(text))


def is_empty(values: Iterable[AnswerValue]) -> bool:
    """Whether an answer says nothing at all."""
    return not any(part for value in values for part in _parts(value))


def _parts(value: AnswerValue) -> list[str]:
    # Several values in one text are separated by ";" or lines. An answer of only white space has no part.
    return [part for part in (piece.strip() for piece in re.split(r"[;\n]", str(value))) if part]


def _stands(part: str, plain: str, numbers: tuple[Decimal, ...]) -> bool:
    return any(_found(text, plain, numbers) for text in (part, _LABEL.sub("", part)))


def _found(text: str, plain: str, numbers: tuple[Decimal, ...]) -> bool:
    wanted = _as_number(text)
    if wanted is not None:
        return any(_agrees(wanted, seen) for seen in numbers)
    return _squeeze(text) in plain


def _agrees(wanted: Decimal, seen: Decimal) -> bool:
    exponent = wanted.as_tuple().exponent
    # Whole numbers are counts: 47 is not 46.8. What is written with decimals may be rounded, to the decimals that it
    # shows.
    if not isinstance(exponent, int) or exponent >= 0:
        return wanted == seen
    return abs(wanted - seen) <= Decimal(5).scaleb(exponent - 1)


def _as_number(text: str) -> Decimal | None:
    bare = _DECORATION.sub("", text)
    return _decimal(bare) if _NUMBER.fullmatch(bare) else None


def _numbers_in(output: str) -> Iterator[Decimal]:
    for match in _NUMBER.finditer(output):
        written = match.group()
        # "5,123" may be one number or two cells of a table.
        for reading in {written, *written.split(",")}:
            if (number := _decimal(reading)) is not None:
                yield number


def _decimal(text: str) -> Decimal | None:
    try:
        return Decimal(text.replace(",", "").replace("\u2212", "-"))
    except InvalidOperation:
        return None


def _squeeze(text: str) -> str:
    return " ".join(text.split())
