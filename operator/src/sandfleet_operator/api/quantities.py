"""Quantities as Kubernetes writes them ("1.5Gi", "250m", "1e3", 2) to bytes and cores, and back.

Read exactly; what is left of a byte is rounded up, as Kubernetes does. All raise FleetError with "cannot read X: why".
"""

import math
import re
from fractions import Fraction

from sandfleet_operator.api.errors import FleetError, invalid

MIB = 1 << 20

# The most that Kubernetes can store. It cuts larger quantities, which no author of one expects.
MOST = (1 << 63) - 1
MAX_CHARACTERS = 32
# More digits in the exponent than any quantity needs would only cost time.
QUANTITY = re.compile(r"\+?(?P<number>[0-9]+(\.[0-9]*)?|\.[0-9]+)(?P<unit>[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?")
BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60}
DECIMAL = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
SMALL = {"n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000)}
SCALES: dict[str, Fraction] = {"": Fraction(1), **SMALL, **{k: Fraction(v) for k, v in (BINARY | DECIMAL).items()}}


def parse_quantity(value: object, what: str) -> Fraction:
    """The exact number; not negative, at most 2^63 - 1."""
    if isinstance(value, int) and not isinstance(value, bool):
        number = Fraction(value)
    elif isinstance(value, str):
        number = _parse_text(value, what)
    else:
        raise _unreadable(what, f"{type(value).__name__} is no quantity; write a number or a text like 500m or 2Gi")
    if not 0 <= number <= MOST:
        raise _unreadable(what, f"{str(value)[:MAX_CHARACTERS]} is not between 0 and 2^63 - 1")
    return number


def parse_bytes(value: object, what: str) -> int:
    """Bytes."""
    return math.ceil(parse_quantity(value, what))


def parse_cores(value: object, what: str) -> float:
    """Cores: "250m" is 0.25."""
    return float(parse_quantity(value, what))


def bytes_text(value: int) -> str:
    """The shortest of what Kubernetes keeps as it is: a binary unit where one divides the value, else a decimal one."""
    for units in (BINARY, DECIMAL):
        for unit, scale in reversed(units.items()):
            if value and value % scale == 0:
                return f"{value // scale}{unit}"
    return str(value)


def cores_text(cores: float) -> str:
    """Whole cores or thousandths, which is as fine as Kubernetes counts them; less is rounded up."""
    # Through millionths: 0.1 + 0.2 is 300m, not 301m.
    thousandths = math.ceil(Fraction(round(cores * 10**6), 1000))
    if cores > 0:
        thousandths = max(thousandths, 1)
    return str(thousandths // 1000) if thousandths % 1000 == 0 else f"{thousandths}m"


def _parse_text(text: str, what: str) -> Fraction:
    match = QUANTITY.fullmatch(text) if len(text) <= MAX_CHARACTERS else None
    if match is None:
        raise _unreadable(
            what, f"{text[:MAX_CHARACTERS]!r} is no quantity; write a number and a unit, like 500m or 2Gi"
        )
    number, unit = Fraction(match["number"].rstrip(".")), match["unit"] or ""
    # A sole E is a unit, 10^18; with digits behind it an exponent.
    return number * (SCALES[unit] if unit in SCALES else Fraction(10) ** int(unit[1:]))


def _unreadable(what: str, why: str) -> FleetError:
    return invalid("InvalidQuantity", f"cannot read {what}: {why}", what)
