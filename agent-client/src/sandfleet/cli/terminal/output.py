"""What a sandbox says, on the streams of this process.

A file or a pipe gets its bytes as they are. A terminal gets text and colours: any other escape sequence could write
over what stands there, change its title or its clipboard, or have it type. `raw` passes everything.
"""

from __future__ import annotations

import argparse
import codecs
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from sandfleet.cli import table
from sandfleet.cli.terminal.escapes import Coloured
from sandfleet.values.execution import Stream


class Output:
    """One stream. Texts and bytes of it come in order."""

    def __init__(self, stream: TextIO, *, raw: bool) -> None:
        self._stream = stream
        self._coloured = None if raw or not stream.isatty() else Coloured(colours=not table.is_plain(stream))
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def text(self, text: str) -> None:
        """Write a text."""
        print(text if self._coloured is None else self._coloured.feed(text), end="", file=self._stream, flush=True)

    def data(self, data: bytes) -> None:
        """Write bytes, which may be no text, and may end in the middle of a character."""
        if self._coloured is not None:
            self.text(self._decoder.decode(data))
            return
        self._stream.buffer.write(data)
        self._stream.buffer.flush()

    def close(self) -> None:
        """Set colours back."""
        if self._coloured is not None and (end := self._coloured.end()):
            print(end, end="", file=self._stream, flush=True)


class Outputs:
    """Standard output and standard error."""

    def __init__(self, *, raw: bool) -> None:
        self.stdout = Output(sys.stdout, raw=raw)
        self.stderr = Output(sys.stderr, raw=raw)

    def of(self, stream: Stream) -> Output:
        """Return where this stream of a command goes."""
        return self.stderr if stream is Stream.STDERR else self.stdout


@contextmanager
def opened(options: argparse.Namespace) -> Iterator[Outputs]:
    """Open both streams, as `--raw` says; set colours back at the end."""
    made = Outputs(raw=options.raw)
    try:
        yield made
    finally:
        made.stdout.close()
        made.stderr.close()


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Declare `--raw`."""
    parser.add_argument(
        "--raw", action="store_true", help="pass all escape sequences to the terminal, not only text and colours"
    )
