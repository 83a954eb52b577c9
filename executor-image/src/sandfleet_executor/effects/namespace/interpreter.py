"""The interpreter of user code as it lies on this machine: the symbolic links on the way to it.

An environment's `bin/python` may lead to the interpreter over links in folders that a session does not have, such as
`~/.local/bin`. The session gets these links, and nothing else of their folders.
"""

from collections.abc import Sequence
from pathlib import Path

# As the kernel, which gives a path up after so many links.
MOST_LINKS = 40


def links_to(program: str, mounted: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Each link on the way of a path, with its target; without those that the `mounted` folders bring or are below."""
    found = {path: target for path, target in _links(program) if not _is_there(path, mounted)}
    return tuple(found.items())


def _is_there(path: str, mounted: Sequence[str]) -> bool:
    """Whether the path lies in a mounted folder, or is a folder above one."""
    return any(path == one or path.startswith(f"{one}/") or one.startswith(f"{path}/") for one in mounted)


def _links(path: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    here, names = Path("/"), path.split("/")[::-1]
    while names and len(found) < MOST_LINKS:
        name = names.pop()
        # Never a link: a link is followed at once.
        here = here.parent if name == ".." else here / name
        if here.is_symlink():
            target = str(here.readlink())
            found.append((str(here), target))
            here = Path("/") if target.startswith("/") else here.parent
            names += target.split("/")[::-1]
    return found
