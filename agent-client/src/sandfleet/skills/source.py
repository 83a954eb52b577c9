"""What is read from a skill's source text, which is never executed here: code in a sandbox has written it. Pure."""

from __future__ import annotations

import ast
import hashlib
import keyword
from collections.abc import Iterator

from sandfleet.errors import InvalidArgument

# Bytes of code and of tests.
LARGEST = 256 * 1024
_NAME_LIMIT = 64
_SUMMARY_LIMIT = 200
_MOST_FUNCTIONS = 50


def check_name(name: str) -> None:
    """Refuse a name that is no module of the package `skills`. Raises InvalidArgument."""
    is_name = name.isascii() and name.isidentifier() and not keyword.iskeyword(name) and len(name) <= _NAME_LIMIT
    if not is_name or name.startswith("_"):
        why = "a name is a Python identifier of at most 64 plain letters, and begins with a letter"
        raise InvalidArgument(f"cannot save the skill {name[:80]!r}: {why}", reason="InvalidSkillName")


def check_size(name: str, code: str, tests: str) -> None:
    """Refuse what is empty or too large. Raises InvalidArgument."""
    for what, text in (("code", code), ("tests", tests)):
        if not text.strip():
            raise InvalidArgument(f"cannot save the skill {name}: it has no {what}", reason="SkillIncomplete")
        if len(text.encode(errors="replace")) > LARGEST:
            why = f"its {what} is over {LARGEST >> 10} KiB"
            raise InvalidArgument(f"cannot save the skill {name}: {why}", reason="SkillTooLarge")


def hashed(body: bytes) -> str:
    """Return the digest by which a library names what was saved."""
    return hashlib.sha256(body).hexdigest()


def described(name: str, code: str) -> tuple[str, str]:
    """Return the first line of the docstring, and the functions without bodies. Raises InvalidArgument."""
    try:
        tree = ast.parse(code)
        summary = (ast.get_docstring(tree) or "").strip().partition("\n")[0][:_SUMMARY_LIMIT]
        functions = list(_stubs(name, tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = error.msg if isinstance(error, SyntaxError) else str(error) or type(error).__name__
        raise InvalidArgument(
            f"cannot save the skill {name}: its code is no Python: {why}", reason="SkillBroken"
        ) from None
    return summary, "\n".join([f"# skills.{name}: {summary}" if summary else f"# skills.{name}", *functions])


def _stubs(name: str, tree: ast.Module) -> Iterator[str]:
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for node in [one for one in found if not one.name.startswith("_")][:_MOST_FUNCTIONS]:
        kind = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
        returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        yield f"{kind} skills.{name}.{node.name}({ast.unparse(node.args)}){returns}: ..."
