"""A cell: compiled whole before anything of it runs, then run."""

import __future__

import ast
import asyncio
import contextlib
import inspect
import io
import linecache
import tokenize
import warnings
from collections.abc import Coroutine
from types import CodeType
from typing import Any, NamedTuple

from IPython.core.interactiveshell import InteractiveShell

FUTURE_FLAGS = 0
for _name in __future__.all_feature_names:
    FUTURE_FLAGS |= getattr(__future__, _name).compiler_flag
MAX_SOURCE_CHARACTERS = 16 << 20
CANCEL_SECONDS = 1.0


class Cell(NamedTuple):
    body: CodeType
    last: CodeType | None
    """The last expression: its value is the result."""

    @property
    def awaits(self) -> bool:
        """Whether the cell needs an event loop."""
        return any(code.co_flags & inspect.CO_COROUTINE for code in (self.body, self.last) if code is not None)


class Compiler:
    """Turns cells into code, and keeps their sources for tracebacks: the newest ones, up to a limit."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._future = 0
        self._transforms = _count_transforms(shell)
        self._sources: dict[str, int] = {}

    def compile(self, source: str, name: str) -> Cell:
        """Compiles the whole cell before any of it runs.

        Raises SyntaxError, ValueError, OverflowError or MemoryError.
        """
        # A file that was saved on Windows may begin with a mark, which Python's own reader drops.
        tree, text = self._parse(source.removeprefix("\ufeff"), name)
        self._remember(name, text)
        tree = self._shell.transform_ast(tree)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr) and not ends_with_semicolon(text):
            last = ast.Expression(tree.body.pop().value)
        body = compile(tree, name, "exec", self._flags(), dont_inherit=True)
        future = self._future | body.co_flags & FUTURE_FLAGS
        code = compile(last, name, "eval", self._flags() | future, dont_inherit=True) if last else None
        self._future = future
        # %timeit, %%time and similar magics compile with IPython's own flags.
        self._shell.compile.flags |= future
        return Cell(body, code)

    def _flags(self) -> int:
        return ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | self._future

    def _parse(self, source: str, name: str) -> tuple[ast.Module, str]:
        if _count_transforms(self._shell) == self._transforms:
            try:
                tree = self._parse_python(source, name)
            except (SyntaxError, ValueError):
                # IPython's own syntax, or an error, which the parse below reports.
                pass
            else:
                if not _is_pasted(tree) and not (self._shell.automagic and _may_be_magic(tree)):
                    return tree, source
        text = self._transform(source)
        return self._parse_python(text, name), text

    def _parse_python(self, source: str, name: str) -> ast.Module:
        return compile(source, name, "exec", self._flags() | ast.PyCF_ONLY_AST, dont_inherit=True)

    def _transform(self, source: str) -> str:
        """Turns IPython's syntax into Python. Keeps the line numbers: IPython drops leading empty lines."""
        rest = source.lstrip("\r\n\t \f")
        if not rest:
            return ""
        start = source.rfind("\n", 0, len(source) - len(rest)) + 1
        return "\n" * source.count("\n", 0, start) + str(self._shell.transform_cell(source[start:]))

    def _remember(self, name: str, text: str) -> None:
        lines = [line + "\n" for line in text.split("\n")]
        # Without a modification time linecache never drops the entry by itself.
        linecache.cache[name] = (len(text), None, lines, name)
        self._sources[name] = len(text)
        while sum(self._sources.values()) > MAX_SOURCE_CHARACTERS and len(self._sources) > 1:
            oldest = next(iter(self._sources))
            del self._sources[oldest]
            linecache.cache.pop(oldest, None)


def _count_transforms(shell: InteractiveShell) -> tuple[int, ...]:
    manager = shell.input_transformer_manager
    return (
        len(shell.input_transformers_post),
        len(manager.cleanup_transforms),
        len(manager.line_transforms),
        len(manager.token_transformers),
    )


def _is_pasted(tree: ast.Module) -> bool:
    """Whether the cell begins with a pasted prompt: to Python, `In [1]: x` is an annotation."""
    match tree.body:
        case [ast.AnnAssign(target=ast.Subscript(value=ast.Name(id="In"))), *_]:
            return True
    return False


def _may_be_magic(tree: ast.Module) -> bool:
    """Whether the cell is a single name: `ls` or `exit` are commands of IPython if no variable has that name."""
    return len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr) and isinstance(tree.body[0].value, ast.Name)


def ends_with_semicolon(text: str) -> bool:
    """Whether the last token is `;`: the cell shows no result then."""
    if ";" not in text[text.rfind("\n", 0, len(text.rstrip())) + 1 :]:
        return False
    skipped = {tokenize.ENDMARKER, tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT}
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in skipped]
    return bool(tokens) and tokens[-1].string == ";"


def _present_loop() -> asyncio.AbstractEventLoop:
    """The loop that an earlier cell has got by making a task, so that the task can be awaited; else a new one."""
    with warnings.catch_warnings():
        # Python 3.12 to 3.13 warn where it makes one.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            loop = asyncio.get_event_loop_policy().get_event_loop()
        except RuntimeError:
            # asyncio.run() has unset it, or there is none.
            return asyncio.new_event_loop()
    return asyncio.new_event_loop() if loop.is_closed() else loop


class Runner:
    """Runs cells in a namespace. Top-level `await` uses one event loop, which lives as long as the context."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self._namespace = namespace
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, cell: Cell) -> Any:
        """The value of the last expression, or None. Raises what the code raises."""
        if cell.awaits:
            return self._run_on_loop(self._steps(cell))
        if self._loop is not None and not self._loop.is_closed():
            # asyncio.run() in an earlier cell has unset it.
            asyncio.set_event_loop(self._loop)
        exec(cell.body, self._namespace)  # noqa: S102 this is what a context is for
        return eval(cell.last, self._namespace) if cell.last is not None else None  # noqa: S307 the same

    def forget_loop(self) -> None:
        """In a copy of the context: the loop's descriptors belong to another process."""
        loop, self._loop = self._loop, None
        asyncio.set_event_loop(None)
        if loop is not None and not loop.is_closed():
            with contextlib.suppress(Exception):  # the loop may be an object of the user's
                loop.close()

    async def _steps(self, cell: Cell) -> Any:
        value = None
        for code in (cell.body, cell.last):
            if code is not None:
                value = eval(code, self._namespace)  # noqa: S307 this is what a context is for
                if code.co_flags & inspect.CO_COROUTINE:
                    value = await value
        return value if cell.last is not None else None

    def _run_on_loop(self, steps: Coroutine[Any, Any, Any]) -> Any:
        if self._loop is None or self._loop.is_closed():
            self._loop = _present_loop()
        loop = self._loop
        asyncio.set_event_loop(loop)
        task = loop.create_task(steps)
        try:
            return loop.run_until_complete(task)
        finally:
            self._finish(task)

    def _finish(self, task: asyncio.Task[Any]) -> None:
        """An interrupt leaves the cell's task half done: runs its `finally` blocks."""
        if self._loop is not None and not task.done() and not self._loop.is_closed():
            task.cancel()
            self._loop.run_until_complete(asyncio.wait({task}, timeout=CANCEL_SECONDS))
        if task.done() and not task.cancelled():
            # Retrieved, so that the loop does not log it as never retrieved.
            task.exception()
