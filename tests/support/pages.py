"""The blocks of code in README and docs, and what the page says that a test may do with each.

A comment on the line above a block limits it, where every reader of the source sees it:

    <!-- only read: REASON -->    the block is not run, for one of REASONS; it still has to be correct as far as can be
                                  told without running it
    <!-- page only read: REASON -->    the same for all blocks of the page
    <!-- kind: SandboxTemplate -->    a part of a manifest of this kind, or `values`: of the chart's values

A `text` block that follows a program or commands is what they print, unless it is marked `only read` itself.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]
REASONS = (
    "needs a cluster",
    "needs a terminal",
    "needs a network",
    "needs Node.js",
    "needs R",
    "waits for Ctrl-C",
    "takes long",
    "part of a program",
    "starts a fleet",
)
# Outputs and pictures are `text`; `dockerfile` is built by scripts/own-images.sh.
LANGUAGES = ("python", "bash", "console", "yaml", "dockerfile", "text")
PAGE_MARK = re.compile(r"(?m)^<!-- page only read: (.+) -->$")
FENCE = re.compile(r"(\s*)(`{3,})(\w*)$")
MARK = re.compile(r"\s*<!-- (only read|kind): (.+) -->$")


@dataclass(frozen=True)
class Block:
    """A block without its indentation; `line` is that of its first line in the page."""

    page: str
    line: int
    language: str
    text: str
    marks: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def only_read(self) -> str:
        return dict(self.marks).get("only read", "")

    @property
    def kind(self) -> str:
        return dict(self.marks).get("kind", "")

    @property
    def commands(self) -> str:
        """What a reader types, of a console without its output."""
        if self.language != "console":
            return self.text
        typed = [line.removeprefix("$ ") if line.startswith("$ ") else "" for line in self.text.splitlines()]
        return "".join(f"{line}\n" for line in typed)


def pages() -> list[str]:
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "charts").rglob("*.md"))]
    return [str(path.relative_to(ROOT)) for path in found]


@cache
def blocks_of(page: str) -> tuple[Block, ...]:
    return tuple(blocks(page, (ROOT / page).read_text()))


def blocks(page: str, text: str) -> Iterator[Block]:
    lines = text.splitlines()
    number = 0
    of_page = [("only read", reason) for reason in PAGE_MARK.findall(text)]
    marks: list[tuple[str, str]] = []
    while number < len(lines):
        if mark := MARK.fullmatch(lines[number]):
            marks.append((mark[1], mark[2]))
        elif opened := FENCE.fullmatch(lines[number]):
            last = next(later for later in range(number + 1, len(lines)) if lines[later].strip() == opened[2])
            inner = (line.removeprefix(opened[1]) for line in lines[number + 1 : last])
            yield Block(page, number + 2, opened[3], "".join(f"{line}\n" for line in inner), (*of_page, *marks))
            number = last
        if not MARK.fullmatch(lines[number]):
            marks = []
        number += 1


# What is another at each run: times, durations, ids, sizes of processes.
VARYING = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|\b\d+\.\d+ m?s\b|\b(?=[a-f]*\d)[0-9a-f]{12}\b|\b\d+ MiB\b| +$", re.MULTILINE
)


def outputs(page: str) -> Iterator[tuple[Block, Block]]:
    """Blocks that are run, each with the block behind it that shows what it prints."""
    for block, shown in pairwise(blocks_of(page)):
        is_run = block.language in ("python", "bash") and not block.only_read
        if is_run and shown.language == "text" and not shown.only_read:
            yield block, shown


def prints(said: str, shown: str) -> bool:
    """Whether this was printed in one piece: `…` stands for any text, and what varies for itself."""
    said, shown = (VARYING.sub("~", text).strip() for text in (said, shown))
    return re.search(".*".join(re.escape(part) for part in shown.split("…")), said, re.DOTALL) is not None


def broken_promises(program: str, said: str) -> list[str]:
    """The comments behind a `print` that were not printed; `…` in them stands for any text."""
    promised = re.findall(r"(?m)^.*\bprint\(.*\)[ \t]+#[ \t](.*)$", program)
    patterns = {one: ".*".join(re.escape(part) for part in one.split("…")) for one in promised}
    return [one for one, pattern in patterns.items() if not re.search(pattern, said, re.DOTALL)]
