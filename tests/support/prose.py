"""Lines of prose that break the rules of the house: words that name no subject, and lines that are too long."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

MAX_COLUMNS = 120
# But for the user of that name (/etc/passwd).
NO_SUBJECT = re.compile(r"\b(nobody(?![:\"])|somebody|whoever)\b", re.IGNORECASE)
DIRECTIVE = re.compile(r"#\s*(noqa|type:|pragma|fmt:|!)")
FENCE = re.compile(r"\s*(`{3,})")
URL = re.compile(r"https?://\S+")


def words_without_subject(text: str) -> Iterator[tuple[int, str]]:
    """Each line, with its number, that has one of the words."""
    for number, line in enumerate(text.splitlines(), start=1):
        if NO_SUBJECT.search(line):
            yield number, line.strip()


def words_of_python(source: str) -> Iterator[tuple[int, str]]:
    """The same for comments, docstrings, messages and names of functions; a string without a blank is data."""
    lines = source.splitlines()
    for number in sorted(comment_lines(source, directives=True)):
        if NO_SUBJECT.search(lines[number - 1]):
            yield number, lines[number - 1].strip()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            said = node.name.replace("_", " ")
        else:
            said = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
        if " " in said and NO_SUBJECT.search(said):
            yield node.lineno, said.strip()[:MAX_COLUMNS]


def long_lines_of_markdown(text: str) -> Iterator[tuple[int, str]]:
    """Prose lines over 120 columns; tables, URLs and code are excepted."""
    fence = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if found := FENCE.match(line):
            fence = ("" if line.strip() == fence else fence) if fence else found[1]
        elif not fence and not line.lstrip().startswith("|") and is_long(line):
            yield number, line


def long_lines_of_python(source: str) -> Iterator[tuple[int, str]]:
    """Lines of docstrings and comments over 120 columns; URLs and directives for tools are excepted."""
    lines = source.splitlines()
    for number in sorted(docstring_lines(source) | comment_lines(source)):
        if is_long(lines[number - 1]):
            yield number, lines[number - 1].strip()


def is_long(line: str) -> bool:
    return len(line) > MAX_COLUMNS and not URL.search(line)


def docstring_lines(source: str) -> set[int]:
    numbers: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for first in node.body[:1]:
                if ast.get_docstring(node, clean=False) is not None:
                    numbers |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return numbers


def comment_lines(source: str, *, directives: bool = False) -> set[int]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = [token for token in tokens if token.type == tokenize.COMMENT]
    return {token.start[0] for token in comments if directives or not DIRECTIVE.match(token.string)}


def faults(path: Path) -> Iterator[tuple[int, str]]:
    """Each line of the file that breaks a rule."""
    text = path.read_text(errors="replace")  # a golden file may be binary
    # Parsing takes most of the time, and hardly any file needs it.
    if NO_SUBJECT.search(text.replace("_", " ")):
        yield from words_of_python(text) if path.suffix == ".py" else words_without_subject(text)
    if any(map(is_long, text.splitlines())):
        if path.suffix == ".md":
            yield from long_lines_of_markdown(text)
        if path.suffix == ".py":
            yield from long_lines_of_python(text)
