"""A mutant takes the mend of a defect out again. A test that is worth its name then fails."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from unittest import mock

T = TypeVar("T")


@dataclass(frozen=True)
class Mutant(Generic[T]):
    """Brings the defect `point` of an issue back; `finder` then fails.

    Each patch is a target, the name of its part, and what stands there without the mend.
    """

    point: str
    finder: T
    patches: tuple[tuple[Any, str, Any], ...]

    @contextmanager
    def applied(self) -> Iterator[None]:
        with ExitStack() as stack:
            for target, name, value in self.patches:
                stack.enter_context(mock.patch.object(target, name, value))
            yield
