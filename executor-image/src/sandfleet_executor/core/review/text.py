"""The text of a cell that reviewers, rules and the interpreter read: the same for all of them (pure)."""

import codecs
import io
import tokenize

from sandfleet_executor.core.errors import BadRequest

ENCODING = "utf-8"


def check_text(content: bytes) -> None:
    """Refuse what a tool of a reviewer could read as another program. Raises BadRequest.

    The interpreter compiles the text and ignores a coding cookie. Python, editors and linters that get the bytes obey
    it, and so would see other code than runs.
    """
    try:
        # Python ends a line at a lone carriage return, too.
        lines = io.BytesIO(content.replace(b"\r", b"\n"))
        encoding, _ = tokenize.detect_encoding(lines.readline)
    except SyntaxError as error:
        raise BadRequest(f"cannot review the cell: {error}") from None
    if codecs.lookup(encoding).name != ENCODING:
        raise BadRequest(f"cannot review the cell: it declares the encoding {encoding}; the only one is UTF-8")
