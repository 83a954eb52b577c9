"""Answers reviews in a terminal: what waits is shown page by page, and a key answers it."""

from __future__ import annotations

import os
import re
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
import termios
from pathlib import Path
from typing import TYPE_CHECKING

from sandfleet.cli import FAILED, OK, refuse, table
from sandfleet.cli.fleets.waiting import Place, everything, find, text_of
from sandfleet.cli.terminal import keys
from sandfleet.errors import NotFoundError, PreconditionFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandfleet.values.reviews import Answer, Review

_COLOUR = re.compile(r"\033\[\d*m")
_CLEAR_LINE = "\r\033[K"
_QUIT, _NEXT = "q", "n"
# Between two looks for what waits, in seconds.
_LOOK = 1.0
_ANSWERS = "[a]pprove  [e]dit  [d]eny  [n]ext  [q]uit"
_MORE = "[space] more  [d]eny  [n]ext  [q]uit"


class Desk:
    """One reviewer at a terminal, which is standard input and output. `stays`: waits for what comes."""

    def __init__(self, namespace: str | None = None, *, stays: bool = False) -> None:
        self._namespace = namespace
        self._stays = stays
        self._seen: set[str] = set()

    def run(self, name: str) -> int:
        """Show the review of this id, or the oldest, and then those that the keys ask for."""
        try:
            return self._run(name)
        finally:
            # A key that came too late is not the shell's.
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)

    def _run(self, name: str) -> int:
        found = self._following() if self._stays else find(name, self._namespace)
        if found is None and not self._stays:
            refuse(f"cannot find review {name!r}: none of this id waits" if name else "no request waits", as_json=False)
            return FAILED if name else OK
        while found is not None:
            place, review = found
            self._seen.add(review.review_id)
            key = self._key_after(review)
            if key == _QUIT:
                return OK
            # Shown again where nothing was answered.
            found = (place, review)
            if key == _NEXT or self._answered(place, review, key):
                found = self._following()
            elif (again := find(review.review_id, self._namespace)) is not None:
                found = again
        if not self._stays:
            print("no other request waits")
        return OK

    def _following(self) -> tuple[Place, Review] | None:
        """The next request. A desk that stays waits for one; None: there is none, or the reviewer has pressed q."""
        if (found := self._next()) is not None or not self._stays:
            return found
        print("no request waits; the next one is shown as it comes, q ends")
        with keys.single() as fd:
            while (found := self._next()) is None:
                if select.select([fd], [], [], _LOOK)[0] and os.read(fd, 1) in (b"", b"q", b"Q"):
                    return None
        return found

    def _next(self) -> tuple[Place, Review] | None:
        """The oldest that was not shown."""
        for _, one in everything(self._namespace):
            if one.review_id not in self._seen and (found := find(one.review_id, self._namespace)) is not None:
                return found
        return None

    def _key_after(self, review: Review) -> str:
        """Show it; the key of what is to be done. What was not shown to its end can be denied, and not approved."""
        pages = list(_pages(text_of(review, colours=not table.is_plain(sys.stdout))))
        for number, page in enumerate(pages, start=1):
            print(page)
            is_last = number == len(pages)
            keys = "aednq" if is_last else " \rdnq"
            key = _key(_ANSWERS if is_last else f"({number} of {len(pages)})  {_MORE}", keys)
            if key not in " \r":
                return key
        return _QUIT

    def _answered(self, place: Place, review: Review, key: str) -> bool:
        """Whether it waits no more, or is the next reviewer's."""
        answer = self._answer(review, key)
        if answer is None:
            return False
        try:
            with place.connect() as fleet:
                missing = fleet.reviews.answer(review, answer)
        except PreconditionFailed as error:
            print(f"{error.message}; look again")
            return False
        except NotFoundError as error:
            print(error.message)
            return True
        print(f"noted; it runs when {missing} more have approved it" if missing else f"{answer.verb}: done")
        return True

    def _answer(self, review: Review, key: str) -> Answer | None:
        """None: the reviewer has thought better of it."""
        if key == "a":
            return review.approve()
        if key == "d":
            try:
                return review.deny(input("reason for the agent (Ctrl-D: back): "))
            except EOFError:
                print()
                return None
        if not review.editable:
            print(f"a {review.kind} cannot be edited: approve it or deny it")
            return None
        edited = _edited(review)
        return None if edited is None else review.edit(edited)


def _pages(text: str) -> Iterator[str]:
    """As much as the terminal shows at a time, with a line for the keys."""
    size = shutil.get_terminal_size()
    columns, most = max(size.columns, 1), max(size.lines - 1, 2)
    page: list[str] = []
    used = 0
    for line in text.splitlines():
        rows = max(1, -(-len(_COLOUR.sub("", line).expandtabs()) // columns))
        if page and used + rows > most:
            yield "\n".join(page)
            page, used = [], 0
        page.append(line)
        used += rows
    yield "\n".join(page)


def _key(prompt: str, known: str) -> str:
    """The next key of these. Raises KeyboardInterrupt; the end of the input is q."""
    try:
        with keys.single() as fd:
            print(prompt, end="", flush=True)
            while True:
                key = os.read(fd, 1).decode("ascii", "replace").lower().replace("\n", "\r")
                if key in known:
                    return key or _QUIT
    finally:
        print(_CLEAR_LINE if not table.is_plain(sys.stdout) else "", end="\n" if table.is_plain(sys.stdout) else "")
        sys.stdout.flush()


def _edited(review: Review) -> bytes | None:
    """What the reviewer makes of it in an editor (VISUAL, EDITOR or vi); None: the same, or nothing."""
    editor = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    with tempfile.TemporaryDirectory(prefix="sandfleet-review-") as folder:
        file = Path(folder, "cell.py" if review.kind == "cell" else "command.sh")
        file.write_bytes(review.content if review.edited is None else review.edited)
        try:
            ended = subprocess.run([*editor, str(file)], check=False)
        except OSError as error:
            print(f"cannot edit it with {editor[0]}: {error.strerror}; set EDITOR")
            return None
        content = file.read_bytes()
    if ended.returncode or not content.strip() or content == review.content:
        print("it was not edited")
        return None
    return content
