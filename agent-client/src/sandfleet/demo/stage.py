"""What shows write with: colours where they are wanted, and nothing for `--json`."""

import json
import sys
from dataclasses import dataclass
from typing import TextIO

from sandfleet.cli import table

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


@dataclass(frozen=True, slots=True)
class Stage:
    """`live`: a terminal, on which lines can be drawn over."""

    out: TextIO
    live: bool
    silent: bool = False

    @classmethod
    def on(cls, out: TextIO, *, as_json: bool) -> "Stage":
        """As the stream and the environment want it."""
        return cls(out, live=not (as_json or table.is_plain(out)), silent=as_json)

    def say(self, text: str = "") -> None:
        if not self.silent:
            print(text, file=self.out, flush=True)

    def write(self, text: str) -> None:
        """A piece of a line."""
        if not self.silent:
            self.out.write(text)
            self.out.flush()

    def paint(self, text: str, *styles: str) -> str:
        """The text in colours, on a terminal."""
        return f"\x1b[{';'.join(_CODES[style] for style in styles)}m{text}\x1b[0m" if self.live else text

    def redraw(self, lines: list[str], drawn: int) -> int:
        """Draws lines over the last `drawn` ones; how many there are now. Does nothing where that cannot be."""
        if self.live:
            back = f"\x1b[{drawn}F" if drawn else ""
            self.out.write(back + "".join(f"\x1b[2K{line}\n" for line in lines))
            self.out.flush()
        return len(lines)


def print_json(value: object) -> None:
    """The one thing that `--json` prints."""
    print(json.dumps(value, indent=2), file=sys.stdout)
