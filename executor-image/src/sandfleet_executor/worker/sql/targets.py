"""What a statement attaches, or which table it changes, read from its text. Pure; DuckDB has parsed it before."""

import re
from dataclasses import dataclass, replace

NAME = r'(?:"(?:[^"]|"")*"|\w+)'
# Comments, strings, quoted names, and brackets.
MARKS = re.compile(
    r"(?P<comment>--[^\n]*|/\*.*?\*/)|(?P<text>'(?:[^']|'')*'|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)"
    r'|"(?:[^"]|"")*"|(?P<open>\()|(?P<close>\))',
    re.DOTALL,
)
ATTACH = re.compile(
    rf"\s*ATTACH\s+(?:DATABASE\s+)?(?P<unless>IF\s+NOT\s+EXISTS\s+)?(?P<path>'+)"
    rf"(?:\s*AS\s+(?P<name>{NAME}))?\s*(?P<options>\(\s*\))?[\s;]*",
    re.IGNORECASE,
)
DETACH = re.compile(rf"\s*DETACH\s+(?:DATABASE\s+)?(?:IF\s+EXISTS\s+)?(?P<name>{NAME})[\s;]*", re.IGNORECASE)
OPTION = re.compile(r"(\w+)(?:\s+'?(\w+)'?)?\s*(?:,|$)")
CHANGE = re.compile(
    rf"""\s*(?P<head>
      (?P<insert>INSERT(?:\s+OR\s+\w+)?\s+INTO)
    | (?P<table>CREATE(?P<replace>\s+OR\s+REPLACE)?\s+TABLE(?P<unless>\s+IF\s+NOT\s+EXISTS)?)
    | (?P<index>CREATE(?:\s+UNIQUE)?\s+INDEX(?:\s+IF\s+NOT\s+EXISTS)?)\s+(?P<name>{NAME})\s+ON
    | (?P<view>CREATE(?:\s+OR\s+REPLACE)?\s+VIEW(?:\s+IF\s+NOT\s+EXISTS)?)
    | UPDATE | DELETE\s+FROM | ALTER\s+TABLE | DROP\s+(?:TABLE|VIEW|INDEX)(?:\s+IF\s+EXISTS)?
    )\s*(?P<database>{NAME})\s*\.\s*(?:main\s*\.\s*)?(?P<target>{NAME})""",
    re.IGNORECASE | re.VERBOSE,
)
# Of an insertion, behind the table: columns, or that they go by name; and what stands behind its rows.
COLUMNS = re.compile(r"\s*(?P<columns>\(\s*\))(?=\s*(?:SELECT|VALUES|FROM|WITH|TABLE|\())", re.IGNORECASE)
BY = re.compile(r"\s*BY\s+(?P<by>NAME|POSITION)\b", re.IGNORECASE)
CONFLICT = re.compile(r"\bON\s+CONFLICT\b.*", re.IGNORECASE | re.DOTALL)
RETURNING = re.compile(r"\bRETURNING\b", re.IGNORECASE)
QUERY = re.compile(r"\s*AS\b", re.IGNORECASE)


class Refused(Exception):
    """A statement that is not run."""


@dataclass(frozen=True)
class Attach:
    path: str
    name: str
    options: dict[str, str]
    # Nothing is to be done where there is one of the name.
    unless_there: bool

    def says(self, option: str) -> bool:
        """Whether an option is switched on."""
        return self.options.get(option, "false") not in ("false", "0", "off")


@dataclass(frozen=True)
class Change:
    """A statement that changes a table of a database that it names."""

    # "insert", "table", "index", "view", or empty for what needs nothing of the rest.
    kind: str
    database: str
    table: str
    # What stands before the table, or before the name of an index, and behind the table.
    head: str
    rest: str
    # The name of an index that is made.
    index: str = ""
    # Of a table that is made or filled: its query, and where in the statement that begins.
    query: str = ""
    query_at: int = 0
    # Of an insertion: columns as they stand there, whether they go by name, and what is done in a conflict.
    columns: str = ""
    by_name: bool = False
    conflict: str = ""
    # Of a table that is made.
    replaces: bool = False
    unless_there: bool = False
    returning: bool = False


def outline(query: str) -> str:
    """The statement, as long as before: blanks for comments and for what is in brackets, quotes for strings."""
    found: list[str] = []
    depth = at = 0
    for mark in MARKS.finditer(query):
        between = query[at : mark.start()]
        found.append(" " * len(between) if depth else between)
        at = mark.end()
        size = at - mark.start()
        depth -= bool(mark["close"])
        if depth or mark["comment"]:
            found.append(" " * size)
        else:
            found.append("'" * size if mark["text"] else mark[0])
        depth += bool(mark["open"])
        if mark["open"] and depth > 1:
            found[-1] = " "
    return "".join((*found, query[at:]))


def attach(query: str) -> Attach | None:
    found = ATTACH.fullmatch(outline(query))
    if found is None:
        return None
    path = query[slice(*found.span("path"))][1:-1].replace("''", "'")
    written = query[slice(*found.span("options"))][1:-1].strip() if found["options"] else ""
    options = {name.lower(): value.lower() for name, value in OPTION.findall(written)}
    stem = path.rsplit("/", 1)[-1].split(".", 1)[0]
    return Attach(path, unquoted(found["name"]) if found["name"] else stem, options, bool(found["unless"]))


def detach(query: str) -> str:
    """The database that is detached; empty if none is."""
    found = DETACH.fullmatch(outline(query))
    return unquoted(found["name"]) if found else ""


def change(query: str) -> Change | None:
    """None for a statement whose table stands without its database, and for all others."""
    shape = outline(query).rstrip("; \n\t")
    found = CHANGE.match(shape)
    if found is None:
        return None
    kind = next((each for each in ("insert", "table", "index", "view") if found[each]), "")
    made = Change(
        kind,
        unquoted(found["database"]),
        unquoted(found["target"]),
        head=query[: found.start("name" if kind == "index" else "database")],
        rest=query[found.end() : len(shape)],
        index=unquoted(found["name"]) if found["name"] else "",
        replaces=bool(found["replace"]),
        unless_there=bool(found["unless"]),
        returning=bool(RETURNING.search(shape, found.end())),
    )
    match kind:
        case "insert":
            return _insertion(made, query, shape, found.end())
        case "table" if clause := QUERY.match(shape, found.end()):
            return replace(made, query=query[clause.end() : len(shape)], query_at=clause.end())
    return made


def _insertion(made: Change, query: str, shape: str, at: int) -> Change:
    columns, by_name, conflict = "", False, ""
    if named := BY.match(shape, at):
        by_name, at = named["by"].upper() == "NAME", named.end()
    elif listed := COLUMNS.match(shape, at):
        columns, at = query[slice(*listed.span("columns"))], listed.end()
    end = len(shape)
    if clause := CONFLICT.search(shape, at):
        conflict, end = query[clause.start() : end], clause.start()
    return replace(made, query=query[at:end], query_at=at, columns=columns, by_name=by_name, conflict=conflict)


def unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name
