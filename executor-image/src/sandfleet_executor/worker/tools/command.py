"""The command `tool`: `tool NAME --arg value …` calls a tool and prints its result as JSON. `tool` alone lists them.

An argument that reads as JSON is JSON, any other a string; `--arg=value` and `--flag` (true) work, too. `--json OBJECT`
gives all arguments at once, from standard input with `-`. Exit codes: 0; 1 the tool failed; 2 the line is wrong; 3 the
host refused; 4 it took too long; 5 no host answered.
"""

import json
import sys
from collections.abc import Sequence
from typing import Any

from . import failures, functions, line, values

USAGE = "usage: tool NAME [--ARGUMENT VALUE]… | tool NAME --json OBJECT | tool NAME --help | tool"
CODES = ((failures.ToolDenied, 3), (failures.ToolTimeout, 4), (failures.ToolUnavailable, 5), (failures.ToolError, 1))
WRONG = 2


def main(argv: Sequence[str]) -> int:
    """Its exit code. The result goes to standard output, what is wrong to standard error."""
    try:
        if not argv or argv[0] in {"-h", "--help"}:
            listing()
        elif "--help" in argv[1:] or "-h" in argv[1:]:
            print(functions.described(described(argv[0])))
        else:
            sys.stdout.write(shown(line.ask("call", argv[0], arguments(argv[1:]))))
    except (ValueError, TypeError) as error:
        print(f"tool: {error}\n{USAGE}", file=sys.stderr)
        return WRONG
    except failures.ToolError as error:
        print(f"tool: {error}", file=sys.stderr)
        return next(code for kind, code in CODES if isinstance(error, kind))
    return 0


def listing() -> None:
    """Prints what there is to call."""
    for spec in line.ask("list"):
        first = spec["doc"].strip().partition("\n")[0]
        print(f"{spec['name']}{functions.signature_of(spec)}{f'  {first}' if first else ''}")


def described(name: str) -> Any:
    """What the host says of a tool. Raises ValueError."""
    for spec in line.ask("list"):
        if spec["name"] == name:
            return spec
    raise ValueError(f"cannot find {name!r}: the host does not offer it")


def arguments(words: Sequence[str]) -> dict[str, Any]:
    """The arguments of a call. Raises ValueError."""
    found: dict[str, Any] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--") or len(word) == 2:
            raise ValueError(f"cannot read {word!r}: arguments have names, as --customer 7")
        name, equals, value = word[2:].partition("=")
        if not equals:
            value = rest.pop(0) if rest and not rest[0].startswith("--") else "true"
        if name == "json":
            found |= whole(sys.stdin.read() if value == "-" else value)
        else:
            found[name.replace("-", "_")] = read(value)
    return found


def whole(text: str) -> dict[str, Any]:
    """All arguments at once. Raises ValueError."""
    given = json.loads(text)
    if not isinstance(given, dict):
        raise ValueError("cannot read the arguments of --json: they are no object")  # noqa: TRY004 - the line is wrong
    return given


def read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def shown(result: Any) -> str:
    """The result as JSON; bytes as they are, where they are all of it."""
    if isinstance(result, bytes):
        sys.stdout.flush()
        sys.stdout.buffer.write(result)
        return ""
    text, blobs = values.encode(result)
    if not blobs:
        return json.dumps(json.loads(text), ensure_ascii=False) + "\n"
    return json.dumps(result, default=lambda data: data.decode("utf-8", "backslashreplace"), ensure_ascii=False) + "\n"
