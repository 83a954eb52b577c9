"""The limits that an executor enforces, one line each: its place in `executionLimits`, its default and its bounds."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, get_args, get_type_hints

from sandfleet_operator.api.quantities import MIB
from sandfleet_operator.api.table import at, in_bytes, whole


def longest(value: object, path: str) -> float:
    """A longest timeout as a custom resource writes it, in whole seconds: 0 there is none, here infinite."""
    return whole(value, path) or math.inf


@dataclass(frozen=True, slots=True)
class Bounds:
    """A template's default, the least that a CodeSandbox may ask for, and the most that an executor accepts."""

    default: float
    least: float = 1
    most: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a sandbox. 0 means: the template's value. Infinite means: no limit, which two of them can be."""

    # Without a place: a custom resource says memory once, of the container.
    memory_bytes: Annotated[int, Bounds(2048 * MIB)] = 0
    tmp_bytes: Annotated[int, at("tmp", in_bytes), Bounds(256 * MIB, MIB)] = 0
    processes: Annotated[int, at("processes"), Bounds(256, 8)] = 0
    # The executor holds it in its own memory.
    output_bytes: Annotated[int, at("output", in_bytes), Bounds(16 * MIB, MIB, 4 << 30)] = 0
    executions: Annotated[int, at("executions"), Bounds(32)] = 0
    # Written as 0 it is none.
    max_timeout: Annotated[float, at("maxTimeoutSeconds", longest), Bounds(3600.0, 0)] = 0.0
    default_timeout: Annotated[float, at("defaultTimeoutSeconds", whole), Bounds(300.0)] = 0.0
    # An interpreter does not start with fewer.
    open_files: Annotated[int, at("openFiles"), Bounds(4096, 64)] = 0
    # The largest file of Linux and gVisor.
    disk_bytes: Annotated[int, at("disk", in_bytes), Bounds(10240 * MIB, MIB, 1 << 50)] = 0
    # Without a place, as memory. Infinite is no quota beside that of the container.
    cpus: Annotated[float, Bounds(math.inf, 0.05)] = 0.0

    def above(self, other: "Limits") -> str:
        """The name of the first limit that is larger than in `other`, or empty."""
        return next((name for name in BOUNDS if getattr(self, name) > getattr(other, name)), "")


TIMES = ("max_timeout", "default_timeout")


def in_numbers(limits: Limits) -> dict[str, float]:
    """The limits as JSON, messages and the executor's configuration have them: no limit is 0 there."""
    return {name: 0 if value == math.inf else value for name, value in asdict(limits).items()}


def _bounds(hint: object) -> Bounds:
    return next(one for one in get_args(hint) if isinstance(one, Bounds))


BOUNDS: Mapping[str, Bounds] = {
    name: _bounds(hint) for name, hint in get_type_hints(Limits, include_extras=True).items()
}
TEMPLATE_LIMITS = Limits(**{name: one.default for name, one in BOUNDS.items()})  # type: ignore[arg-type]
