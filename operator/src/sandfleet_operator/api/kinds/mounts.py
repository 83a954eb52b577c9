"""Mounts: folders of the workspace that user code also finds at other paths, checked as the executor will."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from sandfleet_operator.api.errors import FleetError
from sandfleet_operator.api.reasons import ClaimReason
from sandfleet_operator.api.table import at, decode, listed

MAX_MOUNTS = 16
# Of all paths and folders together.
MAX_BYTES = 4096
MAX_NAME_BYTES = 255
# Characters of a path, or of a folder.
MAX_LENGTH = 512
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
    "/tmp",  # noqa: S108 - the sandbox's
    "/usr",
    "/workspace",
)
OWN = ("/opt/sandfleet",)
# The folder that is the whole workspace.
WHOLE = "."


@dataclass(frozen=True, slots=True)
class _Mount:
    path: Annotated[str, at("path", required=True)]
    folder: Annotated[str, at("folder")] = ""


def read(value: object, path: str) -> dict[str, str]:
    """Path → folder, of a list of mounts."""
    return {one.path: one.folder for one in listed(partial(decode, _Mount))(value, path)}


def listing(mounts: Mapping[str, str]) -> list[dict[str, str]]:
    """As a custom resource has them."""
    return [{"path": path} | ({"folder": mounts[path]} if mounts[path] else {}) for path in sorted(mounts)]


def check(mounts: Mapping[str, str], *, of_machine: bool = False) -> None:
    """Raises FleetError for what an executor would not take. Only it knows where its interpreter is.

    `of_machine`: an absolute folder is of the machine, which only executors on one machine take.
    """
    if len(mounts) > MAX_MOUNTS:
        raise ClaimReason.INVALID_MOUNT.error(f"cannot mount {len(mounts)} folders: the most are {MAX_MOUNTS}")
    size = sum(len(f"{path}{folder}".encode("utf-8", "surrogatepass")) for path, folder in mounts.items())
    if size > MAX_BYTES:
        why = f"their paths are longer than {MAX_BYTES} bytes together"
        raise ClaimReason.INVALID_MOUNT.error(f"cannot mount {len(mounts)} folders: {why}")
    found = sorted(_names(path, folder, of_machine=of_machine) for path, folder in mounts.items())
    for names in found:
        for whose, paths in (("the system", SYSTEM), ("the executor", OWN)):
            if other := next((path for path in paths if _overlap(names, path[1:].split("/"))), ""):
                raise _refusal(f"/{'/'.join(names)}", f"{other} belongs to {whose}")
    # In this order a path stands directly before those in it.
    for first, second in itertools.pairwise(found):
        if _overlap(first, second):
            raise _refusal(f"/{'/'.join(second)}", f"it lies in /{'/'.join(first)}, which is mounted as well")


def _names(path: str, folder: str, *, of_machine: bool) -> list[str]:
    """Of the path, if it and the folder are well-formed."""
    if not path.startswith("/"):
        raise _refusal(path, "it has to be an absolute path")
    _check_names(path, path[1:], "")
    if folder.startswith("/") and not of_machine:
        why = "a folder of the caller's machine can be mounted on one machine alone"
        raise _refusal(path, f"{why}: on a cluster, copy {folder[:80]!a} with files.upload, or keep a workspace")
    if folder not in {"", WHOLE} and not folder.startswith("/"):
        _check_names(path, folder, f"folder {folder[:80]!a}: ")
    return path[1:].split("/")


def _check_names(path: str, text: str, what: str) -> None:
    if len(text) >= MAX_LENGTH:
        raise _refusal(path, f"{what}it has to be shorter than {MAX_LENGTH} characters")
    for name in text.split("/"):
        if name in {"", ".", ".."}:
            raise _refusal(path, f"{what}write it without empty names, '.' and '..'")
        if not name.isprintable() or len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
            raise _refusal(path, f"{what}a name has over {MAX_NAME_BYTES} bytes, or a character that cannot be printed")


def _overlap(first: list[str], second: list[str]) -> bool:
    """Whether one path is the other one, or lies in it."""
    shorter = min(len(first), len(second))
    return first[:shorter] == second[:shorter]


def _refusal(path: str, why: str) -> FleetError:
    shown = ascii(path[:80])[1:-1]
    return ClaimReason.INVALID_MOUNT.error(f"cannot mount {shown}: {why}", shown)
