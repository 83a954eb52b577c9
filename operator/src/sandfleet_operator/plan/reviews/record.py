"""What was approved in one session: for the rules, and to show what has changed since (pure)."""

import ast
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TypeVar

from sandfleet_operator.plan.reviews.program import program

K = TypeVar("K")
V = TypeVar("V")

CELL, PYTHON = "cell", "python"
MAX_DIGESTS, MAX_VERSIONS, MAX_NAMES, MAX_INTERPRETERS = 4096, 64, 4096, 64
# A longer version is not kept, and shows no difference.
MAX_VERSION_BYTES = 64 << 10
# With these, code makes and removes names that its text does not show.
DYNAMIC = frozenset({"exec", "eval", "globals", "locals", "vars", "delattr", "get_ipython", "__import__"})


@dataclass(frozen=True, slots=True)
class Request:
    """What waits for a review. `settings` is JSON, `digest` covers all."""

    kind: str
    content: bytes
    digest: bytes
    context_id: str = ""
    name: str = ""
    settings: str = "{}"
    # Of a cell, as the executor says it: the language of its context, a name that no other interpreter of the sandbox
    # has had (empty: it has variables that are not its cells'), and how many cells have begun in it.
    language: str = ""
    incarnation: str = ""
    cells: int = 0

    @property
    def key(self) -> tuple[str, str, str]:
        """The same of two versions of one thing: of a file by its path, of cells by their context."""
        return self.kind, self.context_id, self.name


@dataclass
class SessionRecord:
    """Bounded: what is forgotten is asked again."""

    digests: "OrderedDict[bytes, None]" = field(default_factory=OrderedDict)
    versions: "OrderedDict[tuple[str, str, str], bytes]" = field(default_factory=OrderedDict)
    # Names that cells have bound, by the incarnation of an interpreter; None: some are not known any more.
    names: "OrderedDict[str, frozenset[str] | None]" = field(default_factory=OrderedDict)

    def approved(self, request: Request, edited: bytes | None = None) -> None:
        """The request runs, or what a reviewer has made of it."""
        ran = request.content if edited is None else edited
        if edited is None:
            _remember(self.digests, request.digest, None, MAX_DIGESTS)
        if len(ran) <= MAX_VERSION_BYTES:
            _remember(self.versions, request.key, ran, MAX_VERSIONS)
        else:
            self.versions.pop(request.key, None)
        if request.kind == CELL and (known := self.bound(request)) is not None:
            bound = bound_names(ran)
            together = None if bound is None or len(known | bound) > MAX_NAMES else known | bound
            _remember(self.names, request.incarnation, together, MAX_INTERPRETERS)

    def bound(self, request: Request) -> frozenset[str] | None:
        """The names that are bound where the cell would run; None where they are not known.

        An interpreter in which nothing has begun has bound nothing. All others count from their first cell on, so that
        a fleet that has not seen it knows nothing of them.
        """
        if request.language != PYTHON or not request.incarnation:
            return None
        return self.names.get(request.incarnation) if request.cells else frozenset()

    def before(self, request: Request) -> bytes | None:
        """What was approved last for the same file or context."""
        return self.versions.get(request.key)


def bound_names(code: bytes) -> frozenset[str] | None:
    """The names that a cell binds at its top level; None where it may unbind some, or is no plain Python."""
    tree = program(code)
    if tree is None:
        return None
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Delete) or (isinstance(node, ast.Name) and node.id in DYNAMIC):
            return None
    for statement in tree.body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                found.update((one.asname or one.name.partition(".")[0]) for one in names if one.name != "*")
            case ast.Assign(targets=targets):
                found.update(name for target in targets for one in ast.walk(target) for name in _bound(one))
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
                found.add(name)
    return frozenset(found)


def _bound(node: ast.AST) -> tuple[str, ...]:
    return (node.id,) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else ()


def _remember(table: "OrderedDict[K, V]", key: K, value: V, most: int) -> None:
    table[key] = value
    table.move_to_end(key)
    while len(table) > most:
        table.popitem(last=False)
