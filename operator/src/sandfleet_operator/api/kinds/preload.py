"""Modules that a template has loaded ahead: checked as the executor will."""

import re
from collections.abc import Sequence

from sandfleet_operator.api.errors import FleetError, invalid

MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
MAX_MODULES = 32
MAX_NAME = 100


def check(modules: Sequence[str]) -> None:
    """Raises FleetError for what an executor would not take."""
    if len(modules) > MAX_MODULES:
        raise _refusal(f"they are more than {MAX_MODULES}")
    if len(set(modules)) != len(modules):
        raise _refusal("one is named twice")
    for name in modules:
        if len(name) > MAX_NAME or not MODULE.fullmatch(name):
            raise _refusal(f"{name[:80]!r} is no name of a module")


def _refusal(why: str) -> FleetError:
    return invalid("InvalidSpec", f"cannot preload the modules: {why}")
