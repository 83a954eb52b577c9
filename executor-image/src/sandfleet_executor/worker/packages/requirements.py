"""Whether a requirement is met by installed packages, together with all that these require."""

import re
import sys
from importlib.metadata import Distribution
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import VERSION_PATTERN

from .distributions import installed

MAX_TEXT = 200
FLAGS = re.VERBOSE | re.IGNORECASE


class Found(NamedTuple):
    version: str
    origin: str
    distribution: Distribution


class Installed:
    """The packages that `import` finds: the image's before the workspace's."""

    def __init__(self, folder: str) -> None:
        self._found: dict[str, Found] = {}
        for origin, path in (("image", sys.path), ("workspace", [folder])):
            for name, version, each in installed(path):
                self._found.setdefault(canonicalize_name(name), Found(version, origin, each))

    def of_image(self) -> list[str]:
        """The image's packages as constraints for pip, without versions that pip cannot read."""
        own = {name: each.version for name, each in sorted(self._found.items()) if each.origin == "image"}
        return [f"{name}=={version}" for name, version in own.items() if re.fullmatch(VERSION_PATTERN, version, FLAGS)]

    def has(self, name: str) -> bool:
        return canonicalize_name(name) in self._found

    def find(self, text: str) -> dict[str, str]:
        """{"name", "version", "origin", "state"}; state: "installed", "missing", or by the marker "not-needed"."""
        wanted = Requirement(text)
        answer = {"name": wanted.name, "version": "", "origin": "", "state": "not-needed"}
        if wanted.marker is not None and not wanted.marker.evaluate():
            return answer
        if not self._meets(wanted, set()):
            return {**answer, "state": "missing"}
        found = self._found[canonicalize_name(wanted.name)]
        return {**answer, "version": found.version[:MAX_TEXT], "origin": found.origin, "state": "installed"}

    def _meets(self, wanted: Requirement, seen: set[tuple[str, str]]) -> bool:
        name = canonicalize_name(wanted.name)
        found = self._found.get(name)
        if found is None or not _fits(wanted, found.version):
            return False
        # Packages of the image are complete; only extras are checked.
        extras = wanted.extras if found.origin == "image" else {"", *wanted.extras}
        for extra in sorted(extras):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            if not all(self._meets(each, seen) for each in _needs(found.distribution, extra)):
                return False
        return True


def met(wanted: list[str], folder: str) -> list[tuple[str, str]] | None:
    """(name, version) of the packages that meet all of them; None where some are missing."""
    try:
        if any(Requirement(each).url for each in wanted):
            return None
    except InvalidRequirement:
        return None
    installed = Installed(folder)
    found = [installed.find(each) for each in wanted]
    if any(each["state"] == "missing" for each in found):
        return None
    return [(each["name"], each["version"] or each["state"]) for each in found]


def _fits(wanted: Requirement, version: str) -> bool:
    try:
        return wanted.specifier.contains(version, prereleases=True)
    except ValueError:
        return False


def _needs(distribution: Distribution, extra: str) -> list[Requirement]:
    """What the package requires on this system. Unreadable requirements are ignored, as pip does."""
    found = []
    for text in distribution.requires or ():
        try:
            each = Requirement(text)
            wanted = each.marker is None or each.marker.evaluate({"extra": extra})
        except ValueError:
            continue
        if wanted and (not extra or each.marker is not None):
            found.append(each)
    return found
