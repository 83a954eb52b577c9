"""Packages that a template declares: requirements of PEP 508, checked as the executor will."""

import json
from collections.abc import Sequence

from packaging.requirements import InvalidRequirement, Requirement

from sandfleet_operator.api.errors import FleetError, invalid

MAX_PACKAGES = 64
MAX_REQUIREMENT = 200
# Seconds.
DEFAULT_SECONDS = 300
MAX_SECONDS = 3600
# The executor gets them in one variable with everything else that it is told, and that has 128 KiB.
MAX_JSON = 8 << 10


def check(packages: Sequence[str], seconds: float) -> None:
    """Raises FleetError for what an executor would not take."""
    if len(packages) > MAX_PACKAGES:
        raise _refusal(f"they are more than {MAX_PACKAGES}")
    for one in packages:
        _check_one(one)
    if len(json.dumps(packages)) > MAX_JSON:
        raise _refusal(f"as JSON they are more than {MAX_JSON} bytes")
    if not 0 < seconds <= MAX_SECONDS:
        raise _refusal(f"{seconds:g} seconds to install them are not above 0 and at most {MAX_SECONDS}")


def _check_one(one: str) -> None:
    if not one.isascii() or not one.isprintable() or len(one) > MAX_REQUIREMENT:
        raise _refusal(f"{one[:80]!r} is no printable text of at most {MAX_REQUIREMENT} characters")
    try:
        found = Requirement(one)
    except InvalidRequirement as error:
        why = str(error).partition("\n")[0]
        raise _refusal(f"{one[:80]!r} is no requirement: {why}") from None
    if found.url:
        raise _refusal(f"{one[:80]!r} has an address: packages come from the index")


def _refusal(why: str) -> FleetError:
    return invalid("InvalidSpec", f"cannot declare the packages: {why}")
