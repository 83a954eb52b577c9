"""Folders of the workspace, and of the machine, that user code also finds at other paths, such as /app.

The fleet refuses the same mounts before it gives a sandbox to a claim: operator, api/kinds/mounts.py.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from sandfleet_executor.core.errors import BadRequest

MAX_MOUNTS = 16
# Of all paths and folders together.
MAX_BYTES = 4096
MAX_NAME_BYTES = 255
# Characters of a path, or of a folder.
MAX_LENGTH = 512
# What every session has at these paths, and what it must not have.
SYSTEM = (
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/proc",
    "/run",
    "/sbin",
    "/sys",
    "/tmp",  # noqa: S108 - the namespace's own
    "/usr",
    "/workspace",
)
OWN = ("/opt/sandfleet",)
# No folder of the machine may be, hold or lie in one of these: what is there is no data.
CLOSED = ("/boot", "/dev", "/etc", "/proc", "/run", "/sys", "/var/run")
# The folder that is the whole workspace.
WHOLE = "."


@dataclass(frozen=True, slots=True)
class Mount:
    """The names of the path in the session from / on, and those of the folder from the workspace on."""

    path: tuple[bytes, ...]
    # Empty: the workspace itself.
    folder: tuple[bytes, ...]
    # A folder of the machine in its place, which can only be read: its absolute path.
    host: str = ""

    @classmethod
    def of(cls, path: str, folder: str) -> Self:
        """An empty `folder` is the path below the workspace, an absolute one is of the machine. Raises BadRequest."""
        if not path.startswith("/"):
            raise _refusal(path, "it has to be an absolute path")
        names = _names(path, path[1:])
        if folder in {"", WHOLE}:
            return cls(names, () if folder else names)
        if folder.startswith("/"):
            own = _names(path, folder[1:], f"folder {folder[:80]!a}: ")
            for closed in CLOSED:
                if overlap(own, _parts(closed)):
                    raise _refusal(
                        path, f"folder {folder[:80]!a} has what programs of the machine hold open, as {closed}"
                    )
            return cls(names, (), folder)
        return cls(names, _names(path, folder, f"folder {folder[:80]!a}: "))

    @property
    def below(self) -> str:
        """The folder as a wish has it: from the workspace on, or of the machine."""
        return self.host or self._text(self.folder) or WHOLE

    @property
    def target(self) -> str:
        """The absolute path in the session."""
        return "/" + self._text(self.path)

    def source(self, workspace: str) -> str:
        """The folder, on the machine."""
        return self.host or f"{workspace.rstrip('/')}/{self._text(self.folder)}".rstrip("/")

    @staticmethod
    def _text(names: tuple[bytes, ...]) -> str:
        return b"/".join(names).decode()


def check(mounts: Mapping[str, str], taken: Sequence[str] = ()) -> tuple[Mount, ...]:
    """The mounts by their paths. Raises BadRequest for what is malformed, overlaps, or covers a path in use.

    `taken` are paths of the machine that the session needs, beside those that each session needs.
    """
    if len(mounts) > MAX_MOUNTS:
        raise BadRequest(f"cannot mount {len(mounts)} folders: the most are {MAX_MOUNTS}")
    if sum(len(f"{path}{folder}".encode("utf-8", "surrogatepass")) for path, folder in mounts.items()) > MAX_BYTES:
        raise BadRequest(f"cannot mount {len(mounts)} folders: their paths are longer than {MAX_BYTES} bytes together")
    found = sorted((Mount.of(*one) for one in mounts.items()), key=lambda one: one.path)
    for mount in found:
        for whose, paths in (("the system", SYSTEM), ("the executor", OWN), ("Python", taken)):
            if other := next((path for path in paths if overlap(mount.path, _parts(path))), ""):
                raise _refusal(mount.target, f"{other} belongs to {whose}")
    # In this order a path stands directly before those in it.
    for first, second in itertools.pairwise(found):
        if overlap(first.path, second.path):
            raise _refusal(second.target, f"it lies in {first.target}, which is mounted as well")
    return tuple(found)


def overlap(first: Sequence[bytes], second: Sequence[bytes]) -> bool:
    """Whether one path is the other one, or lies in it."""
    shorter = min(len(first), len(second))
    return tuple(first[:shorter]) == tuple(second[:shorter])


def _parts(path: str) -> tuple[bytes, ...]:
    return tuple(path.strip("/").encode().split(b"/"))


def _names(path: str, text: str, what: str = "") -> tuple[bytes, ...]:
    names = tuple(text.split("/"))
    if len(text) >= MAX_LENGTH:
        raise _refusal(path, f"{what}it has to be shorter than {MAX_LENGTH} characters")
    for name in names:
        if name in {"", ".", ".."}:
            raise _refusal(path, f"{what}write it without empty names, '.' and '..'")
        if not name.isprintable() or len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
            raise _refusal(path, f"{what}a name has over {MAX_NAME_BYTES} bytes, or a character that cannot be printed")
    return tuple(name.encode() for name in names)


def _refusal(path: str, why: str) -> BadRequest:
    return BadRequest(f"cannot mount {ascii(path[:80])[1:-1]}: {why}")
