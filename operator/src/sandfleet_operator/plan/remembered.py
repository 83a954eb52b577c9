"""Pure functions that are asked the same again and again: a thousand sandboxes share one template."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

# Results that one function remembers.
MOST = 256
P = ParamSpec("P")
T = TypeVar("T")


def remembered(work: Callable[P, T]) -> Callable[P, T]:
    """`work` for the same first argument and for equal other ones is done once. Its results must not be changed.

    It takes positional arguments, which need not be hashable and must not change either.
    """
    # By the identity of the first argument, which stays unique as long as the argument is kept.
    known: dict[int, list[tuple[tuple[object, ...], T]]] = {}

    @wraps(work)
    def remembering(*args: P.args, **kwargs: P.kwargs) -> T:
        first, *rest = args
        for before, result in known.get(id(first), ()):
            if before[0] is first and all(a is b or a == b for a, b in zip(before[1:], rest, strict=True)):
                return result
        result = work(*args, **kwargs)
        if sum(map(len, known.values())) >= MOST:
            known.clear()
        known.setdefault(id(first), []).append((args, result))
        return result

    return remembering
