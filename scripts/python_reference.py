#!/usr/bin/env python3
"""Write docs/reference/python/, the reference of the Python API, from signatures and docstrings.

With `--check` nothing is written; the exit code is 1 if a page is out of date. The pages and their index, python.md,
have the public names of `sandfleet`, `sandfleet.codeact` and `sandfleet.driver`, the resources that hang on a sandbox,
and the values that their signatures name. Everything is read from the source text, so a comment above a field
describes it.
"""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, ModuleType

import sandfleet
import sandfleet.codeact
import sandfleet.driver

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/reference/python.md"
COLUMNS = 120
# Names of a page that the index has.
SHOWN = 12
EMPTY: Mapping[str, str] = MappingProxyType({})
RESOURCES = {
    "commands": "_sync.commands.Commands",
    "files": "_sync.files.Files",
    "services": "_sync.services.Services",
    "fleet.reviews": "_sync.reviews.Reviews",
    "pty": "_sync.pty.Pty",
    "states": "_sync.variables.States",
    "tables": "_sync.tables.Tables",
    "skills": "_sync.skills.Skills",
    "journal": "_sync.journal.Journal",
}
HANDLES = ("CommandHandle", "ContextHandle", "FileWatch", "Forward", "PtyHandle")
REVIEWS = ("intent",)
TOOLS = (
    "ToolServer",
    "tool",
    "McpServer",
    "mcp_server",
    "toolkit",
    "Toolkit",
    "ToolText",
    "ToolSchema",
    "AskedModel",
    "ask_model",
    "SkillLibrary",
    "Skill",
    "SkillState",
    "WasmModule",
    "SkillError",
)
POLICIES = ("codeact.policies.openai.OpenAIPolicy", "codeact.policies.http.Retries", "codeact.policies.sse.Token")
JOURNALS = (
    "journal.status.JournalStatus",
    "journal.status.JournalExport",
    "journal.verify.Verification",
    "journal.verify.Fault",
    "journal.records.Record",
    "journal.records.Head",
    "journal.heads.KeptHead",
    "journal.heads.SignedHead",
    "replay.runner.replay",
    "replay.runner.Replay",
    "replay.runner.Replayed",
    "journal.sameness.Sameness",
    "journal.sameness.Difference",
)
PARTS = PAGE.with_suffix("")
MADE = """\
<!-- Made by scripts/python_reference.py from the client's source: change that and run it again. -->
<!-- page only read: part of a program -->
"""
INTRODUCTION = """\
# The Python API

<!-- Made by scripts/python_reference.py from the client's source: change that and run it again. -->
<!-- page only read: part of a program -->

Everything here is imported from `sandfleet`, the agent loop from `sandfleet.codeact`, the driver from
`sandfleet.driver`, and replays from `sandfleet.replay`. A first program is in the
[README](../../README.md#one-screen-of-python); the how-tos show each part at work.

`AsyncSandbox` has the calls of `Sandbox` with `await`, and so have `AsyncFleet` and the handles. There
`async with AsyncSandbox.create() as sandbox` opens one, iterators are `async for`, and callbacks may be coroutines. All
times are seconds, all sizes bytes.
"""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Item:
    """A class or a function, as its module's source has it."""

    name: str
    node: ast.ClassDef | Function
    lines: tuple[str, ...]


@cache
def definitions(path: Path) -> dict[str, Item]:
    source = path.read_text()
    lines = tuple(source.splitlines())
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name: Item(node.name, node, lines) for node in ast.parse(source).body if isinstance(node, kinds)}


def item(value: object) -> Item:
    path = inspect.getsourcefile(inspect.unwrap(value))  # type: ignore[arg-type]
    assert path is not None
    return definitions(Path(path))[value.__name__]  # type: ignore[attr-defined]


def at(path: str) -> Item:
    """By its name below the package: `_sync.files.Files`."""
    module, _, name = path.rpartition(".")
    return item(getattr(import_module(f"sandfleet.{module}"), name))


# Text


# A line that begins an entry: names and their meaning, or a point of a list.
NAMED = re.compile(r"(?P<names>[a-z_]\w*(?:, [a-z_]\w*)*) {2,}(?P<text>\S.*)")
POINT = re.compile(r"- (?P<text>\S.*)")


@dataclass(frozen=True)
class Entry:
    """A part of a paragraph: a sentence without names, the meaning of names, or a point of a list."""

    text: str
    names: tuple[str, ...] = ()
    is_point: bool = False

    def lines(self) -> list[str]:
        named = ", ".join(f"`{name}`" for name in self.names)
        head = f"- {named}: " if named else "- " if self.is_point else ""
        hang = "  " if head else ""
        whole = head + self.text
        return textwrap.wrap(whole, COLUMNS, subsequent_indent=hang, break_long_words=False, break_on_hyphens=False)


def entries(block: str) -> list[Entry]:
    found: list[Entry] = []
    for line in block.splitlines():
        if named := NAMED.match(line):
            found.append(Entry(named["text"], tuple(named["names"].split(", "))))
        elif point := POINT.match(line):
            found.append(Entry(point["text"], is_point=True))
        elif found:
            found[-1] = replace(found[-1], text=f"{found[-1].text} {line.strip()}")
        else:
            found.append(Entry(line.strip()))
    return found


def prose(docstring: str, known: Mapping[str, str] = EMPTY) -> list[str]:
    """Paragraphs as they are; an aligned list of names becomes a list; a drawing stays one.

    Names that are `known` are left out: a table says what they mean.
    """
    made: list[str] = []
    for block in re.split(r"\n\s*\n", docstring.strip()) if docstring else ():
        if block.startswith("    ") or "──" in block:
            made += ["```text", *(textwrap.dedent(block).splitlines()), "```", ""]
        elif kept := [one for one in entries(block) if not one.names or not known.keys() >= set(one.names)]:
            for before, one in zip([None, *kept], kept, strict=False):
                made += ([""] if before and not before.names and not before.is_point else []) + one.lines()
            made.append("")
    return made


def meanings(docstring: str) -> dict[str, str]:
    """What an aligned list says of each name."""
    blocks = re.split(r"\n\s*\n", docstring)
    return {name: one.text for block in blocks for one in entries(block) for name in one.names}


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Without columns that are empty."""
    kept = [place for place in range(len(head)) if any(row[place] for row in rows)]
    lines = [head, tuple("---" for _ in head), *rows]
    made = ["| " + " | ".join(cell(line[place]) for place in kept) + " |" for line in lines]
    return [*made, ""] if rows else []


def program(lines: Iterable[str]) -> list[str]:
    return ["```python", *lines, "```", ""]


# Code


def formatted(*sources: str) -> list[str]:
    """The lines, by ruff."""
    command = [str(Path(sys.executable).with_name("ruff")), "format", "--line-length", "100", "-"]
    done = subprocess.run(command, input="\n".join(sources), capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout.splitlines()


def signature(node: Function, name: str = "") -> str:
    """Without the object that it is called on, and without a body."""
    every = node.args.posonlyargs + node.args.args
    own = every[:1] if every and every[0].arg in ("self", "cls") else []
    arguments = ast.unparse(node.args)
    if own:
        arguments = arguments.removeprefix(ast.unparse(own[0])).removeprefix(", /").removeprefix(", ")
    returned = name or (ast.unparse(node.returns) if node.returns else "")
    answer = f" -> {returned}" if returned else ""
    word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    return f"{word} {name or node.name}({arguments}){answer}: ..."


def decorated(node: Function, name: str) -> bool:
    return any(ast.unparse(one).rpartition(".")[2] == name for one in node.decorator_list)


def functions(node: ast.ClassDef) -> list[Function]:
    return [one for one in node.body if isinstance(one, Function) and not one.name.startswith("_")]


def is_property(node: Function) -> bool:
    return decorated(node, "property") or decorated(node, "cached_property")


def fields(thing: Item) -> Iterator[tuple[str, str, str, str]]:
    """Name, type, default, and what the comment above or the text below says."""
    body = thing.node.body
    for place, one in enumerate(body):
        if not isinstance(one, ast.AnnAssign) or not isinstance(one.target, ast.Name) or one.target.id.startswith("_"):
            continue
        below = body[place + 1] if place + 1 < len(body) else None
        yield one.target.id, ast.unparse(one.annotation).strip("'"), default(one.value), described(thing, one, below)


def default(value: ast.expr | None) -> str:
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "field":
        made = {one.arg: ast.unparse(one.value) for one in value.keywords}
        return made.get("default") or (f"{made['default_factory']}()" if "default_factory" in made else "")
    return "" if value is None else ast.unparse(value)


def described(thing: Item, node: ast.stmt, below: ast.stmt | None) -> str:
    if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
        return " ".join(below.value.value.split())
    first = node.lineno - 1
    while thing.lines[first - 1].lstrip().startswith("# "):
        first -= 1
    return " ".join(line.strip().removeprefix("# ") for line in thing.lines[first : node.lineno - 1])


# Pages


def heading(level: int, text: str) -> list[str]:
    return ["#" * level + " " + text, ""]


def of_function(node: Function, level: int, prefix: str, overloads: list[Function]) -> list[str]:
    shown = [one for one in overloads if one.name == node.name] or [node]
    return [
        *heading(level, f"`{prefix}{node.name}`"),
        *program(formatted(*(signature(one) for one in shown))),
        *prose(ast.get_docstring(node) or ""),
    ]


def of_class(thing: Item, level: int, prefix: str = "") -> list[str]:
    """A class with what it has: values, properties, calls. `prefix` is how an object of it is called."""
    node = thing.node
    assert isinstance(node, ast.ClassDef)
    called = [one for one in functions(node) if not is_property(one)]
    overloads = [one for one in called if decorated(one, "overload")]
    properties = [(f"`{one.name}`", code(one.returns), summary(one)) for one in functions(node) if is_property(one)]
    text = ast.get_docstring(node) or ""
    known = meanings(text)
    of_fields = {name: one for name, one in known.items() if name in {name for name, *_ in fields(thing)}}
    lines = [*heading(level, f"`{prefix}`" if prefix else thing.name), *constructor(node)]
    lines += [*prose(text, of_fields), *values(thing, known), *table(("property", "type", ""), properties)]
    for one in called:
        if one not in overloads:
            owner = thing.name if decorated(one, "classmethod") else prefix
            lines += of_function(one, level + 1, f"{owner}." if owner else "", overloads)
    return lines


def constructor(node: ast.ClassDef) -> list[str]:
    """Of a class that users make themselves; the client makes those of `_sync`."""
    made = next((one for one in node.body if isinstance(one, Function) and one.name == "__init__"), None)
    if made is None or "original" in ast.unparse(made.args) or is_error(node):
        return []
    return program(formatted(signature(made, node.name)))


def is_error(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).endswith(("Error", "Exception")) for base in node.bases)


def code(node: ast.expr | None) -> str:
    return f"`{ast.unparse(node)}`" if node else ""


def summary(node: Function) -> str:
    return " ".join((ast.get_docstring(node) or "").split())


def values(thing: Item, known: Mapping[str, str]) -> list[str]:
    """The members of an enum, or the fields of a value, with what is known of them."""
    node = thing.node
    assert isinstance(node, ast.ClassDef)
    if any(ast.unparse(base) in ("StrEnum", "Enum") for base in node.bases):
        members = [one for one in node.body if isinstance(one, ast.Assign)]
        follows = dict(zip(node.body, node.body[1:], strict=False))
        rows = [
            (f"`{ast.unparse(one.targets[0])}`", code(one.value), described(thing, one, follows.get(one)))
            for one in members
        ]
        return table(("member", "value", ""), rows)
    rows = [
        (f"`{name}`", f"`{kind}`", f"`{given}`" if given else "", known.get(name, told))
        for name, kind, given, told in fields(thing)
    ]
    return table(("name", "type", "default", ""), rows)


# Contents


def public(*homes: str) -> list[str]:
    """The public names of these modules of the package, in their order."""
    known = sandfleet._HOMES.items()  # noqa: SLF001  the only list that says where each public name lives
    wanted = tuple(f"sandfleet.{home}" for home in homes)
    return [name for name, home in known if home.startswith(wanted) and not name.startswith("Async")]


def named_values(things: list[Item]) -> list[Item]:
    """Values that the signatures and fields of others name, and that are no public names."""
    known = {one.name for one in things}
    found: dict[str, Item] = {}
    todo = list(things)
    while todo:
        words = set(re.findall(r"[A-Z]\w+", ast.unparse(todo.pop().node)))
        for name in sorted(words - known):
            if (one := value_named(name)) is not None:
                known.add(name)
                found[name] = one
                todo.append(one)
    return [found[name] for name in sorted(found)]


def value_named(name: str) -> Item | None:
    for path in sorted((ROOT / "agent-client/src/sandfleet/values").glob("*.py")):
        if isinstance((one := definitions(path).get(name)), Item) and isinstance(one.node, ast.ClassDef):
            return one
    return None


def of_names(names: Iterable[str]) -> list[str]:
    return [line for name in names for line in of_any(item(getattr(sandfleet, name)))]


def of_any(thing: Item) -> list[str]:
    node = thing.node
    return of_class(thing, 3) if isinstance(node, ast.ClassDef) else of_function(node, 3, "", [])


def sandboxes() -> list[str]:
    lines = [*heading(2, "Sandbox"), *of_class(item(sandfleet.Sandbox), 3, "sandbox")]
    lines += heading(2, "Parts of a sandbox")
    for name, path in RESOURCES.items():
        lines += of_class(at(path), 3, f"sandbox.{name}")
    return lines


def agents() -> list[str]:
    """The loop first, then what policies see and answer."""
    lines = of_room("The agent loop", "CodeActAgent", sandfleet.codeact, "codeact/conversation.py")
    for one in map(at, POLICIES):
        lines += of_class(one, 3)
    return lines


def of_room(title: str, first: str, room: ModuleType, *aliases: str) -> list[str]:
    """A package with names of its own; `aliases` are the files in which types have a name."""
    named = {name: getattr(room, name) for name in room.__all__}
    classes = [item(one) for one in named.values() if inspect.isclass(one)]
    classes.sort(key=lambda one: (one.name != first, one.name))
    lines = heading(2, title)
    for one in classes:
        lines += of_class(one, 3)
    for name in sorted(name for name, one in named.items() if not inspect.isclass(one)):
        lines += [*heading(3, name), *program(alias(name, aliases))]
    return lines


def alias(name: str, files: tuple[str, ...]) -> list[str]:
    """A type with a name of its own, with the comment above it."""
    source = "\n".join((ROOT / "agent-client/src/sandfleet" / file).read_text() for file in files)
    found = re.search(rf"(?m)^((?:# .*\n)*{name} = .*)$", source)
    assert found, f"cannot find {name}"
    return found[1].splitlines()


def whole() -> str:
    shown = [*HANDLES, *TOOLS, *REVIEWS, "Fleet", *public("values.options"), *public("values.")]
    things = [item(getattr(sandfleet, name)) for name in dict.fromkeys(("Sandbox", *shown))]
    others = named_values([*things, *map(at, RESOURCES.values())])
    options = public("values.options")
    plain = [one for one in things if one.name in set(public("values.")) - {*options, *public("errors")}]
    plain += [one for one in others if one.name not in {*public("errors"), "SandfleetError"}]
    lines = sandboxes()
    lines += [
        *heading(2, "Handles"),
        *of_names(HANDLES),
        *heading(2, "Fleet"),
        *of_class(item(sandfleet.Fleet), 3, "fleet"),
        *heading(2, "Tools"),
        *of_names(TOOLS),
        *heading(2, "Reviews"),
        *of_names(REVIEWS),
    ]
    lines += [*heading(2, "Options"), *of_names(options)]
    lines += heading(2, "Values")
    for one in sorted(plain, key=lambda one: one.name):
        lines += of_any(one)
    lines += [*heading(2, "Errors"), *prose(import_module("sandfleet.errors").__doc__ or "")]
    lines += of_names(["SandfleetError"])
    driver = of_room("The driver", "FleetDriver", sandfleet.driver, "driver/task.py", "driver/session.py")
    journals = [*heading(2, "Journals"), *(line for one in map(at, JOURNALS) for line in of_any(one))]
    return "\n".join([*lines, *agents(), *driver, *journals]).rstrip()


def pages() -> dict[Path, str]:
    """The text of each page by its path: one for each part, and the index."""
    found, rows = {}, []
    for text in re.split(r"(?m)^(?=## )", whole())[1:]:
        title, _, rest = text.partition("\n")
        # Each part is a page of its own: its headings are one level higher.
        raised = re.sub(r"(?m)^#(?=#+ )", "", rest)
        path = PARTS / f"{title.removeprefix('## ').lower().replace(' ', '-')}.md"
        found[path] = f"{title[1:]}\n\n{MADE}\n{raised.strip()}\n"
        names = [name.strip("`") for name in re.findall(r"(?m)^## (.+)$", raised)]
        shown = ", ".join(f"`{name}`" for name in names[:SHOWN]) + (", …" if len(names) > SHOWN else "")
        rows.append((f"[{title.removeprefix('## ')}](python/{path.name})", shown))
    found[PAGE] = "\n".join([*INTRODUCTION.splitlines(), "", *table(("page", "has"), rows)]).rstrip() + "\n"
    return found


def main() -> int:
    made = pages()
    stale = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    unknown = sorted(set(PARTS.glob("*.md")) - made.keys())
    if sys.argv[1:] == ["--check"]:
        for path in (*stale, *unknown):
            print(f"{path.relative_to(ROOT)} is out of date: run scripts/python_reference.py", file=sys.stderr)
        return 1 if stale or unknown else 0
    PARTS.mkdir(exist_ok=True)
    for path in stale:
        path.write_text(made[path])
    for path in unknown:
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
