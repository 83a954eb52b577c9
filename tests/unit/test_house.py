"""The rules of the house that no linter knows."""

import filecmp
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from support import prose

ROOT = Path(__file__).parents[2]
MEMBERS = ("proto", "executor-image", "operator", "agent-client")
MAX_LINES = 600
# Extras of agent frameworks: an install of the clone has none of their packages.
FRAMEWORKS = {
    "ag2",
    "google_adk",
    "gymnasium",
    "inspect",
    "langchain",
    "mini_swe_agent",
    "openai_agents",
    "pydantic_ai",
    "smolagents",
    "swerex",
}


def tracked(*patterns: str) -> list[Path]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split()
    return [path for name in listed if (path := ROOT / name).is_file()]


def project(folder: Path) -> dict:
    return tomllib.loads((folder / "pyproject.toml").read_text())["project"]


def name_of(requirement: str) -> str:
    return re.match(r"[A-Za-z0-9._-]+", requirement)[0]


def third_party(requirements: list[str]) -> set[str]:
    return {requirement for requirement in requirements if not name_of(requirement).startswith("sandfleet")}


def test_the_root_needs_exactly_what_its_members_need() -> None:
    union: set[str] = set()
    for member in MEMBERS:
        needs = project(ROOT / member)
        extras = needs.get("optional-dependencies", {})
        own = [requirements for extra, requirements in extras.items() if extra not in FRAMEWORKS]
        for requirements in (needs["dependencies"], *own):
            union |= third_party(requirements)
    assert set(project(ROOT)["dependencies"]) == union


def test_an_install_of_the_clone_has_every_extra_of_the_client() -> None:
    extras = project(ROOT)["optional-dependencies"]
    own = project(ROOT / "agent-client")["optional-dependencies"]
    assert extras.keys() == own.keys()
    assert {extra for extra, packages in extras.items() if packages} == FRAMEWORKS
    assert all(extras[extra] == own[extra] for extra in FRAMEWORKS)


def test_the_bare_client_needs_at_most_five_packages_of_others() -> None:
    api, client = project(ROOT / "proto"), project(ROOT / "agent-client")
    direct = third_party(api["dependencies"]) | third_party(client["dependencies"])
    todo, found = {name_of(requirement) for requirement in direct}, set()
    while todo:
        name = todo.pop()
        found.add(name)
        todo |= requirements_of(name) - found
    assert len(found) <= 5, found


def requirements_of(name: str) -> set[str]:
    from importlib.metadata import requires

    needed = [need for need in requires(name) or [] if "extra ==" not in need]
    return {name_of(need).replace("_", "-").lower() for need in needed}


@pytest.mark.process
def test_the_generated_code_is_what_the_protos_say(tmp_path: Path) -> None:
    subprocess.run([ROOT / "scripts/proto.sh", tmp_path], check=True, capture_output=True)
    for path in tracked("proto/gen"):
        again = tmp_path / path.relative_to(ROOT / "proto/gen")
        assert again.exists(), f"{path} is generated from nothing"
        assert filecmp.cmp(path, again, shallow=False), f"{path} is not what the protos say: make proto"
    made = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    assert made == {path.relative_to(ROOT / "proto/gen") for path in tracked("proto/gen")}


@pytest.mark.process
def test_no_file_does_two_jobs() -> None:
    long = {path.name: lines for path in tracked("*.py") if (lines := len(path.read_text().splitlines())) > MAX_LINES}
    generated = {name: lines for name, lines in long.items() if "_pb2" in name}
    assert long == generated


def test_the_operator_folder_does_not_hide_the_standard_librarys_operator() -> None:
    assert not (ROOT / "operator/__init__.py").exists()


def test_the_lock_has_hashes_and_names_no_index() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert "--hash=sha256:" in lock
    assert not re.search(r"https?://|--(extra-)?index-url|--find-links|file:", lock)


@pytest.mark.process
def test_no_committed_file_names_a_registry_host_or_a_path_of_one_machine() -> None:
    hosts = re.compile(
        rb"https?://[^\s\"']*(pypi|registry\.npmjs|proxy\.golang|deb\.debian)|(?<![\w./])/(work/|root/\.)"
    )
    named = {
        str(path.relative_to(ROOT)): match[0]
        for path in tracked()
        if path != Path(__file__) and (match := hosts.search(path.read_bytes()))
    }
    assert named == {}


@pytest.mark.parametrize("member", MEMBERS)
def test_every_package_is_typed(member: str) -> None:
    assert list((ROOT / member).rglob("py.typed"))


# The prose in them names its subjects and keeps to 120 columns.
PLAIN = (
    "*.md",
    "Makefile",
    ".ci",
    "agent-client",
    "charts",
    "examples",
    "executor-image",
    "operator",
    "proto/sandfleet_api",
    "scripts",
    "tests",
)
NOT_PROSE = ("tests/support/prose.py", "tests/unit/test_house.py")


@pytest.mark.process
def test_prose_names_its_subjects_and_keeps_to_120_columns() -> None:
    texts = [path for path in tracked(*PLAIN) if str(path.relative_to(ROOT)) not in NOT_PROSE]
    assert [f"{path.relative_to(ROOT)}:{fault}" for path in texts for fault in prose.faults(path)] == []


@pytest.mark.parametrize(
    ("suffix", "text", "faults"),
    [
        (".md", "It waits until nobody uses the volume.", 1),
        (".py", "# Whoever holds the lease\n# renews it for somebody.\n", 2),
        (".py", "def test_nobody_answers() -> None:\n    raise ValueError('somebody has it')\n", 2),
        (".py", "NAMES = ['root', 'nobody']\n", 0),
        (".md", "word " * 25, 1),
        (".py", f'def run() -> None:\n    """Runs.\n\n    {"word " * 24}\n    """\n', 1),
        (".py", f"value = 1  # {'word ' * 25}\n", 1),
        (".proto", "// Somebody asked for it.\n", 1),
        (".md", f"| {'word ' * 25} |\n\n```\n{'code ' * 30}\n```\n\nhttps://example.com/{'x' * 120}", 0),
        (".py", f'value = "{"text " * 30}"  # noqa: E501 - {"word " * 20}\n', 0),
    ],
)
def test_prose_with_faults_is_refused_and_tables_urls_and_code_are_not(
    tmp_path: Path, suffix: str, text: str, faults: int
) -> None:
    path = tmp_path / f"text{suffix}"
    path.write_text(text)
    assert len(list(prose.faults(path))) == faults


@pytest.mark.process
@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_paths_in_the_maps_exist(name: str) -> None:
    """A path may leave out the folders above it; a reserved room need not exist yet."""
    lines = [line for line in (ROOT / name).read_text().splitlines() if "*reserved*" not in line]
    paths = {path for line in lines for path in re.findall(r"`([\w.-]+(?:/[\w.-]+)*/?)`", line) if "/" in path}
    existing = [f"/{path.relative_to(ROOT)}" for path in tracked()]
    assert len(paths) > 20
    assert sorted(path for path in paths if not any(f"/{path}" in known for known in existing)) == []
