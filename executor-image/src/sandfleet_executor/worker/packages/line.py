"""A command line of pip (pure): what it asks for, and what it needs an index for."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

INSTALL, UNINSTALL = "install", "uninstall"
# What asks an index, and for what one would read of it where there is none.
FETCHING = {INSTALL: "install", "download": "download", "wheel": "build wheels of", "index": "look up"}
COMMANDS = {
    *FETCHING,
    UNINSTALL,
    *("cache", "check", "completion", "config", "debug", "freeze", "hash", "help", "inspect", "list", "search", "show"),
}
# Short options, by their long names.
SHORT = {
    "-I": "--ignore-installed",
    "-U": "--upgrade",
    "-c": "--constraint",
    "-d": "--dest",
    "-e": "--editable",
    "-f": "--find-links",
    "-i": "--index-url",
    "-q": "--quiet",
    "-r": "--requirement",
    "-t": "--target",
    "-w": "--wheel-dir",
    "-C": "--config-settings",
}
# Long options that take a value.
VALUED = {
    *("--abi", "--build-option", "--cache-dir", "--cert", "--client-cert", "--config-settings", "--constraint"),
    *("--dest", "--editable", "--exists-action", "--extra-index-url", "--find-links", "--global-option"),
    *("--implementation", "--index-url", "--install-option", "--keyring-provider", "--log", "--no-binary"),
    *("--only-binary", "--platform", "--prefix", "--progress-bar", "--proxy", "--python", "--python-version"),
    *("--report", "--requirement", "--resume-retries", "--retries", "--root", "--root-user-action", "--src"),
    *("--target", "--timeout", "--trusted-host", "--upgrade-strategy", "--use-deprecated", "--use-feature"),
    "--wheel-dir",
}
# Where something is installed; without them it goes into the session's folder.
PLACES = {"--target", "--prefix", "--root"}
# With these an installed package is not enough, or not what is asked.
NOT_MET_BY_INSTALLED = PLACES | {"--constraint", "--dry-run", "--editable", "--force-reinstall", "--ignore-installed"}
# An installation that is not first asked for what is missing.
NOT_IN_TWO_STEPS = {"--dry-run", "--editable", "--no-deps", "--report"}
ARCHIVES = (".whl", ".zip", ".tar.gz", ".tar.bz2", ".tar.xz", ".tgz")
PYPI = "//pypi.org/simple"


@dataclass(frozen=True)
class Line:
    # Empty where there is none.
    command: str
    # The words behind the command: requirements, as a rule.
    words: tuple[str, ...]
    # By long names; of a flag an empty list.
    options: Mapping[str, Sequence[str]]

    @property
    def fetches(self) -> bool:
        """Whether it asks for packages that may have to come from an index."""
        wanted = self.words or self.options.keys() & {"--requirement", "--editable"}
        return self.command in FETCHING and bool(wanted)

    @property
    def without_index(self) -> bool:
        return "--no-index" in self.options

    @property
    def into_session(self) -> bool:
        """Whether it installs into the session's folder."""
        return self.command == INSTALL and not self.options.keys() & PLACES

    def indexes(self, environ: Mapping[str, str]) -> list[str]:
        """Addresses of the indexes that it asks."""
        first = self.options.get("--index-url") or environ.get("PIP_INDEX_URL", PYPI).split()
        others = self.options.get("--extra-index-url") or environ.get("PIP_EXTRA_INDEX_URL", "").split()
        return [*first, *others]

    def plain(self) -> list[str] | None:
        """Its requirements where installed packages may meet them; None where they may not.

        Raises OSError for files of requirements that cannot be read.
        """
        if self.options.keys() & NOT_MET_BY_INSTALLED or any(map(is_file, self.words)):
            return None
        listed = list(self.words)
        for name in self.options.get("--requirement", ()):
            lines = (line.partition(" #")[0].strip() for line in Path(name).read_text(errors="replace").splitlines())
            listed += [line for line in lines if line and not line.startswith("#")]
        return listed if not any(each.startswith("-") or is_file(each) for each in listed) else None


def read(arguments: Sequence[str]) -> Line:
    options: dict[str, list[str]] = {}
    words: list[str] = []
    rest = list(arguments)
    while rest:
        each = rest.pop(0)
        if each.startswith("--"):
            name, has_value, value = each.partition("=")
            given = options.setdefault(name, [])
            if name in VALUED and not has_value and rest:
                value = rest.pop(0)
            given += [value] if value else []
        elif each.startswith("-") and len(each) > 1:
            _read_short(each, rest, options)
        else:
            words.append(each)
    at = next((index for index, word in enumerate(words) if word in COMMANDS), None)
    return Line("", tuple(words), options) if at is None else Line(words[at], tuple(words[at + 1 :]), options)


def _read_short(text: str, rest: list[str], options: dict[str, list[str]]) -> None:
    """-q, -qU, -rFILE, -r FILE."""
    for at, letter in enumerate(text[1:], 2):
        name = SHORT.get(f"-{letter}", f"-{letter}")
        given = options.setdefault(name, [])
        if name in VALUED:
            if text[at:] or rest:
                given.append(text[at:] or rest.pop(0))
            return


def is_file(word: str) -> bool:
    """Whether a requirement is a file or folder of the session."""
    place = word.partition(" @ ")[2].strip() or word
    if (scheme := urlsplit(place).scheme) and "://" in place:
        return scheme == "file"
    return place.startswith((".", "/", "~")) or "/" in place or place.partition("[")[0].endswith(ARCHIVES)


def with_target(arguments: Sequence[str], line: Line, target: str) -> list[str]:
    """The arguments of an installation into the session's folder."""
    at = list(arguments).index(line.command)
    # The folder is the user's own.
    before, after = ([each for each in part if each != "--user"] for part in (arguments[:at], arguments[at + 1 :]))
    # Without --upgrade pip leaves a package in the folder as it is.
    return [*before, line.command, "--target", target, "--upgrade", *after]


def named(asked: Line) -> str:
    """What is asked for, as arguments of pip, the first few of them."""
    words = [shlex.quote(word[:100]) for word in asked.words]
    words += [f"-r {shlex.quote(name[:100])}" for name in asked.options.get("--requirement", ())]
    return f"{' '.join(words[:5])} and {len(words) - 5} more" if len(words) > 5 else " ".join(words)


def refusal(asked: Line, why: str) -> str:
    """The sentence where no index can be reached."""
    refused = f"cannot {FETCHING[asked.command]} {named(asked)}: {why}"
    if asked.command != INSTALL:
        return refused
    return (
        f'{refused}; put wheels into the workspace from outside (sandbox.files.upload("wheels", "wheels")), then run '
        f"pip install --no-index --find-links /workspace/wheels {named(asked)}"
    )
