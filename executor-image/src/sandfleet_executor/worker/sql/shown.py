"""The rows of a statement as text, HTML and JSON."""

import html
import json
from decimal import Decimal
from typing import Any

from .database import Result

# Characters of one value that are shown.
CELL = 200


def parts(result: Result) -> list[tuple[str, bytes]]:
    """By MIME type, the simplest last."""
    columns = [[_text(value) for value in column] for column in result.shown]
    return [
        ("text/html", _html(result, columns).encode("utf-8", "replace")),
        ("application/json", _json(result).encode("ascii")),
        ("text/plain", _plain(result, columns).encode("utf-8", "replace")),
    ]


def more(result: Result) -> str:
    """The rows in words, with how many are left out."""
    rows = f"{result.rows:,} row" + ("" if result.rows == 1 else "s")
    return f"{rows}, {result.left_out:,} not shown" if result.left_out else rows


def _text(value: Any) -> str:
    if value is None:
        return "NULL"
    text = str(value)
    return text if len(text) <= CELL else f"{text[: CELL - 1]}…"


def _plain(result: Result, columns: list[list[str]]) -> str:
    shown = [[value.replace("\n", "\\n") for value in column] for column in columns]
    widths = [max(map(len, (name, *column))) for name, column in zip(result.names, shown, strict=True)]
    lines = [result.names, ["-" * width for width in widths], *zip(*shown, strict=True)]
    padded = ("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join([*(line.rstrip() for line in padded), f"({more(result)})"])


def _html(result: Result, columns: list[list[str]]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in result.names)
    rows = "".join(
        f"<tr>{''.join(f'<td>{html.escape(value)}</td>' for value in row)}</tr>" for row in zip(*columns, strict=True)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table><p>{more(result)}</p>"


def _json(result: Result) -> str:
    rows = [[_plain_value(value) for value in row] for row in zip(*result.shown, strict=True)]
    said = {"columns": result.names, "types": result.types, "rows": rows, "total_rows": result.rows}
    return json.dumps(said, default=str)


def _plain_value(value: Any) -> Any:
    # A whole number that Arrow has no integer for. The others are text, in each row of their column.
    if isinstance(value, Decimal) and value.as_tuple().exponent == 0:
        return int(value)
    return _text(value) if isinstance(value, str) else value
