"""The first rows of a frame as data, where the caller of a cell asks for them: in the form that results of SQL have."""

import json
from typing import Any

from sandfleet_rules.tables import kind_of

MIME = "application/json"


def described(value: Any, most: int) -> dict[str, Any] | None:
    """At most so many rows; None for what is no frame, or cannot say them."""
    kind = kind_of(value)
    if not most or not kind:
        return None
    try:
        names, types, rows, total = (_of_pandas if kind == "pandas" else _of_others)(value, most, kind)
        return {"columns": [str(name) for name in names], "types": types, "rows": rows, "total_rows": int(total)}
    except Exception:  # noqa: BLE001  the frame is the user's object: without rows it is shown as ever
        return None


def _of_pandas(frame: Any, most: int, kind: str) -> tuple[Any, list[str], list[Any], int]:
    del kind
    head = frame.head(most).reset_index(drop=True)
    # By place: two columns may have one name.
    head.columns = range(len(frame.columns))
    rows = json.loads(head.to_json(orient="values", date_format="iso", default_handler=str, double_precision=15))
    return frame.columns, [str(each) for each in frame.dtypes], rows, len(frame)


def _of_others(table: Any, most: int, kind: str) -> tuple[Any, list[str], list[Any], int]:
    if kind == "polars":
        return (
            table.columns,
            [str(each) for each in table.dtypes],
            [list(row) for row in table.head(most).rows()],
            len(table),
        )
    head = table.slice(0, most)
    columns = [column.to_pylist() for column in head.columns]
    return (
        head.column_names,
        [str(each) for each in head.schema.types],
        [list(row) for row in zip(*columns, strict=True)],
        len(table),
    )
