"""Which folders user code may also find at other paths, such as /app.

The fleet refuses the mounts that an executor would refuse, so that no sandbox is spent on them.
"""

import itertools
from collections.abc import Mapping, Sequence

MAX_MOUNTS = 16
# Bytes of all paths and folders together.
MAX_BYTES = 4096
MAX_NAME_BYTES = 255
# Characters of a path, or of a folder.
MAX_LENGTH = 512
# What each session has at these paths is no mount's.
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
    "/tmp",  # noqa: S108 - the session's
    "/usr",
    "/workspace",
)
OWN = ("/opt/sandfleet",)
# The folder that is the whole workspace.
WHOLE = "."


class Refused(ValueError):
    """No session may have this mount. `subject`: its path, in ASCII; empty where all mounts together are too much."""

    def __init__(self, message: str, subject: str = "") -> None:
        super().__init__(message)
        self.subject = subject


def check(mounts: Mapping[str, str], taken: Sequence[str] = ()) -> None:
    """Raises Refused for what is malformed, overlaps, or covers a path in use.

    `taken` are paths of the machine that the session needs, beside those that each session needs. An absolute folder is
    of the machine, and is not looked at.
    """
    if len(mounts) > MAX_MOUNTS:
        raise Refused(f"cannot mount {len(mounts)} folders: the most are {MAX_MOUNTS}")
    if sum(len(f"{path}{folder}".encode("utf-8", "surrogatepass")) for path, folder in mounts.items()) > MAX_BYTES:
        raise Refused(f"cannot mount {len(mounts)} folders: their paths are longer than {MAX_BYTES} bytes together")
    for path, folder in mounts.items():
        if not path.startswith("/"):
            raise refusal(path, "it has to be an absolute path")
        check_names(path, path[1:])
        if folder not in {"", WHOLE} and not folder.startswith("/"):
            check_names(path, folder, f"folder {folder[:80]!a}: ")
    _check_overlaps(sorted(map(names, mounts)), taken)


def _check_overlaps(found: Sequence[tuple[str, ...]], taken: Sequence[str]) -> None:
    for one in found:
        for whose, paths in (("the system", SYSTEM), ("the executor", OWN), ("Python", taken)):
            if other := next((path for path in paths if overlap(one, names(path))), ""):
                raise refusal(f"/{'/'.join(one)}", f"{other} belongs to {whose}")
    for first, second in itertools.pairwise(found):
        if overlap(first, second):
            raise refusal(f"/{'/'.join(second)}", f"it lies in /{'/'.join(first)}, which is mounted as well")


def check_names(path: str, text: str, what: str = "") -> None:
    """Raises Refused where the text, which is that of `what` of the mount, has names that no path here may have."""
    if len(text) >= MAX_LENGTH:
        raise refusal(path, f"{what}it has to be shorter than {MAX_LENGTH} characters")
    for name in text.split("/"):
        if name in {"", ".", ".."}:
            raise refusal(path, f"{what}write it without empty names, '.' and '..'")
        if not name.isprintable() or len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
            raise refusal(path, f"{what}a name has over {MAX_NAME_BYTES} bytes, or a character that cannot be printed")


def names(path: str) -> tuple[str, ...]:
    """The names on the way to a path."""
    return tuple(path.strip("/").split("/"))


def overlap(first: Sequence[str], second: Sequence[str]) -> bool:
    """Whether one path is the other one, or lies in it."""
    shorter = min(len(first), len(second))
    return tuple(first[:shorter]) == tuple(second[:shorter])


def refusal(path: str, why: str) -> Refused:
    shown = ascii(path[:80])[1:-1]
    return Refused(f"cannot mount {shown}: {why}", shown)
