"""The sizes of the house, and its arrows: what is too large has two subjects, what imports itself has none."""

import ast
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]
SOURCES = {
    "sandfleet": ROOT / "agent-client/src/sandfleet",
    "sandfleet_executor": ROOT / "executor-image/src/sandfleet_executor",
    "sandfleet_operator": ROOT / "operator/src/sandfleet_operator",
}
# A class that owns one state may be as long as that takes, and a folder has as many modules as it has subjects.
FILE, FUNCTION = 600, 40
MODULES = sorted(path for folder in SOURCES.values() for path in folder.rglob("*.py"))


def lines(node: ast.AST) -> int:
    return node.end_lineno - node.lineno + 1


def too_long(source: str) -> Iterator[tuple[str, int]]:
    """Names and lines of what is longer than the house allows; the docstring of a function does not count."""
    if len(source.splitlines()) > FILE:
        yield "the file", len(source.splitlines())
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            documented = lines(node.body[0]) if ast.get_docstring(node) is not None else 0
            if lines(node) - documented > FUNCTION:
                yield node.name, lines(node) - documented


def circles(arrows: dict[str, set[str]]) -> list[set[str]]:
    """Strongly connected components of more than one node (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in arrows.get(node, ()):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            component = set(stack[stack.index(node) :])
            del stack[stack.index(node) :]
            if len(component) > 1:
                found.append(component)

    for node in sorted(arrows):
        if node not in index:
            visit(node)
    return found


def imports_of(package: str) -> dict[str, set[str]]:
    graph = grimp.build_graph(package, cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


@pytest.mark.slow
@pytest.mark.parametrize("package", SOURCES)
def test_no_file_or_function_is_longer_than_the_house_allows(package: str) -> None:
    long = {
        f"{path.relative_to(ROOT)}: {name}": count
        for path in SOURCES[package].rglob("*.py")
        if "_sync" not in path.parts
        for name, count in too_long(path.read_text())
    }
    assert long == {}


@pytest.mark.parametrize("package", SOURCES)
def test_no_modules_import_each_other_in_a_circle(package: str) -> None:
    assert circles(imports_of(package)) == []


def test_a_circle_and_a_long_function_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [{"b", "c"}]
    body = "".join(f"    x{number} = {number}\n" for number in range(FUNCTION))
    assert list(too_long(f"def long():\n{body}")) == [("long", FUNCTION + 1)]
    assert list(too_long(f"def short():\n    '''Words.\n\n    More.'''\n{body[: body.rindex('    x')]}")) == []


@pytest.mark.parametrize(
    "path", [path for path in MODULES if path.name == "__init__.py"], ids=lambda path: path.parent.name
)
def test_every_room_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())), path
