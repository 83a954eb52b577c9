"""Where the paths of a request lead: a symlink must not hide from a reviewer what is written."""

import functools
from collections.abc import Mapping

from sandfleet_executor.core.errors import BadRequest
from sandfleet_executor.core.files.paths import UP, InvalidPath, parse
from sandfleet_executor.effects.files.threads import FileThreads
from sandfleet_executor.effects.files.walk import Pins, Roots, RootUnavailable, find


class Places:
    """`roots` are asked on the event loop's thread, as a FilesystemServicer does."""

    def __init__(self, roots: Roots, threads: FileThreads) -> None:
        self._roots = roots
        self._threads = threads

    async def of(self, paths: Mapping[str, tuple[bytes, bool]]) -> dict[str, bytes]:
        """Of those that lead elsewhere than they say, the places, by the fields' names.

        `paths`: field → (path, whether its last name is followed if it is a symlink). Raises BadRequest.
        """
        if not paths:
            return {}
        pins = self._roots.pin()
        return await self._threads.run_then(pins.close, functools.partial(_elsewhere, pins, paths))


def _elsewhere(pins: Pins, paths: Mapping[str, tuple[bytes, bool]]) -> dict[str, bytes]:
    found = {}
    for field, (path, follows) in paths.items():
        try:
            place, said = _place(pins, path, follows=follows), b"/" + b"/".join(parse(path).names)
        except (InvalidPath, RootUnavailable, OSError):
            # The call itself will say what is wrong with it.
            continue
        if place != said:
            found[field] = place
    return found


def _place(pins: Pins, path: bytes, *, follows: bool) -> bytes:
    """Where it leads now. What is not there yet is made by the call: there are no symlinks in it."""
    names, missing = list(parse(path).names), list[bytes]()
    while True:
        try:
            with find(pins, b"/" + b"/".join(names), follow_last=follows or bool(missing)) as spot:
                return b"/".join((spot.path, *reversed(missing)))
        except FileNotFoundError:
            if UP in names[-1:] or len(names) == 1:
                raise BadRequest("cannot show a reviewer where the path leads: write it without ..") from None
            missing.append(names.pop())
