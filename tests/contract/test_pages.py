"""Every block of README and docs does what its page says: it runs as pasted, or can at least be read."""

import ast
import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
from sandfleet import Sandbox
from sandfleet._fleets import embedded
from sandfleet.cli import in_full, parser_for
from sandfleet.values.options import CreateOptions
from support.client.chat_endpoint import Endpoint
from support.pages import LANGUAGES, REASONS, ROOT, Block, blocks, blocks_of, broken_promises, outputs, pages, prints
from support.wheels import wheel

SHELLS = ("bash", "console")
# Their commands read what their first program has written.
BEGUN_IN_PYTHON = ("docs/howto/journal.md",)
NODE = Path("/usr/bin/node")
# What a reader of the pages has in the folder: names that the pages use.
FILES = {
    "script.py": "print(6 * 7)\n",
    "data.csv": "price,cost\n10,7\n4,3\n",
    "project/src/app.py": "def first_test():\n    return 1\n",
    "project/README": "A project.\n",
    # As their pages show them.
    "shop.py": next(block.text for block in blocks_of("docs/howto/mcp.md") if block.only_read),
    "queues.yaml": next(block.text for block in blocks_of("docs/howto/queues.md") if block.language == "yaml"),
}


def having(*languages: str) -> list[object]:
    """The pages with such blocks; README is part of the smoke lane."""
    shown = [page for page in pages() if any(block.language in languages for block in blocks_of(page))]
    return [pytest.param(page, marks=pytest.mark.smoke if page == "README.md" else ()) for page in shown]


@pytest.fixture(scope="module", autouse=True)
def own_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The programs share this process's own fleet, which has the queues of their page."""
    queues = tmp_path_factory.mktemp("queues") / "queues.yaml"
    queues.write_text(FILES["queues.yaml"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SANDFLEET_QUEUES", str(queues))
        patch.setenv("SANDFLEET_SNAPSHOTS", f"file://{queues.parent}/snapshots")
        patch.setenv("SANDFLEET_SNAPSHOT_KEYS", str(queues.parent / "keys.json"))
        yield


@pytest.fixture(scope="module")
def model() -> Iterator[Endpoint]:
    """A model that gives up at once, for the programs that ask one."""
    with Endpoint() as server:
        server.answers = lambda _body: "GIVE UP: a test"
        yield server


@pytest.fixture
def desk(tmp_path: Path, model: Endpoint, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The reader's folder and environment."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels/greeting-1.0-py3-none-any.whl").write_bytes(wheel("greeting", "1.0", value="hello"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("OPENAI_BASE_URL", model.url)
    return tmp_path


@pytest.mark.parametrize("page", having("python"))
def test_the_programs_of_a_page_run_one_after_the_other_and_print_what_they_promise(page: str, desk: Path) -> None:
    run = [block for block in blocks_of(page) if block.language == "python" and not block.only_read]
    if not NODE.exists() and any("javascript" in block.text for block in run):
        pytest.skip("needs Node.js")
    names: dict[str, object] = {"__name__": "__main__"}
    try:
        for block in run:
            said = io.StringIO()
            # The page's own lines stand in a traceback.
            code = compile("\n" * (block.line - 1) + block.text, str(ROOT / page), "exec")
            with contextlib.redirect_stdout(said):
                exec(code, names)
            assert broken_promises(block.text, said.getvalue()) == [], f"{block}: {said.getvalue()}"
            if shown := dict(outputs(page)).get(block):
                assert prints(said.getvalue(), shown.text), f"{shown} is not what was printed:\n{said.getvalue()}"
    finally:
        for value in names.values():
            if isinstance(value, Sandbox):
                value.kill()


@pytest.mark.parametrize("page", having(*SHELLS))
def test_the_commands_of_a_page_run_one_after_the_other(page: str, desk: Path) -> None:
    run = [block for block in blocks_of(page) if block.language in SHELLS and not block.only_read]
    if not run:
        return
    if any("jq " in block.text for block in run) and not shutil.which("jq"):
        pytest.skip("needs jq")
    if page in BEGUN_IN_PYTHON:
        exec(next(block.text for block in blocks_of(page) if block.language == "python"), {})
    lines = ["set -eu", "trap 'echo \"ends at $at\" >&2' EXIT"]
    for block in run:
        lines += [f"at={shlex.quote(str(block))}", block.commands]
    paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": paths, "SANDFLEET_ADDRESS": address(), "SANDFLEET_STATE": str(desk / "s")}
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)],
        cwd=desk,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [str(shown) for _, shown in bash_outputs(page) if not prints(done.stdout, shown.text)] == [], done.stdout
    shown = [line for block in run if block.language == "console" for line in block.text.splitlines()]
    assert [line for line in shown if not line.startswith("$ ") and line not in done.stdout] == []


def bash_outputs(page: str) -> list[tuple[Block, Block]]:
    return [pair for pair in outputs(page) if pair[0].language == "bash"]


def address() -> str:
    """The address of this process's own fleet."""
    if (found := embedded.running()) is None:
        Sandbox.create().kill()
        found = embedded.running()
    assert found is not None
    return found


@pytest.mark.parametrize("page", pages())
def test_every_block_can_be_read(page: str) -> None:
    assert [f"{block}: {fault}" for block in blocks_of(page) for fault in faults(block)] == []


def faults(block: Block) -> Iterator[str]:
    if block.language not in LANGUAGES:
        yield f"no language, or an unknown one: {block.language!r}"
    if block.only_read not in ("", *REASONS):
        yield f"an unknown reason not to run it: {block.only_read}"
    if block.language == "python":
        yield from faults_of_python(block.text)
    if block.language in SHELLS:
        yield from faults_of_commands(block.commands)


def faults_of_python(text: str) -> Iterator[str]:
    body = textwrap.indent(textwrap.dedent(text), " ")
    for node in ast.walk(ast.parse(f"async def program():\n{body}")):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sandfleet"):
            yield from (f"no {node.module}.{one.name}" for one in node.names if not offers(node.module, one.name))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Sandbox.create", "AsyncSandbox.create"):
            known = {"template", "fleet", *CreateOptions.__annotations__}
            yield from (f"create has no {one.arg}=" for one in node.keywords if one.arg and one.arg not in known)


def offers(module: str, name: str) -> bool:
    """Whether a module has the name. Frameworks are not installed here: of an adapter the source is read."""
    if not module.startswith("sandfleet.integrations."):
        return has(import_module(module), name)
    spec = find_spec(module)
    return spec is not None and f"\nclass {name}(" in Path(spec.origin).read_text()


def has(module: ModuleType, name: str) -> bool:
    """A name of it, or a module in it."""
    return hasattr(module, name) or (hasattr(module, "__path__") and find_spec(f"{module.__name__}.{name}") is not None)


def faults_of_commands(text: str) -> Iterator[str]:
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        yield done.stderr
        return
    targets = set(re.findall(r"(?m)^([a-z-]+):", "".join(path.read_text() for path in MAKEFILES)))
    for words in map(words_of, text.replace("\\\n", " ").splitlines()):
        match words:
            case ["make", target, *_] if target not in targets:
                yield f"no target {target}"
            case ["sandfleet", *rest]:
                yield from faults_of_options(rest)
        yield from (f"no {word}" for word in words if is_ours(word) and not list(ROOT.glob(word)))


MAKEFILES = (ROOT / "Makefile", ROOT / "tests/cluster/cluster.mk")


def words_of(line: str) -> list[str]:
    """A command without what is before and behind it: variables, sudo, pipes, comments."""
    words = shlex.split(line, comments=True) if line.count("'") % 2 == 0 and line.count('"') % 2 == 0 else []
    while words and (words[0] in ("sudo", "-E") or re.fullmatch(r"\w+=.*", words[0])):
        words = words[1:]
    ends = [number for number, word in enumerate(words) if word in ("|", ">", "<", "&&", ";", "&")]
    return words[: ends[0]] if ends else words


def is_ours(word: str) -> bool:
    return word.startswith(("examples/", "charts/", "scripts/", "tests/", "docs/"))


def faults_of_options(words: list[str]) -> Iterator[str]:
    behind = words.index("--") if "--" in words else len(words)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            parser_for(in_full(words)).parse_args(in_full(words[:behind]))
    except SystemExit:
        yield f"sandfleet {shlex.join(words)}: {said.getvalue()}"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("```\nx\n```", "no language"),
        ("<!-- only read: too hard -->\n```python\nx\n```", "an unknown reason"),
        ("```python\nfrom sandfleet import Sandbocks\n```", "no sandfleet.Sandbocks"),
        ("```python\nSandbox.create(pol='a')\n```", "create has no pol="),
        ("```bash\nfor\n```", "syntax error"),
        ("```console\n$ sudo make kluster\n```", "no target kluster"),
        ("```bash\nsandfleet run --sandbocks a b.py\n```", "unrecognized arguments"),
        ("```bash\nkubectl apply -f examples/quikstart.yaml\n```", "no examples/quikstart.yaml"),
    ],
)
def test_a_faulty_block_is_found(text: str, fault: str) -> None:
    (block,) = blocks("a.md", text)
    assert any(fault in one for one in faults(block))


def test_a_broken_promise_of_a_program_is_found() -> None:
    program = 'print("a")    # (a)\n# Not printed.\nprint(1)  # 2\nx = 3  # not printed\nprint("b c\\nd")  # b…d\n'
    assert broken_promises(program, "(a)\n1\nb c\nd\n") == ["2"]


def test_an_output_that_a_page_does_not_show_is_found() -> None:
    said = "begun\n[3] 2026-01-02 03:04:05  ok  0.01 s\na\nb\nc\n"
    assert prints(said, "[3] 2025-11-25 09:20:45  ok  0.007 s\na\n…\nc\n")
    assert not prints(said, "a\nc\n")
    assert not prints(said, "[4] 2025-11-25 09:20:45  ok  0.007 s\n")


LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]+)?\)")
PROSE = [*pages(), "ARCHITECTURE.md", "CONTRIBUTING.md"]


@pytest.mark.parametrize("page", PROSE)
def test_every_link_of_a_page_leads_somewhere(page: str) -> None:
    assert list(broken_links(page, (ROOT / page).read_text())) == []


def test_the_index_names_every_page() -> None:
    index = (ROOT / "docs/README.md").read_text()
    # Those have an index of their own.
    parts = ("docs/dev/adr/", "docs/reference/python/")
    named = (page.removeprefix("docs/") for page in pages() if page.startswith("docs/") and not page.startswith(parts))
    assert [page for page in named if page != "README.md" and f"({page})" not in index] == []


def test_readme_is_short() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.split()) <= 700
    assert text.count("](") <= 20


def broken_links(page: str, text: str) -> Iterator[str]:
    for path, anchor in LINK.findall(text):
        target = (ROOT / page).parent / path
        if path.startswith("http"):
            continue
        if not target.exists():
            yield path
        elif anchor and anchor not in anchors(target.read_text() if path else text):
            yield path + anchor


def anchors(text: str) -> set[str]:
    """Of each heading, as GitHub makes them."""
    heads = re.findall(r"(?m)^#+ (.*)$", text)
    return {"#" + re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_a_link_that_leads_nowhere_is_found() -> None:
    text = "# One\n[a](README.md) [b](missing.md) [c](#one) [d](#two) [e](https://example.com)"
    assert list(broken_links("README.md", text)) == ["missing.md", "#two"]
