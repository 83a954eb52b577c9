"""Finding names and text: bounded, and no pattern holds the executor up."""

import asyncio

import pytest
import pytest_asyncio
from sandfleet.errors import FileNotFound, InvalidArgument, InvalidPath

pytestmark = pytest.mark.asyncio(loop_scope="session")

TREE = r"""mkdir -p g/src/pkg/deep g/.git g/docs && cd g && touch top.py src/a.py src/pkg/b.py src/pkg/deep/c.py .git/x.py docs/é.md \
  && touch "$(printf 'src/odd\377\n.py')" src/.hidden.py && ln -s /proc out && ln -s src loop"""


@pytest_asyncio.fixture(scope="module", loop_scope="session", autouse=True)
async def tree(sandbox):
    assert (await sandbox.commands.run(TREE)).ok


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.py", ["top.py"]),
        ("**/*.py", ["src/a.py", "src/odd\udcff\n.py", "src/pkg/b.py", "src/pkg/deep/c.py", "top.py"]),
        ("src/**", ["src/a.py", "src/odd\udcff\n.py", "src/pkg", "src/pkg/b.py", "src/pkg/deep", "src/pkg/deep/c.py"]),
        ("src/**/c.py", ["src/pkg/deep/c.py"]),
        ("**/deep/**/*.py", ["src/pkg/deep/c.py"]),
        ("src/*/?.py", ["src/pkg/b.py"]),
        ("docs/?.md", ["docs/é.md"]),
        ("src/[ab].py", ["src/a.py"]),
        (".git/*", [".git/x.py"]),
        ("**/.h*", ["src/.hidden.py"]),
        ("out/*", []),
        ("nothing*", []),
    ],
)
async def test_patterns_find_names(sandbox, pattern, names):
    found = await sandbox.files.glob(pattern, "g")
    assert sorted(info.path.removeprefix("/workspace/g/") for info in found) == sorted(names)
    assert found.complete


async def test_a_bound_of_matches_is_kept_and_told(sandbox):
    found = await sandbox.files.glob("**/*.py", "g", max_matches=2)
    assert (len(found), found.stopped) == (2, "matches")


@pytest.mark.parametrize("pattern", ["", "/", "/etc/*", "../*", "a/../b", "x" * 2000, "a/" * 100 + "b"])
async def test_invalid_patterns_are_refused(sandbox, pattern):
    with pytest.raises(InvalidArgument) as caught:
        await sandbox.files.glob(pattern)
    assert caught.value.reason == "InvalidPattern"


@pytest.mark.parametrize(("path", "error"), [("absent", FileNotFound), ("/proc", InvalidPath), ("g/out", InvalidPath)])
async def test_only_what_is_inside_is_searched(sandbox, path, error):
    with pytest.raises(error):
        await sandbox.files.glob("**", path)
    with pytest.raises(error):
        await sandbox.files.search("root", path)


async def test_text_is_found_with_line_and_column(sandbox):
    await sandbox.files.write("t/a.txt", "first\nthe Énd is near\n\nnear and near\nlast near")
    await sandbox.files.write("t/b.md", "near\r\n")
    await sandbox.files.write("t/binary", b"\0near")
    found = await sandbox.files.search("near", "t")
    assert [(match.path, match.line, match.column, match.text) for match in found] == [
        ("/workspace/t/a.txt", 2, 12, "the Énd is near"),
        ("/workspace/t/a.txt", 4, 1, "near and near"),
        ("/workspace/t/a.txt", 5, 6, "last near"),
        ("/workspace/t/b.md", 1, 1, "near"),
    ]
    assert (found.complete, found.files_searched, found.files_skipped) == (True, 2, 1)
    assert [match.path for match in await sandbox.files.search("NEAR", "t", include="*.md", ignore_case=True)] == [
        "/workspace/t/b.md"
    ]
    assert [match.line for match in await sandbox.files.search(r"^near\b.*near$", "t/a.txt", regex=True)] == [4]
    assert len(await sandbox.files.search("n.ar", "t")) == 0
    assert (await sandbox.files.search("near", "t", max_matches=1)).stopped == "matches"


async def test_matches_in_large_files_and_long_lines_have_the_right_place(sandbox):
    lines = [f"line {number}" for number in range(1, 20_001)]
    lines[12_344] += " needle"
    lines.append("x" * 5000 + "needle" + "y" * 5000)
    await sandbox.files.write("large", "\n".join(lines))
    found = await sandbox.files.search("needle", "large")
    assert [(match.line, match.column) for match in found] == [(12_345, 12), (20_001, 5001)]
    assert "needle" in found.items[1].text
    assert len(found.items[1].text) <= 1000


@pytest.mark.parametrize("pattern", ["(", "a{5000}", r"(?=x)", r"(a)\1", "(((\\pL{50}){50}){50})", ""])
async def test_invalid_or_too_large_expressions_are_refused(sandbox, pattern):
    with pytest.raises(InvalidArgument) as caught:
        await sandbox.files.search(pattern, "g", regex=True)
    assert caught.value.reason == "InvalidPattern"


async def test_an_expression_that_takes_python_for_ever_takes_no_time_here(sandbox):
    """The negative control is `re` itself, in the sandbox: it does not come to an end."""
    await sandbox.files.write("bomb/f", "a" * 40 + "!\n")
    found = await sandbox.files.search("(a+)+$", "bomb", regex=True)
    assert (len(found), found.complete) == (0, True)
    slow = await sandbox.run_code("import re\nre.search('(a+)+$', open('bomb/f').read().strip())", timeout=2)
    assert slow.outcome == "timeout"


async def test_long_searches_block_no_other_work_on_files_and_end_with_their_callers(fresh):
    sandbox = fresh.sandbox
    await sandbox.commands.run(
        "mkdir big && cd big && head -c 20000000 /dev/zero | tr '\\0' '01' > f && for i in $(seq 30); do ln f f$i; done"
    )
    searches = [
        asyncio.create_task(sandbox.files.search("(([01]{0,100}){0,10}2)", "big", regex=True)) for _ in range(6)
    ]
    for number in range(5):
        await sandbox.files.write(f"beside{number}", "x")
    assert not any(search.done() for search in searches)
    for search in searches:
        search.cancel()
    await asyncio.wait(searches)
    assert (await sandbox.files.search("x", "beside0")).complete
