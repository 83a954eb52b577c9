"""The program that a reviewed cell is: the text that the worker compiles, read as the worker reads it (pure)."""

import ast


def program(content: bytes) -> ast.Module | None:
    """Parse the content of a cell; None where it is no plain Python.

    The worker compiles text, never bytes. Python reads bytes by the coding cookie in their first lines, and so another
    program than the worker runs: `# coding: unicode_escape` turns a backslash into whatever it escapes.
    """
    try:
        return ast.parse(content.decode())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
