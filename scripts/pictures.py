"""Draw the pictures of README and docs: terminals as SVG, and reports as PNG.

Run it in `.venv`, with chromium in the PATH; words choose among demo, screens, report and runs. All are of real runs:
look at them before you commit them.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pexpect
from rich.console import Console
from rich.text import Text

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
COLUMNS = 92
# The lines of the demo that the picture has: of the first agent, and of the end.
FIRST, LAST = 19, 16
COMMAND = 'make demo ARGS="--sessions 10"'


def screen(written: str) -> list[str]:
    """The lines of a terminal after what was written to it: the demo goes back only to the start of lines."""
    lines: list[str] = []
    for line in written.replace("\r", "").split("\n"):
        back = re.match(r"\x1b\[(\d+)F", line)
        if back:
            del lines[len(lines) - int(back[1]) :]
        lines.append(line[back.end() if back else 0 :].replace("\x1b[2K", ""))
    return lines


def draw_demo() -> None:
    """Run the demo in a terminal and draw what stands there at the end."""
    program = str(Path(sys.executable).with_name("sandfleet"))
    child = pexpect.spawn(program, ["demo", "--sessions", "10"], dimensions=(60, COLUMNS), encoding="utf8", timeout=300)
    child.expect(pexpect.EOF)
    lines = [line for line in screen(child.before) if "policy  " not in line]
    while not lines[-1]:
        lines.pop()
    shown = [f"$ \x1b[1m{COMMAND}\x1b[0m", *lines[:FIRST], "\x1b[2m⋮\x1b[0m", *lines[-LAST:]]
    draw("demo", "sandfleet demo", COLUMNS, shown)


def draw_screens() -> None:
    """Give a fleet something to do, and draw what its commands show in a narrow and in a wide terminal."""
    from screens import screens

    for columns, shown in screens((80, 160)).items():
        draw(f"screens-{columns}", f"{columns} columns", columns, shown)


def draw(name: str, title: str, columns: int, lines: list[str]) -> None:
    """Draw lines with colours as a terminal shows them."""
    with Path(os.devnull).open("w", encoding="utf8") as nowhere:
        console = Console(record=True, width=columns, file=nowhere, force_terminal=True)
        console.print(Text("\n").join(map(Text.from_ansi, lines)), soft_wrap=True)
        drawn = console.export_svg(title=title)
    # Fonts are those of the reader's machine: a picture loads nothing.
    drawn = re.sub(r"@font-face \{.*?\}\n", "", drawn, flags=re.DOTALL).replace("Fira Code", "ui-monospace")
    # In a table of pictures each is as wide as it says.
    drawn = re.sub(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', r'width="\1" height="\2" \g<0>', drawn, count=1)
    (FOLDER / f"{name}.svg").write_text("\n".join(line.rstrip() for line in drawn.splitlines()) + "\n", encoding="utf8")


def draw_report() -> None:
    """Run the data agent, and photograph the page that its driver writes."""
    example = FOLDER.parents[1] / "examples" / "data_agent.py"
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, str(example)], cwd=folder, check=True)
        photograph(Path(folder, "report.html"), 1230)


def draw_runs() -> None:
    """Evaluate two policies that need no model, and photograph the run of the first and the comparison of both."""
    program = str(Path(sys.executable).with_name("sandfleet"))
    with tempfile.TemporaryDirectory() as folder:
        for policy in ("hasty", "careful"):
            words = ["eval", "data", "--policy", f"scripted:{policy}", "--checkpoint", f"{policy}.sqlite"]
            subprocess.run([program, *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        for words in (["hasty.sqlite", "-o", "run.html"], ["careful.sqlite", "--compare", "hasty.sqlite"]):
            output = [] if "-o" in words else ["-o", "compare.html"]
            subprocess.run([program, "report", *words, *output], cwd=folder, check=True)
        photograph(Path(folder, "run.html"), 900)
        photograph(Path(folder, "compare.html"), 1060)


def photograph(page: Path, height: int) -> None:
    """Draw a page of HTML as a browser does."""
    browser = [shutil.which("chromium") or "chromium", "--headless", "--no-sandbox", "--hide-scrollbars"]
    browser += [f"--user-data-dir={page.parent}/profile", f"--window-size=980,{height}"]
    browser += [f"--screenshot={FOLDER / page.with_suffix('.png').name}", page.as_uri()]
    subprocess.run(browser, check=True, capture_output=True)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    every = {"demo": draw_demo, "screens": draw_screens, "report": draw_report, "runs": draw_runs}
    for word in sys.argv[1:] or every:
        every[word]()
