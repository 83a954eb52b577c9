"""Folders of the workspace, and of the machine, that user code also finds at other paths, such as /app."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from sandfleet_rules import mounts as rules
from sandfleet_rules.mounts import WHOLE

from sandfleet_executor.core.errors import BadRequest

# No folder of the machine may be, hold or lie in one of these: what is there is no data.
CLOSED = ("/boot", "/dev", "/etc", "/proc", "/run", "/sys", "/var/run")


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
        """An empty `folder` is the path below the workspace, an absolute one is of the machine. Raises Refused.

        The rest of the mount is well-formed.
        """
        names = _bytes(path)
        if folder in {"", WHOLE}:
            return cls(names, () if folder else names)
        if not folder.startswith("/"):
            return cls(names, _bytes(folder))
        rules.check_names(path, folder[1:], f"folder {folder[:80]!a}: ")
        for closed in CLOSED:
            if rules.overlap(rules.names(folder), rules.names(closed)):
                why = f"folder {folder[:80]!a} has what programs of the machine hold open, as {closed}"
                raise rules.refusal(path, why)
        return cls(names, (), folder)

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
    try:
        rules.check(mounts, taken)
        return tuple(sorted((Mount.of(*one) for one in mounts.items()), key=lambda one: one.path))
    except rules.Refused as error:
        raise BadRequest(str(error)) from None


def _bytes(path: str) -> tuple[bytes, ...]:
    return tuple(name.encode() for name in rules.names(path))
