"""Parameters of tools that are tables."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from sandfleet_rules.tables import has, kind_of

from sandfleet._wire.convert.arrow import made

_SCHEMA = {"type": "array", "items": {"type": "object"}, "format": "table"}


def annotated(hints: Mapping[str, Any]) -> dict[str, Any]:
    """Types of parameters as pydantic checks them: a parameter of a table's type takes rows, and any table."""
    return {name: _annotated(hint) for name, hint in hints.items()}


def _annotated(hint: Any) -> Any:
    is_union = get_origin(hint) in {Union, UnionType}
    kinds = set(get_args(hint)) if is_union else {hint}
    optional, kinds = NoneType in kinds, kinds - {NoneType}
    kind = kinds.pop() if len(kinds) == 1 else None
    if not isinstance(kind, type) or not hasattr(kind, "__arrow_c_stream__") or not hasattr(kind, "columns"):
        return hint
    from pydantic import BeforeValidator, WithJsonSchema

    library = kind.__module__.partition(".")[0]
    take = BeforeValidator(lambda value: None if optional and value is None else _taken(value, library))
    return Annotated[Any, take, WithJsonSchema(_SCHEMA)]


def _taken(value: Any, library: str) -> Any:
    """A table of the library that the tool wants. Raises ValueError."""
    if not has("pyarrow"):
        raise ValueError("it takes a table, and pyarrow is not installed on the host: sandfleet[arrow] brings it")
    import pyarrow as pa

    if kind_of(value) == library:
        return value
    try:
        table = pa.Table.from_pylist(value) if isinstance(value, list) else pa.table(value)
    except (pa.ArrowException, ValueError, TypeError, AttributeError):
        raise ValueError("Input should be a table, or a list of rows") from None
    return made(table, library)
