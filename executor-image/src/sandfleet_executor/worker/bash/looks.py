"""Completion and inspection of bash: what the live shell's own builtins say, in a subshell of it."""

import re
import shlex
from collections.abc import Iterator

from ..base import answers

# What stands before the cursor: a variable that is begun, or a word.
VARIABLE = re.compile(r"\$\{?(\w*)$")
WORD = re.compile(r"""[^\s\0;|&()<>"'`$=]*$""")
BEHIND = re.compile(r"[\w.+-]*")
# The word is a command if nothing but this stands before it.
COMMAND = re.compile(r"(?:^|[;|&({!]|\b(?:then|do|else|if|while|until|time|sudo)\s)\s*$", re.MULTILINE)
SAFE = re.compile(r"[\w./+,:@%^~-]+")
# What the shell says is read up to so many bytes.
MOST_BYTES = 1 << 20


def question(kind: str, code: str, cursor: int) -> str:
    """A command of bash that prints what answers it; empty where there is nothing to ask."""
    if kind == "inspect":
        word = shlex.quote(_word(code, cursor))
        if word == "''":
            return ""
        return f"\\builtin type -- {word}; \\builtin declare -p -- {word}; \\builtin help -- {word}"
    before = code[:cursor]
    if variable := VARIABLE.search(before):
        return f"\\builtin compgen -v -- {shlex.quote(variable[1])}"
    begun = _begun(before)
    actions = "-c -f" if COMMAND.search(before[: len(before) - len(begun)]) else "-f"
    return f"\\builtin compgen {actions} -- {shlex.quote(begun)}"


def answer(kind: str, code: str, cursor: int, detail_level: int, said: bytes) -> bytes:
    """The answer, of what the command has printed."""
    text = said[:MOST_BYTES].decode("utf-8", "replace")
    if kind == "inspect":
        lines = list(_told(text.splitlines(), detail_level))
        return answers.inspected("\n".join(lines), found=bool(lines))
    before = code[:cursor]
    variable = VARIABLE.search(before)
    begun = variable[1] if variable else _begun(before)
    names = sorted(set(text.splitlines()))
    matches = [each if SAFE.fullmatch(each) else shlex.quote(each) for each in names if each]
    return answers.completed(matches, cursor - len(begun), cursor)


def _told(lines: list[str], detail_level: int) -> Iterator[str]:
    """Without the body of a function, unless that is asked for."""
    if detail_level == 0 and lines and lines[0].endswith(" is a function"):
        yield lines[0]
        return
    yield from lines


def _begun(before: str) -> str:
    found = WORD.search(before)
    return found[0] if found else ""


def _word(code: str, cursor: int) -> str:
    found = BEHIND.match(code, cursor)
    return _begun(code[:cursor]) + (found[0] if found else "")
